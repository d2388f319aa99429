"""From the syntax tree of a filter to its claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from engine.cel import BOOL, Closure, Environment, ast, compile_node, references
from engine.cel.unparse import unparse
from engine.policy.label_analysis.label_access import (
    Bindings,
    as_choice,
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
    Comparison,
    Conditional,
    Constant,
    Junction,
    Key,
    LabelPredicate,
    Let,
    Negation,
    Presence,
    Quantifier,
    Unknown,
)
from engine.policy.label_analysis.requirements import settled

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
    """Return what a filter is made of; `root` is a resolved tree."""
    try:
        return _Finder().claim(root, {})
    except RecursionError:
        return Unknown(_TOO_LARGE)


class _Finder:
    def __init__(self) -> None:
        self._visits_left = _MOST_VISITS  # meanings within meanings multiply
        self._settling = False  # whether inside a part that will be settled as a whole

    def claim(self, node: ast.Node, meanings: Bindings) -> LabelPredicate:
        if self._settling or reads_pod(node):
            return self._parts(node, meanings)
        self._settling = True
        found = settled(self._parts(node, meanings))
        self._settling = False
        return found

    def _parts(self, node: ast.Node, meanings: Bindings) -> LabelPredicate:
        if not self._visit():
            return Unknown(_TOO_LARGE)
        node, meanings = as_choice(node, meanings)
        if not reads_node(node, meanings):
            return Constant(_closure(node))
        match node:
            case ast.Not():
                return Negation(self.claim(node.operand, meanings))
            case ast.And() | ast.Or():
                operands = tuple(self.claim(operand, meanings) for operand in node.operands)
                return Junction(operands, of_all=isinstance(node, ast.And))
            case ast.Conditional():
                parts = (node.test, node.then, node.otherwise)
                return Conditional(*(self.claim(part, meanings) for part in parts))
        found: LabelPredicate | None = None
        match node:
            case ast.Quantifier():
                found = self._loop(node, meanings)
            case ast.Bind():
                found = self._bound(node, meanings)
            case ast.Binary():
                found = self._comparison(node, meanings)
            case ast.Has() | ast.Call():
                found = _presence(node, meanings)
        return found or self._unknown(node, meanings)

    def _unknown(self, node: ast.Node, meanings: Bindings) -> LabelPredicate:
        """Return the claim of a part that may give anything."""
        unknown = Unknown(_reason(node), tuple(self._needed(node, meanings)))
        # Without labels that it needs, it comes to the same for every pod.
        return unknown if unknown.reads else settled(unknown)

    def _visit(self) -> bool:
        """Count a visit; return whether it may be made."""
        self._visits_left -= 1
        return self._visits_left >= 0

    def _loop(self, node: ast.Quantifier, meanings: Bindings) -> LabelPredicate | None:
        if node.how_many is ast.HowMany.ONE or reads_node(node.range, meanings):
            return None
        predicate = self.claim(node.predicate, without(meanings, node.variables))
        of_all = node.how_many is ast.HowMany.ALL
        return Quantifier(_closure(node.range), node.variables, predicate, of_all=of_all)

    def _bound(self, node: ast.Bind, meanings: Bindings) -> LabelPredicate:
        if reads_node(node.value, meanings):
            return self.claim(node.body, {**meanings, node.variable: node.value})
        body = self.claim(node.body, without(meanings, (node.variable,)))
        return Let(node.variable, _closure(node.value), body)

    def _comparison(self, node: ast.Binary, meanings: Bindings) -> LabelPredicate | None:
        left, meanings = as_choice(node.left, meanings)
        right, meanings = as_choice(node.right, meanings)
        node = replace(node, left=left, right=right)
        for side in _SIDES:
            operand = _operand(node, side)
            if isinstance(operand, ast.Conditional) and reads_node(operand, meanings):
                return Conditional(
                    self.claim(operand.test, meanings),
                    self.claim(_with_operand(node, side, operand.then), meanings),
                    self.claim(_with_operand(node, side, operand.otherwise), meanings),
                )
        if not reads_node(right, meanings):
            return _comparison_of("left", node, meanings)
        if reads_node(left, meanings):
            return None
        if node.operator != "in":
            return _comparison_of("right", node, meanings)
        if is_labels(right, meanings):
            nowhere = replace(node, right=ast.MapLiteral((), offset=node.offset))
            return Presence(_key(left), _closure(nowhere))
        return None

    def _needed(self, node: ast.Node, meanings: Bindings) -> Iterator[Key]:
        """Yield labels without which a part fails, whatever else is known of it."""
        if not self._visit():
            return
        node = resolved(node, meanings)
        read = label_read(node, meanings)
        if read is not None and not read.optional:
            yield _key(read.key)
        elif isinstance(node, _STRICT):
            for child in ast.children(node):
                yield from self._needed(child, meanings)


def _presence(node: ast.Has | ast.Call, meanings: Bindings) -> LabelPredicate | None:
    """Return the claim of `has(node.labels.a)`, `has(node.labels)` or `node.labels.?a.hasValue()`.

    The labels of a node are always there, even if there are none.
    """
    if isinstance(node, ast.Has):
        if node.field == "labels" and is_node(node.operand, meanings):
            return Constant(_closure(_TRUE))
        read = label_read(ast.Select(node.operand, node.field, offset=node.offset), meanings)
        return Presence(_key(read.key), _closure(_FALSE)) if read else None
    if node.function != "hasValue":
        return None
    read = label_read(node.args[0], meanings)
    return Presence(_key(read.key), _closure(_FALSE)) if read and read.optional else None


def _comparison_of(side: _Side, node: ast.Binary, meanings: Bindings) -> Comparison | None:
    """Return the claim of a comparison of which only one side reads the node."""
    operand = _operand(node, side)
    numeric = is_int(operand)
    if not numeric and node.operator not in _EQUALITIES:
        return None
    read = label_read(operand.args[0] if is_int(operand) else operand, meanings)
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
    """Return why no requirement says the same as a part."""
    text = unparse(node)
    text = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
    if any(path[0] == "node" and path[1:2] != ("labels",) for path in references(node)):
        return f"`{text}` asks for more than labels"
    return f"no requirement says the same as `{text}`"


_TRUE: Final = ast.Literal(True, BOOL, offset=0)  # noqa: FBT003 (a value of the language)
_FALSE: Final = ast.Literal(False, BOOL, offset=0)  # noqa: FBT003 (a value of the language)
