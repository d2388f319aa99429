"""Sets of allowed states of a node label: an algebra, and its form as requirements.

The label of a node is missing, or has a value that Kubernetes accepts: at most 63 letters, digits,
`-`, `_` and `.`, none of the three at an end. Two things follow for numbers: a value never has a
sign, so an integer is 0 or more; and it may have leading zeros, so a number has many spellings and
only Gt and Lt can express it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.model.selectors import Operator, Requirement, integer

INTEGERS: Final = range(2**63)
"""The integers that a label can spell within the 64 bits of CEL and Kubernetes."""

Requirements: TypeAlias = tuple[Requirement, ...]
"""Requirements that must all hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStates:
    """A set of states of one label.

    Attributes:
        missing: whether the label may be missing.
        others: whether `listed` are the forbidden values, rather than the only allowed ones.
        listed: label values.
        numbers: if not None, only integers in it are allowed; always with `others`.
    """

    missing: bool = False
    others: bool = False
    listed: frozenset[str] = frozenset()
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
