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
import operator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from engine.cel.errors import CelError
from engine.model.duration import SECOND

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


TIMESTAMP_MIN: Final = -62_135_596_800 * SECOND  # 0001-01-01T00:00:00Z
TIMESTAMP_MAX: Final = 253_402_300_800 * SECOND - 1  # 9999-12-31T23:59:59.999999999Z


def to_int(value: int) -> int:
    """Return `value` as a CEL int.

    Raises:
        CelError: it does not fit in 64 bits.
    """
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def to_uint(value: int) -> UInt:
    """Return `value` as a CEL uint.

    Raises:
        CelError: it is negative or does not fit in 64 bits.
    """
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise CelError("unsigned integer overflow")


def to_timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return the timestamp at `nanos` nanoseconds after the epoch, written with an offset.

    Raises:
        CelError: it is outside years 1..9999.
    """
    if TIMESTAMP_MIN <= nanos <= TIMESTAMP_MAX:
        return Timestamp(nanos, offset)
    raise CelError("timestamp out of range")


def to_duration(nanos: int) -> Duration:
    """Return the duration of `nanos` nanoseconds.

    Raises:
        CelError: it does not fit in 64 bits, about 292 years.
    """
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
    """Return the CEL type of a value, without parameters.

    Raises:
        CelError: the value is of no type in the table above.
    """
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
    """Return the key under which a map literal stores `value`.

    Raises:
        CelError: only bool, int, uint and string can be keys.
    """
    kind = type(value)
    if kind is str or kind is int or kind is UInt:
        return value
    if kind is bool:
        return BoolKey(value)
    raise CelError(f"unsupported key type `{type_of(value)}`")


def lookup_key(value: object) -> object:
    """Return the key that a lookup of `value` searches; a double finds the equal int or uint key.

    Raises:
        CelError: no key is of that type.
    """
    return value if type(value) is float else map_key(value)


def key_value(key: object) -> object:
    """Return the CEL value of a key: the inverse of `map_key`."""
    return key.value if type(key) is BoolKey else key
