"""The syntax tree of a filter, taken apart into a label predicate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, TypeGuard

from engine.cel import BOOL, STRING, Closure, Environment, Program, ast, compile_node, references
from engine.cel.unparse import unparse
from engine.model.label_condition import LabelCondition
from engine.policy.context import PolicyContext
from engine.policy.label_analysis.label_predicate import (
    DOES_NOT_FAIL,
    LABEL,
    PASSES,
    AllOf,
    AnyOf,
    Comparison,
    Conditional,
    Constant,
    Goal,
    Key,
    LabelPredicate,
    LabelSummary,
    Let,
    Negation,
    Precomputed,
    Presence,
    Quantifier,
    Unknown,
    condition_of,
    precompute,
    summarize,
)

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
    """Return whether a node is `node.labels`."""
    root, keys, optional = ast.field_path(resolved(node, bindings))
    return keys == ("labels",) and not optional and is_node(root, bindings)


def is_node(node: ast.Node, bindings: Bindings) -> bool:
    """Return whether a node of the tree is the variable `node`."""
    node = resolved(node, bindings)
    return isinstance(node, ast.Variable) and node.name == "node"


def reads_node(node: ast.Node, bindings: Bindings) -> bool:
    """Return whether a part depends on the node that is judged."""
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
    """Return whether a node is `int(..)`."""
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
                found = _presence(node, bindings)
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


def _presence(node: ast.Has | ast.Call, bindings: Bindings) -> LabelPredicate | None:
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
    """The node labels that a score reads.

    Attributes:
        keys: of those that it reads by a constant key, in the order of the expression.
        preferred: the nodes with the greater of two numbers, where it is a choice between two; None
            for any other score.
    """

    keys: tuple[str, ...] = ()
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
