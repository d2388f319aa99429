"""Hints for what people write from habit: other languages, and Kubernetes' own notation.

A hint says what to write instead; the message beside it says what is wrong. What the names of an
environment call for is in the environment (`Environment.hints`, `ObjectType.hints`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from engine.cel import ast
from engine.cel.environment import ObjectType
from engine.cel.static_types import NUMERIC, kind_of, parameter
from engine.cel.unparse import unparse
from engine.cel.values import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
)
from engine.documents import template_hint

TypeOf: TypeAlias = Callable[[ast.Node], CelType]
"""Returns the type of a part of an unresolved tree."""

_SIGNS: Final = ("-", "/")


class SignedName(NamedTuple):
    """A tree as `a.b.c-d.e/f`, nothing blank in between: one name to people, operators to CEL."""

    names: tuple[str, ...]  # `a`, `b` and `c-d.e/f`
    sign: str  # the first operator
    offset: int  # where that is


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


# Syntax.

_WORDS: Final = {
    "and": "write `&&`",
    "between": "write `a <= x && x <= b`",
    "div": "write `/`",
    "else": "write `test ? a : b`",
    "eq": "write `==`",
    "ge": "write `>=`",
    "gt": "write `>`",
    "if": "write `test ? a : b`",
    "is": "write `==`",
    "le": "write `<=`",
    "like": "write `x.matches('..')`, `x.startsWith('..')` or `x.contains('..')`",
    "lt": "write `<`",
    "matches": "write `x.matches('..')`",
    "mod": "write `%`",
    "ne": "write `!=`",
    "not": "write `!(x in y)`",
    "or": "write `||`",
    "then": "write `test ? a : b`",
}
"""Operators of other languages, where an operator should be."""

_WORD = re.compile(r"[A-Za-z]+")
_NUMBER_BEFORE = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?$")
_PERCENT_BEFORE = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?) *% *$")
_NOT_BEFORE = re.compile(r"(?<![\w.])not\s+$", re.IGNORECASE)
_IN_NO_LIST = re.compile(r"\bin\s*(?:\{[^}:]*|'[^']*'|\"[^\"]*\")\s*$")
_A_LIST: Final = "a list is written `['a', 'b']`"
_A_DEFAULT: Final = "write `x[?'key'].orValue('b')`"
_NO_POWER: Final = "there is no power: write the product"
_AMOUNT_SUFFIXES: Final = frozenset(
    {"n", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)
_TIME_UNITS: Final = {"ns": 1, "us": 1, "ms": 1, "s": 1, "m": 1, "h": 1, "d": 24, "w": 168}
"""Units of time, each with its factor to one that a duration knows: itself, or `h`."""


def for_unexpected(source: str, offset: int) -> str:
    """Return the hint for the token at which a text ceases to be CEL, "" where there is none."""
    return template_hint(source, offset) or _for_word_or_sign(source, offset)


def _for_word_or_sign(source: str, offset: int) -> str:
    before, after = source[:offset], source[offset:]
    word = _WORD.match(after)
    number = _NUMBER_BEFORE.search(before)
    if word and number and (hint := _for_suffix(number[0], word[0])):
        return hint
    if percent := _PERCENT_BEFORE.search(before):
        return f"there are no percentages: write `{float(percent[1]) / 100!r}`"
    if _NOT_BEFORE.search(before):
        return "write `!`"
    if after.startswith(",") and _IN_NO_LIST.search(before):
        return _A_LIST
    if after.startswith("?") and before.endswith("?"):
        return _A_DEFAULT
    if after.startswith("*") and before.endswith("*"):
        return _NO_POWER
    if after.startswith("`"):
        return "a string is written in quotes: `'a'`"
    if after.startswith("!~"):
        return "write `!x.matches('..')`"
    if after.startswith(">") and before.endswith("<"):
        return "write `!=`"
    return _WORDS.get(word[0].lower(), "") if word else ""


def _for_suffix(number: str, suffix: str) -> str:
    """Return the hint for a number that is followed by the suffix of an amount or of a time."""
    ways = []
    if suffix.endswith("B") and len(suffix) > 1:  # as in 4GiB
        suffix = suffix.removesuffix("B")
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
_MEAN: Final = "write `x.mean()`"
_FUNCTIONS: Final = {
    "abs": "write `math.abs(x)`",
    "any": "write `x.exists(e, ..)`",
    "average": _MEAN,
    "avg": _MEAN,
    "ceil": "write `math.ceil(x)`",
    "count": "write `x.filter(e, ..).size()`",
    "default": _A_DEFAULT,
    "defined": "write `has(a.b)`, or `'b' in a`",
    "every": "write `x.all(e, ..)`",
    "float": "write `double(x)`",
    "floor": "write `math.floor(x)`",
    "get": _A_DEFAULT,
    "getOrDefault": _A_DEFAULT,
    "includes": "write `e in x`",
    "isEmpty": "write `x.size() == 0`",
    "keys": "write `'key' in x`, or `x.exists(key, ..)`",
    "len": _SIZE,
    "length": _SIZE,
    "lower": _LOWER,
    "match": _MATCHES,
    "math.max": "write `math.greatest(a, b)`",
    "math.min": "write `math.least(a, b)`",
    "max": "write `math.greatest(a, b)`; the largest of a list is `x.max()`",
    "min": "write `math.least(a, b)`; the smallest of a list is `x.min()`",
    "not": "write `!`",
    "parseQuantity": "write `quantity(x)`",
    "pow": _NO_POWER,
    "regex": _MATCHES,
    "round": "write `math.round(x)`",
    "search": _MATCHES,
    "size": _SIZE,
    "some": "write `x.exists(e, ..)`",
    "sqrt": "write `math.sqrt(x)`",
    "std": "write `x.stddev()`",
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
    "values": "write `x.exists(key, value, ..)`",
}


NAMESPACES: Final = frozenset({"Math"})
"""Receivers of functions of other languages, where no variable is called so."""


def for_function(call: ast.Call) -> str:
    """Return the hint for a call of an unknown function, "" for any other."""
    if call.member and call.function in _HOLDS and len(call.args) == _WITH_ARGUMENT:
        return _member(*call.args)
    if call.function in _DEFAULTS and call.member and len(call.args) > _WITH_ARGUMENT:
        of, key, default = call.args[:3]
        read = ast.Index(of, key, optional=True, offset=0)
        return f"write `{unparse(ast.Alternative(read, default, unwraps=True, offset=0))}`"
    name = call.function.removeprefix(".")
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(name.lower(), "")


_DEFAULTS: Final = frozenset({"get", "getOrDefault"})
_HOLDS: Final = frozenset({"contains", "containsKey", "has", "hasKey", "includes"})
_WITH_ARGUMENT = 2  # the receiver and one more


def _member(container: ast.Node, element: ast.Node) -> str:
    return f"write `{unparse(element)} in {unparse(container)}`"


def for_mismatch(call: ast.Call, types: Sequence[CelType]) -> str:
    """Return the hint for arguments that a function does not take; types as of `call.args`."""
    kind = kind_of(types[0]) if types else DYN
    if call.member and call.function in _HOLDS and len(types) == _WITH_ARGUMENT:
        if kind == LIST and kind_of(parameter(types[0])) not in _PLAIN:
            return f"write `{unparse(call.args[0])}.exists(e, ..)`"
        if kind in {MAP, LIST}:
            return _member(*call.args)
    if call.function in _FOR_ONE and len(types) > _WITH_ARGUMENT and set(types) == {STRING}:
        of, *texts = call.args
        each = tuple(_call(call.function, of, text) for text in texts)
        return f"for any of them write `{unparse(ast.Or(each, offset=0))}`"
    if kind in NUMERIC and call.function == "duration":
        return "write `duration('600s')`"
    if _QUANTITY in {of_type.name for of_type in types} and call.function in _SIGNS_OF:
        one, other = (
            arg if of_type.name != _QUANTITY else _call("asApproximateFloat", arg)
            for arg, of_type in zip(call.args, types, strict=True)
        )
        compared = ast.Binary(_SIGNS_OF[call.function], one, other, offset=0)
        return f"an amount is a number: write `{unparse(compared)}`"
    if kind in NUMERIC and call.function in _OF_QUANTITIES:
        return "an amount is a number: compare it with `quantity('4Gi').asApproximateFloat()`"
    return ""


_FOR_ONE: Final = frozenset({"contains", "endsWith", "matches", "startsWith"})
_PLAIN: Final = frozenset({*NUMERIC, BOOL, STRING, DYN})
_SIGNS_OF: Final = {"isGreaterThan": ">", "isLessThan": "<"}
_OF_QUANTITIES: Final = frozenset(
    {"add", "compareTo", "isGreaterThan", "isLessThan", "quantity", "sub"}
)


def for_has(argument: ast.Node, type_of: TypeOf) -> str:
    """Return the hint for `has` of something that is no field."""
    if isinstance(argument, ast.Index) and isinstance(argument.index, ast.Literal):
        return _member(argument.operand, argument.index)
    name = signed_name(argument)
    split = path_and_key(name.names, type_of) if name else None
    return f"write `'{split[1]}' in {split[0]}`" if split else "write `has(a.b)`, or `'b' in a`"


def for_field(node: ast.Select, type_of: TypeOf) -> str:
    """Return the hint for a field of a value that has no fields, "" if there is none."""
    if node.field in _FUNCTIONS:
        return _FUNCTIONS[node.field]
    of_type = type_of(node.operand)
    if kind_of(of_type) == LIST:
        name = ast.Literal(node.field, STRING, offset=node.offset)
        return for_index(ast.Index(node.operand, name, offset=node.offset), parameter(of_type))
    names = dotted_text(node)
    return in_brackets(names.split("."), type_of) if names else ""


def for_index(node: ast.Index, element: CelType) -> str:
    """Return the hint for an element of a list by a string, "" if there is none."""
    field = next(iter(element.fields), "") if isinstance(element, ObjectType) else ""
    if not field:
        return ""
    return f"write `{unparse(node.operand)}.exists(e, e.{field} == {unparse(node.index)})`"


# Operators.


def for_unquoted(node: ast.Index, of_type: CelType) -> str:
    """Return the hint for the key of a map that is no known name, "" of anything else."""
    if of_type.name != MAP.name or not isinstance(node.index, ast.Name):
        return ""
    quoted = ast.Literal(node.index.name, STRING, offset=0)
    return f"write `{unparse(replace(node, index=quoted))}`"


def for_failure(call: ast.Call) -> str:
    """Return the hint for a call that fails for its constants, "" if there is none."""
    argument = call.args[0] if call.args else None
    meant = _MEANT.get(call.function)
    if meant is None or not isinstance(argument, ast.Literal):
        return ""
    text = str(argument.value).strip()
    found = meant(text)
    return f"write `{call.function}('{found}')`" if found not in {"", text} else ""


def _duration(text: str) -> str:
    found = _OTHER_DURATION.fullmatch(text)
    unit = found[2].lower() if found else "?"
    factor = next((each for name, each in _LONG_UNITS.items() if unit.startswith(name)), None)
    if found is None or factor is None:
        return ""
    seconds = float(found[1]) * factor
    hours, rest = divmod(seconds, 3600)
    return f"{hours:g}h" if hours and not rest else f"{seconds:g}s"


def _quantity(text: str) -> str:
    found = _OTHER_QUANTITY.fullmatch(text)
    if found is None:
        return ""
    suffix = f"{found[2].upper()}{found[3].lower()}"
    return found[1] + ("k" if suffix == "K" else suffix)


def _semver(text: str) -> str:
    found = _OTHER_VERSION.fullmatch(text)
    return ".".join(number or "0" for number in found.groups()) if found else ""


def _timestamp(text: str) -> str:
    found = _OTHER_MOMENT.fullmatch(text)
    return f"{found[1]}T{found[2] or '00:00'}{found[3] or ':00'}Z" if found else ""


_MEANT: Final = {
    "duration": _duration,
    "quantity": _quantity,
    "semver": _semver,
    "timestamp": _timestamp,
}
"""What is meant by a text that a function cannot read, "" if that is not known."""

_OTHER_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGTPE])(i?)[Bb]?", re.IGNORECASE)
_OTHER_VERSION: Final = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?")
_OTHER_MOMENT: Final = re.compile(
    r"([0-9]{4}-(?:0[1-9]|1[0-2])-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?)?Z?"
)
_OTHER_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")
_LONG_UNITS: Final = {"mi": 60, "s": 1, "h": 3600, "d": 86_400, "w": 604_800, "": 1}
"""Seconds by how the unit begins; `m` is a minute to a duration itself."""

_CONVERT_NUMBERS = "write the number with a decimal point, or convert it with `double(..)`"
_CONVERT_TEXT = "a string is no number: drop the quotes, or convert it with `double(..)`"
_CONVERT_EITHER = "convert one of them, with `string(..)` or with `double(..)`"
_CONVERT_QUANTITY = "write `.asApproximateFloat()` after the quantity"
_STRING_AS_BOOL: Final = "a string is no bool: compare it with `'true'`"
_BOOL_ALONE: Final = "a bool is no number: it stands alone, or behind `!`"
_QUANTITY: Final = "kubernetes.Quantity"


def for_operands(node: ast.Binary, left: CelType, right: CelType) -> str:
    """Return the hint for an operator that does not apply to its operands, "" if there is none."""
    operator = node.operator
    kinds = {kind_of(left), kind_of(right)}
    if operator == "in":
        return _for_membership(node, kinds)
    if OPTIONAL in kinds and len(kinds) > 1:
        return _or_value(node, left, right)
    if operator in {"==", "!="} and LIST in kinds and kinds & _PLAIN:
        one, other = (node.right, node.left) if kind_of(left) == LIST else (node.left, node.right)
        test: ast.Node = ast.Binary("in", one, other, offset=0)
        return f"write `{unparse(test if operator == '==' else ast.Not(test, offset=0))}`"
    if kinds == {STRING, BOOL}:
        return _of_string_and_bool(node, left)
    if kinds == {TIMESTAMP, STRING}:
        return _of_timestamp_and_string(node)
    if _QUANTITY in {left.name, right.name} and not kinds & NUMERIC:
        return "amounts are numbers in `pod.requests`, `pod.limits` and below `node`: compare those"
    return (_amount(node) or _for_number(operator, left, kinds)) if kinds & NUMERIC else ""


def _for_membership(node: ast.Binary, kinds: Collection[CelType]) -> str:
    """Return the hint for `in` of what is no list."""
    if kinds != {STRING}:
        return f"{_A_LIST}; to search a string, `x.contains(y)`"
    if not isinstance(node.right, ast.Literal):
        return f"write `{unparse(_call('contains', node.right, node.left))}`"
    texts = [text for text in _BETWEEN.split(str(node.right.value)) if text]
    values = tuple(ast.Literal(text, STRING, offset=0) for text in texts)
    among = replace(node, right=ast.ListLiteral(values, offset=0))
    return f"write `{unparse(among)}`"


_BETWEEN: Final = re.compile(r"[,;\s]+")


def _call(function: str, *args: ast.Node) -> ast.Call:
    return ast.Call(function, args, member=True, offset=0)


def _amount(node: ast.Binary) -> str:
    """Return the hint for an amount such as `'4Gi'` next to a number, "" without one."""
    for side in (node.left, node.right):
        if isinstance(side, ast.Literal) and (found := _OTHER_QUANTITY.fullmatch(str(side.value))):
            return f"write `quantity('{_quantity(found[0])}').asApproximateFloat()`"
    return ""


def _for_number(operator: str, left: CelType, kinds: Collection[CelType]) -> str:
    """Return the hint for an operator that does not apply to a number and something else."""
    if DOUBLE in kinds and (INT in kinds or UINT in kinds):
        return _CONVERT_NUMBERS
    if STRING in kinds and operator == "+" and kind_of(left) in NUMERIC:
        return "put each choice of a sum in parentheses: `(x ? 1 : 0) + (y ? 1 : 0)`"
    if STRING in kinds:
        return _CONVERT_EITHER if operator == "+" else _CONVERT_TEXT
    if DURATION in kinds:
        return "write `duration('600s')`"
    if kind_of(left) == BOOL:
        return _BOOL_ALONE if operator in {"==", "!="} else "write `a < x && x < b`"
    return _CONVERT_QUANTITY if _QUANTITY in {kind.name for kind in kinds} else ""


def _or_value(node: ast.Binary, left: CelType, right: CelType) -> str:
    """Return the hint to give an optional that is compared a value for where it is absent."""
    is_left = kind_of(left) == OPTIONAL
    default = _ABSENT.get(kind_of(right if is_left else left))
    if default is None:
        return ""
    optional = node.left if is_left else node.right
    given = ast.Alternative(optional, default, unwraps=True, offset=0)
    new = replace(node, left=given) if is_left else replace(node, right=given)
    return f"write `{unparse(new)}`"


_ABSENT: Final = {
    kind: ast.Literal(value, kind, offset=0)
    for kind, value in ((STRING, ""), (DOUBLE, 0.0), (INT, 0), (BOOL, False))
}
"""What stands for an absent value, by the type of what it is compared with."""


def for_default(node: ast.Call, of_type: CelType) -> str:
    """Return the hint for the default of an optional that is of another type, "" without one."""
    of, default = node.args
    if kind_of(of_type) == STRING and isinstance(default, ast.Literal):
        text = str(default.value).lower() if isinstance(default.value, bool) else str(default.value)
        default = ast.Literal(text, STRING, offset=0)
    elif kind_of(of_type) in _ABSENT:
        default = _ABSENT[kind_of(of_type)]
    else:
        return ""
    read = ast.Alternative(of, default, unwraps=True, offset=0)
    converts = kind_of(of_type) == STRING and not str(default.value).isalpha()
    return f"write `double({unparse(read)})`" if converts else f"write `{unparse(read)}`"


def _of_timestamp_and_string(node: ast.Binary) -> str:
    """Return the hint for a moment that is compared with a string."""
    text = next(
        (side.value for side in (node.left, node.right) if isinstance(side, ast.Literal)), ""
    )
    if not _DATE.fullmatch(str(text)):
        return "a moment is `timestamp('2026-01-01T00:00:00Z')`"
    moment = f"{text}T00:00:00Z" if len(str(text)) == _LENGTH_OF_A_DATE else text
    return f"write `timestamp('{moment}')`"


_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\dZ)?")
_LENGTH_OF_A_DATE: Final = 10


def _of_string_and_bool(node: ast.Binary, left: CelType) -> str:
    """Return the hint for `==` of a string and a bool."""
    string, bool_ = (node.right, node.left) if kind_of(left) == BOOL else (node.left, node.right)
    if isinstance(bool_, ast.Literal) or not isinstance(string, ast.Literal):
        return _STRING_AS_BOOL
    text = str(string.value).casefold()
    if text not in {"true", "false"}:
        return "write the whole comparison on both sides of `||` or `&&`"
    is_plain = (text == "true") is (node.operator == "==")
    alone = unparse(bool_ if is_plain else ast.Not(bool_, offset=0))
    return f"`{unparse(bool_)}` is a bool: write `{alone}`"


def for_bool(node: ast.Node, of_type: CelType, among: ast.And | ast.Or | None = None) -> str:
    """Return the hint for an operand of `!`, `&&`, `||` or `?` that is no bool, "" without one."""
    if among is not None and isinstance(node, ast.Literal) and node.type == STRING:
        return _whole_comparison(node, among)
    if among is not None and isinstance(node, ast.Literal) and kind_of(of_type) in NUMERIC:
        return "for a number write `test ? 1 : 0`"
    if kind_of(of_type) != STRING:
        return ""
    if isinstance(node, ast.Index) and isinstance(node.index, ast.Literal):
        return f"for whether it is there {_member(node.operand, node.index)}; {_STRING_AS_BOOL}"
    return _STRING_AS_BOOL


def for_negated_operand(node: ast.Binary) -> str:
    """Return the hint for `!x in y`, which reads as `(!x) in y`; "" for anything else."""
    if node.operator not in _RELATIONS or not isinstance(node.left, ast.Not):
        return ""
    return f"write `{unparse(ast.Not(replace(node, left=node.left.operand), offset=0))}`"


_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


def _whole_comparison(literal: ast.Literal, among: ast.And | ast.Or) -> str:
    """Return the hint for a string beside a comparison, as in `x == 'a' || 'b'`."""
    for each in among.operands:
        if isinstance(each, ast.Binary) and isinstance(each.right, ast.Literal):
            values = ast.ListLiteral((each.right, literal), offset=0)
            test: ast.Node = ast.Binary("in", each.left, values, offset=0)
            if each.operator in {"==", "!="} and each.right.type == STRING:
                test = test if each.operator == "==" else ast.Not(test, offset=0)
                return f"write `{unparse(test)}`"
    return "write the whole comparison on both sides, as `x == 'a' || x == 'b'`"
