"""Operators on columns of timestamps and durations; see `kernels` for what a kernel promises.

Such columns are datetime64 and timedelta64 in microseconds, the precision of Kubernetes' times and
of what we compute with them. A value with nanoseconds has no column: it is a constant of dtype
object, and whatever meets one is evaluated row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.cel.values import INT_MAX, INT_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, Duration, Timestamp
from engine.cel.vector.columns import FAILED, Column, NotVectorizableError, either

_NANOS_PER_MICRO: Final = 1000
_MILLISECOND: Final = 1000  # microseconds
_SECOND: Final = 1000 * _MILLISECOND
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE

_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "M": (TIMESTAMP_MIN // _NANOS_PER_MICRO, TIMESTAMP_MAX // _NANOS_PER_MICRO),
    "m": (-(-INT_MIN // _NANOS_PER_MICRO), INT_MAX // _NANOS_PER_MICRO),
}
"""The least and greatest microseconds that the language allows, by kind of dtype."""

_SIGNS: Final[Mapping[tuple[str, str], Callable[[Any, Any], Any]]] = {
    ("+", "Mm"): np.add,
    ("+", "mM"): np.add,
    ("+", "mm"): np.add,
    ("-", "MM"): np.subtract,
    ("-", "Mm"): np.subtract,
    ("-", "mm"): np.subtract,
}


def is_time(values: NDArray[Any]) -> bool:
    """Return whether an array is of timestamps or durations, or is a constant that is one."""
    kind = values.dtype.kind
    return kind in "Mm" or (kind == "O" and isinstance(values.item(), Timestamp | Duration))


def refuse_nanoseconds(*columns: Column) -> None:
    """Refuse constants that are times beyond the precision of columns.

    Raises:
        NotVectorizableError: there is one.
    """
    for column in columns:
        if column.values.dtype.kind == "O" and is_time(column.values):
            raise NotVectorizableError


def arithmetic(symbol: str, left: Column, right: Column) -> Column:
    """Return `left + right` or `left - right` where at least one is of times.

    Raises:
        NotVectorizableError: a constant has nanoseconds.
    """
    refuse_nanoseconds(left, right)
    apply = _SIGNS.get((symbol, left.values.dtype.kind + right.values.dtype.kind))
    if apply is None:
        return FAILED
    # INVARIANT: no sum of two columns within bounds leaves 64 bits.
    values = apply(left.values, right.values)
    least, greatest = _BOUNDS[values.dtype.kind]
    micros = values.view(np.int64)
    wrong = (micros < least) | (micros > greatest)
    faults = either(left.faults, right.faults)
    return Column(values, either(faults, wrong) if wrong.any() else faults)


def seconds(column: Column) -> Column:
    """Return `int(timestamp)`: seconds since the epoch, rounded down."""
    if column.values.dtype.kind != "M":
        return FAILED
    return Column(column.values.view(np.int64) // _SECOND, column.faults)


def _whole(unit: int, *, below: int | None = None) -> Callable[[Column], Column]:
    """Return the kernel that counts whole units of a duration, truncated toward zero."""

    def count(column: Column) -> Column:
        refuse_nanoseconds(column)
        if column.values.dtype.kind != "m":
            return FAILED
        micros = column.values.view(np.int64)
        if below is not None:
            micros = np.fmod(micros, below)
        return Column((micros - np.fmod(micros, unit)) // unit, column.faults)

    return count


DURATION_PARTS: Final[Mapping[str, Callable[[Column], Column]]] = {
    "getHours": _whole(_HOUR),
    "getMinutes": _whole(_MINUTE),
    "getSeconds": _whole(_SECOND),
    "getMilliseconds": _whole(_MILLISECOND, below=_SECOND),
}
"""Kernels of the functions of a duration, by name."""
