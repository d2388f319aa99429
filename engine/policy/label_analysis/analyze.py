"""The syntax tree of a filter, taken apart into a label predicate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from engine.cel import BOOL, Closure, Environment, ast, compile_node, references
from engine.cel.unparse import unparse
from engine.policy.label_analysis.label_access import (
    Bindings,
    as_conditional,
    is_int,
    is_labels,
    is_node,
    label_read,
    reads_node,
    reads_pod,
    resolved,
    without,
)
from engine.policy.label_analysis.label_predicate import (
    LABEL,
    AllOf,
    AnyOf,
    Comparison,
    Conditional,
    Constant,
    Key,
    LabelPredicate,
    Let,
    Negation,
    Presence,
    Quantifier,
    Unknown,
)
from engine.policy.label_analysis.requirements import precompute

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
