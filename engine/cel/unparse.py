"""A syntax tree back to text: one line that parses to the same tree.

Equal trees have one text and unlike trees have two, so the text also serves as the name of what a
sub-expression computes. Only values that a function made at load, as `ip('::1')`, do not read back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from engine.cel import ast
from engine.cel.times import format_duration, format_timestamp
from engine.cel.values import DURATION, TIMESTAMP, CelType, Opaque

# How tightly a form binds; an operand that binds looser than its place allows gets parentheses.
_LOOSEST, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _TIGHTEST = range(8)
_BINARY: Final = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), _RELATION),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_KEYWORDS: Final = frozenset({"true", "false", "null", "in"})

_Piece = tuple[str, int]
"""A text and how tightly its outermost form binds."""


def unparse(node: ast.Node) -> str:
    """Return the text of a tree, resolved or not."""
    return _WRITERS[type(node)](node)[0]


def _inside(node: ast.Node, at_least: int) -> str:
    text, binding = _WRITERS[type(node)](node)
    return text if binding >= at_least else f"({text})"


def _list(nodes: Iterable[ast.Node]) -> str:
    return ", ".join(map(unparse, nodes))


def _plain(name: str) -> str:
    """Return a variable of a macro as it was written: the checker adds its depth."""
    return name.partition("@")[0]


def _literal(node: ast.Literal) -> _Piece:
    value: Any = node.value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value], _TIGHTEST
    if isinstance(value, CelType):
        return value.name, _TIGHTEST
    if node.type == DURATION:
        return f"duration('{format_duration(value)}')", _TIGHTEST
    if node.type == TIMESTAMP:
        return f"timestamp('{format_timestamp(value)}')", _TIGHTEST
    text = repr(value)
    if isinstance(value, Opaque):
        return f"{node.type}({text.partition('(')[2]}", _TIGHTEST
    return text, _UNARY if text.startswith("-") else _TIGHTEST


def _name(node: ast.Name) -> _Piece:
    return f".{node.name}" if node.absolute else node.name, _TIGHTEST


def _variable(node: ast.Variable | ast.Local) -> _Piece:
    return _plain(node.name), _TIGHTEST


def _field(operand: ast.Node, field: str, *, optional: bool) -> str:
    bare = _IDENTIFIER.fullmatch(field) and field not in _KEYWORDS
    mark = "?" if optional else ""
    return f"{_inside(operand, _TIGHTEST)}.{mark}{field if bare else f'`{field}`'}"


def _select(node: ast.Select) -> _Piece:
    return _field(node.operand, node.field, optional=node.optional), _TIGHTEST


def _has(node: ast.Has) -> _Piece:
    return f"has({_field(node.operand, node.field, optional=False)})", _TIGHTEST


def _index(node: ast.Index) -> _Piece:
    mark = "?" if node.optional else ""
    return f"{_inside(node.operand, _TIGHTEST)}[{mark}{unparse(node.index)}]", _TIGHTEST


def _list_literal(node: ast.ListLiteral) -> _Piece:
    elements = (
        f"?{unparse(element)}" if position in node.optionals else unparse(element)
        for position, element in enumerate(node.elements)
    )
    return f"[{', '.join(elements)}]", _TIGHTEST


def _entry(node: ast.Entry) -> _Piece:
    return f"{'?' if node.optional else ''}{unparse(node.key)}: {unparse(node.value)}", _LOOSEST


def _map_literal(node: ast.MapLiteral) -> _Piece:
    return f"{{{_list(node.entries)}}}", _TIGHTEST


def _not(node: ast.Not) -> _Piece:
    return f"!{_inside(node.operand, _UNARY)}", _UNARY


def _negate(node: ast.Negate) -> _Piece:
    operand = _inside(node.operand, _UNARY)
    takes_the_sign = operand[0].isdigit()  # `-1.abs()` is the call of a negative number
    return f"-({operand})" if takes_the_sign else f"-{operand}", _UNARY


def _binary(node: ast.Binary) -> _Piece:
    binding = _BINARY[node.operator]
    left, right = _inside(node.left, binding), _inside(node.right, binding + 1)
    return f"{left} {node.operator} {right}", binding


def _and(node: ast.And) -> _Piece:
    return " && ".join(_inside(operand, _RELATION) for operand in node.operands), _AND


def _or(node: ast.Or) -> _Piece:
    return " || ".join(_inside(operand, _AND) for operand in node.operands), _OR


def _conditional(node: ast.Conditional) -> _Piece:
    test, then = _inside(node.test, _OR), _inside(node.then, _OR)
    return f"{test} ? {then} : {unparse(node.otherwise)}", _LOOSEST


def _call(node: ast.Call) -> _Piece:
    if node.member:
        receiver, *args = node.args
        return f"{_inside(receiver, _TIGHTEST)}.{node.function}({_list(args)})", _TIGHTEST
    return f"{node.function}({_list(node.args)})", _TIGHTEST


def _macro(receiver: ast.Node, name: str, variables: Iterable[str], *body: ast.Node) -> _Piece:
    args = ", ".join((*map(_plain, variables), *map(unparse, body)))
    return f"{_inside(receiver, _TIGHTEST)}.{name}({args})", _TIGHTEST


def _alternative(node: ast.Alternative) -> _Piece:
    return _macro(node.operand, "orValue" if node.unwraps else "or", (), node.other)


def _quantifier(node: ast.Quantifier) -> _Piece:
    return _macro(node.range, node.how_many.value, node.variables, node.predicate)


_TRANSFORMS: Final = {
    (ast.Shape.LIST, 1): "map",
    (ast.Shape.LIST, 2): "transformList",
    (ast.Shape.MAP, 2): "transformMap",
    (ast.Shape.ENTRIES, 2): "transformMapEntry",
}


def _transform(node: ast.Transform) -> _Piece:
    if node.condition is not None and _is_variable(node.result, node.variables):
        return _macro(node.range, "filter", node.variables, node.condition)
    name = _TRANSFORMS[node.shape, len(node.variables)]
    body = (node.result,) if node.condition is None else (node.condition, node.result)
    return _macro(node.range, name, node.variables, *body)


def _is_variable(node: ast.Node, variables: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Name | ast.Local) and (node.name,) == variables


def _sort_by(node: ast.SortBy) -> _Piece:
    return _macro(node.range, "sortBy", (node.variable,), node.key)


def _bind(node: ast.Bind) -> _Piece:
    args = f"{_plain(node.variable)}, {unparse(node.value)}, {unparse(node.body)}"
    return f"cel.bind({args})", _TIGHTEST


def _optional_map(node: ast.OptionalMap) -> _Piece:
    name = "optFlatMap" if node.flat else "optMap"
    return _macro(node.operand, name, (node.variable,), node.body)


_WRITERS: Final[Mapping[type[ast.Node], Callable[[Any], _Piece]]] = {
    ast.Alternative: _alternative,
    ast.And: _and,
    ast.Binary: _binary,
    ast.Bind: _bind,
    ast.Call: _call,
    ast.Conditional: _conditional,
    ast.Entry: _entry,
    ast.Has: _has,
    ast.Index: _index,
    ast.ListLiteral: _list_literal,
    ast.Literal: _literal,
    ast.Local: _variable,
    ast.MapLiteral: _map_literal,
    ast.Name: _name,
    ast.Negate: _negate,
    ast.Not: _not,
    ast.OptionalMap: _optional_map,
    ast.Or: _or,
    ast.Quantifier: _quantifier,
    ast.Select: _select,
    ast.SortBy: _sort_by,
    ast.Transform: _transform,
    ast.Variable: _variable,
}
