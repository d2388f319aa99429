"""The math extension: extremes, rounding, signs, bits. Rounding takes doubles only."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.cel.functions.registry import Overload
from engine.cel.operators import greater, less, no_overload
from engine.cel.values import (
    BOOL,
    DOUBLE,
    INT,
    INT_MAX,
    NUMBERS,
    UINT,
    UINT_MAX,
    CelType,
    UInt,
    to_int,
)
from engine.errors import CelError


def _extreme(name: str, beats: Callable[[object, object], bool]) -> Callable[..., object]:
    """Return the function for the extreme of numbers of any types, the first of equals."""

    def pick(values: Iterable[object]) -> object:
        best: object = None
        for position, value in enumerate(values):
            if type(value) not in NUMBERS:
                raise no_overload(name, value)
            if position == 0 or beats(value, best):
                best = value
        return best

    def of(*values: object) -> object:
        if len(values) > 1 or type(values[0]) not in {list, tuple}:
            return pick(values)
        listed: Sequence[object] = values[0]  # type: ignore[assignment]
        if not listed:
            raise CelError(f"`{name}` of an empty list")
        return pick(listed)

    return of


def _rounding(apply: Callable[[float], int]) -> Callable[[float], float]:
    def rounded(value: float) -> float:
        # Infinities and NaN are unchanged; a zero keeps the sign of the argument.
        return math.copysign(float(apply(value)), value) if math.isfinite(value) else value

    return rounded


def _nearest(value: float) -> int:
    """Return the nearest integer, halves away from zero."""
    whole = math.trunc(value)
    return whole + int(math.copysign(1, value)) if abs(value - whole) >= 0.5 else whole  # noqa: PLR2004


def _sign(value: float) -> int:
    return 1 if value > 0 else -1 if value < 0 else 0


def _sign_of_double(value: float) -> float:
    return value if math.isnan(value) else float(_sign(value))


def _square_root(value: float) -> float:
    return math.nan if value < 0 else math.sqrt(value)


def _signed(bits: int) -> int:
    """Return the lowest 64 bits as an int."""
    bits &= UINT_MAX
    return bits - (UINT_MAX + 1) if bits > INT_MAX else bits


def _check_shift(shift: int) -> None:
    if shift < 0:
        raise CelError(f"a shift by {shift}")


def _left(value: int, shift: int) -> int:
    _check_shift(shift)
    return value << shift if shift < 64 else 0  # noqa: PLR2004 (bits)


def _right(value: int, shift: int) -> int:
    _check_shift(shift)
    return (value & UINT_MAX) >> shift  # zeros shift in, also for a negative int


def _unsigned(bits: int) -> UInt:
    """Return the lowest 64 bits as a uint."""
    return UInt(bits & UINT_MAX)


def _bits(
    name: str, apply: Callable[..., int], operands: int, *further: type
) -> tuple[Overload, ...]:
    """Return the overloads of a bit function for int and uint operands."""

    def overload(kind: type, wrap: Callable[[int], int], result: CelType) -> Overload:
        params = (*[kind] * operands, *further)
        return Overload(name, params, lambda *values: wrap(apply(*values)), result=result)

    return overload(int, _signed, INT), overload(UInt, _unsigned, UINT)


FUNCTIONS: Final = (
    Overload("math.greatest", (object,), _extreme("math.greatest", greater), variadic=True),
    Overload("math.least", (object,), _extreme("math.least", less), variadic=True),
    Overload("math.ceil", (float,), _rounding(math.ceil), result=DOUBLE),
    Overload("math.floor", (float,), _rounding(math.floor), result=DOUBLE),
    Overload("math.round", (float,), _rounding(_nearest), result=DOUBLE),
    Overload("math.trunc", (float,), _rounding(math.trunc), result=DOUBLE),
    Overload("math.abs", (float,), abs, result=DOUBLE),
    Overload("math.abs", (int,), lambda value: to_int(abs(value)), result=INT),
    Overload("math.abs", (UInt,), lambda value: value, result=UINT),
    Overload("math.sign", (float,), _sign_of_double, result=DOUBLE),
    Overload("math.sign", (int,), _sign, result=INT),
    Overload("math.sign", (UInt,), lambda value: UInt(_sign(value)), result=UINT),
    *(Overload("math.sqrt", (kind,), _square_root, result=DOUBLE) for kind in (float, int, UInt)),
    Overload("math.isNaN", (float,), math.isnan, result=BOOL),
    Overload("math.isInf", (float,), math.isinf, result=BOOL),
    Overload("math.isFinite", (float,), math.isfinite, result=BOOL),
    *_bits("math.bitAnd", operator.and_, 2),
    *_bits("math.bitOr", operator.or_, 2),
    *_bits("math.bitXor", operator.xor, 2),
    *_bits("math.bitNot", operator.invert, 1),
    *_bits("math.bitShiftLeft", _left, 1, int),
    *_bits("math.bitShiftRight", _right, 1, int),
)
