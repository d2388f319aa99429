"""Kubernetes quantities in expressions: `quantity('1.5Gi').isLessThan(quantity('2Gi'))`.

Source: apiserver `pkg/cel/library/quantity.go`. Two differences. Upstream, `==` fails where `add`
or `sub` gave the quantity on its right, since these return a pointer; here amounts decide. And
there `sub` of the least int adds it, since its negation wraps; here it is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from engine.cel.functions.registry import Overload
from engine.cel.values import BOOL, DOUBLE, INT, CelType, Opaque
from engine.errors import CelError, QuantityError
from engine.model.quantity import Quantity, parse_quantity

_NANOS: Final = 10**9


@dataclass(frozen=True, slots=True)
class CelQuantity(Opaque):
    """A quantity as a value of the language; equal by amount, so `1Gi` is `1024Mi`."""

    amount: Quantity
    cel_type: ClassVar[CelType] = CelType("kubernetes.Quantity")


def quantity(text: str) -> CelQuantity:
    try:
        return CelQuantity(parse_quantity(text))
    except QuantityError as error:
        raise CelError(str(error)) from error


def is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def sign(value: CelQuantity) -> int:
    """Return 1, 0 or -1."""
    return value.amount.sign


def is_integer(value: CelQuantity) -> bool:
    return value.amount.is_integer


def as_integer(value: CelQuantity) -> int:
    """Return the amount as an int."""
    if not value.amount.is_integer:
        raise CelError(f"`{value.amount}` is not an integer of 64 bits as Kubernetes reads it")
    return value.amount.value()


def as_approximate_float(value: CelQuantity) -> float:
    """Return the nearest double; an infinity beyond the range of doubles."""
    try:
        return float(Fraction(value.amount.nanos, _NANOS))
    except OverflowError:
        return math.copysign(math.inf, value.amount.sign)


def add(left: CelQuantity, right: CelQuantity) -> CelQuantity:
    return CelQuantity(left.amount + right.amount)


def add_int(left: CelQuantity, right: int) -> CelQuantity:
    return add(left, _of_int(right))


def sub(left: CelQuantity, right: CelQuantity) -> CelQuantity:
    return CelQuantity(left.amount - right.amount)


def sub_int(left: CelQuantity, right: int) -> CelQuantity:
    return sub(left, _of_int(right))


def compare_to(left: CelQuantity, right: CelQuantity) -> int:
    return left.amount.compare(right.amount)


def is_less_than(left: CelQuantity, right: CelQuantity) -> bool:
    return left.amount < right.amount


def is_greater_than(left: CelQuantity, right: CelQuantity) -> bool:
    return left.amount > right.amount


def _of_int(value: int) -> CelQuantity:
    return CelQuantity(Quantity(value * _NANOS, scale=0))


_TYPE: Final = CelQuantity.cel_type

FUNCTIONS: Final = (
    Overload("quantity", (str,), quantity, result=_TYPE, folds=True),
    Overload("isQuantity", (str,), is_quantity, result=BOOL),
    # Documented as a member, declared upstream as a global function: both are accepted.
    Overload("sign", (CelQuantity,), sign, member=True, result=INT),
    Overload("sign", (CelQuantity,), sign, result=INT),
    Overload("isInteger", (CelQuantity,), is_integer, member=True, result=BOOL),
    Overload("asInteger", (CelQuantity,), as_integer, member=True, result=INT),
    Overload(
        "asApproximateFloat", (CelQuantity,), as_approximate_float, member=True, result=DOUBLE
    ),
    Overload("add", (CelQuantity, CelQuantity), add, member=True, result=_TYPE),
    Overload("add", (CelQuantity, int), add_int, member=True, result=_TYPE),
    Overload("sub", (CelQuantity, CelQuantity), sub, member=True, result=_TYPE),
    Overload("sub", (CelQuantity, int), sub_int, member=True, result=_TYPE),
    Overload("compareTo", (CelQuantity, CelQuantity), compare_to, member=True, result=INT),
    Overload("isLessThan", (CelQuantity, CelQuantity), is_less_than, member=True, result=BOOL),
    Overload(
        "isGreaterThan", (CelQuantity, CelQuantity), is_greater_than, member=True, result=BOOL
    ),
)
