"""What a filter is made of, as far as node labels go.

Each smallest part that gives a bool is known before any node is looked at, or asks something of one
label that requirements can ask too, or is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.cel import Closure
from engine.model.label_condition import LabelCondition

LABEL: Final = "@label"
"""The variable that holds the value of the label for the `test` of a `Comparison`."""


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a label.

    Attributes:
        value: gives it for a pod; may fail, or give something that is no string.
        text: the name, if it is written in the filter.
    """

    value: Closure
    text: str = ""


@dataclass(frozen=True, slots=True)
class Constant:
    """A part that reads nothing of the node."""

    value: Closure


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that may give anything.

    Attributes:
        reason: why no requirement says the same.
        reads: labels without which it fails.
    """

    reason: str
    reads: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a node has a label.

    Attributes:
        without: what the part gives on a node without any labels.
    """

    key: Key
    without: Closure


@dataclass(frozen=True, slots=True)
class Comparison:
    """The value of a label against something that is known; fails without the label.

    Attributes:
        other: what it is compared with, or a list or map that it is looked up in.
        test: the comparison, with the value of the label as the variable `LABEL`.
        numeric: whether the value is read as an integer first.
    """

    key: Key
    other: Closure
    test: Closure
    numeric: bool


@dataclass(frozen=True, slots=True)
class Negation:
    """`!operand`."""

    operand: LabelPredicate


@dataclass(frozen=True, slots=True)
class Junction:
    """`a && b && ...` if all must be true, else `a || b || ...`."""

    operands: tuple[LabelPredicate, ...]
    of_all: bool


@dataclass(frozen=True, slots=True)
class Conditional:
    """`test ? then : otherwise`."""

    test: LabelPredicate
    then: LabelPredicate
    otherwise: LabelPredicate


@dataclass(frozen=True, slots=True)
class Quantifier:
    """`elements.all(x, predicate)`, or `exists`, over something that is known."""

    elements: Closure
    variables: tuple[str, ...]
    predicate: LabelPredicate
    of_all: bool


@dataclass(frozen=True, slots=True)
class Let:
    """`cel.bind(variable, value, body)` with a value that is known."""

    variable: str
    value: Closure
    body: LabelPredicate


@dataclass(frozen=True, slots=True)
class Precomputed:
    """A part in which no pod has a say.

    Attributes:
        answers: on which labels the answer is yes, by question.
    """

    answers: Mapping[Goal, LabelCondition]


LabelPredicate: TypeAlias = (
    Constant
    | Unknown
    | Presence
    | Comparison
    | Negation
    | Junction
    | Conditional
    | Quantifier
    | Let
    | Precomputed
)
"""A part that gives a bool, or fails."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked of a claim: on which nodes does it give `value`?

    With `negated`: on which does it not? A failure is neither true nor false.
    """

    value: bool
    negated: bool = False

    def holds(self, answer: object) -> bool:
        """Return whether an answer, anything but a bool for a failure, is the one asked for."""
        return (answer is self.value) is not self.negated

    def of_opposite(self) -> Goal:
        """Return the question to ask of what a negation negates."""
        return Goal(not self.value, self.negated)

    def needs_all(self, *, of_all: bool) -> bool:
        """Return whether it has to hold for all parts, rather than one, of `&&` or `||`."""
        return (of_all is self.value) is not self.negated


PASSES: Final = Goal(value=True)
"""Which nodes pass, if one that cannot be judged does not."""

DOES_NOT_FAIL: Final = Goal(value=False, negated=True)
"""Which nodes pass, if one that cannot be judged does too."""

QUESTIONS: Final = tuple(
    Goal(value, negated) for value in (True, False) for negated in (True, False)
)
