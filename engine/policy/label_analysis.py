"""Filters as requirements on node labels, which also hold for nodes that do not exist yet.

An expression is taken apart into a label predicate, a tree of which each leaf is constant on all
nodes, or tests one label in a way that requirements can express, or is unknown. It gives a
condition on labels for one pod, and a summary for its author. The form in which a condition is
written on a pod does not belong here.

Only labels count. The name of a node, its taints and its state are unknown for a future node or
will have changed, and a requirement of a pod can never be taken back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Final, Literal, TypeAlias, TypeGuard

from engine.cel import (
    BOOL,
    BUDGET,
    STRING,
    BudgetExhaustedError,
    CelError,
    Closure,
    Environment,
    Frame,
    Program,
    ast,
    compile_node,
    new_frame,
    operators,
    references,
)
from engine.cel.unparse import unparse
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
from engine.policy.context import PolicyContext

LABEL: Final = "@label"
"""The variable that holds the value of the label for the `test` of a `Comparison`."""


@dataclass(frozen=True, slots=True)
class Key:
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
    """The requirements of a filter on node labels, whatever the pod."""

    constrains_labels: bool = False  # whether it constrains labels, at least for some pods
    reasons: frozenset[str] = frozenset()  # why labels do not carry all of it; empty if they do
    keys: frozenset[str] = frozenset()  # those of the labels that are written in the filter
    unsatisfiable: bool = False  # whether no node can ever pass

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


# The syntax tree of an expression, taken apart.


Bindings: TypeAlias = Mapping[str, ast.Node]
"""The values of macro variables that read the node, substituted for them.

That is the meaning of `cel.bind` and `optMap`: a failure counts only where the value is used.
"""


@dataclass(frozen=True, slots=True)
class LabelRead:
    """`node.labels[key]`, or `node.labels[?key]` if `optional`; the key reads nothing of a node."""

    node: ast.Select | ast.Index
    key: ast.Node

    @property
    def optional(self) -> bool:
        """Whether it gives an optional, rather than fails where the label is missing."""
        return self.node.optional

    @property
    def value(self) -> ast.Node:
        """The tree of `node.labels[key]`."""
        return replace(self.node, optional=False)


def label_read(node: ast.Node, bindings: Bindings) -> LabelRead | None:
    """Return a node of the tree as a read of a label, None if it is none."""
    node = resolved(node, bindings)
    if not isinstance(node, ast.Select | ast.Index) or not is_labels(node.operand, bindings):
        return None
    if isinstance(node, ast.Select):
        return LabelRead(node, ast.Literal(node.field, STRING, offset=node.offset))
    return None if reads_node(node.index, bindings) else LabelRead(node, node.index)


def is_labels(node: ast.Node, bindings: Bindings) -> bool:
    root, keys, optional = ast.field_path(resolved(node, bindings))
    return keys == ("labels",) and not optional and is_node(root, bindings)


def is_node(node: ast.Node, bindings: Bindings) -> bool:
    node = resolved(node, bindings)
    return isinstance(node, ast.Variable) and node.name == "node"


def reads_node(node: ast.Node, bindings: Bindings) -> bool:
    return any(
        (isinstance(below, ast.Variable) and below.name == "node")
        or (isinstance(below, ast.Local) and below.name in bindings)
        for below, _ in ast.walk(node)
    )


def reads_pod(node: ast.Node) -> bool:
    """Return whether a part may depend on the pod, itself or by a macro variable from outside."""
    nodes = [below for below, _ in ast.walk(node)]
    inside = {name for below in nodes for name in ast.bound_variables(below)}
    return any(
        (isinstance(below, ast.Variable) and below.name != "node")
        or (isinstance(below, ast.Local) and below.name not in inside)
        for below in nodes
    )


def resolved(node: ast.Node, bindings: Bindings) -> ast.Node:
    """Return the value of a bound variable, any other node as it is."""
    while isinstance(node, ast.Local) and node.name in bindings:
        node = bindings[node.name]
    return node


def without(bindings: Bindings, variables: Iterable[str]) -> Bindings:
    """Return the bindings inside a macro that shadows `variables`."""
    return {name: node for name, node in bindings.items() if name not in variables}


def as_conditional(node: ast.Node, bindings: Bindings) -> tuple[ast.Node, Bindings]:
    """Return a node as the equivalent conditional, if there is one, and the bindings in there.

    - `node.labels[?k].orValue(z)` is `node.labels[?k].hasValue() ? node.labels[k] : z`,
    - `node.labels[?k].optMap(x, y).orValue(z)` is `node.labels[?k].hasValue() ? y : z`, where `x`
      is bound to `node.labels[k]`,
    - `a.or(b).orValue(z)` is `a.orValue(b.orValue(z))`,
    - `int(a ? y : z)` is `a ? int(y) : int(z)`.
    """
    node = resolved(node, bindings)
    if is_int(node):
        return _conditional_of_ints(node, bindings)
    if not isinstance(node, ast.Alternative) or not node.unwraps:
        return node, bindings
    optional = resolved(node.operand, bindings)
    if isinstance(optional, ast.Alternative) and not optional.unwraps:
        second = replace(node, operand=optional.other)
        return as_conditional(replace(node, operand=optional.operand, other=second), bindings)
    mapping = optional if isinstance(optional, ast.OptionalMap) else None
    read = label_read(mapping.operand if mapping else optional, bindings)
    if read is None or not read.optional:
        return node, bindings
    then = read.value
    if mapping is not None:
        bindings = {**bindings, mapping.variable: then}
        then = replace(node, operand=mapping.body) if mapping.flat else mapping.body
    has_value = ast.Call("hasValue", (read.node,), member=True, offset=node.offset)
    return ast.Conditional(has_value, then, node.other, offset=node.offset), bindings


def is_int(node: ast.Node) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and node.function == "int" and len(node.args) == 1


def _conditional_of_ints(node: ast.Call, bindings: Bindings) -> tuple[ast.Node, Bindings]:
    value, bindings = as_conditional(node.args[0], bindings)
    if not isinstance(value, ast.Conditional):
        return replace(node, args=(value,)), bindings
    then, otherwise = (replace(node, args=(arg,)) for arg in (value.then, value.otherwise))
    return replace(value, then=then, otherwise=otherwise), bindings


_MOST_VISITS: Final = 1000
_LONGEST_QUOTE: Final = 60  # characters of a part that are repeated in a reason
_TOO_LARGE: Final = "it is too large to be taken apart"
_ENVIRONMENT: Final = Environment()
_EQUALITIES: Final = frozenset({"==", "!=", "in"})  # requirements know no order of texts
_STRICT: Final = (ast.Binary, ast.Call, ast.Index, ast.Negate, ast.Not, ast.Select)
"""Nodes that fail if one of their children does."""

_Side: TypeAlias = Literal["left", "right"]
_SIDES: Final[tuple[_Side, ...]] = ("left", "right")


def analyze(root: ast.Node) -> LabelPredicate:
    """Return the predicate of a filter; `root` is a resolved tree."""
    try:
        return _Analyzer().analyze(root, {})
    except RecursionError:
        return Unknown(_TOO_LARGE)


class _Analyzer:
    def __init__(self) -> None:
        self._visits_left = _MOST_VISITS  # nested bindings multiply
        self._precomputing = False  # inside a part that is precomputed as a whole

    def analyze(self, node: ast.Node, bindings: Bindings) -> LabelPredicate:
        if self._precomputing or reads_pod(node):
            return self._parts(node, bindings)
        self._precomputing = True
        found = precompute(self._parts(node, bindings))
        self._precomputing = False
        return found

    def _parts(self, node: ast.Node, bindings: Bindings) -> LabelPredicate:
        if not self._visit():
            return Unknown(_TOO_LARGE)
        node, bindings = as_conditional(node, bindings)
        if not reads_node(node, bindings):
            return Constant(_closure(node))
        match node:
            case ast.Not():
                return Negation(self.analyze(node.operand, bindings))
            case ast.And() | ast.Or():
                operands = tuple(self.analyze(operand, bindings) for operand in node.operands)
                return AllOf(operands) if isinstance(node, ast.And) else AnyOf(operands)
            case ast.Conditional():
                parts = (node.test, node.then, node.otherwise)
                return Conditional(*(self.analyze(part, bindings) for part in parts))
        found: LabelPredicate | None = None
        match node:
            case ast.Quantifier():
                found = self._quantifier(node, bindings)
            case ast.Bind():
                found = self._let(node, bindings)
            case ast.Binary():
                found = self._comparison(node, bindings)
            case ast.Has() | ast.Call():
                found = _tested_presence(node, bindings)
        return found or self._unknown(node, bindings)

    def _unknown(self, node: ast.Node, bindings: Bindings) -> LabelPredicate:
        """Return the predicate of a part that may give anything."""
        unknown = Unknown(_reason(node), tuple(self._needed(node, bindings)))
        # Without labels that it needs, it is the same for every pod.
        return unknown if unknown.needs else precompute(unknown)

    def _visit(self) -> bool:
        """Count a visit; return whether it is within the limit."""
        self._visits_left -= 1
        return self._visits_left >= 0

    def _quantifier(self, node: ast.Quantifier, bindings: Bindings) -> LabelPredicate | None:
        if node.how_many is ast.HowMany.ONE or reads_node(node.range, bindings):
            return None
        body = self.analyze(node.predicate, without(bindings, node.variables))
        of_all = node.how_many is ast.HowMany.ALL
        return Quantifier(_closure(node.range), node.variables, body, of_all=of_all)

    def _let(self, node: ast.Bind, bindings: Bindings) -> LabelPredicate:
        if reads_node(node.value, bindings):
            return self.analyze(node.body, {**bindings, node.variable: node.value})
        body = self.analyze(node.body, without(bindings, (node.variable,)))
        return Let(node.variable, _closure(node.value), body)

    def _comparison(self, node: ast.Binary, bindings: Bindings) -> LabelPredicate | None:
        left, bindings = as_conditional(node.left, bindings)
        right, bindings = as_conditional(node.right, bindings)
        node = replace(node, left=left, right=right)
        for side in _SIDES:
            operand = _operand(node, side)
            if isinstance(operand, ast.Conditional) and reads_node(operand, bindings):
                return Conditional(
                    self.analyze(operand.test, bindings),
                    self.analyze(_with_operand(node, side, operand.then), bindings),
                    self.analyze(_with_operand(node, side, operand.otherwise), bindings),
                )
        if not reads_node(right, bindings):
            return _comparison_of("left", node, bindings)
        if reads_node(left, bindings):
            return None
        if node.operator != "in":
            return _comparison_of("right", node, bindings)
        if is_labels(right, bindings):
            no_labels = replace(node, right=ast.MapLiteral((), offset=node.offset))
            return Presence(_key(left), _closure(no_labels))
        return None

    def _needed(self, node: ast.Node, bindings: Bindings) -> Iterator[Key]:
        """Yield labels without which a part certainly fails."""
        if not self._visit():
            return
        node = resolved(node, bindings)
        read = label_read(node, bindings)
        if read is not None and not read.optional:
            yield _key(read.key)
        elif isinstance(node, _STRICT):
            for child in ast.children(node):
                yield from self._needed(child, bindings)


def _tested_presence(node: ast.Has | ast.Call, bindings: Bindings) -> LabelPredicate | None:
    """Return `has(node.labels.a)`, `has(node.labels)`, `node.labels.?a.hasValue()` as a predicate.

    The labels of a node are always there, even if there are none.
    """
    if isinstance(node, ast.Has):
        if node.field == "labels" and is_node(node.operand, bindings):
            return Constant(_closure(_TRUE))
        read = label_read(ast.Select(node.operand, node.field, offset=node.offset), bindings)
        return Presence(_key(read.key), _closure(_FALSE)) if read else None
    if node.function != "hasValue":
        return None
    read = label_read(node.args[0], bindings)
    return Presence(_key(read.key), _closure(_FALSE)) if read and read.optional else None


def _comparison_of(side: _Side, node: ast.Binary, bindings: Bindings) -> Comparison | None:
    """Return the predicate of a comparison of which only one side reads the node."""
    operand = _operand(node, side)
    numeric = is_int(operand)
    if not numeric and node.operator not in _EQUALITIES:
        return None
    read = label_read(operand.args[0] if is_int(operand) else operand, bindings)
    if read is None or read.optional:
        return None
    label: ast.Node = ast.Local(LABEL, offset=operand.offset)
    if is_int(operand):
        label = replace(operand, args=(label,))
    other = _operand(node, "right" if side == "left" else "left")
    test = _with_operand(node, side, label)
    return Comparison(_key(read.key), _closure(other), _closure(test), numeric=numeric)


def _operand(node: ast.Binary, side: _Side) -> ast.Node:
    return node.left if side == "left" else node.right


def _with_operand(node: ast.Binary, side: _Side, operand: ast.Node) -> ast.Binary:
    return replace(node, left=operand) if side == "left" else replace(node, right=operand)


def _key(node: ast.Node) -> Key:
    if isinstance(node, ast.Literal) and isinstance(node.value, str):
        return Key(_closure(node), node.value)
    return Key(_closure(node))


def _closure(node: ast.Node) -> Closure:
    return compile_node(node, _ENVIRONMENT)


def _reason(node: ast.Node) -> str:
    """Return why no requirement is equivalent to a part."""
    text = unparse(node)
    text = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
    if any(path[0] == "node" and path[1:2] != ("labels",) for path in references(node)):
        return f"`{text}` asks for more than labels"
    return f"no requirement says the same as `{text}`"


_TRUE: Final = ast.Literal(True, BOOL, offset=0)  # noqa: FBT003 (a value of the language)
_FALSE: Final = ast.Literal(False, BOOL, offset=0)  # noqa: FBT003 (a value of the language)

_MOST_REMEMBERED = 256  # pods that differ in the values a filter reads


@dataclass(frozen=True, slots=True)
class FilterLabels:
    """The requirements of a filter on node labels.

    Attributes:
        predicate: the filter, taken apart.
        goal: the nodes that pass it.
        program: the expression, None for a plugin.
    """

    predicate: LabelPredicate
    goal: Goal = PASSES
    program: Program | None = None
    _for_all: LabelCondition | None = field(init=False, repr=False, compare=False)
    _remembered: dict[str, LabelCondition] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_for_all = self.program is None or isinstance(self.predicate, Precomputed)
        found = condition_of(self.predicate, self.goal, {}) if is_for_all else None
        object.__setattr__(self, "_for_all", found)

    def condition(self, context: PolicyContext) -> LabelCondition:
        """Return the labels that a node needs to pass, for the pod of a context."""
        if self._for_all is not None:
            return self._for_all
        program = self.program
        assert program is not None  # noqa: S101 - INVARIANT: otherwise it is for all pods
        key = context.key_of(program)
        if key is not None and key in self._remembered:
            return self._remembered[key]
        found = condition_of(self.predicate, self.goal, context.activation(program))
        if key is not None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = found
        return found

    @property
    def summary(self) -> LabelSummary:
        """The requirements for any pod."""
        return summarize(self.predicate, self.goal)


def filter_labels(program: Program, *, errors_pass: bool) -> FilterLabels:
    """Return the requirements of an expression on node labels.

    Args:
        program: true for nodes that pass.
        errors_pass: whether a node passes where it cannot be evaluated.
    """
    goal = DOES_NOT_FAIL if errors_pass else PASSES
    return FilterLabels(analyze(program.root), goal, program)


PLUGIN_LABELS: Final = FilterLabels(precompute(Unknown("it is a plugin")))
"""Plugins require no labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLabels:
    """The node labels that a score reads."""

    # of those that it reads by a constant key, in the order of the expression
    keys: tuple[str, ...] = ()
    # the nodes with the greater of two numbers, where it is a choice between two; None for any
    # other score
    preferred: FilterLabels | None = None


NO_LABELS: Final = ScoreLabels()
"""Of a plugin."""


def score_labels(program: Program) -> ScoreLabels:
    """Return the labels of nodes that an expression reads."""
    keys = tuple(dict.fromkeys(_keys(program.root)))
    reads_nodes = ("nodes",) in program.references
    return ScoreLabels(keys=keys, preferred=None if reads_nodes else _choice(program))


def _keys(root: ast.Node) -> Iterator[str]:
    for node, _ in ast.walk(root):
        read = label_read(node, {})
        if read is not None and isinstance(read.key, ast.Literal) and read.key.type == STRING:
            yield str(read.key.value)


def _choice(program: Program) -> FilterLabels | None:
    """Return the nodes that a conditional between two numbers prefers."""
    root, bindings = as_conditional(program.root, {})
    if bindings or not isinstance(root, ast.Conditional):
        return None
    then, otherwise = _number(root.then), _number(root.otherwise)
    if then is None or otherwise is None or then == otherwise:
        return None
    test = root.test if then > otherwise else ast.Not(root.test, offset=root.offset)
    return FilterLabels(analyze(test), program=program)


def _number(node: ast.Node) -> float | None:
    """Return a constant number, None for anything else."""
    if isinstance(node, ast.Negate):
        number = _number(node.operand)
        return None if number is None else -number
    if isinstance(node, ast.Literal) and isinstance(node.value, int | float):
        return float(str(node.value))
    return None
