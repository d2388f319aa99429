# ruff: noqa: ANN401 (each branch has checked the type of what it uses)
"""Operators on values: the single definition of their semantics.

Dispatch is on `type(x) is`, so a bool is never a number. Integers are checked against 64 bits
after each operation, `/` and `%` truncate toward zero, and no number type is converted to another.
`==` is `engine.cel.values.equal`, charged to a budget.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from engine.cel.budget import Budget
from engine.cel.values import (
    ABSENT,
    NUMBERS,
    Duration,
    OptionalValue,
    Timestamp,
    UInt,
    comparable,
    equal,
    key_value,
    lookup_key,
    present,
    to_duration,
    to_int,
    to_timestamp,
    to_uint,
    type_of,
)
from engine.errors import CelError

_ORDERED: Final = frozenset({bool, int, UInt, float, str, bytes, Timestamp, Duration})
_SEQUENCES: Final = frozenset({list, tuple})
_CONTAINERS: Final = frozenset({list, tuple, dict, OptionalValue})
_COMPARISONS_PER_STEP: Final = 16


def no_overload(function: str, *values: object) -> CelError:
    """Return the error of a function or operator that does not accept values of these types."""
    types = ", ".join(str(type_of(value)) for value in values)
    return CelError(f"no such overload: `{function}` of ({types})")


def not_bool(value: object) -> CelError:
    """Return the error of a value other than a bool where one is required."""
    return CelError(f"no such overload: expected `bool`, not `{type_of(value)}`")


# Arithmetic.


def add(left: Any, right: Any, budget: Budget) -> object:
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return to_int(left + right)
        if kind is float:
            return left + right
        if kind is str or kind is bytes:
            budget.check_text(len(left) + len(right))
            return left + right
        if kind is UInt:
            return to_uint(left + right)
        if kind is Duration:
            return to_duration(left.nanos + right.nanos)
    if kind in _SEQUENCES and other in _SEQUENCES:
        budget.check_items(len(left) + len(right))
        return [*left, *right]
    if {kind, other} == {Timestamp, Duration}:
        offset = left.offset if kind is Timestamp else right.offset
        return to_timestamp(left.nanos + right.nanos, offset)
    raise no_overload("+", left, right)


def subtract(left: Any, right: Any) -> object:
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return to_int(left - right)
        if kind is float:
            return left - right
        if kind is UInt:
            return to_uint(left - right)
        if kind is Duration or kind is Timestamp:
            return to_duration(left.nanos - right.nanos)
    if kind is Timestamp and other is Duration:
        return to_timestamp(left.nanos - right.nanos, left.offset)
    raise no_overload("-", left, right)


def multiply(left: Any, right: Any) -> object:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return to_int(left * right)
        if kind is float:
            return left * right
        if kind is UInt:
            return to_uint(left * right)
    raise no_overload("*", left, right)


def divide(left: Any, right: Any) -> object:
    """Return `left / right`: truncated for integers, infinite or NaN for a double over zero."""
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return left / right if right else _over_zero(left, right)
        if kind is int or kind is UInt:
            if right == 0:
                raise CelError("division by zero")
            if kind is UInt:
                return UInt(left // right)
            quotient = abs(left) // abs(right)
            return to_int(quotient if (left < 0) is (right < 0) else -quotient)
    raise no_overload("/", left, right)


def _over_zero(left: float, zero: float) -> float:
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, zero)


def modulo(left: Any, right: Any) -> object:
    """Return `left % right`, with the sign of `left`."""
    kind = type(left)
    if kind is type(right) and (kind is int or kind is UInt):
        if right == 0:
            raise CelError("modulus by zero")
        if kind is UInt:
            return UInt(left % right)
        divide(left, right)  # overflows where the quotient does
        remainder = abs(left) % abs(right)
        return -remainder if left < 0 else remainder
    raise no_overload("%", left, right)


def negate(value: object) -> object:
    if type(value) is int:
        return to_int(-value)
    if type(value) is float:
        return -value
    raise no_overload("-", value)


# Order and membership.


def is_nan(value: object) -> bool:
    return type(value) is float and math.isnan(value)


def _ordering(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def ordered(left: object, right: object) -> bool:
        kind, other = type(left), type(right)
        if kind is other and kind in _ORDERED:
            pass
        elif kind in NUMBERS and other in NUMBERS:
            left, right = comparable(left, right)
        else:
            raise no_overload(symbol, left, right)
        if is_nan(left) or is_nan(right):
            raise CelError("NaN has no order")
        return compare(left, right)

    return ordered


less: Final = _ordering("<", operator.lt)
less_or_equal: Final = _ordering("<=", operator.le)
greater: Final = _ordering(">", operator.gt)
greater_or_equal: Final = _ordering(">=", operator.ge)


def equals(left: Any, right: Any, budget: Budget) -> bool:
    """Return `left == right`, charging every element of a container: a loop multiplies them."""
    if type(left) in _CONTAINERS and type(right) in _CONTAINERS:
        _charge_comparison(left, budget)
    return equal(left, right)


def member(element: Any, container: Any, budget: Budget) -> bool:
    """Return `element in container`, charging the comparison with each element of a list."""
    if type(container) in _SEQUENCES:
        budget.spend(len(container) // _COMPARISONS_PER_STEP)
        if type(element) in _CONTAINERS:
            _charge_comparison(element, budget, times=len(container))
    return contains(element, container)


def _charge_comparison(container: Any, budget: Budget, *, times: int = 1) -> None:
    """Charge gradually: a value built of shared parts may hold far more than was charged for it."""
    uncharged = 0
    pending = [container]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is dict:
            inner = value.values()
        else:
            inner = (value.value,) if kind is OptionalValue else value
        uncharged += (1 + len(inner)) * times
        budget.spend(uncharged // _COMPARISONS_PER_STEP)
        uncharged %= _COMPARISONS_PER_STEP
        pending.extend(part for part in inner if type(part) in _CONTAINERS)


def sorted_by(values: Sequence[object], keys: Sequence[Any]) -> list[object]:
    """Sort `values` by their `keys`; the sort is stable."""
    kinds = set(map(type, keys))
    if len(kinds) > 1 or not kinds <= _ORDERED:
        raise CelError("only values of one type that has an order can be sorted")
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [values[position] for position in order]


def contains(element: Any, container: Any) -> bool:
    """Return `element in container`: an element of a list, or a key of a map."""
    kind = type(container)
    if kind is dict:
        try:
            return lookup_key(element) in container
        except CelError:  # a value that can be no key
            return False
    if kind in _SEQUENCES:
        if type(element) is str:
            return element in container
        return any(equal(element, other) for other in container)
    raise no_overload("in", element, container)


# Fields and elements.


def index(operand: Any, key: Any) -> object:
    """Return `operand[key]`; an element of an optional is an optional.

    An optional that holds a value without elements is an error, as the conformance suite has it.
    """
    kind = type(operand)
    if kind is OptionalValue:
        if operand.present and type(operand.value) not in _CONTAINERS:
            raise CelError(f"no such key: `{key}`")
        return optional_index(operand, key)
    if kind is dict:
        try:
            return operand[lookup_key(key)]
        except KeyError:
            raise CelError(f"no such key: `{key}`") from None
    if kind in _SEQUENCES:
        position = _position(key)
        if 0 <= position < len(operand):
            return operand[position]
        raise CelError(f"index out of range: {position}")
    raise no_overload("[]", operand, key)


def optional_index(operand: Any, key: Any) -> OptionalValue:
    """Return `operand[?key]`: absent if there is no such element, as in a value that has none."""
    if type(operand) is OptionalValue:
        return optional_index(operand.value, key) if operand.present else ABSENT
    kind = type(operand)
    if kind is dict:
        try:
            entry = lookup_key(key)
        except CelError:  # of a type that no key has
            return ABSENT
        return present(operand[entry]) if entry in operand else ABSENT
    if kind in _SEQUENCES:
        position = _position(key)
        inside = 0 <= position < len(operand)
        return present(operand[position]) if inside else ABSENT
    return ABSENT  # a number, a string, null: it has no elements, so not this one


def _position(key: Any) -> int:
    kind = type(key)
    if kind is int or kind is UInt or (kind is float and key.is_integer()):
        return int(key)
    raise CelError(f"a list has no index `{key}`")


def select(operand: Any, field: str) -> object:
    """Return `operand.field`; a field of an optional is an optional."""
    if type(operand) is dict or type(operand) is OptionalValue:
        return index(operand, field)
    raise CelError(f"no field `{field}` in a value of type `{type_of(operand)}`")


def optional_select(operand: Any, field: str) -> OptionalValue:
    """Return `operand.?field`: absent if there is no such field, as in any value but a map."""
    if type(operand) in _SEQUENCES:
        raise CelError(f"no field `{field}` in a value of type `{type_of(operand)}`")
    return optional_index(operand, field)


def has(operand: Any, field: str) -> bool:
    if type(operand) is dict:
        return field in operand
    return optional_select(operand, field).present


# Loops.


def elements(operand: Any) -> Iterable[object]:
    """Range of a loop with one variable: the elements of a list, or the keys of a map."""
    kind = type(operand)
    if kind is list or kind is tuple:
        sequence: Iterable[object] = operand
        return sequence
    if kind is dict:
        return [key_value(key) for key in operand]
    raise CelError(f"a value of type `{type_of(operand)}` cannot be looped over")


def pairs(operand: Any) -> Iterable[tuple[object, object]]:
    """Range of a loop with two variables: index and element, or key and value."""
    kind = type(operand)
    if kind in _SEQUENCES:
        return enumerate(operand)
    if kind is dict:
        return ((key_value(key), value) for key, value in operand.items())
    raise CelError(f"a value of type `{type_of(operand)}` cannot be looped over")
