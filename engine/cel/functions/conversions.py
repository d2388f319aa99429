"""Conversions between types: `int`, `uint`, `double`, `bool`, `string`, `bytes` and times."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from engine.cel.errors import CelError
from engine.cel.functions.regex import encode
from engine.cel.functions.registry import Overload
from engine.cel.times import (
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
)
from engine.cel.values import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    INT_MAX,
    INT_MIN,
    STRING,
    TIMESTAMP,
    UINT,
    UINT_MAX,
    CelType,
    Duration,
    Timestamp,
    UInt,
    to_int,
    to_timestamp,
    to_uint,
)
from engine.model.duration import SECOND

_INT: Final = re.compile(r"[+-]?[0-9]{1,100}")
_UINT: Final = re.compile(r"[0-9]{1,100}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "false", "FALSE", "False"), False),
}


def _no_conversion(value: object, to: CelType) -> CelError:
    return CelError(f"`{value}` cannot be converted to `{to}`")


def _int_of_double(value: float) -> int:
    # Both bounds are excluded: they represent a range of integers, half of which do not fit.
    if INT_MIN < value < INT_MAX:
        return int(value)
    raise _no_conversion(value, INT)


def _uint_of_double(value: float) -> UInt:
    if 0 <= value < UINT_MAX:
        return UInt(value)
    raise _no_conversion(value, UINT)


def _int_of_string(text: str) -> int:
    if _INT.fullmatch(text):
        return to_int(int(text))
    raise _no_conversion(text, INT)


def _uint_of_string(text: str) -> UInt:
    if _UINT.fullmatch(text):
        return to_uint(int(text))
    raise _no_conversion(text, UINT)


def _double_of_string(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise _no_conversion(text, DOUBLE)
    value = float(text)
    if math.isinf(value) and text[-1].isdigit():
        raise CelError(f"`{text}` is out of range of `double`")
    return value


def _bool_of_string(text: str) -> bool:
    if text in _BOOLS:
        return _BOOLS[text]
    raise _no_conversion(text, BOOL)


def string_of_bytes(value: bytes) -> str:
    """Return the text that bytes encode.

    Raises:
        CelError: they are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("the bytes are not valid UTF-8") from None


def _string_of_double(value: float) -> str:
    """Return the shortest text that parses to the same double, in the form of Go's `%g`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{math.copysign(1, value):+.0f}"[0] + "Inf"
    exact = Decimal(repr(value)).normalize()
    exponent = exact.adjusted() if value else 0
    if -4 <= exponent < 6:  # noqa: PLR2004 (where Go switches to an exponent)
        return format(exact, "f")
    sign, digits, _ = exact.as_tuple()
    first, *rest = map(str, digits)
    fraction = f".{''.join(rest)}" if rest else ""
    return f"{'-' * sign}{first}{fraction}e{exponent:+03d}"


def _overloads(
    name: str,
    result: CelType,
    implementations: Mapping[type, Callable[[Any], object]],
    *,
    folds: bool = False,
) -> tuple[Overload, ...]:
    return tuple(
        Overload(name, (kind,), impl, result=result, folds=folds)
        for kind, impl in implementations.items()
    )


def _identity(value: object) -> object:
    return value


FUNCTIONS: Final = (
    *_overloads(
        "int",
        INT,
        {
            int: _identity,
            UInt: lambda value: to_int(int(value)),
            float: _int_of_double,
            str: _int_of_string,
            Timestamp: lambda value: value.nanos // SECOND,
        },
    ),
    *_overloads(
        "uint",
        UINT,
        {UInt: _identity, int: to_uint, float: _uint_of_double, str: _uint_of_string},
    ),
    *_overloads(
        "double", DOUBLE, {float: _identity, int: float, UInt: float, str: _double_of_string}
    ),
    *_overloads("bool", BOOL, {bool: _identity, str: _bool_of_string}),
    *_overloads(
        "string",
        STRING,
        {
            str: _identity,
            bool: lambda value: "true" if value else "false",
            int: str,
            UInt: lambda value: str(int(value)),
            float: _string_of_double,
            bytes: string_of_bytes,
            Timestamp: format_timestamp,
            Duration: format_duration,
        },
    ),
    *_overloads("bytes", BYTES, {bytes: _identity, str: encode}),
    *_overloads(
        "timestamp",
        TIMESTAMP,
        {
            Timestamp: _identity,
            str: parse_timestamp,
            int: lambda value: to_timestamp(value * SECOND),
        },
        folds=True,
    ),
    *_overloads("duration", DURATION, {Duration: _identity, str: parse_duration}, folds=True),
)
