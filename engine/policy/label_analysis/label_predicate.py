"""A filter as a predicate over node labels: the tree that `analyze` makes of its expression.

Each leaf is constant on all nodes, or tests one label in a way that requirements can express, or is
unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, TypeAlias

from engine.cel import (
    BUDGET,
    BudgetExhaustedError,
    CelError,
    Closure,
    Frame,
    new_frame,
    operators,
)
from engine.cel.values import INT_MAX, NUMBERS
from engine.model.label_condition import (
    ALWAYS,
    INTEGERS,
    MISSING,
    NEVER,
    PRESENT,
    Exactness,
    LabelCondition,
    LabelStates,
    on_label,
    unknown,
)
from engine.model.selectors import is_label_key, is_label_value

LABEL: Final = "@label"
"""The variable that holds the value of the label for the `test` of a `Comparison`."""


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a label."""

    value: Closure  # evaluates to it for a pod; may fail, or give something other than a string
    text: str = ""  # the name, if it is written in the filter


@dataclass(frozen=True, slots=True)
class Constant:
    """A part that does not read the node."""

    value: Closure


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that may give anything."""

    reason: str  # why no requirement is equivalent
    needs: tuple[Key, ...] = ()  # labels without which it fails


@dataclass(frozen=True, slots=True)
class Presence:
    """The presence of a label."""

    key: Key
    without: Closure  # the value of the part on a node without any labels


@dataclass(frozen=True, slots=True)
class Comparison:
    """The value of a label against a constant; fails without the label."""

    key: Key
    other: Closure  # the constant, or the list or map that the value is looked up in
    test: Closure  # the comparison, with the value of the label as the variable `LABEL`
    numeric: bool  # whether the value is read as an integer first


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
    """A part that is the same for every pod."""

    # the condition on labels that is equivalent to each goal
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

# A label predicate evaluated for one pod: a condition on node labels.
#
# A leaf that depends on one label is evaluated by CEL itself, once for each class of values that
# the label can have; this module only combines the conditions.


_MOST_ELEMENTS: Final = 64
_STEPS_PER_PAIR: Final = 4  # the cost of joining two alternatives, in iterations of a loop
_STEPS_PER_NUMBER: Final = 16  # the cost of finding a number among the integers
_TOO_MUCH: Final = "it takes too much to find out"
_INTEGERS: Final = LabelStates(others=True, numbers=INTEGERS)
NO_NUMBER: Final = "no requirement says that a label is missing or no such number"


def condition_of(
    predicate: LabelPredicate, goal: Goal, activation: Mapping[str, object]
) -> LabelCondition:
    """Return the condition on labels under which a predicate meets a goal."""
    if isinstance(predicate, Precomputed):
        return predicate.conditions[goal]  # as of every plugin, for every pod
    return _bounded(predicate, goal, activation)


def precompute(predicate: LabelPredicate) -> Precomputed:
    """Return the conditions of a predicate that reads nothing but the node."""
    return Precomputed({goal: _bounded(predicate, goal, {}) for goal in GOALS})


def _bounded(
    predicate: LabelPredicate, goal: Goal, activation: Mapping[str, object]
) -> LabelCondition:
    try:
        return _condition(predicate, goal, new_frame(activation)).bounded()
    except (BudgetExhaustedError, RecursionError, OverflowError):
        return unknown(_TOO_MUCH)  # nothing absorbs such a failure: the whole filter fails


def _condition(predicate: LabelPredicate, goal: Goal, frame: Frame) -> LabelCondition:  # noqa: C901 (a case per class)
    match predicate:
        case Constant(value):
            return _constant(value, goal, frame)
        case Presence():
            return _presence(predicate, goal, frame)
        case Comparison():
            return _comparison(predicate, goal, frame)
        case Negation(operand):
            return _condition(operand, goal.opposite(), frame)
        case AllOf(operands) | AnyOf(operands):
            parts = (_condition(operand, goal, frame) for operand in operands)
            needs_all = goal.needs_all(of_all=isinstance(predicate, AllOf))
            return _joined(parts, frame, needs_all=needs_all)
        case Conditional():
            return _conditional(predicate, goal, frame)
        case Quantifier():
            return _quantifier(predicate, goal, frame)
        case Let(variable, value, body):
            outer = {name: bound for name, bound in frame.items() if name != variable}
            known, found = _evaluated(value, frame)
            return _condition(body, goal, outer | {variable: found} if known else outer)
        case Unknown():
            return _unknown(predicate, goal, frame)
        case Precomputed(conditions):
            return conditions[goal]


def _evaluated(value: Closure, frame: Frame) -> tuple[bool, object]:
    """Return whether a part can be evaluated, and its value.

    It gets its own frame, since loops write into it.
    """
    try:
        return True, value(frame.copy())
    except BudgetExhaustedError:
        raise
    except CelError:
        return False, None


def _constant(value: Closure, goal: Goal, frame: Frame) -> LabelCondition:
    """Return the condition of a part that is the same on every node."""
    _, result = _evaluated(value, frame)
    return ALWAYS if goal.holds(result) else NEVER


def _failing(goal: Goal) -> LabelCondition:
    """Return the condition of a part that fails on every node."""
    return ALWAYS if goal.holds(None) else NEVER


# Logic.


def _joined(parts: Iterable[LabelCondition], frame: Frame, *, needs_all: bool) -> LabelCondition:
    """Return the condition that all parts hold, or that one does; looks no further than needed."""
    neutral, decisive = (ALWAYS, NEVER) if needs_all else (NEVER, ALWAYS)
    result = neutral
    for part in parts:
        pairs = len(result.alternatives) * len(part.alternatives)
        frame[BUDGET].spend(_STEPS_PER_PAIR * pairs)
        result = result & part if needs_all else result | part
        if result == decisive:
            break
    return result


def _conditional(predicate: Conditional, goal: Goal, frame: Frame) -> LabelCondition:
    """Return the condition of either branch, each where the test leads to it."""
    never_taken = ALWAYS if goal.negated else NEVER
    branches = []
    for taken_on, part in ((True, predicate.then), (False, predicate.otherwise)):
        branch = _condition(predicate.test, Goal(taken_on, goal.negated), frame)
        if branch != never_taken:
            both = (branch, _condition(part, goal, frame))
            branch = _joined(both, frame, needs_all=not goal.negated)
        branches.append(branch)
    return _joined(branches, frame, needs_all=goal.negated)


def _quantifier(predicate: Quantifier, goal: Goal, frame: Frame) -> LabelCondition:
    _, elements = _evaluated(predicate.elements, frame)
    try:
        iterations = list(islice(_iterations(predicate.variables, elements), _MOST_ELEMENTS + 1))
    except CelError:
        return _failing(goal)
    if len(iterations) > _MOST_ELEMENTS:
        return unknown(f"it loops over more than {_MOST_ELEMENTS} elements")
    frame[BUDGET].spend(len(iterations))
    parts = (_condition(predicate.body, goal, frame | variables) for variables in iterations)
    return _joined(parts, frame, needs_all=goal.needs_all(of_all=predicate.of_all))


def _iterations(variables: tuple[str, ...], elements: object) -> Iterator[Frame]:
    """Yield the values of the variables of a loop, by iteration."""
    if len(variables) == 1:
        for element in operators.elements(elements):
            yield {variables[0]: element}
    else:
        for pair in operators.pairs(elements):
            yield dict(zip(variables, pair, strict=True))


# Labels.


def _presence(predicate: Presence, goal: Goal, frame: Frame) -> LabelCondition:
    key = _label_key(predicate.key, frame)
    if key is None:
        return _constant(predicate.without, goal, frame)
    return on_label(key, PRESENT if goal.value is not goal.negated else MISSING)


def _unknown(predicate: Unknown, goal: Goal, frame: Frame) -> LabelCondition:
    """Return the condition of a part that fails without some labels, and may else give anything."""
    if goal.negated:
        return unknown(predicate.reason)
    keys = [_label_key(key, frame) for key in predicate.needs]
    parts = (NEVER if key is None else on_label(key, PRESENT) for key in keys)
    return _joined(parts, frame, needs_all=True).widened(predicate.reason)


def _label_key(key: Key, frame: Frame) -> str | None:
    """Return the name of a label; None for none, or one that no label can have."""
    _, name = _evaluated(key.value, frame)
    return name if isinstance(name, str) and is_label_key(name) else None


def _comparison(predicate: Comparison, goal: Goal, frame: Frame) -> LabelCondition:
    key = _label_key(predicate.key, frame)
    known, other = _evaluated(predicate.other, frame)
    if key is None or not known:
        return _failing(goal)
    constants = list(other) if isinstance(other, list | tuple | dict) else [other]
    if len(constants) > _MOST_ELEMENTS:
        return unknown(f"it compares a label with more than {_MOST_ELEMENTS} values")
    frame[BUDGET].spend(len(constants) * (_STEPS_PER_NUMBER if predicate.numeric else 1))

    def holds(value: str) -> bool:
        _, result = _evaluated(predicate.test, frame | {LABEL: value})
        return goal.holds(result)

    if not predicate.numeric:
        return on_label(key, _texts(constants, holds, missing=goal.holds(None)))
    numbers = (on_label(key, states) for states in _numbers(constants, holds))
    condition = _joined(numbers, frame, needs_all=False)
    if not goal.negated:
        return condition
    return ALWAYS if condition == on_label(key, _INTEGERS) else unknown(NO_NUMBER)


def _texts(
    constants: Iterable[object], holds: Callable[[str], bool], *, missing: bool
) -> LabelStates:
    """Return the values that satisfy a comparison with constants.

    It cannot distinguish texts that are none of the constants, so testing one of them is enough.
    """
    texts = {text for text in constants if isinstance(text, str) and is_label_value(text)}
    others = holds("x" * (max(map(len, texts), default=0) + 1))
    listed = frozenset(text for text in texts if holds(text) is not others)
    return LabelStates(missing=missing, others=others, listed=listed)


def _numbers(constants: Iterable[object], holds: Callable[[str], bool]) -> Iterator[LabelStates]:
    """Yield the ranges of integers that satisfy a comparison with constants.

    It cannot distinguish integers if each constant is greater than both, equal to both or less than
    both, so testing the least of them is enough. NaN compares with all of them alike.
    """
    borders = {INTEGERS.start, INTEGERS.stop}
    for constant in constants:
        if type(constant) in NUMBERS and not operators.is_nan(constant):
            borders |= _borders(constant)
    for start, stop in pairwise(sorted(borders)):
        if holds(str(start)):
            yield LabelStates(others=True, numbers=range(start, stop))


def _borders(number: object) -> set[int]:
    """Return the least integers that are not less than a number, and greater than it."""
    if isinstance(number, int):
        borders = (int(number), int(number) + 1)
        return {min(max(border, INTEGERS.start), INTEGERS.stop) for border in borders}
    tests = (lambda i: not operators.less(i, number), lambda i: operators.greater(i, number))
    return {bisect_left(range(INT_MAX), x=True, key=test) for test in tests}


# The share of a filter that requirements on node labels express, for any pod.
#
# Requirements also hold for nodes that do not exist yet.


_WORDS: Final = {
    Exactness.EXACT: "labels",
    Exactness.PARTIAL: "labels in part",
    Exactness.NONE: "advice only",
}


@dataclass(frozen=True, slots=True)
class LabelSummary:
    """The requirements of a filter on node labels, whatever the pod.

    Attributes:
        constrains_labels: whether it constrains labels, at least for some pods.
        reasons: why labels do not carry all of it; empty if they do.
        keys: those of the labels that are written in the filter.
        unsatisfiable: whether no node can ever pass.
    """

    constrains_labels: bool = False
    reasons: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    unsatisfiable: bool = False

    @property
    def exactness(self) -> Exactness:
        """The share of the filter that requirements express, for pods that it constrains at all."""
        if not self.reasons:
            return Exactness.EXACT
        return Exactness.PARTIAL if self.constrains_labels else Exactness.NONE

    @property
    def summary(self) -> str:
        """The way the filter binds nodes that do not exist yet, in a few words."""
        return _WORDS[self.exactness]


_NO_CONSTRAINT: Final = LabelSummary()


def summarize(predicate: LabelPredicate, goal: Goal) -> LabelSummary:  # noqa: C901 (a case per class)
    """Return the constraints on the labels of a node that meets a goal."""
    match predicate:
        case Constant():
            return _NO_CONSTRAINT
        case Negation(operand):
            return summarize(operand, goal.opposite())
        case AllOf(operands) | AnyOf(operands):
            parts = [summarize(operand, goal) for operand in operands]
            needs_all = goal.needs_all(of_all=isinstance(predicate, AllOf))
            return _joined_summary(parts, needs_all=needs_all)
        case Conditional():
            return _conditional_summary(predicate, goal)
        case Quantifier(body=body) | Let(body=body):
            return summarize(body, goal)
        case Presence(key):
            return _on_labels((key,))
        case Comparison(key):
            if predicate.numeric and goal.negated:
                return LabelSummary(reasons=frozenset({NO_NUMBER}))
            return _on_labels((key,))
        case Unknown(reason, needs):
            return _on_labels(() if goal.negated else needs, reason)
        case Precomputed(conditions):
            return _of_condition(conditions[goal])


def _on_labels(keys: Iterable[Key], *reasons: str) -> LabelSummary:
    """Return that some labels are constrained, and why that may not be all."""
    known = list(keys)
    texts = frozenset(key.text for key in known if key.text)
    return LabelSummary(bool(known), frozenset(reasons), texts)


def _of_condition(condition: LabelCondition) -> LabelSummary:
    """Return the summary of a condition that is the same for all pods."""
    if condition in (ALWAYS, NEVER):
        return LabelSummary(unsatisfiable=condition == NEVER)
    return LabelSummary(
        constrains_labels=condition.exactness is not Exactness.NONE,
        reasons=frozenset(condition.reasons),
        keys=frozenset(requirement.key for term in condition.terms for requirement in term),
    )


def _conditional_summary(predicate: Conditional, goal: Goal) -> LabelSummary:
    """Return the summary of both branches, each where the test selects it."""
    branches = []
    for taken_on, part in ((True, predicate.then), (False, predicate.otherwise)):
        test = summarize(predicate.test, Goal(taken_on, goal.negated))
        branches.append(_joined_summary((test, summarize(part, goal)), needs_all=not goal.negated))
    return _joined_summary(branches, needs_all=goal.negated)


def _joined_summary(parts: Iterable[LabelSummary], *, needs_all: bool) -> LabelSummary:
    """Return the summary of all parts, or of any of those that do not depend on the pod."""
    open_parts = [part for part in parts if part.constrains_labels or part.reasons]
    if not open_parts:
        return _NO_CONSTRAINT
    quantifier = any if needs_all else all
    constrains_labels = quantifier(part.constrains_labels for part in open_parts)
    return LabelSummary(
        constrains_labels,
        frozenset().union(*(part.reasons for part in open_parts)),
        frozenset().union(*(part.keys for part in open_parts))
        if constrains_labels
        else frozenset(),
    )
