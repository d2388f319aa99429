"""Expansion of macros: calls that bind variables or inspect the form of their arguments.

The checker enforces `Limits.nesting`, because it knows which loop is in the body of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.cel import ast
from engine.cel.errors import CelSyntaxError

_Args = tuple[ast.Node, ...]
_Builder = Callable[[ast.Node, _Args, int], ast.Node]
"""Takes the receiver, the arguments and the offset of the call."""


def expand(function: str, receiver: ast.Node | None, args: _Args, offset: int) -> ast.Node | None:
    """Return the node for a call of a macro, None if it is another call.

    Raises:
        CelSyntaxError: the arguments do not have the form that the macro needs.
    """
    if receiver is None:
        return _has(args[0]) if function == "has" and len(args) == 1 else None
    if function == "bind" and len(args) == 3 and _is_namespace(receiver, "cel"):  # noqa: PLR2004
        variable, value, body = args
        return ast.Bind(_variable(variable), value, body, offset=offset)
    build = _MACROS.get((function, len(args)))
    return build(receiver, args, offset) if build else None


def _is_namespace(node: ast.Node, name: str) -> bool:
    return isinstance(node, ast.Name) and node.name == name and not node.absolute


def _has(argument: ast.Node) -> ast.Node | None:
    """Return None for an argument that is no field: the checker, which knows types, reports it."""
    if not isinstance(argument, ast.Select) or argument.optional:
        return None
    return ast.Has(argument.operand, argument.field, offset=argument.offset)


def _variable(argument: ast.Node) -> str:
    if not isinstance(argument, ast.Name) or argument.absolute:
        raise CelSyntaxError(argument.offset, "expected a plain name for a variable of the macro")
    return argument.name


def _variables(arguments: _Args) -> tuple[str, ...]:
    names = tuple(_variable(argument) for argument in arguments)
    if len(set(names)) < len(names):
        raise CelSyntaxError(arguments[-1].offset, "the variables of a macro need different names")
    return names


def _quantifier(how_many: ast.HowMany) -> _Builder:
    def build(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
        *names, predicate = args
        variables = _variables(tuple(names))
        return ast.Quantifier(how_many, receiver, variables, predicate, offset=offset)

    return build


def _transform(shape: ast.Shape, variables: int) -> _Builder:
    def build(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
        names = _variables(args[:variables])
        condition = args[variables] if len(args) > variables + 1 else None
        return ast.Transform(shape, receiver, names, condition, args[-1], offset=offset)

    return build


def _filter(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
    element, condition = args
    variables = _variables((element,))
    return ast.Transform(ast.Shape.LIST, receiver, variables, condition, element, offset=offset)


def _sort_by(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
    return ast.SortBy(receiver, _variable(args[0]), args[1], offset=offset)


def _optional_map(*, flat: bool) -> _Builder:
    def build(receiver: ast.Node, args: _Args, offset: int) -> ast.Node:
        return ast.OptionalMap(receiver, _variable(args[0]), args[1], flat, offset=offset)

    return build


_MACROS: Final[Mapping[tuple[str, int], _Builder]] = {
    ("all", 2): _quantifier(ast.HowMany.ALL),
    ("all", 3): _quantifier(ast.HowMany.ALL),
    ("exists", 2): _quantifier(ast.HowMany.SOME),
    ("exists", 3): _quantifier(ast.HowMany.SOME),
    ("exists_one", 2): _quantifier(ast.HowMany.ONE),
    ("exists_one", 3): _quantifier(ast.HowMany.ONE),
    ("existsOne", 2): _quantifier(ast.HowMany.ONE),
    ("existsOne", 3): _quantifier(ast.HowMany.ONE),
    ("filter", 2): _filter,
    ("map", 2): _transform(ast.Shape.LIST, 1),
    ("map", 3): _transform(ast.Shape.LIST, 1),
    ("transformList", 3): _transform(ast.Shape.LIST, 2),
    ("transformList", 4): _transform(ast.Shape.LIST, 2),
    ("transformMap", 3): _transform(ast.Shape.MAP, 2),
    ("transformMap", 4): _transform(ast.Shape.MAP, 2),
    ("transformMapEntry", 3): _transform(ast.Shape.ENTRIES, 2),
    ("transformMapEntry", 4): _transform(ast.Shape.ENTRIES, 2),
    ("sortBy", 2): _sort_by,
    ("optMap", 2): _optional_map(flat=False),
    ("optFlatMap", 2): _optional_map(flat=True),
}
"""Macros of a receiver, by name and number of arguments."""

NAMES: Final = frozenset({"has", "bind", *(name for name, _ in _MACROS)})
"""Names of macros, for hints on calls with other arguments."""
