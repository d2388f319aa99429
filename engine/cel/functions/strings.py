"""The strings extension with `format`, and base64. Positions count code points."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from engine.cel.budget import Budget
from engine.cel.functions.regex import encode
from engine.cel.functions.registry import Overload
from engine.cel.functions.standard import string_of_bytes
from engine.cel.operators import no_overload
from engine.cel.values import (
    BYTES,
    INT,
    STRING,
    CelType,
    Duration,
    Timestamp,
    UInt,
    format_duration,
    format_timestamp,
    key_value,
    type_of,
)
from engine.errors import CelError

# Unicode's property White_Space; Python's `strip` removes four more control characters.
_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER: Final = {ord(letter): letter.upper() for letter in "abcdefghijklmnopqrstuvwxyz"}
_QUOTED: Final = str.maketrans(
    {
        "\a": r"\a",
        "\b": r"\b",
        "\f": r"\f",
        "\n": r"\n",
        "\r": r"\r",
        "\t": r"\t",
        "\v": r"\v",
        "\\": r"\\",
        '"': r"\"",
    }
)
_STRINGS: Final = CelType("list", (STRING,))


def _check_position(text: str, position: int) -> None:
    if not 0 <= position <= len(text):
        raise CelError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    _check_position(text, position)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    _check_position(text, start)
    return text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_of_from(text: str, part: str, start: int) -> int:
    _check_position(text, start)
    return text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int) -> str:
    _check_position(text, start)
    return text[start:]


def _substring_to(text: str, start: int, end: int) -> str:
    _check_position(text, start)
    _check_position(text, end)
    if start > end:
        raise CelError(f"invalid substring range: {start} to {end}")
    return text[start:end]


def _replace(budget: Budget, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old)
    replaced = count if limit < 0 else min(count, limit)
    budget.check_text(len(text) + replaced * (len(new) - len(old)))
    return text.replace(old, new, replaced)


def _split(budget: Budget, text: str, separator: str, limit: int = -1) -> list[str]:
    pieces = text.count(separator) + 1 if separator else len(text)
    pieces = pieces if limit < 0 else min(pieces, limit)
    budget.check_items(pieces)
    if pieces == 0:
        return []
    if separator:
        return text.split(separator, pieces - 1)
    return [*text[: pieces - 1], text[pieces - 1 :]]


def _join(budget: Budget, parts: list[str], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise no_overload("join", parts)
    length = sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0)
    budget.check_text(length)
    return separator.join(parts)


def _trim(text: str) -> str:
    return text.strip(_BLANKS)


def _lower(text: str) -> str:
    return text.translate(_LOWER)


def _upper(text: str) -> str:
    return text.translate(_UPPER)


def _reverse(text: str) -> str:
    return text[::-1]


def _quote(budget: Budget, text: str) -> str:
    quoted = f'"{text.translate(_QUOTED)}"'
    budget.check_text(len(quoted))
    return quoted


FUNCTIONS: Final = (
    Overload("charAt", (str, int), _char_at, member=True, result=STRING),
    Overload("indexOf", (str, str), _index_of, member=True, result=INT),
    Overload("indexOf", (str, str, int), _index_of, member=True, result=INT),
    Overload("lastIndexOf", (str, str), _last_index_of, member=True, result=INT),
    Overload("lastIndexOf", (str, str, int), _last_index_of_from, member=True, result=INT),
    Overload("substring", (str, int), _substring, member=True, result=STRING),
    Overload("substring", (str, int, int), _substring_to, member=True, result=STRING),
    Overload("replace", (str, str, str), _replace, member=True, result=STRING, budgeted=True),
    Overload("replace", (str, str, str, int), _replace, member=True, result=STRING, budgeted=True),
    Overload("split", (str, str), _split, member=True, result=_STRINGS, budgeted=True),
    Overload("split", (str, str, int), _split, member=True, result=_STRINGS, budgeted=True),
    Overload("join", (list,), _join, member=True, result=STRING, budgeted=True),
    Overload("join", (list, str), _join, member=True, result=STRING, budgeted=True),
    Overload("trim", (str,), _trim, member=True, result=STRING),
    Overload("lowerAscii", (str,), _lower, member=True, result=STRING),
    Overload("upperAscii", (str,), _upper, member=True, result=STRING),
    Overload("reverse", (str,), _reverse, member=True, result=STRING),
    Overload("strings.quote", (str,), _quote, result=STRING, budgeted=True),
)

_CLAUSE: Final = re.compile(
    r"%(?:(?P<percent>%)|(?:\.(?P<precision>[0-9]{1,4}))?(?P<verb>.)?)", re.DOTALL
)
_DEFAULT_PRECISION: Final = 6
_MAX_PRECISION: Final = 1000


def check_template(template: str, args: int) -> None:
    """Check a literal template against the number of its arguments."""
    clauses = [clause for clause in _CLAUSE.finditer(template) if not clause["percent"]]
    for clause in clauses:
        if clause["verb"] != "s" and clause["verb"] not in _VERBS:
            raise _unknown(clause)
    if len(clauses) != args:
        takes = f"{len(clauses)} argument{'' if len(clauses) == 1 else 's'}"
        raise CelError(f"the format takes {takes}, not {args}")


def _unknown(clause: re.Match[str]) -> CelError:
    return CelError(f"unknown formatting clause `{clause[0]}`")


def _format(budget: Budget, template: str, args: Sequence[object]) -> str:
    return budget.join(_pieces(template, args))


def _pieces(template: str, args: Sequence[object]) -> Iterator[str]:
    position = used = 0
    for clause in _CLAUSE.finditer(template):
        yield template[position : clause.start()]
        position = clause.end()
        if clause["percent"]:
            yield "%"
            continue
        if used >= len(args):
            raise CelError(f"the format needs more than {used} arguments")
        yield from _clause(clause, args[used])
        used += 1
    yield template[position:]


def _clause(clause: re.Match[str], value: object) -> Iterator[str]:
    verb, precision = clause["verb"], int(clause["precision"] or _DEFAULT_PRECISION)
    if precision > _MAX_PRECISION:
        raise CelError(f"a precision of {precision} is over {_MAX_PRECISION}")
    if verb == "s":
        yield from _texts(value)
        return
    apply = _VERBS.get(verb)
    if apply is None:
        raise _unknown(clause)
    text = apply(value, precision)
    if text is None:
        raise CelError(f"`%{verb}` does not apply to a value of type `{type_of(value)}`")
    yield text


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 (each branch has checked its type)
    """Yield the text of a value in pieces, so that a huge one can be cut short."""
    kind = type(value)
    if kind is list or kind is tuple:
        for position, element in enumerate(value):
            yield ", " if position else "["
            yield from _texts(element)
        yield "]" if value else "[]"
    elif kind is dict:
        entries = sorted(("".join(_texts(key_value(key))), at) for at, key in enumerate(value))
        values = list(value.values())
        for position, (text, at) in enumerate(entries):
            yield f"{', ' if position else '{'}{text}: "
            yield from _texts(values[at])
        yield "}" if value else "{}"
    elif kind in _PLAIN:
        yield _PLAIN[kind](value)
    else:
        raise CelError(f"`%s` does not apply to a value of type `{type_of(value)}`")


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _shortest(value: float) -> str:
    """Return the shortest decimal text without an exponent that parses to the same double."""
    if not math.isfinite(value):
        return _not_finite(value)
    return format(Decimal(repr(value)).normalize(), "f")


_PLAIN: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    UInt: lambda value: str(int(value)),
    float: _shortest,
    str: lambda value: value,
    bytes: string_of_bytes,
    CelType: lambda value: value.name,
    Timestamp: format_timestamp,
    Duration: format_duration,
}


def _decimal(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    return _PLAIN[type(value)](value) if type(value) in {int, UInt, float} else None


def _floating(form: str) -> Callable[[Any, int], str | None]:
    def apply(value: Any, precision: int) -> str | None:  # noqa: ANN401 (see above)
        if type(value) not in {int, UInt, float}:
            return None
        number = float(value)
        return f"{number:.{precision}{form}}" if math.isfinite(number) else _not_finite(number)

    return apply


def _binary(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    return f"{int(value):b}" if type(value) in {bool, int, UInt} else None


def _octal(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    return f"{int(value):o}" if type(value) in {int, UInt} else None


def _hexadecimal(value: Any, _precision: int) -> str | None:  # noqa: ANN401 (see above)
    if type(value) in {int, UInt}:
        return f"{int(value):x}"
    if type(value) is str:
        return value.encode(errors="replace").hex()
    return value.hex() if type(value) is bytes else None


def _upper_hexadecimal(value: Any, precision: int) -> str | None:  # noqa: ANN401 (see above)
    text = _hexadecimal(value, precision)
    return None if text is None else text.upper()


_VERBS: Final[Mapping[str, Callable[[Any, int], str | None]]] = {
    "b": _binary,
    "d": _decimal,
    "e": _floating("e"),
    "f": _floating("f"),
    "o": _octal,
    "x": _hexadecimal,
    "X": _upper_hexadecimal,
}

FORMAT: Final = (
    Overload("format", (str, list), _format, member=True, result=STRING, budgeted=True),
)


def _decode(text: str) -> bytes:
    """Return the bytes of a base64 text, whose padding may be missing."""
    padded = encode(text) + b"=" * (-len(text) % 4)
    try:
        return base64.b64decode(padded, validate=True)
    except binascii.Error:
        raise CelError(f"`{text}` is not base64") from None


def _encode(budget: Budget, value: bytes) -> str:
    budget.check_text(len(value) * 4 // 3 + 4)
    return base64.b64encode(value).decode()


ENCODERS: Final = (
    Overload("base64.decode", (str,), _decode, result=BYTES),
    Overload("base64.encode", (bytes,), _encode, result=STRING, budgeted=True),
)
