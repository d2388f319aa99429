"""Representation of CEL values in Python: native where possible, so objects need no conversion.

| CEL | Python |
|---|---|
| `null_type`, `bool`, `int`, `double` | `None`, `bool`, `int`, `float` |
| `string`, `bytes` | `str`, `bytes` |
| `uint` | `UInt` |
| `list` | `list` or `tuple`, never changed |
| `map` | `dict`, never changed, see below |
| `google.protobuf.Timestamp`, `google.protobuf.Duration` | `Timestamp`, `Duration` |
| `optional_type` | `OptionalValue` |
| `type` | `CelType` |
| types of a function family (quantity, url, ...) | a subclass of `Opaque` |

Always dispatch on `type(value) is ...`: in Python a bool is an int, in CEL it is never a number.

The keys of a map are `str`, `int` and `UInt`, and `BoolKey` for a bool. Python's dict then agrees
with the language: `1`, `1u` and `1.0` find the same key, `true` does not. A dict with string keys,
such as any JSON object, is a CEL map as it is.
"""

from __future__ import annotations

import enum
import math
import operator
import re
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from engine.errors import CelError
from engine.model.time import NANOSECONDS_PER_SECOND, nanoseconds_in

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class CelType:
    """A type by its CEL name; also the value that `type(x)` returns.

    `parameters` exist only while an expression is checked (`list(int)` has one, `map(string, int)`
    two); a type that is a value of the language has none.
    """

    name: str
    parameters: tuple[CelType, ...] = ()

    def __str__(self) -> str:
        """Return the type in CEL notation."""
        inner = ", ".join(str(parameter) for parameter in self.parameters)
        return f"{self.name}({inner})" if inner else self.name


DYN: Final = CelType("dyn")  # known only at run time
NULL: Final = CelType("null_type")
BOOL: Final = CelType("bool")
INT: Final = CelType("int")
UINT: Final = CelType("uint")
DOUBLE: Final = CelType("double")
STRING: Final = CelType("string")
BYTES: Final = CelType("bytes")
LIST: Final = CelType("list")
MAP: Final = CelType("map")
TIMESTAMP: Final = CelType("google.protobuf.Timestamp")
DURATION: Final = CelType("google.protobuf.Duration")
OPTIONAL: Final = CelType("optional_type")
TYPE: Final = CelType("type")


class UInt(int):
    """A CEL `uint`. Arithmetic on it gives a plain int: wrap the result with `to_uint`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class BoolKey(enum.Enum):
    """A bool as the key of a map, so that `true` and `1` are different keys."""

    FALSE = False
    TRUE = True


class Opaque:
    """The base of types that a function family adds to the language.

    A subclass gives its type in `cel_type` and defines `__eq__` and `__hash__`: equality in CEL is
    Python's equality between two values of the same class, and false between different classes.
    """

    __slots__ = ()
    cel_type: ClassVar[CelType]


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since the epoch, UTC, within years 1..9999; build it with `to_timestamp`.

    `offset` is that of its text, in minutes east of UTC; it matters to `string()` alone.
    """

    nanos: int
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A signed span in nanoseconds; build it with `to_duration`."""

    nanos: int


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """A value that may be absent; `value` is meaningless unless `present`."""

    present: bool
    value: object = None


ABSENT: Final = OptionalValue(present=False)


def present(value: object) -> OptionalValue:
    """Return the optional that holds `value`."""
    return OptionalValue(True, value)  # noqa: FBT003 (reads as the declaration does)


TIMESTAMP_MIN: Final = -62_135_596_800 * NANOSECONDS_PER_SECOND  # 0001-01-01T00:00:00Z
TIMESTAMP_MAX: Final = (
    253_402_300_800 * NANOSECONDS_PER_SECOND - 1
)  # 9999-12-31T23:59:59.999999999Z


def to_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def to_uint(value: int) -> UInt:
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise CelError("unsigned integer overflow")


def to_timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return the timestamp at `nanos` nanoseconds after the epoch, written with an offset."""
    if TIMESTAMP_MIN <= nanos <= TIMESTAMP_MAX:
        return Timestamp(nanos, offset)
    raise CelError("timestamp out of range")


def to_duration(nanos: int) -> Duration:
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise CelError("duration out of range")


_TYPES: Final[dict[type, CelType]] = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    list: LIST,
    tuple: LIST,
    dict: MAP,
    Timestamp: TIMESTAMP,
    Duration: DURATION,
    OptionalValue: OPTIONAL,
    CelType: TYPE,
}


def type_of(value: object) -> CelType:
    """Return the CEL type of a value, without parameters."""
    native = _TYPES.get(type(value))
    if native is not None:
        return native
    if isinstance(value, Opaque):
        return value.cel_type
    raise CelError("a value of a type unknown to the language")


NUMBERS: Final = frozenset({int, UInt, float})
EXACT: Final = 2**53  # integers closer to zero than this are doubles without rounding


def comparable(left: object, right: object) -> tuple[object, object]:
    """Convert two numbers of different types for a comparison in Python.

    An integer beside a double is compared as a double, so rounded from 2**53 on, as the
    conformance suite and the engines of Kubernetes do; Python would compare exactly.
    """
    if type(left) is float:
        return left, float(right)  # type: ignore[arg-type]
    if type(right) is float:
        return float(left), right  # type: ignore[arg-type]
    return left, right


def equal(left: object, right: object) -> bool:
    """Return CEL `left == right`: false, never an error, between values of different types.

    Numbers compare across int, uint and double, see `comparable`; NaN equals nothing, even inside
    a list.
    """
    kind, other = type(left), type(right)
    if kind is str:
        return left == right
    if kind in NUMBERS:
        if kind is other:
            return left == right
        return other in NUMBERS and operator.eq(*comparable(left, right))
    if kind is list or kind is tuple:
        return (other is list or other is tuple) and _equal_lists(left, right)  # type: ignore[arg-type]
    if kind is not other:
        return False
    if kind is dict:
        return _equal_maps(left, right)  # type: ignore[arg-type]
    if kind is OptionalValue:
        return _equal_optionals(left, right)  # type: ignore[arg-type]
    return left == right


def _equal_lists(left: list[object], right: list[object]) -> bool:
    return len(left) == len(right) and all(map(equal, left, right))


def _equal_maps(left: dict[object, object], right: dict[object, object]) -> bool:
    return len(left) == len(right) and all(
        key in right and equal(value, right[key]) for key, value in left.items()
    )


def _equal_optionals(left: OptionalValue, right: OptionalValue) -> bool:
    if left.present and right.present:
        return equal(left.value, right.value)
    return left.present is right.present


def map_key(value: object) -> object:
    """Return the key under which a map literal stores `value`."""
    kind = type(value)
    if kind is str or kind is int or kind is UInt:
        return value
    if kind is bool:
        return BoolKey(value)
    raise CelError(f"unsupported key type `{type_of(value)}`")


def lookup_key(value: object) -> object:
    """Return the key that a lookup of `value` searches; a double finds the equal int or uint."""
    return value if type(value) is float else map_key(value)


def key_value(key: object) -> object:
    """Return the CEL value of a key: the inverse of `map_key`."""
    return key.value if type(key) is BoolKey else key


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


def parse_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 text; digits beyond nanoseconds are dropped."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise CelError(f"`{text}` is not an RFC 3339 timestamp")
    day, time, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time}+00:00")
    except ValueError:
        raise CelError(f"`{text}` is not a moment in years 1..9999") from None
    if sign and (int(hours) > 23 or int(minutes) > 59):  # noqa: PLR2004 (a clock's bounds)
        raise CelError(f"`{text}` has no valid offset")
    minutes_east = int(f"{sign}1") * (int(hours) * 60 + int(minutes)) if sign else 0
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - minutes_east * 60
    return to_timestamp(
        seconds * NANOSECONDS_PER_SECOND + int((fraction or "")[:9].ljust(9, "0")), minutes_east
    )


def format_timestamp(timestamp: Timestamp) -> str:
    """Return the RFC 3339 text with the offset of the timestamp, and as few decimals as needed."""
    local, year = civil(timestamp, timezone(timedelta(minutes=timestamp.offset)))
    hours, minutes = divmod(abs(timestamp.offset), 60)
    sign = "-" if timestamp.offset < 0 else "+"
    offset = f"{sign}{hours:02d}:{minutes:02d}" if timestamp.offset else "Z"
    fraction = _fraction(timestamp.nanos % NANOSECONDS_PER_SECOND)
    return f"{year:04d}{local:-%m-%dT%H:%M:%S}{fraction}{offset}"


def parse_duration(text: str) -> Duration:
    """Return the span that a text such as `1h30m`, `-1.5s` or `0` names."""
    nanos = nanoseconds_in(text)
    if nanos is None:
        raise CelError(f"`{text}` is not a duration, such as `1h30m` or `1.5s`")
    return to_duration(nanos)


def format_duration(duration: Duration) -> str:
    """Return the text in seconds, with as few decimals as needed."""
    seconds, nanos = divmod(abs(duration.nanos), NANOSECONDS_PER_SECOND)
    sign = "-" if duration.nanos < 0 else ""
    return f"{sign}{seconds}{_fraction(nanos)}s"


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}".rstrip("0") if nanos else ""


_OFFSET: Final = re.compile(r"([+-]?)(\d{1,2}):(\d\d)", re.ASCII)
_FOUR_CENTURIES: Final = 146_097 * 86_400  # seconds; dates and weekdays repeat after it
_MAX_SHIFT: Final = timedelta(days=1)  # more than any zone shifts a clock
_SOONEST: Final = datetime.min.replace(tzinfo=UTC) + _MAX_SHIFT
_LATEST: Final = datetime.max.replace(tzinfo=UTC) - _MAX_SHIFT


def zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name, or by an offset such as `+05:30`."""
    match = _OFFSET.fullmatch(name)
    try:
        if match is not None:
            east = timedelta(hours=int(match[2]), minutes=int(match[3]))
            return timezone(-east if match[1] == "-" else east)
        return ZoneInfo(name) if name else UTC
    except (ValueError, LookupError, OSError):
        raise CelError(f"unknown time zone `{name}`") from None


def civil(timestamp: Timestamp, at: tzinfo) -> tuple[datetime, int]:
    """Return the local date and time in a zone, and the year.

    A zone may shift the first and last hours of the range into years 0 and 10000, which `datetime`
    does not support: its year is then a different one with the same calendar.
    """
    utc = _EPOCH + timedelta(seconds=timestamp.nanos // NANOSECONDS_PER_SECOND)
    shift = 1 if utc < _SOONEST else -1 if utc > _LATEST else 0
    moment = (utc + shift * timedelta(seconds=_FOUR_CENTURIES)).astimezone(at)
    return moment, moment.year - shift * 400


def plain_value(value: object) -> object:
    """Return a value as dicts with text keys, lists, texts, numbers, bools and None.

    Times and durations are texts as `string()` gives them, bytes are base64, an optional is its
    value or None. Doubles without a number in JSON, types, and values of function families, which
    have no text form, are named in a text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {_key(key_value(key)): plain_value(item) for key, item in value.items()}
    match value:
        case bytes():
            return b64encode(value).decode()
        case Timestamp():
            return format_timestamp(value)
        case Duration():
            return format_duration(value)
        case OptionalValue():
            return plain_value(value.value) if value.present else None
        case CelType():
            return str(value)
    return f"a value of type {type_of(value)}"


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
