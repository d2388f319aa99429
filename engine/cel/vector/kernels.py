"""Operators on whole columns: the only semantics of the language that are implemented twice.

Each kernel gives, row by row, the value or the fault of its counterpart in `engine.cel.operators`,
`engine.cel.evaluate` or `engine.cel.functions`. The values of rows at fault are garbage, so
callers silence numpy's warnings. A column of shape () holds a value of any type for all rows, one
of shape (n,) is bool, int64, float64, or of times, see `time_kernels`.

numpy compares an int with a double as a double, rounded from 2**53 on, and so does
`engine.cel.values.comparable`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.cel.ast import HowMany
from engine.cel.values import INT_MAX, INT_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, Duration, Timestamp
from engine.cel.vector.columns import FAILED, Bools, Column, NotVectorizableError, either

# Operators on columns of timestamps and durations; see `kernels` for what a kernel promises.
#
# Such columns are datetime64 and timedelta64 in microseconds, the precision of Kubernetes' times
# and of what we compute with them. A value with nanoseconds has no column: it is a constant of
# dtype object, and whatever meets one is evaluated row by row.


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
    """Refuse constants that are times beyond the precision of columns."""
    for column in columns:
        if column.values.dtype.kind == "O" and is_time(column.values):
            raise NotVectorizableError


def arithmetic(symbol: str, left: Column, right: Column) -> Column:
    """Return `left + right` or `left - right` where at least one is of times."""
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

Kernel: TypeAlias = Callable[..., Column]
"""Maps the columns of the operands to that of the result."""

_Ints: TypeAlias = NDArray[np.int64]
_Doubles: TypeAlias = NDArray[np.float64]


# Logic.


def as_bool(column: Column) -> Column:
    """Return a column of bools unchanged; any other is a fault."""
    return column if column.values.dtype.kind == "b" else FAILED


def as_number(column: Column) -> Column:
    """Convert a column of numbers to doubles; any other is a fault."""
    if column.values.dtype.kind == "f":
        return column
    number = _whole_number(column.values)
    if number is None:
        return to_double(column)
    try:
        return Column(np.array(float(number)), column.faults)
    except OverflowError:
        return FAILED


def _whole_number(values: NDArray[Any]) -> int | None:
    """Return a number that only an object column holds: a uint, or an int beyond 64 bits."""
    value = values.item() if values.dtype.kind == "O" else None
    return int(value) if isinstance(value, int) else None  # a bool is never of that dtype


def _is_huge(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "O" and type(values.item()) is int


def not_(column: Column) -> Column:
    operand = as_bool(column)
    return Column(~operand.values, operand.faults)


class LogicAccumulator:
    """`&&` or `||` over operands added in turn.

    A row is decided as soon as one operand is false (`&&`) or true (`||`), whatever the others
    are; a row that is not decided is at fault if any operand is.
    """

    def __init__(self, *, decisive: bool) -> None:
        self._decisive = decisive
        self._decided: Bools | None = None
        self._faults: Bools | None = None

    @property
    def decided(self) -> Bools | None:
        """The rows that are decided, None before the first operand."""
        return self._decided

    def add(self, column: Column) -> None:
        """Add the next operand, a column of bools."""
        decides = column.values if self._decisive else ~column.values
        if column.faults is not None:
            decides = decides & ~column.faults
            self._faults = either(self._faults, column.faults)
        self._decided = decides if self._decided is None else self._decided | decides

    def result(self) -> Column:
        """Return the value of the expression; at least one operand was added."""
        decided = self._decided
        assert decided is not None  # noqa: S101 - INVARIANT: `add` was called
        faults = None if self._faults is None else self._faults & ~decided
        return Column(decided if self._decisive else ~decided, faults)


class LoopAccumulator:
    """`all`, `exists` or `exists_one` over the elements of a list in each row, added in turn."""

    def __init__(self, how_many: HowMany, rows: int) -> None:
        self._how_many = how_many
        self._logic = LogicAccumulator(decisive=how_many is HowMany.SOME)
        self._logic.add(Column(np.full(rows, how_many is not HowMany.SOME)))
        self._matches = np.zeros(rows, np.int64)  # of `exists_one`
        self._faults: Bools | None = None  # likewise

    def add(self, column: Column, present: Bools) -> None:
        """Add the predicate of an element of each row, bools; `present` has the rows with one."""
        faults = None if column.faults is None else column.faults & present
        if self._how_many is HowMany.ONE:
            self._matches += column.values & present
            self._faults = either(self._faults, faults)
            return
        is_all = self._how_many is HowMany.ALL
        values = column.values | ~present if is_all else column.values & present
        self._logic.add(Column(values, faults))

    def result(self) -> Column:
        """Return the value of the loop, shape (n,)."""
        if self._how_many is HowMany.ONE:
            return Column(self._matches == 1, self._faults)
        return self._logic.result()


def choose(test: Column, then: Column, otherwise: Column) -> Column:
    """Return `test ? then : otherwise`; faults of the branch not taken are ignored."""
    faults = test.faults
    if then.faults is not None or otherwise.faults is not None:
        faults = either(faults, np.where(test.values, _mask(then), _mask(otherwise)))
    return Column(np.where(test.values, *_alike([then, otherwise])), faults)


def _mask(column: Column) -> Bools:
    return np.array(False) if column.faults is None else column.faults  # noqa: FBT003 (numpy)


def _alike(columns: Sequence[Column]) -> list[NDArray[Any]]:
    """Return the values of columns that must share a type; a failed column has any type."""
    sound = {column.values.dtype for column in columns if column is not FAILED}
    if len(sound) > 1 or np.dtype(np.object_) in sound:
        raise NotVectorizableError
    kind = sound.pop() if sound else np.dtype(np.bool_)
    return [column.values.astype(kind, copy=False) for column in columns]


# Arithmetic: on ints with the rows that overflow, on doubles as in IEEE 754.


def _arithmetic(
    on_ints: Callable[[_Ints, _Ints], tuple[_Ints, Bools]],
    on_doubles: Callable[[_Doubles, _Doubles], _Doubles] | None,
    of_times: str = "",
) -> Kernel:
    """Return the kernel of an operator."""

    def apply(left: Column, right: Column) -> Column:
        a, b = left.values, right.values
        kind = a.dtype.kind
        if kind == b.dtype.kind:
            if kind == "f" and on_doubles is not None:
                faults = left.faults if right.faults is None else either(left.faults, right.faults)
                return Column(on_doubles(a, b), faults)
            if kind == "i":
                result, wrong = on_ints(a, b)
                faults = either(left.faults, right.faults)
                return Column(result, either(faults, wrong) if wrong.any() else faults)
        if of_times and (is_time(a) or is_time(b)):
            return arithmetic(of_times, left, right)
        if _is_huge(a) or _is_huge(b):
            raise NotVectorizableError  # the result may fit into 64 bits
        return FAILED

    return apply


def _add(left: _Ints, right: _Ints) -> tuple[_Ints, Bools]:
    total = left + right
    return total, ((left ^ total) & (right ^ total)) < 0  # sign flipped against both


def _subtract(left: _Ints, right: _Ints) -> tuple[_Ints, Bools]:
    difference = left - right
    return difference, ((left ^ right) & (left ^ difference)) < 0


def _multiply(left: _Ints, right: _Ints) -> tuple[_Ints, Bools]:
    product = left * right
    divisor = np.where(left == 0, 1, left)
    undone = product // divisor  # of a product that wrapped it is not `right`
    wrong = ((left != 0) & (undone != right)) | ((left == -1) & (right == INT_MIN))
    return product, wrong


def _divide(left: _Ints, right: _Ints) -> tuple[_Ints, Bools]:
    remainder, wrong = _modulo(left, right)
    return (left - remainder) // _divisor(right, wrong), wrong


def _modulo(left: _Ints, right: _Ints) -> tuple[_Ints, Bools]:
    wrong = (right == 0) | ((left == INT_MIN) & (right == -1))
    return np.fmod(left, _divisor(right, wrong)), wrong


def _divisor(values: _Ints, wrong: Bools) -> _Ints:
    return np.where(wrong, 1, values)


def negate(column: Column) -> Column:
    kind = column.values.dtype.kind
    if kind == "f":
        return Column(-column.values, column.faults)
    return _arithmetic(_subtract, None)(_ZERO, column)


_ZERO: Final = Column(np.array(0, np.int64))

# Comparison.


def _comparison(
    compare: Callable[[Any, Any], Any], *, across_types: Column, is_order: bool
) -> Kernel:
    """Return the kernel of a comparison."""

    def apply(left: Column, right: Column) -> Column:
        faults = either(left.faults, right.faults)
        a, b = left.values, right.values
        if a.dtype.kind + b.dtype.kind not in _NATIVELY_COMPARED:
            if is_time(a) or is_time(b):
                refuse_nanoseconds(left, right)
            a, b = _comparable(a, b), _comparable(b, a)
            if a is None or b is None:
                return Column(across_types.values, either(across_types.faults, faults))
        if is_order:
            for each in (_nans(a), _nans(b)):
                faults = faults if each is None else either(faults, each)
        return Column(compare(a, b), faults)

    return apply


def _nans(values: Any) -> Bools | None:  # noqa: ANN401 (an array, or a Python number)
    """Return where doubles are NaN, None if nowhere."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        return None
    # The least is NaN if any is, and its position is found more quickly than which.
    if not values.size or not math.isnan(values.item(values.argmin())):
        return None
    return np.isnan(values)


_NATIVELY_COMPARED: Final = frozenset({"bb", "ii", "ff", "if", "fi", "MM", "mm"})
"""The kinds that numpy compares directly; it converts an int beside a double."""


def _comparable(values: NDArray[Any], other: NDArray[Any]) -> Any:  # noqa: ANN401 (for numpy)
    """Convert values for a comparison with those of another type, None if there is none.

    An int column compares correctly with a Python int, even beyond the range of the column.
    """
    if other.dtype.kind == "O" and values.dtype.kind in "if":
        return values
    number = _whole_number(values)
    if number is None or other.dtype.kind not in "if":
        return None
    try:
        return float(number) if other.dtype.kind == "f" else number
    except OverflowError:
        raise NotVectorizableError from None


# Conversions and functions of numbers.


def to_double(column: Column) -> Column:
    if column.values.dtype.kind not in "if":
        return FAILED
    return Column(column.values.astype(np.float64, copy=False), column.faults)


def to_int(column: Column) -> Column:
    """Return `int(column)`, truncated; a value beyond 64 bits is a fault."""
    values = column.values
    if values.dtype.kind == "M":
        return seconds(column)
    if values.dtype.kind != "f":
        return column if values.dtype.kind == "i" else FAILED
    wrong = ~((values > float(INT_MIN)) & (values < float(INT_MAX)))  # NaN is wrong, too
    faults = either(column.faults, wrong) if wrong.any() else column.faults
    return Column(np.where(wrong, 0.0, values).astype(np.int64), faults)


def _extreme(of_two: np.ufunc) -> Kernel:
    """Return the kernel of `math.greatest` or `math.least`: the first of equals wins."""

    def pick(*columns: Column) -> Column:
        if any(column.values.dtype.kind in "bMm" for column in columns):
            return FAILED
        best, *others = _alike(columns)
        faults = reduce(either, (column.faults for column in columns))
        for values in others:
            chosen = np.asarray(of_two(values, best))
            if not chosen.all():  # zeros of either sign are equal
                np.copyto(chosen, best, where=(chosen == 0) & (best == 0))
            best = chosen
        return Column(best, either(faults, _nans(best)) if others else faults)

    return pick


def absolute(column: Column) -> Column:
    values, kind = column.values, column.values.dtype.kind
    if kind not in "if":
        return FAILED
    wrong = values == INT_MIN if kind == "i" else None
    faults = column.faults if wrong is None or not wrong.any() else either(column.faults, wrong)
    return Column(np.abs(values), faults)


def _on_doubles(apply: Callable[[_Doubles], _Doubles]) -> Kernel:
    def rounded(column: Column) -> Column:
        if column.values.dtype.kind != "f":
            return FAILED
        return Column(apply(column.values), column.faults)

    return rounded


def _nearest(values: _Doubles) -> _Doubles:
    """Return the nearest whole numbers, halves away from zero, the sign of zero kept."""
    whole = np.trunc(values)
    rounds_up = np.abs(values - whole) >= 0.5  # noqa: PLR2004 (a half)
    return np.where(rounds_up, whole + np.copysign(1.0, values), whole)


_square_root: Final = _on_doubles(np.sqrt)

OPERATORS: Final[Mapping[str, Kernel]] = {
    "+": _arithmetic(_add, operator.add, of_times="+"),
    "-": _arithmetic(_subtract, operator.sub, of_times="-"),
    "*": _arithmetic(_multiply, operator.mul),
    "/": _arithmetic(_divide, operator.truediv),
    "%": _arithmetic(_modulo, None),
    "==": _comparison(operator.eq, across_types=Column(np.array(False)), is_order=False),  # noqa: FBT003 (numpy)
    "!=": _comparison(operator.ne, across_types=Column(np.array(True)), is_order=False),  # noqa: FBT003 (numpy)
    "<": _comparison(operator.lt, across_types=FAILED, is_order=True),
    "<=": _comparison(operator.le, across_types=FAILED, is_order=True),
    ">": _comparison(operator.gt, across_types=FAILED, is_order=True),
    ">=": _comparison(operator.ge, across_types=FAILED, is_order=True),
}
"""Kernels of binary operators, by symbol."""

FUNCTIONS: Final[Mapping[str, Kernel]] = {
    "double": to_double,
    "int": to_int,
    "math.abs": absolute,
    "math.ceil": _on_doubles(np.ceil),
    "math.floor": _on_doubles(np.floor),
    "math.greatest": _extreme(np.maximum),
    "math.least": _extreme(np.minimum),
    "math.round": _on_doubles(_nearest),
    "math.sqrt": lambda column: _square_root(to_double(column)),
    "math.trunc": _on_doubles(np.trunc),
}
"""Kernels of functions, by full name."""
