"""Label selectors as `kubectl --selector` takes them: `pool=batch,!spot,zone in (a,b)`.

Source of the grammar: apimachinery, pkg/labels/selector.go. The operators of numbers are left out.
"""

from __future__ import annotations

import re
from typing import Final

from engine.model import api
from engine.model.selectors import LabelSelector, Operator, parse_label_selector

_REQUIREMENT: Final = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s!=(),]+)
        | (?P<key>[^\s!=(),]+)
          (?:
            \s*(?P<sign>==|=|!=)\s*(?P<value>[^\s!=(),]*)
            | \s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)
          )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_OPERATORS: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
}


def parse_selector_text(text: str) -> LabelSelector:
    """Return the selector that a text spells; an empty text selects everything.

    Raises:
        ValueError: it spells none; says where.
    """
    requirements: list[api.SelectorRequirement] = []
    at = 0
    while at < len(text):
        found = _REQUIREMENT.match(text, at)
        if found is None or (found.end() == len(text) and text.rstrip().endswith(",")):
            raise ValueError(f"`{text[at:]}` is not a label selector, such as `pool=batch,!spot`")
        requirements.append(_requirement(found))
        at = found.end()
    selector, mistakes = parse_label_selector(api.LabelSelector(match_expressions=requirements))
    if mistakes:
        raise ValueError("; ".join(mistake.message for mistake in mistakes))
    return selector


def _requirement(found: re.Match[str]) -> api.SelectorRequirement:
    if absent := found["absent"]:
        return api.SelectorRequirement(key=absent, operator=Operator.DOES_NOT_EXIST)
    sign = found["sign"] or found["word"]
    if not sign:
        return api.SelectorRequirement(key=found["key"], operator=Operator.EXISTS)
    listed = found["values"]
    values = [found["value"]] if listed is None else [each.strip() for each in listed.split(",")]
    return api.SelectorRequirement(key=found["key"], operator=_OPERATORS[sign], values=values)
