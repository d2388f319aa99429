"""Selectors of labels and of nodes by lists of requirements.

Parsing follows the scheduler (component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go,
apimachinery/pkg/labels/selector.go): it never raises, but returns what can be used together with
every `Mistake`, each with the kind and the field that the scheduler would report. The caller
decides if a mistake is fatal.

INVARIANT: the result of a label requirement depends on the value of one label alone, so it can be
computed once per distinct value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from engine.model import api

NAME_FIELD: Final = "metadata.name"
"""The one field of a node that `matchFields` can name."""

GREATEST_WEIGHT: Final = 100
"""Weights of preferred terms are 1..100."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the object a person wrote down to one value in it."""

_MOST_NAME: Final = 63
_MOST_PREFIX: Final = 253
_DNS_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PREFIX: Final = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,19})")
_MOST_INTEGER: Final = 2**63 - 1


class Operator(StrEnum):
    """Operator of a requirement; label selectors have no Gt and Lt, fields only In and NotIn."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_SETS: Final = (Operator.IN, Operator.NOT_IN)
_PRESENCE: Final = (Operator.EXISTS, Operator.DOES_NOT_EXIST)
_ORDER: Final = (Operator.GT, Operator.LT)
_LABEL_OPERATORS: Final = (*_SETS, *_PRESENCE)
_NODE_OPERATORS: Final = tuple(Operator)


@dataclass(frozen=True, slots=True)
class Mistake:
    kind: Literal["Invalid", "NotSupported"]  # the API machinery's name for this kind of error
    path: Path  # its place
    message: str  # the mistake, without the place

    @property
    def field(self) -> str:
        """The place in the API's notation, such as `nodeSelectorTerms[0].matchFields[0].values`."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return "".join(steps).removeprefix(".")

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


Mistakes: TypeAlias = tuple[Mistake, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on the value of one label, or of one field."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    bound: int = 0  # compared with by Gt and Lt; unused otherwise

    def matches(self, value: str | None) -> bool:
        """Return whether a value satisfies this; None stands for a missing label.

        NotIn holds for a missing label, Gt and Lt only for one that is a 64-bit integer.
        """
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case _:
                number = None if value is None else integer(value)
                if number is None:
                    return False
                return number > self.bound if self.operator is Operator.GT else number < self.bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """metav1.LabelSelector: requirements that must all hold; an empty one selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it selects an object with these labels."""
        for requirement in self.requirements:
            if not requirement.matches(labels.get(requirement.key)):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Term:
    """One alternative of a node selector: all its requirements must hold; never empty."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    @property
    def only_name(self) -> str | None:
        """The name of the only node it can match, None if it names none."""
        for requirement in self.fields:
            if requirement.key == NAME_FIELD and requirement.operator is Operator.IN:
                (name,) = requirement.values
                return name
        return None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether it matches a node; a field other than its name reads as empty."""
        return all(
            requirement.matches(labels.get(requirement.key)) for requirement in self.labels
        ) and all(
            requirement.matches(name if requirement.key == NAME_FIELD else "")
            for requirement in self.fields
        )


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A term, and the weight that a matching node gains: 1..GREATEST_WEIGHT."""

    weight: int
    term: Term


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """Terms of which one must match; without any it selects nothing."""

    terms: tuple[Term, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether it selects a node."""
        return any(term.matches(labels, name) for term in self.terms)


def parse_label_selector(wire: api.LabelSelector, at: Path = ()) -> tuple[LabelSelector, Mistakes]:
    """Return the selector of all correct requirements, and the mistakes."""
    pairs: list[Requirement] = []
    wrong: list[Mistake] = []
    for key, value in (wire.match_labels or {}).items():
        written = api.SelectorRequirement(key=key, operator=Operator.IN, values=[value])
        mistakes = _mistakes_in(written, (), _LABEL_OPERATORS)
        wrong += (replace(bad, path=(*at, "matchLabels", key)) for bad in mistakes)
        if not mistakes:
            pairs.append(Requirement(key, Operator.IN, frozenset((value,))))
    expressions, more = _parse_all(
        wire.match_expressions, (*at, "matchExpressions"), _LABEL_OPERATORS
    )
    return LabelSelector((*pairs, *expressions)), (*wrong, *more)


def parse_node_selector(wire: api.NodeSelector, at: Path = ()) -> tuple[NodeSelector, Mistakes]:
    """Return the selector of all correct terms, and the mistakes in the others.

    Empty terms select nothing and are ignored, as upstream does.
    """
    terms: list[Term] = []
    wrong: list[Mistake] = []
    for i, written in enumerate(wire.node_selector_terms or ()):
        if _is_empty(written):
            continue
        term, mistakes = _parse_term(written, (*at, "nodeSelectorTerms", i))
        wrong += mistakes
        if not mistakes:
            terms.append(term)
    return NodeSelector(tuple(terms)), tuple(wrong)


def parse_preferred_terms(
    wire: Iterable[api.PreferredSchedulingTerm], at: Path = ()
) -> tuple[tuple[PreferredTerm, ...], Mistakes]:
    """Return the correct preferred terms, and the mistakes in the others.

    Terms that are empty or of weight 0 add nothing and are ignored, as upstream does; any other
    weight outside 1..GREATEST_WEIGHT, which the API server refuses, is a mistake.
    """
    terms: list[PreferredTerm] = []
    wrong: list[Mistake] = []
    for i, written in enumerate(wire):
        if written.weight == 0 or _is_empty(written.preference):
            continue
        term, mistakes = _parse_term(written.preference, (*at, i))
        if not 0 < written.weight <= GREATEST_WEIGHT:
            text = f"`{written.weight}` is not in the range 1-{GREATEST_WEIGHT}"
            mistakes = (Mistake("Invalid", (*at, i, "weight"), text), *mistakes)
        wrong += mistakes
        if not mistakes:
            terms.append(PreferredTerm(written.weight, term))
    return tuple(terms), tuple(wrong)


def named_nodes(wire: api.NodeSelector) -> frozenset[str] | None:
    """Return the only nodes a required selector allows, by name; None when it allows any name.

    This is the narrowing of NodeAffinity's PreFilter: it reads the terms as written, with their
    mistakes, and an empty set means that their names contradict each other.
    """
    allowed: frozenset[str] = frozenset()
    for term in wire.node_selector_terms or ():
        named = [
            frozenset(field.values or ())
            for field in term.match_fields or ()
            if field.key == NAME_FIELD and field.operator == Operator.IN
        ]
        if not named:
            return None
        allowed |= frozenset.intersection(*named)
    return allowed if wire.node_selector_terms else None


def integer(text: str) -> int | None:
    """Return the base-10 64-bit integer a text spells (Go's strconv.ParseInt), else None."""
    parts = _INTEGER.fullmatch(text)
    if parts is None:
        return None
    number = int(parts[1] + parts[2])
    return number if -_MOST_INTEGER - 1 <= number <= _MOST_INTEGER else None


def is_label_key(text: str) -> bool:
    """Return whether a text is a qualified name: `name` or `dns.prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _MOST_PREFIX and _PREFIX.fullmatch(prefix)):
        return False
    return len(name) <= _MOST_NAME and _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether a text may be the value of a label; an empty one may."""
    return not text or (len(text) <= _MOST_NAME and _NAME.fullmatch(text) is not None)


def _is_empty(term: api.NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def _parse_term(wire: api.NodeSelectorTerm, at: Path) -> tuple[Term, Mistakes]:
    labels, wrong = _parse_all(wire.match_expressions, (*at, "matchExpressions"), _NODE_OPERATORS)
    fields: list[Requirement] = []
    more: list[Mistake] = []
    for i, written in enumerate(wire.match_fields or ()):
        place = (*at, "matchFields", i)
        values = frozenset(written.values or ())
        if written.operator not in _SETS:
            more.append(_unsupported(written.operator, place, _SETS))
        elif len(written.values or ()) != 1:
            more.append(Mistake("Invalid", (*place, "values"), "must have one element"))
        else:
            fields.append(Requirement(written.key, Operator(written.operator), values))
    return Term(labels, tuple(fields)), (*wrong, *more)


def _parse_all(
    wire: Iterable[api.SelectorRequirement] | None, at: Path, allowed: tuple[Operator, ...]
) -> tuple[tuple[Requirement, ...], Mistakes]:
    good: list[Requirement] = []
    wrong: list[Mistake] = []
    for i, written in enumerate(wire or ()):
        mistakes = _mistakes_in(written, (*at, i), allowed)
        wrong += mistakes
        if not mistakes:
            values = written.values or []
            bound = integer(values[0]) if written.operator in _ORDER else None
            operator = Operator(written.operator)
            good.append(Requirement(written.key, operator, frozenset(values), bound or 0))
    return tuple(good), tuple(wrong)


def _mistakes_in(
    wire: api.SelectorRequirement, at: Path, allowed: tuple[Operator, ...]
) -> list[Mistake]:
    """Return the mistakes in a label requirement."""
    if wire.operator not in allowed:
        return [_unsupported(wire.operator, at, allowed)]
    values = wire.values or []
    wrong: list[Mistake] = []
    if not is_label_key(wire.key):
        wrong.append(Mistake("Invalid", (*at, "key"), f"`{wire.key}` is not a label key"))
    count_text = _wrong_count(wire.operator, len(values))
    if count_text is not None:
        wrong.append(Mistake("Invalid", (*at, "values"), count_text))
    for i, value in enumerate(values):
        if wire.operator in _ORDER and integer(value) is None:
            text = f"`{value}` is not a 64-bit integer"
            wrong.append(Mistake("Invalid", (*at, "values", i), text))
        if not is_label_value(value):
            text = f"`{value}` is not a label value"
            wrong.append(Mistake("Invalid", (*at, "values", i), text))
    return wrong


def _wrong_count(operator: str, count: int) -> str | None:
    if operator in _SETS:
        return None if count else "must not be empty for In and NotIn"
    if operator in _PRESENCE:
        return "must be empty for Exists and DoesNotExist" if count else None
    return None if count == 1 else "must have one element for Gt and Lt"


def _unsupported(operator: str, at: Path, allowed: tuple[Operator, ...]) -> Mistake:
    text = f"`{operator}` is not an operator here; use one of {', '.join(allowed)}"
    return Mistake("NotSupported", (*at, "operator"), text)


# Label selectors as `kubectl --selector` takes them: `pool=batch,!spot,zone in (a,b)`.
#
# Source of the grammar: apimachinery, pkg/labels/selector.go. The operators of numbers are left
# out.


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
    """Return the selector that a text spells; an empty text selects everything."""
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
