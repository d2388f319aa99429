"""Conditions on the labels of a node: alternatives of requirements, like those of node affinity.

A condition may be derived from a rule that labels cannot express in full. It is then necessary, not
sufficient, and each alternative has the reasons for what is missing in it.

INVARIANT: operations may widen a condition, and then add a reason; they never narrow one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Final, TypeAlias

from engine.model.selectors import Operator, Requirement, integer

INTEGERS: Final = range(2**63)
"""The integers that a label can spell within the 64 bits of CEL and Kubernetes."""

Requirements: TypeAlias = tuple[Requirement, ...]
"""Requirements that must all hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStates:
    """A set of states of one label.

    A label is missing, or has a value that Kubernetes accepts. Such a value never has a sign, so an
    integer is 0 or more; and it may have leading zeros, so a number has many spellings and only Gt
    and Lt can express it.
    """

    missing: bool = False  # whether the label may be missing
    # whether `listed` are the forbidden values, rather than the only allowed ones
    others: bool = False
    listed: frozenset[str] = frozenset()  # label values
    # if not None, only integers in it are allowed; always with `others`
    numbers: range | None = None

    def __and__(self, other: LabelStates) -> LabelStates:
        """Return the states in both sets."""
        missing = self.missing and other.missing
        if not self.others or not other.others:
            finite, filtering = (other, self) if self.others else (self, other)
            values = frozenset(filter(filtering.allows, finite.listed))
            return LabelStates(missing=missing, listed=values)
        return _all_but(self.listed | other.listed, _overlap(self.numbers, other.numbers), missing)

    def __le__(self, other: LabelStates) -> bool:
        """Return whether every state of this set is in the other."""
        return self & other == self

    def allows(self, value: str) -> bool:
        """Return whether the label may have a value."""
        if self.numbers is not None and not _spells(value, self.numbers):
            return False
        return (value in self.listed) is not self.others

    def united(self, other: LabelStates) -> LabelStates | None:
        """Return the union, None if no set of this kind equals it."""
        if self <= other:
            return other
        if other <= self:
            return self
        missing = self.missing or other.missing
        if self.numbers is not None or other.numbers is not None:
            numbers = _joined(self, other)
            return numbers and replace(numbers, missing=missing)
        listed = other.listed | self.listed
        if self.others and other.others:
            listed = self.listed & other.listed
        elif self.others:
            listed = self.listed - other.listed
        elif other.others:
            listed = other.listed - self.listed
        return LabelStates(missing=missing, others=self.others or other.others, listed=listed)

    @property
    def width(self) -> int:
        """Number of its `parts`."""
        if self.missing and self.others and self.numbers is None:
            return 1
        of_values = 2 if self.numbers == INTEGERS else 1 if self.others or self.listed else 0
        return of_values + self.missing

    def parts(self) -> tuple[LabelStates, ...]:
        """Return disjoint sets that make up this one, each of which `requirements` can express.

        No requirement expresses a label that is missing or has one of a few values, and any integer
        takes both Gt and Lt. The empty set has no parts.
        """
        if self.width == 1:
            return (self,)
        parts = [MISSING] if self.missing else []
        if self.numbers == INTEGERS:
            halves = (INTEGERS[:1], INTEGERS[1:])
            parts += (replace(self, missing=False, numbers=half) for half in halves)
        elif self.others or self.listed:
            parts.append(replace(self, missing=False))
        return tuple(parts)

    def requirements(self, key: str) -> Requirements:
        """Return the requirements on the label `key`; only for one of `parts`."""
        if self == MISSING:
            return (Requirement(key, Operator.DOES_NOT_EXIST),)
        if not self.others:
            return (Requirement(key, Operator.IN, self.listed),)
        required: list[Requirement] = []
        if self.numbers is None:
            required += [] if self.missing else [Requirement(key, Operator.EXISTS)]
        else:
            start, stop = self.numbers.start, self.numbers.stop
            required += [Requirement(key, Operator.GT, bound=start - 1)] if start else []
            required += [Requirement(key, Operator.LT, bound=stop)] if stop < INTEGERS.stop else []
        if self.listed:
            required.append(Requirement(key, Operator.NOT_IN, self.listed))
        return tuple(required)


def _all_but(listed: frozenset[str], numbers: range | None, missing: bool) -> LabelStates:  # noqa: FBT001 (internal)
    """Return all values but those listed, and only integers in `numbers`, if that is given."""
    if numbers is not None:
        if not numbers:
            return LabelStates(missing=missing)
        listed = frozenset(value for value in listed if _spells(value, numbers))
    return LabelStates(missing=missing, others=True, listed=listed, numbers=numbers)


def _spells(value: str, numbers: range) -> bool:
    """Return whether a label value spells one of the integers."""
    number = integer(value)
    return number is not None and number in numbers  # a range searches linearly for None


def _overlap(left: range | None, right: range | None) -> range | None:
    if left is None or right is None:
        return right if left is None else left
    return range(max(left.start, right.start), min(left.stop, right.stop))


def _joined(left: LabelStates, right: LabelStates) -> LabelStates | None:
    """Return the union of the values of two sets, one of numbers; None if no set equals it."""
    left, right = replace(left, missing=False), replace(right, missing=False)
    if left <= right:
        return right
    if right <= left:
        return left
    first, second = left.numbers, right.numbers
    if first is None or second is None or left.listed or right.listed:
        return None
    if max(first.start, second.start) > min(first.stop, second.stop):
        return None  # there are integers between them
    numbers = range(min(first.start, second.start), max(first.stop, second.stop))
    return LabelStates(others=True, numbers=numbers)


def states_of(requirement: Requirement) -> LabelStates:
    """Return the states that a requirement on a label allows."""
    match requirement.operator:
        case Operator.IN:
            return LabelStates(listed=requirement.values)
        case Operator.NOT_IN:
            return LabelStates(missing=True, others=True, listed=requirement.values)
        case Operator.EXISTS:
            return PRESENT
        case Operator.DOES_NOT_EXIST:
            return MISSING
        case Operator.GT:
            above = range(max(requirement.bound + 1, 0), INTEGERS.stop)
            return _all_but(frozenset(), above, False)  # noqa: FBT003 (internal)
        case Operator.LT:
            return _all_but(frozenset(), range(max(requirement.bound, 0)), False)  # noqa: FBT003 (internal)


EVERYTHING: Final = LabelStates(missing=True, others=True)
PRESENT: Final = LabelStates(others=True)
MISSING: Final = LabelStates(missing=True)
NOTHING: Final = LabelStates()

MOST_TERMS: Final = 8
"""A condition that needs more terms is widened while it is built."""

MOST_REQUIREMENTS: Final = 16  # in one term
MOST_VALUES: Final = 64  # in one requirement


class Exactness(StrEnum):
    """The part of a rule that a condition expresses."""

    EXACT = "exactly"  # the labels decide
    PARTIAL = "partly"  # a node without these labels fails, one with them may
    NONE = "not"  # the labels decide nothing


@dataclass(frozen=True, slots=True)
class Alternative:
    """States of several labels that must all hold."""

    # the states by label; never all states, and never none
    labels: Mapping[str, LabelStates] = field(default_factory=dict)
    # the reasons why more must hold; empty if nothing else must
    unknown: frozenset[str] = frozenset()

    def __and__(self, other: Alternative) -> Alternative | None:
        """Return the conjunction, None if the two contradict each other."""
        labels = {**self.labels, **other.labels}
        for key in self.labels.keys() & other.labels.keys():
            labels[key] = self.labels[key] & other.labels[key]
            if labels[key] == NOTHING:
                return None
        return Alternative(labels, self.unknown | other.unknown)

    @classmethod
    def of(cls, requirements: Iterable[Requirement]) -> Alternative | None:
        """Return the conjunction of requirements, None if they contradict each other."""
        together: Alternative | None = cls()
        for requirement in requirements:
            states = states_of(requirement)
            if together is None or states == NOTHING:
                return None
            together &= cls({} if states == EVERYTHING else {requirement.key: states})
        return together

    def covers(self, other: Alternative) -> bool:
        """Return whether the labels of every node that the other allows are allowed here."""
        return self.labels.keys() <= other.labels.keys() and all(
            other.labels[key] <= states for key, states in self.labels.items()
        )

    def united(self, other: Alternative) -> Alternative | None:
        """Return the disjunction as a single alternative, None if there is no such."""
        if self.unknown <= other.unknown and self.covers(other):
            return self
        if other.unknown <= self.unknown and other.covers(self):
            return other
        if self.unknown != other.unknown or self.labels.keys() != other.labels.keys():
            return None
        unlike = [key for key, states in self.labels.items() if states != other.labels[key]]
        if len(unlike) > 1:
            return None
        (key,) = unlike
        states = self.labels[key].united(other.labels[key])
        if states is None:
            return None
        labels = {**self.labels, key: states}
        if states == EVERYTHING:
            del labels[key]
        return replace(self, labels=labels)

    @property
    def width(self) -> int:
        """Number of alternatives of plain requirements that express it."""
        return prod(states.width for states in self.labels.values())

    def parts(self) -> Iterator[Alternative]:
        """Yield alternatives of plain requirements that together express it."""
        if self.width == 1:
            yield self
            return
        for chosen in product(*(states.parts() for states in self.labels.values())):
            yield replace(self, labels=dict(zip(self.labels, chosen, strict=True)))

    @property
    def requirements(self) -> Requirements:
        """Its requirements in the order of the labels; only for one of `parts`."""
        return tuple(
            requirement
            for key, states in sorted(self.labels.items())
            for requirement in states.requirements(key)
        )


@dataclass(frozen=True)
class LabelCondition:
    """Alternatives of which one must hold; without any, no node can pass."""

    alternatives: tuple[Alternative, ...]

    def __and__(self, other: LabelCondition) -> LabelCondition:
        """Return the conjunction, widened if it takes more than MOST_TERMS."""
        both = self.meet(other)
        if both is not None:
            return both
        narrower = self if self.width <= other.width else other
        return narrower.widened(_TOO_MANY)

    def __or__(self, other: LabelCondition) -> LabelCondition:
        """Return the disjunction, unknown if it takes more than MOST_TERMS."""
        if self is NEVER or other is NEVER:
            return other if self is NEVER else self
        either = _simplified((*self.alternatives, *other.alternatives))
        return either if either.width <= MOST_TERMS else unknown(_TOO_MANY)

    def meet(self, other: LabelCondition) -> LabelCondition | None:
        """Return the conjunction, None if it takes more than MOST_TERMS."""
        if self is ALWAYS or other is ALWAYS:
            return other if self is ALWAYS else self
        pairs = product(self.alternatives, other.alternatives)
        both = _simplified(met for a, b in pairs if (met := a & b) is not None)
        return both if both.width <= MOST_TERMS else None

    def widened(self, reason: str) -> LabelCondition:
        """Return the condition as necessary only, for one more reason."""
        return LabelCondition(
            tuple(replace(each, unknown=each.unknown | {reason}) for each in self.alternatives)
        )

    def bounded(self) -> LabelCondition:
        """Return the condition if a pod can carry it, else an unknown one."""
        for term in self.terms:
            if len(term) > MOST_REQUIREMENTS:
                return unknown(f"it takes more than {MOST_REQUIREMENTS} requirements in a term")
            if any(len(requirement.values) > MOST_VALUES for requirement in term):
                return unknown(f"it takes more than {MOST_VALUES} values of a label")
        return self

    @property
    def width(self) -> int:
        """Number of `terms`, or a few more."""
        return sum(alternative.width for alternative in self.alternatives)

    @cached_property
    def exactness(self) -> Exactness:
        """The part of its rule that it expresses."""
        if not self.reasons:
            return Exactness.EXACT
        is_restrictive = all(alternative.labels for alternative in self.alternatives)
        return Exactness.PARTIAL if is_restrictive else Exactness.NONE

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why it is not exact, sorted; none if it is."""
        return tuple(sorted(frozenset().union(*(each.unknown for each in self.alternatives))))

    @cached_property
    def terms(self) -> tuple[Requirements, ...]:
        """The terms to require, of which one must hold as a whole.

        An empty term requires nothing. Without any term no node can pass, now or later.
        """
        minimal: list[Alternative] = []
        for part in (part for wide in self.alternatives for part in wide.parts()):
            if not any(other.covers(part) for other in minimal):
                minimal = [*(other for other in minimal if not part.covers(other)), part]
        return tuple(part.requirements for part in minimal)

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels meets it."""
        return any(
            all(requirement.matches(labels.get(requirement.key)) for requirement in term)
            for term in self.terms
        )


def on_label(key: str, states: LabelStates) -> LabelCondition:
    """Return the condition that a label is in one of the states."""
    if states == NOTHING:
        return NEVER
    return ALWAYS if states == EVERYTHING else LabelCondition((Alternative({key: states}),))


def unknown(reason: str) -> LabelCondition:
    """Return the condition for a rule that labels do not express."""
    return ALWAYS.widened(reason)


def _simplified(alternatives: Iterable[Alternative]) -> LabelCondition:
    return LabelCondition(reduce(_added, alternatives, ()))


def _added(known: tuple[Alternative, ...], new: Alternative) -> tuple[Alternative, ...]:
    """Return alternatives with a new one, united with another where that is possible."""
    for i, old in enumerate(known):
        united = old.united(new)
        if united is not None:
            return _added((*known[:i], *known[i + 1 :]), united)
    return (*known, new)


ALWAYS: Final = LabelCondition((Alternative(),))
NEVER: Final = LabelCondition(())
_TOO_MANY: Final = f"it takes more than {MOST_TERMS} terms"
