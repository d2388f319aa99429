"""Operators on whole columns: the only place where a meaning of the language is written twice.

Each function here gives, row by row, the value or the fault that its namesake in
`engine.cel.operators`, `engine.cel.evaluate.logic` or `engine.cel.functions` gives. The values of
rows at fault are garbage, so callers silence numpy's warnings. Columns of shape () hold one value
for all rows, which may be of any type; those of shape (n,) are bool, int64 or float64.

An int compares with a double as a double, rounded from 2**53 on, as `engine.cel.values.comparable`
does: so does numpy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.cel.values import INT_MAX, INT_MIN
from engine.cel.vector.columns import FAILED, Bools, Column, either

Kernel: TypeAlias = Callable[..., Column]
"""Takes the columns of the operands."""

_Ints: TypeAlias = NDArray[np.int64]
_Doubles: TypeAlias = NDArray[np.float64]


class NotVectorizableError(Exception):
    """Columns do not do: values are of unlike types, or beyond 64 bits, or nested too deeply.

    It is rare, and no fault of the expression, which then has to be evaluated row by row.
    """


# Logic.


def as_bool(column: Column) -> Column:
    """Return a column as it stands where only a bool may: anything else is a fault."""
    return column if column.values.dtype.kind == "b" else FAILED


def as_number(column: Column) -> Column:
    """Return a column as it stands where any number may, as doubles: anything else is a fault."""
    number = _whole_number(column.values)
    if number is None:
        return to_double(column)
    try:
        return Column(np.array(float(number)), column.faults)
    except OverflowError:
        return FAILED


def _whole_number(values: NDArray[Any]) -> int | None:
    """Return a number that no column holds, for it is a uint or an int beyond 64 bits."""
    value = values.item() if values.dtype.kind == "O" else None
    return int(value) if isinstance(value, int) else None  # a bool is never of that dtype


def _is_huge(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "O" and type(values.item()) is int


def not_(column: Column) -> Column:
    """Return `!column`."""
    operand = as_bool(column)
    return Column(~operand.values, operand.faults)


class LogicAccumulator:
    """`&&` or `||` over operands that come one by one.

    A row is decided as soon as one operand is false (`&&`) or true (`||`), whatever the others
    are; a row that is not decided is at fault if any operand is.
    """

    def __init__(self, *, decisive: bool) -> None:
        self._decisive = decisive
        self._decided: Bools | None = None
        self._faults: Bools | None = None

    @property
    def decided(self) -> Bools | None:
        """Which rows are decided, None if none can be yet."""
        return self._decided

    def add(self, column: Column) -> None:
        """Take the next operand, a column of bools."""
        decides = column.values if self._decisive else ~column.values
        if column.faults is not None:
            decides = decides & ~column.faults
            self._faults = either(self._faults, column.faults)
        self._decided = decides if self._decided is None else self._decided | decides

    def result(self) -> Column:
        """Return the value of the whole; there was at least one operand."""
        decided = self._decided
        assert decided is not None  # noqa: S101 - INVARIANT: `add` was called
        faults = None if self._faults is None else self._faults & ~decided
        return Column(decided if self._decisive else ~decided, faults)


def choose(test: Column, then: Column, otherwise: Column) -> Column:
    """Return `test ? then : otherwise`; what happened in the branch not taken does not matter.

    Raises:
        NotVectorizableError: the branches are of unlike types.
    """
    faults = test.faults
    if then.faults is not None or otherwise.faults is not None:
        faults = either(faults, np.where(test.values, _mask(then), _mask(otherwise)))
    return Column(np.where(test.values, *_alike([then, otherwise])), faults)


def _mask(column: Column) -> Bools:
    return np.array(False) if column.faults is None else column.faults  # noqa: FBT003 (numpy)


def _alike(columns: Sequence[Column]) -> list[NDArray[Any]]:
    """Return the values of columns that have to be of one type; one that failed is of any."""
    sound = {column.values.dtype for column in columns if column is not FAILED}
    if len(sound) > 1 or np.dtype(np.object_) in sound:
        raise NotVectorizableError
    kind = sound.pop() if sound else np.dtype(np.bool_)
    return [column.values.astype(kind, copy=False) for column in columns]


# Arithmetic: on ints with the rows where the result does not fit, on doubles as in IEEE 754.


def _arithmetic(
    on_ints: Callable[[_Ints, _Ints], tuple[_Ints, Bools]],
    on_doubles: Callable[[_Doubles, _Doubles], _Doubles] | None,
) -> Kernel:
    def apply(left: Column, right: Column) -> Column:
        kind = left.values.dtype.kind
        if kind == right.values.dtype.kind:
            if kind == "f" and on_doubles is not None:
                values = on_doubles(left.values, right.values)
                return Column(values, either(left.faults, right.faults))
            if kind == "i":
                result, wrong = on_ints(left.values, right.values)
                faults = either(left.faults, right.faults)
                return Column(result, either(faults, wrong) if wrong.any() else faults)
        if _is_huge(left.values) or _is_huge(right.values):
            raise NotVectorizableError  # it may still give a number within 64 bits
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
    """Return `-column`."""
    kind = column.values.dtype.kind
    if kind == "f":
        return Column(-column.values, column.faults)
    return _arithmetic(_subtract, None)(_ZERO, column)


_ZERO: Final = Column(np.array(0, np.int64))

# Comparison.


def _comparison(compare: Callable[[Any, Any], Any], *, unlike: Column) -> Kernel:
    """Return the kernel of a comparison; `unlike` is its value between types it does not cover."""

    def apply(left: Column, right: Column) -> Column:
        one, other = left.values, right.values
        kinds = one.dtype.kind + other.dtype.kind
        if kinds not in _COMPARABLE:
            one, other = _beside(one, other), _beside(other, one)
            if one is None or other is None:
                faults = either(unlike.faults, either(left.faults, right.faults))
                return Column(unlike.values, faults)
        return Column(compare(one, other), either(left.faults, right.faults))

    return apply


_COMPARABLE: Final = frozenset({"bb", "ii", "ff", "if", "fi"})
"""The kinds that numpy compares as they are; an int beside a double becomes one."""


def _beside(values: NDArray[Any], other: NDArray[Any]) -> Any:  # noqa: ANN401 (for numpy)
    """Return values as numpy has to compare them with those of another type, None if it cannot.

    An int column compares rightly with a Python int, even with one beyond its range.
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
    """Return `double(column)`."""
    if column.values.dtype.kind not in "if":
        return FAILED
    return Column(column.values.astype(np.float64, copy=False), column.faults)


def to_int(column: Column) -> Column:
    """Return `int(column)`, truncated; what is not within 64 bits is a fault."""
    values = column.values
    if values.dtype.kind != "f":
        return column if values.dtype.kind == "i" else FAILED
    wrong = ~((values > float(INT_MIN)) & (values < float(INT_MAX)))  # NaN is wrong, too
    faults = either(column.faults, wrong) if wrong.any() else column.faults
    return Column(np.where(wrong, 0.0, values).astype(np.int64), faults)


def _extreme(beats: Callable[[Any, Any], Any]) -> Kernel:
    """Return the kernel of `math.greatest` or `math.least`: of equals and NaN the first stays."""

    def pick(*columns: Column) -> Column:
        if any(column.values.dtype.kind == "b" for column in columns):
            return FAILED
        best, *others = _alike(columns)
        for values in others:
            best = np.where(beats(values, best), values, best)
        return Column(best, reduce(either, (column.faults for column in columns)))

    return pick


def absolute(column: Column) -> Column:
    """Return `math.abs(column)`."""
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
    half = np.abs(values - whole) >= 0.5  # noqa: PLR2004 (a half)
    return np.where(half, whole + np.copysign(1.0, values), whole)


_square_root: Final = _on_doubles(np.sqrt)

OPERATORS: Final[Mapping[str, Kernel]] = {
    "+": _arithmetic(_add, operator.add),
    "-": _arithmetic(_subtract, operator.sub),
    "*": _arithmetic(_multiply, operator.mul),
    "/": _arithmetic(_divide, operator.truediv),
    "%": _arithmetic(_modulo, None),
    "==": _comparison(operator.eq, unlike=Column(np.array(False))),  # noqa: FBT003 (numpy)
    "!=": _comparison(operator.ne, unlike=Column(np.array(True))),  # noqa: FBT003 (numpy)
    "<": _comparison(operator.lt, unlike=FAILED),
    "<=": _comparison(operator.le, unlike=FAILED),
    ">": _comparison(operator.gt, unlike=FAILED),
    ">=": _comparison(operator.ge, unlike=FAILED),
}
"""By symbol: takes left and right."""

FUNCTIONS: Final[Mapping[str, Kernel]] = {
    "double": to_double,
    "int": to_int,
    "math.abs": absolute,
    "math.ceil": _on_doubles(np.ceil),
    "math.floor": _on_doubles(np.floor),
    "math.greatest": _extreme(operator.gt),
    "math.least": _extreme(operator.lt),
    "math.round": _on_doubles(_nearest),
    "math.sqrt": lambda column: _square_root(to_double(column)),
    "math.trunc": _on_doubles(np.trunc),
}
"""By full name: takes the arguments."""
