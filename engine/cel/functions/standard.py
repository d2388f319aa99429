"""The standard functions, conversions between types, parts of times, and optional values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from engine.cel.functions.regex import PATTERN, Pattern, encode
from engine.cel.functions.registry import Overload
from engine.cel.operators import no_overload
from engine.cel.values import (
    ABSENT,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    INT_MAX,
    INT_MIN,
    LIST,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    UINT_MAX,
    CelType,
    Duration,
    OptionalValue,
    Timestamp,
    UInt,
    civil,
    equal,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    present,
    to_int,
    to_timestamp,
    to_uint,
    type_of,
    zone,
)
from engine.errors import CelError
from engine.model.time import NANOSECONDS_PER_SECOND


def _size(value: Sized) -> int:
    return len(value)  # of a string: code points


def _contains(text: str, part: str) -> bool:
    return part in text


def _matches(text: str, pattern: Pattern) -> bool:
    return pattern.occurs_in(text)


FUNCTIONS: Final = (
    *(
        Overload("size", (kind,), _size, member=member, result=INT)
        for kind in (str, bytes, list, dict)
        for member in (False, True)
    ),
    Overload("contains", (str, str), _contains, member=True, result=BOOL),
    Overload("startsWith", (str, str), str.startswith, member=True, result=BOOL),
    Overload("endsWith", (str, str), str.endswith, member=True, result=BOOL),
    *(
        Overload(
            "matches",
            (str, str),
            _matches,
            member=member,
            result=BOOL,
            preparation=PATTERN,
        )
        for member in (False, True)
    ),
    Overload("dyn", (object,), lambda value: value),
    Overload("type", (object,), type_of, result=TYPE),
)

_INT: Final = re.compile(r"[+-]?[0-9]{1,100}")
_UINT: Final = re.compile(r"[0-9]{1,100}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
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
    """Return the text that bytes encode."""
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


CONVERSIONS: Final = (
    *_overloads(
        "int",
        INT,
        {
            int: _identity,
            UInt: lambda value: to_int(int(value)),
            float: _int_of_double,
            str: _int_of_string,
            Timestamp: lambda value: value.nanos // NANOSECONDS_PER_SECOND,
            Duration: lambda value: value.nanos,
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
            int: lambda value: to_timestamp(value * NANOSECONDS_PER_SECOND),
        },
        folds=True,
    ),
    *_overloads("duration", DURATION, {Duration: _identity, str: parse_duration}, folds=True),
)

_MILLISECOND: Final = NANOSECONDS_PER_SECOND // 1000


def _year(timestamp: Timestamp, at: tzinfo = UTC) -> int:
    return civil(timestamp, at)[1]


def _milliseconds(timestamp: Timestamp, _at: tzinfo = UTC) -> int:
    return timestamp.nanos % NANOSECONDS_PER_SECOND // _MILLISECOND


def _part(of: Callable[[datetime], int]) -> Callable[..., int]:
    def get(timestamp: Timestamp, at: tzinfo = UTC) -> int:
        return of(civil(timestamp, at)[0])

    return get


_PARTS: Final[dict[str, Callable[..., int]]] = {
    "getFullYear": _year,
    "getMonth": _part(lambda moment: moment.month - 1),
    "getDate": _part(lambda moment: moment.day),
    "getDayOfMonth": _part(lambda moment: moment.day - 1),
    "getDayOfWeek": _part(lambda moment: moment.isoweekday() % 7),  # Sunday is 0
    "getDayOfYear": _part(lambda moment: moment.timetuple().tm_yday - 1),
    "getHours": _part(lambda moment: moment.hour),
    "getMinutes": _part(lambda moment: moment.minute),
    "getSeconds": _part(lambda moment: moment.second),
    "getMilliseconds": _milliseconds,
}


def _in_zone(get: Callable[..., int]) -> Callable[[Timestamp, str], int]:
    return lambda timestamp, name: get(timestamp, zone(name))


def _whole(duration: Duration, unit: int) -> int:
    """Return the duration in units of `unit` nanoseconds, truncated toward zero."""
    count = abs(duration.nanos) // unit
    return -count if duration.nanos < 0 else count


def _duration_milliseconds(duration: Duration) -> int:
    """Return the milliseconds of the fraction of a second, unlike the other components."""
    return _whole(Duration(abs(duration.nanos) % NANOSECONDS_PER_SECOND), _MILLISECOND) * (
        -1 if duration.nanos < 0 else 1
    )


TIMESTAMPS: Final = (
    *(Overload(name, (Timestamp,), get, member=True, result=INT) for name, get in _PARTS.items()),
    *(
        Overload(name, (Timestamp, str), _in_zone(get), member=True, result=INT)
        for name, get in _PARTS.items()
    ),
    *(
        Overload(name, (Duration,), get, member=True, result=INT)
        for name, get in {
            "getHours": lambda duration: _whole(duration, 3600 * NANOSECONDS_PER_SECOND),
            "getMinutes": lambda duration: _whole(duration, 60 * NANOSECONDS_PER_SECOND),
            "getSeconds": lambda duration: _whole(duration, NANOSECONDS_PER_SECOND),
            "getMilliseconds": _duration_milliseconds,
        }.items()
    ),
)

_ZEROS: Final[tuple[object, ...]] = (None, False, 0, "", b"", [], {}, Duration(0), Timestamp(0))


def _of_non_zero(value: object) -> OptionalValue:
    return ABSENT if any(equal(value, zero) for zero in _ZEROS) else present(value)


def _value(optional: OptionalValue) -> object:
    if optional.present:
        return optional.value
    raise CelError("the optional has no value")


def _unwrap(optionals: Sequence[object]) -> list[object]:
    values = []
    for optional in optionals:
        if type(optional) is not OptionalValue:
            raise no_overload("optional.unwrap", optionals)
        if optional.present:
            values.append(optional.value)
    return values


OPTIONALS: Final = (
    Overload("optional.of", (object,), present, result=OPTIONAL),
    Overload("optional.ofNonZeroValue", (object,), _of_non_zero, result=OPTIONAL),
    Overload("optional.none", (), lambda: ABSENT, result=OPTIONAL),
    Overload("optional.unwrap", (list,), _unwrap, result=LIST),
    Overload("unwrapOpt", (list,), _unwrap, member=True, result=LIST),
    Overload(
        "hasValue", (OptionalValue,), lambda optional: optional.present, member=True, result=BOOL
    ),
    Overload("value", (OptionalValue,), _value, member=True),
)
