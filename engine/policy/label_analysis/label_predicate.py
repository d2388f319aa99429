"""A filter as a predicate over node labels: the tree that `analyze` makes of its expression.

Each leaf is constant on all nodes, or tests one label in a way that requirements can express, or is
unknown.
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
        value: evaluates to it for a pod; may fail, or give something other than a string.
        text: the name, if it is written in the filter.
    """

    value: Closure
    text: str = ""


@dataclass(frozen=True, slots=True)
class Constant:
    """A part that does not read the node."""

    value: Closure


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that may give anything.

    Attributes:
        reason: why no requirement is equivalent.
        needs: labels without which it fails.
    """

    reason: str
    needs: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Presence:
    """The presence of a label.

    Attributes:
        without: the value of the part on a node without any labels.
    """

    key: Key
    without: Closure


@dataclass(frozen=True, slots=True)
class Comparison:
    """The value of a label against a constant; fails without the label.

    Attributes:
        other: the constant, or the list or map that the value is looked up in.
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
class AllOf:
    """`a && b && ...`."""

    operands: tuple[LabelPredicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`a || b || ...`."""

    operands: tuple[LabelPredicate, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """`test ? then : otherwise`."""

    test: LabelPredicate
    then: LabelPredicate
    otherwise: LabelPredicate


@dataclass(frozen=True, slots=True)
class Quantifier:
    """`elements.all(x, body)`, or `exists`, over constant elements."""

    elements: Closure
    variables: tuple[str, ...]
    body: LabelPredicate
    of_all: bool


@dataclass(frozen=True, slots=True)
class Let:
    """`cel.bind(variable, value, body)` with a constant value."""

    variable: str
    value: Closure
    body: LabelPredicate


@dataclass(frozen=True, slots=True)
class Precomputed:
    """A part that is the same for every pod.

    Attributes:
        conditions: the condition on labels that is equivalent to each goal.
    """

    conditions: Mapping[Goal, LabelCondition]


LabelPredicate: TypeAlias = (
    Constant
    | Unknown
    | Presence
    | Comparison
    | Negation
    | AllOf
    | AnyOf
    | Conditional
    | Quantifier
    | Let
    | Precomputed
)
"""A part that evaluates to a bool, or fails."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The nodes to describe: those on which a predicate is `value`, or is not if `negated`.

    A failure is neither true nor false.
    """

    value: bool
    negated: bool = False

    def holds(self, result: object) -> bool:
        """Return whether a result, anything but a bool for a failure, meets the goal."""
        return (result is self.value) is not self.negated

    def opposite(self) -> Goal:
        """Return the goal of the operand of a negation."""
        return Goal(not self.value, self.negated)

    def needs_all(self, *, of_all: bool) -> bool:
        """Return whether all parts have to meet it, rather than one, of `&&` or `||`."""
        return (of_all is self.value) is not self.negated


PASSES: Final = Goal(value=True)
"""Nodes that pass, where a failure rejects."""

DOES_NOT_FAIL: Final = Goal(value=False, negated=True)
"""Nodes that pass, where a failure passes."""

GOALS: Final = tuple(Goal(value, negated) for value in (True, False) for negated in (True, False))
