"""What must hold of the labels of a node: alternatives of requirements, as node affinity has them.

A condition may stand for something that is more than labels can say. It then is necessary for that,
not sufficient, and knows why: each alternative carries the reasons for what is missing in it.

INVARIANT: operations may widen a condition, and then add a reason; they never narrow one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Final

from engine.model.label_states import EVERYTHING, NOTHING, LabelStates, Requirements, states_of
from engine.model.selectors import Requirement

MOST_TERMS: Final = 8
"""A condition that needs more terms is widened while it is put together."""

MOST_REQUIREMENTS: Final = 16  # in one term
MOST_VALUES: Final = 64  # in one requirement


class Exactness(StrEnum):
    """How much of what a condition stands for is in it."""

    EXACT = "exactly"  # the labels say it all
    PARTIAL = "partly"  # a node without these labels fails, one with them may
    NONE = "not"  # nothing is known


@dataclass(frozen=True, slots=True)
class Alternative:
    """States of several labels that must all hold.

    Attributes:
        labels: the states by label; never all states, and never none.
        unknown: why this is not all that must hold; empty if it is.
    """

    labels: Mapping[str, LabelStates] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    def __and__(self, other: Alternative) -> Alternative | None:
        """Return what asks for both, None where they contradict each other."""
        labels = {**self.labels, **other.labels}
        for key in self.labels.keys() & other.labels.keys():
            labels[key] = self.labels[key] & other.labels[key]
            if labels[key] == NOTHING:
                return None
        return Alternative(labels, self.unknown | other.unknown)

    @classmethod
    def of(cls, requirements: Iterable[Requirement]) -> Alternative | None:
        """Return what some requirements on labels ask for together, None where they contradict."""
        together: Alternative | None = cls()
        for asked in requirements:
            states = states_of(asked)
            if together is None or states == NOTHING:
                return None
            together &= cls({} if states == EVERYTHING else {asked.key: states})
        return together

    def covers(self, other: Alternative) -> bool:
        """Return whether the labels of every node that the other allows are allowed here."""
        return self.labels.keys() <= other.labels.keys() and all(
            other.labels[key] <= states for key, states in self.labels.items()
        )

    def united(self, other: Alternative) -> Alternative | None:
        """Return the one alternative that allows what either does, None where it takes two."""
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
        """How many alternatives requirements need for it."""
        return prod(states.width for states in self.labels.values())

    def parts(self) -> Iterator[Alternative]:
        """Yield the alternatives that requirements need for it."""
        if self.width == 1:
            yield self
            return
        for chosen in product(*(states.parts() for states in self.labels.values())):
            yield replace(self, labels=dict(zip(self.labels, chosen, strict=True)))

    @property
    def requirements(self) -> Requirements:
        """The same as requirements, in the order of the labels; only for one of `parts`."""
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
        """Return the condition that both hold."""
        both = self.meet(other)
        if both is not None:
            return both
        narrower = self if self.width <= other.width else other
        return narrower.widened(_TOO_MANY)

    def __or__(self, other: LabelCondition) -> LabelCondition:
        """Return the condition that either holds."""
        if self is NEVER or other is NEVER:
            return other if self is NEVER else self
        either = _simplified((*self.alternatives, *other.alternatives))
        return either if either.width <= MOST_TERMS else unknown(_TOO_MANY)

    def meet(self, other: LabelCondition) -> LabelCondition | None:
        """Return the condition that both hold, None if it takes more than MOST_TERMS."""
        if self is ALWAYS or other is ALWAYS:
            return other if self is ALWAYS else self
        pairs = product(self.alternatives, other.alternatives)
        both = _simplified(met for one, two in pairs if (met := one & two) is not None)
        return both if both.width <= MOST_TERMS else None

    def widened(self, reason: str) -> LabelCondition:
        """Return the condition as one that is not all that must hold."""
        return LabelCondition(
            tuple(replace(one, unknown=one.unknown | {reason}) for one in self.alternatives)
        )

    def bounded(self) -> LabelCondition:
        """Return the condition if it can be written on a pod, and one that says nothing if not."""
        for term in self.terms:
            if len(term) > MOST_REQUIREMENTS:
                return unknown(f"it takes more than {MOST_REQUIREMENTS} requirements in a term")
            if any(len(requirement.values) > MOST_VALUES for requirement in term):
                return unknown(f"it takes more than {MOST_VALUES} values of a label")
        return self

    @property
    def width(self) -> int:
        """How many `terms` there are, or a few more."""
        return sum(one.width for one in self.alternatives)

    @cached_property
    def exactness(self) -> Exactness:
        """How much of what it stands for is in it."""
        if not self.reasons:
            return Exactness.EXACT
        says_something = all(one.labels for one in self.alternatives)
        return Exactness.PARTIAL if says_something else Exactness.NONE

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not exact, in the order of the text; none if it is."""
        return tuple(sorted(frozenset().union(*(one.unknown for one in self.alternatives))))

    @cached_property
    def terms(self) -> tuple[Requirements, ...]:
        """What to require: one of these must hold as a whole.

        One that is empty requires nothing. If there are none at all, no node can pass: not one of
        those that exist, nor one to come.
        """
        kept: list[Alternative] = []
        for one in (part for wide in self.alternatives for part in wide.parts()):
            if not any(other.covers(one) for other in kept):
                kept = [*(other for other in kept if not one.covers(other)), one]
        return tuple(one.requirements for one in kept)

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels meets it."""
        return any(
            all(requirement.matches(labels.get(requirement.key)) for requirement in term)
            for term in self.terms
        )


def on_label(key: str, states: LabelStates) -> LabelCondition:
    """Return the condition that a label is in one of some states."""
    if states == NOTHING:
        return NEVER
    return ALWAYS if states == EVERYTHING else LabelCondition((Alternative({key: states}),))


def unknown(reason: str) -> LabelCondition:
    """Return the condition for something that labels say nothing of."""
    return ALWAYS.widened(reason)


def _simplified(alternatives: Iterable[Alternative]) -> LabelCondition:
    return LabelCondition(reduce(_added, alternatives, ()))


def _added(kept: tuple[Alternative, ...], new: Alternative) -> tuple[Alternative, ...]:
    """Return alternatives with one more, written as one with another where that is possible."""
    for i, old in enumerate(kept):
        united = old.united(new)
        if united is not None:
            return _added((*kept[:i], *kept[i + 1 :]), united)
    return (*kept, new)


ALWAYS: Final = LabelCondition((Alternative(),))
NEVER: Final = LabelCondition(())
_TOO_MANY: Final = f"it takes more than {MOST_TERMS} terms"
