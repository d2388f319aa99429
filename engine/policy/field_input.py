"""Values of the fields that an expression reads, so that people can follow its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from engine.cel import Timestamp, plain_value
from engine.model.count_text import counted
from engine.model.resource_names import CPU
from engine.model.rule_input import RuleInput, unit_of

_LONGEST: Final = 60
_MILLI: Final = 1000
_AMOUNTS: Final = frozenset({"allocatable", "limits", "requested", "usage"})
_DEPTH_OF_AMOUNT: Final = 3  # `node.usage.cpu`


def field_input(path: tuple[str, ...], values: Mapping[str, object], source: str) -> RuleInput:
    """Return the value at a path, such as an amount of cpu; `absent` without one.

    Maps, such as the labels of a node, are cut to the keys that the expression names.

    Args:
        path: names from the outermost to the innermost.
        values: nested maps, as expressions see them: cpu in cores.
        source: the expression.
    """
    name = ".".join(path)
    value: object = values
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return RuleInput(name, text="absent")
        value = value[key]
    if len(path) == _DEPTH_OF_AMOUNT and path[1] in _AMOUNTS and isinstance(value, float):
        resource = path[-1]
        amount = round(value * _MILLI if resource == CPU else value)
        return RuleInput(name, amount, unit_of(resource))
    if isinstance(value, Mapping):
        named = {key: item for key, item in value.items() if key in source}
        if value and not named:
            return RuleInput(name, text=f"none of its {counted(len(value), 'key')} is named")
        value = named
    if isinstance(value, int) and not isinstance(value, bool):
        return RuleInput(name, value)
    if isinstance(value, Timestamp):
        return RuleInput(name, text=str(plain_value(value)))
    text = json.dumps(plain_value(value), ensure_ascii=False)
    return RuleInput(name, text=text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
