"""Text of a syntax tree: one line that parses to the same tree.

Texts are equal exactly if the trees are, so a text also identifies what a sub-expression computes.
A value that a function made at load, such as `ip('::1')`, is the call that made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from engine.cel import ast
from engine.cel.lexer import KEYWORDS
from engine.cel.values import DURATION, TIMESTAMP, CelType, format_duration, format_timestamp

# Precedence of each form; an operand of lower precedence than its position needs parentheses.
_LOWEST, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _HIGHEST = range(8)
_BINARY: Final = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), _RELATION),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")

_Piece = tuple[str, int]
"""A text and the precedence of its outermost form."""


def unparse(node: ast.Node) -> str:
    """Return the text of a tree, resolved or not."""
    return _WRITERS[type(node)](node)[0]


def _operand(node: ast.Node, lowest: int) -> str:
    text, precedence = _WRITERS[type(node)](node)
    return text if precedence >= lowest else f"({text})"


def _list(nodes: Iterable[ast.Node]) -> str:
    return ", ".join(map(unparse, nodes))


def _plain(name: str) -> str:
    """Return the source name of a macro variable, without the depth that the checker adds."""
    return name.partition("@")[0]


def _literal(node: ast.Literal) -> _Piece:
    if node.call is not None:
        return _WRITERS[type(node.call)](node.call)
    value: Any = node.value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value], _HIGHEST
    if isinstance(value, CelType):
        return value.name, _HIGHEST
    if node.type == DURATION:
        return f"duration('{format_duration(value)}')", _HIGHEST
    if node.type == TIMESTAMP:
        return f"timestamp('{format_timestamp(value)}')", _HIGHEST
    text = repr(value)
    return text, _UNARY if text.startswith("-") else _HIGHEST


def _name(node: ast.Name) -> _Piece:
    return f".{node.name}" if node.absolute else node.name, _HIGHEST


def _variable(node: ast.Variable | ast.Local) -> _Piece:
    return _plain(node.name), _HIGHEST


def _field(operand: ast.Node, field: str, *, optional: bool) -> str:
    is_plain = _IDENTIFIER.fullmatch(field) and field not in KEYWORDS
    mark = "?" if optional else ""
    return f"{_operand(operand, _HIGHEST)}.{mark}{field if is_plain else f'`{field}`'}"


def _select(node: ast.Select) -> _Piece:
    return _field(node.operand, node.field, optional=node.optional), _HIGHEST


def _has(node: ast.Has) -> _Piece:
    return f"has({_field(node.operand, node.field, optional=False)})", _HIGHEST


def _index(node: ast.Index) -> _Piece:
    mark = "?" if node.optional else ""
    return f"{_operand(node.operand, _HIGHEST)}[{mark}{unparse(node.index)}]", _HIGHEST


def _list_literal(node: ast.ListLiteral) -> _Piece:
    elements = (
        f"?{unparse(element)}" if position in node.optionals else unparse(element)
        for position, element in enumerate(node.elements)
    )
    return f"[{', '.join(elements)}]", _HIGHEST


def _entry(node: ast.Entry) -> _Piece:
    return f"{'?' if node.optional else ''}{unparse(node.key)}: {unparse(node.value)}", _LOWEST


def _map_literal(node: ast.MapLiteral) -> _Piece:
    return f"{{{_list(node.entries)}}}", _HIGHEST


def _not(node: ast.Not) -> _Piece:
    return f"!{_operand(node.operand, _UNARY)}", _UNARY


def _negate(node: ast.Negate) -> _Piece:
    operand = _operand(node.operand, _UNARY)
    takes_the_sign = operand[0].isdigit()  # `-1.abs()` is the call of a negative number
    return f"-({operand})" if takes_the_sign else f"-{operand}", _UNARY


def _binary(node: ast.Binary) -> _Piece:
    precedence = _BINARY[node.operator]
    left, right = _operand(node.left, precedence), _operand(node.right, precedence + 1)
    return f"{left} {node.operator} {right}", precedence


def _and(node: ast.And) -> _Piece:
    return " && ".join(_operand(operand, _RELATION) for operand in node.operands), _AND


def _or(node: ast.Or) -> _Piece:
    return " || ".join(_operand(operand, _AND) for operand in node.operands), _OR


def _conditional(node: ast.Conditional) -> _Piece:
    test, then = _operand(node.test, _OR), _operand(node.then, _OR)
    return f"{test} ? {then} : {unparse(node.otherwise)}", _LOWEST


def _call(node: ast.Call) -> _Piece:
    if node.member:
        receiver, *args = node.args
        return f"{_operand(receiver, _HIGHEST)}.{node.function}({_list(args)})", _HIGHEST
    return f"{node.function}({_list(node.args)})", _HIGHEST


def _macro(receiver: ast.Node, name: str, variables: Iterable[str], *body: ast.Node) -> _Piece:
    args = ", ".join((*map(_plain, variables), *map(unparse, body)))
    return f"{_operand(receiver, _HIGHEST)}.{name}({args})", _HIGHEST


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
    return f"cel.bind({args})", _HIGHEST


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
