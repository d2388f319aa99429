"""Keys of maps that are written as names: `node.labels.my-label` is operators to CEL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from engine.cel import ast
from engine.cel.static_types import kind_of, parameter
from engine.cel.unparse import unparse
from engine.cel.values import DYN, INT, LIST, MAP, CelType

TypeOf: TypeAlias = Callable[[ast.Node], CelType]
"""Returns the type of a part of an unresolved tree."""

_SIGNS: Final = ("-", "/")


class SignedName(NamedTuple):
    """A tree as `a.b.c-d.e/f`, nothing blank in between: one name to people, operators to CEL.

    Attributes:
        names: `a`, `b` and `c-d.e/f`.
        sign: the first operator.
        offset: where that is.
    """

    names: tuple[str, ...]
    sign: str
    offset: int


def signed_name(node: ast.Node) -> SignedName | None:
    """Return a tree as one name with signs, None if it is none or has no dot before the first."""
    text = _signed_text(node)
    if text is None or not isinstance(node, ast.Binary):
        return None
    while isinstance(node.left, ast.Binary):
        node = node.left
    end = node.offset - _start(node)
    *path, last = text[:end].split(".")
    return SignedName((*path, last + text[end:]), node.operator, node.offset) if path else None


def in_brackets(names: Sequence[str], type_of: TypeOf) -> str:
    """Return the hint to write the end of a path in brackets, "" if no map is on the path."""
    split = path_and_key(names, type_of)
    return f"write `{split[0]}['{split[1]}']`" if split else ""


def path_and_key(names: Sequence[str], type_of: TypeOf) -> tuple[str, str] | None:
    """Split a path where it comes to a map of plain values, or to its last name in any map."""
    node: ast.Node = ast.Name(names[0], offset=0)
    for position, name in enumerate(names[1:], 1):
        of_type = type_of(node)
        holds_values = of_type.name == MAP.name and kind_of(parameter(of_type, 1)) not in _NESTED
        is_last = position == len(names) - 1 and of_type.name in {MAP.name, DYN.name}
        if holds_values or is_last:
            return ".".join(names[:position]), ".".join(names[position:])
        node = ast.Select(node, name, offset=0)
    return None


_NESTED: Final = frozenset({DYN, MAP, LIST})


def _signed_text(node: ast.Node) -> str | None:
    """Return the text of names that dots, dashes and slashes join without a blank."""
    if not isinstance(node, ast.Binary):
        return dotted_text(node)
    left = _signed_text(node.left) if node.operator in _SIGNS else None
    if left is None or _start(node.left) + len(left) != node.offset:
        return None
    right = node.right
    is_integer = isinstance(right, ast.Literal) and right.type == INT
    text = unparse(right) if is_integer else dotted_text(right)
    return None if text is None or _start(right) != node.offset + 1 else left + node.operator + text


def dotted_text(node: ast.Node) -> str | None:
    """Return names that dots join without a blank, None for any other tree."""
    if isinstance(node, ast.Name) and not node.absolute:
        return node.name
    if isinstance(node, ast.Select) and not node.optional:
        operand = dotted_text(node.operand)
        if operand is not None and _start(node.operand) + len(operand) + 1 == node.offset:
            return f"{operand}.{node.field}"
    return None


def _start(node: ast.Node) -> int:
    """Return the offset of the first character of a chain."""
    while isinstance(node, ast.Select | ast.Binary):
        node = node.operand if isinstance(node, ast.Select) else node.left
    return node.offset
