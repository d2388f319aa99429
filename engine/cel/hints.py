"""Hints for what people write from habit: other languages, and Kubernetes' own notation.

A hint says what to write instead; the message beside it says what is wrong. What the names of an
environment call for is in the environment (`Environment.hints`, `ObjectType.hints`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from engine.cel import ast
from engine.cel.environment import ObjectType
from engine.cel.static_types import NUMERIC, kind_of, parameter
from engine.cel.unparse import unparse
from engine.cel.values import DOUBLE, DYN, INT, LIST, MAP, STRING, UINT, CelType

TypeOf: TypeAlias = Callable[[ast.Node], CelType]
"""Returns the type of a part of an unresolved tree."""

# Syntax.

_WORDS: Final = {
    "and": "write `&&`",
    "between": "write `a <= x && x <= b`",
    "div": "write `/`",
    "else": "write `test ? a : b`",
    "if": "write `test ? a : b`",
    "is": "write `==`",
    "like": "write `x.matches('..')`, `x.startsWith('..')` or `x.contains('..')`",
    "matches": "write `x.matches('..')`",
    "mod": "write `%`",
    "not": "write `!(x in y)`",
    "or": "write `||`",
    "then": "write `test ? a : b`",
}
"""Operators of other languages, where an operator should be."""

_WORD = re.compile(r"[A-Za-z]+")
_NUMBER_BEFORE = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?$")
_PERCENT_BEFORE = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?) *% *$")
_NOT_BEFORE = re.compile(r"(?<![\w.])not\s+$", re.IGNORECASE)
_AMOUNT_SUFFIXES: Final = frozenset(
    {"n", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)
_TIME_UNITS: Final = {"ns": 1, "us": 1, "ms": 1, "s": 1, "m": 1, "h": 1, "d": 24, "w": 168}
"""Units of time, each with its factor to one that a duration knows: itself, or `h`."""


def for_unexpected(source: str, offset: int) -> str:
    """Return the hint for the token at which a text ceases to be CEL, "" where there is none."""
    before, after = source[:offset], source[offset:]
    word = _WORD.match(after)
    number = _NUMBER_BEFORE.search(before)
    if word and number and (hint := _for_suffix(number[0], word[0])):
        return hint
    if percent := _PERCENT_BEFORE.search(before):
        return f"there are no percentages: write `{float(percent[1]) / 100!r}`"
    if _NOT_BEFORE.search(before):
        return "write `!`"
    if after.startswith("!~"):
        return "write `!x.matches('..')`"
    if after.startswith(">") and before.endswith("<"):
        return "write `!=`"
    return _WORDS.get(word[0].lower(), "") if word else ""


def _for_suffix(number: str, suffix: str) -> str:
    """Return the hint for a number that is followed by the suffix of an amount or of a time."""
    ways = []
    if suffix in _AMOUNT_SUFFIXES:
        ways.append(f"`quantity('{number}{suffix}').asApproximateFloat()`")
    if suffix in _TIME_UNITS:
        factor = _TIME_UNITS[suffix]
        time = f"{number}{suffix}" if factor == 1 else f"{float(number) * factor:g}h"
        ways.append(f"`duration('{time}')`")
    return f"write {' or '.join(ways)}" if ways else ""


# Names and functions.

NAMES: Final = {
    "False": "write `false`",
    "NULL": "write `null`",
    "None": "write `null`",
    "Null": "write `null`",
    "TRUE": "write `true`",
    "FALSE": "write `false`",
    "True": "write `true`",
    "nil": "write `null`",
    "not": "write `!`",
    "undefined": "write `null`, or ask `has(a.b)`",
}
"""Hints for unknown names."""

_LOWER, _UPPER = "write `x.lowerAscii()`", "write `x.upperAscii()`"
_SIZE, _MATCHES = "write `x.size()`", "write `x.matches('..')`"
_FUNCTIONS: Final = {
    "abs": "write `math.abs(x)`",
    "any": "write `x.exists(e, ..)`",
    "avg": "write `double(x.sum()) / double(x.size())`",
    "ceil": "write `math.ceil(x)`",
    "count": "write `x.filter(e, ..).size()`",
    "every": "write `x.all(e, ..)`",
    "float": "write `double(x)`",
    "floor": "write `math.floor(x)`",
    "includes": "write `e in x`",
    "isEmpty": "write `x.size() == 0`",
    "len": _SIZE,
    "length": _SIZE,
    "lower": _LOWER,
    "match": _MATCHES,
    "math.max": "write `math.greatest(a, b)`",
    "math.min": "write `math.least(a, b)`",
    "max": "write `math.greatest(a, b)`; the largest of a list is `x.max()`",
    "min": "write `math.least(a, b)`; the smallest of a list is `x.min()`",
    "not": "write `!`",
    "pow": "there is no power: write the product",
    "regex": _MATCHES,
    "round": "write `math.round(x)`",
    "search": _MATCHES,
    "size": _SIZE,
    "some": "write `x.exists(e, ..)`",
    "sqrt": "write `math.sqrt(x)`",
    "str": "write `string(x)`",
    "strip": "write `x.trim()`",
    "substr": "write `x.substring(from, to)`",
    "test": _MATCHES,
    "toInt": "write `int(x)`",
    "toLower": _LOWER,
    "toLowerCase": _LOWER,
    "toString": "write `string(x)`",
    "toUpper": _UPPER,
    "toUpperCase": _UPPER,
    "upper": _UPPER,
}


NAMESPACES: Final = frozenset({"Math"})
"""Receivers of functions of other languages, where no variable is called so."""


def for_function(call: ast.Call) -> str:
    """Return the hint for a call of an unknown function, "" for any other."""
    if call.member and call.function in _HOLDS and len(call.args) == _WITH_ARGUMENT:
        return _member(*call.args)
    name = call.function.removeprefix(".")
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(name.lower(), "")


_HOLDS: Final = frozenset({"contains", "containsKey", "has", "hasKey", "includes"})
_WITH_ARGUMENT = 2  # the receiver and one more


def _member(container: ast.Node, element: ast.Node) -> str:
    return f"write `{unparse(element)} in {unparse(container)}`"


def for_mismatch(call: ast.Call, types: Sequence[CelType]) -> str:
    """Return the hint for arguments that a function does not take; types as of `call.args`."""
    is_container = types and kind_of(types[0]) in {MAP, LIST}
    if call.member and call.function in _HOLDS and is_container and len(types) == _WITH_ARGUMENT:
        return _member(*call.args)
    return ""


def for_has(argument: ast.Node, type_of: TypeOf) -> str:
    """Return the hint for `has` of something that is no field."""
    if isinstance(argument, ast.Index) and isinstance(argument.index, ast.Literal):
        return _member(argument.operand, argument.index)
    name = signed_name(argument)
    split = _path_and_key(name.names, type_of) if name else None
    return f"write `'{split[1]}' in {split[0]}`" if split else "write `has(a.b)`, or `'b' in a`"


def for_field(node: ast.Select, type_of: TypeOf) -> str:
    """Return the hint for a field of a value that has no fields, "" if there is none."""
    names = _dotted_text(node)
    return _FUNCTIONS.get(node.field) or (in_brackets(names.split("."), type_of) if names else "")


def for_index(node: ast.Index, element: CelType) -> str:
    """Return the hint for an element of a list by a string, "" if there is none."""
    field = next(iter(element.fields), "") if isinstance(element, ObjectType) else ""
    if not field:
        return ""
    return f"write `{unparse(node.operand)}.exists(e, e.{field} == {unparse(node.index)})`"


# Operators.

_CONVERT_NUMBERS = "write the number with a decimal point, or convert it with `double(..)`"
_CONVERT_TEXT = "a string is no number: drop the quotes, or convert it with `double(..)`"
_CONVERT_EITHER = "convert one of them, with `string(..)` or with `double(..)`"
_CONVERT_QUANTITY = "write `.asApproximateFloat()` after the quantity"
_QUANTITY: Final = "kubernetes.Quantity"


def for_operands(operator: str, left: CelType, right: CelType) -> str:
    """Return the hint for an operator that does not apply to its operands, "" if there is none."""
    kinds = {kind_of(left), kind_of(right)}
    if operator == "in":
        return "a list is written `['a', 'b']`; to search a string, `x.contains(y)`"
    if DOUBLE in kinds and kinds & {INT, UINT}:
        return _CONVERT_NUMBERS
    if STRING in kinds and kinds & NUMERIC:
        return _CONVERT_EITHER if operator == "+" else _CONVERT_TEXT
    if kinds & NUMERIC and _QUANTITY in {kind.name for kind in kinds}:
        return _CONVERT_QUANTITY
    return ""


# Keys of maps that are no names.

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
    split = _path_and_key(names, type_of)
    return f"write `{split[0]}['{split[1]}']`" if split else ""


def _path_and_key(names: Sequence[str], type_of: TypeOf) -> tuple[str, str] | None:
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
        return _dotted_text(node)
    left = _signed_text(node.left) if node.operator in _SIGNS else None
    if left is None or _start(node.left) + len(left) != node.offset:
        return None
    right = node.right
    is_integer = isinstance(right, ast.Literal) and right.type == INT
    text = unparse(right) if is_integer else _dotted_text(right)
    return None if text is None or _start(right) != node.offset + 1 else left + node.operator + text


def _dotted_text(node: ast.Node) -> str | None:
    if isinstance(node, ast.Name) and not node.absolute:
        return node.name
    if isinstance(node, ast.Select) and not node.optional:
        operand = _dotted_text(node.operand)
        if operand is not None and _start(node.operand) + len(operand) + 1 == node.offset:
            return f"{operand}.{node.field}"
    return None


def _start(node: ast.Node) -> int:
    """Return the offset of the first character of a chain."""
    while isinstance(node, ast.Select | ast.Binary):
        node = node.operand if isinstance(node, ast.Select) else node.left
    return node.offset
