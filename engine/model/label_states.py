"""What may be allowed of one node label, as an algebra of sets, and as requirements.

The label of a node is missing, or has one of the values that Kubernetes lets a label have: at most
63 letters, digits, `-`, `_` and `.`, none of the three at an end. Two things follow for numbers: a
value never has a sign, so an integer is 0 or more; and it may have leading zeros, so that a number
has many spellings and only Gt and Lt can speak of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.model.selectors import Operator, Requirement, integer

INTEGERS: Final = range(2**63)
"""The integers that a label can spell, as far as CEL and Kubernetes read them: to 64 bits."""

Requirements: TypeAlias = tuple[Requirement, ...]
"""Requirements that must all hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStates:
    """A set of states of one label.

    Attributes:
        missing: whether the label may be missing.
        others: whether `listed` are the values that are shut out, rather than the only ones.
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
        if self.numbers is not None and integer(value) not in self.numbers:
            return False
        return (value in self.listed) is not self.others

    def united(self, other: LabelStates) -> LabelStates | None:
        """Return the states in either set, None where no one set of this kind holds just those."""
        missing = self.missing or other.missing
        one, two = replace(self, missing=missing), replace(other, missing=missing)
        if one <= two:
            return two
        if two <= one:
            return one
        if self.numbers is not None and other.numbers is not None:
            return _joined(one, two)
        if self.numbers is not None or other.numbers is not None:
            return None
        if self.others and other.others:
            return replace(one, listed=one.listed & two.listed)
        if self.others:
            return replace(one, listed=one.listed - two.listed)
        if other.others:
            return replace(two, listed=two.listed - one.listed)
        return replace(one, listed=one.listed | two.listed)

    def complement(self) -> LabelStates | None:
        """Return all other states, None where requirements cannot tell: around Gt and Lt."""
        if self.numbers is not None:
            return None
        return LabelStates(missing=not self.missing, others=not self.others, listed=self.listed)

    def requirements(self, key: str) -> tuple[Requirements, ...]:
        """Return what to ask of the label `key`: alternatives, each with all that must hold.

        None for the empty set, and one that asks for nothing for the set of all states.
        """
        values = self._of_values(key)
        if not self.missing:
            return values
        if self.others and self.numbers is None:
            shut_out = Requirement(key, Operator.NOT_IN, self.listed)
            return ((shut_out,),) if self.listed else ((),)
        return ((Requirement(key, Operator.DOES_NOT_EXIST),), *values)

    def _of_values(self, key: str) -> tuple[Requirements, ...]:
        """Return what to ask for the values alone."""
        if not self.others:
            return ((Requirement(key, Operator.IN, self.listed),),) if self.listed else ()
        excluding = (Requirement(key, Operator.NOT_IN, self.listed),) if self.listed else ()
        if self.numbers is None:
            return ((Requirement(key, Operator.EXISTS), *excluding),)
        return tuple((*bounds, *excluding) for bounds in _bounds(key, self.numbers))


def _all_but(listed: frozenset[str], numbers: range | None, missing: bool) -> LabelStates:  # noqa: FBT001 (internal)
    """Return all values but those listed, and only integers in `numbers`, if that is given."""
    if numbers is not None:
        if not numbers:
            return LabelStates(missing=missing)
        listed = frozenset(value for value in listed if integer(value) in numbers)
    return LabelStates(missing=missing, others=True, listed=listed, numbers=numbers)


def _overlap(one: range | None, two: range | None) -> range | None:
    if one is None or two is None:
        return two if one is None else one
    return range(max(one.start, two.start), min(one.stop, two.stop))


def _joined(one: LabelStates, two: LabelStates) -> LabelStates | None:
    """Return two sets of numbers as one, None where there is something between them."""
    first, second = one.numbers, two.numbers
    if first is None or second is None or one.listed or two.listed:
        return None
    if max(first.start, second.start) > min(first.stop, second.stop):
        return None
    return replace(
        one, numbers=range(min(first.start, second.start), max(first.stop, second.stop))
    )


def _bounds(key: str, numbers: range) -> tuple[Requirements, ...]:
    """Return a range of integers by Gt and Lt, whose bounds cannot be negative.

    Nothing is greater than -1 or less than 2**63 as far as they go, so that the set of all integers
    takes two alternatives.
    """
    above = Requirement(key, Operator.GT, bound=numbers.start - 1)
    below = Requirement(key, Operator.LT, bound=numbers.stop)
    if numbers == INTEGERS:
        return (replace(above, bound=0),), (replace(below, bound=1),)
    return (
        (*((above,) if numbers.start else ()), *((below,) if numbers.stop < 2**63 else ())),
    )


EVERYTHING: Final = LabelStates(missing=True, others=True)
PRESENT: Final = LabelStates(others=True)
MISSING: Final = LabelStates(missing=True)
NOTHING: Final = LabelStates()
