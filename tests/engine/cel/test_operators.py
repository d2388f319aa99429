from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import operators
from engine.cel.budget import Budget
from engine.cel.values import (
    ABSENT,
    BoolKey,
    Duration,
    OptionalValue,
    Timestamp,
    UInt,
    present,
)
from engine.errors import BudgetExhaustedError, CelError

INT64 = st.integers(-(2**63), 2**63 - 1)


def add(left: object, right: object) -> object:
    return operators.add(left, right, Budget())


@given(INT64, INT64)
def test_integer_arithmetic_is_exact_or_an_error(left: int, right: int) -> None:
    exact = {
        add: left + right,
        operators.subtract: left - right,
        operators.multiply: left * right,
    }
    if right:
        # Truncated toward zero: 7 / -2 is -3, and 7 % -2 is 7 - (-3 * -2) = 1.
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        exact[operators.divide] = quotient
        if -(2**63) <= quotient < 2**63:
            exact[operators.modulo] = left - quotient * right
    for function, result in exact.items():
        if -(2**63) <= result < 2**63:
            assert function(left, right) == result
        else:
            with pytest.raises(CelError):
                function(left, right)


@pytest.mark.parametrize("function", [operators.divide, operators.modulo])
def test_no_integer_divides_by_zero(function: Any) -> None:  # noqa: ANN401 (an operator)
    for zero in (0, UInt(0)):
        with pytest.raises(CelError):
            function(type(zero)(1), zero)


def test_the_least_integer_has_no_opposite() -> None:
    least = -(2**63)
    with pytest.raises(CelError):
        operators.negate(least)
    with pytest.raises(CelError):
        operators.divide(least, -1)
    with pytest.raises(CelError):
        operators.modulo(least, -1)


def test_uint_arithmetic_gives_uints_and_never_goes_below_zero() -> None:
    assert operators.subtract(UInt(3), UInt(2)) == UInt(1)
    assert type(operators.multiply(UInt(3), UInt(2))) is UInt
    assert type(operators.divide(UInt(3), UInt(2))) is UInt
    with pytest.raises(CelError):
        operators.subtract(UInt(2), UInt(3))


def test_a_double_over_zero_is_infinite_or_not_a_number() -> None:
    assert operators.divide(1.0, 0.0) == math.inf
    assert operators.divide(1.0, -0.0) == -math.inf
    assert math.isnan(operators.divide(0.0, 0.0))  # type: ignore[arg-type]


def test_times_add_up() -> None:
    assert add(Timestamp(5), Duration(3)) == add(Duration(3), Timestamp(5)) == Timestamp(8)
    assert operators.subtract(Timestamp(5), Timestamp(3)) == Duration(2)
    assert operators.subtract(Timestamp(5), Duration(3)) == Timestamp(2)
    with pytest.raises(CelError):
        operators.subtract(Duration(3), Timestamp(5))


@pytest.mark.parametrize(
    ("left", "right"), [(1, 1.0), (1, UInt(1)), (True, True), ("a", b"a"), (None, None), (1, True)]
)
def test_unlike_types_do_not_add_up(left: object, right: object) -> None:
    with pytest.raises(CelError, match="no such overload"):
        add(left, right)


def test_order_exists_between_numbers_but_not_between_other_unlike_types() -> None:
    assert operators.less(1, 1.5)
    assert operators.less(-1, UInt(0))
    assert operators.less("\uffff", "\U0001f431")  # by code point
    assert operators.less(False, True)  # noqa: FBT003 (bools have an order)
    for left, right in ((1, "1"), (True, 1), ([1], [2]), (None, None), (Timestamp(0), Duration(0))):
        with pytest.raises(CelError):
            operators.less(left, right)


@pytest.mark.parametrize(
    "compare",
    [operators.less, operators.less_or_equal, operators.greater, operators.greater_or_equal],
)
def test_nan_has_no_order(compare: Callable[[object, object], bool]) -> None:
    for other in (1.0, 1, UInt(1), math.nan):
        for pair in ((math.nan, other), (other, math.nan)):
            with pytest.raises(CelError, match="NaN has no order"):
                compare(*pair)


def test_only_keys_of_one_ordered_type_sort() -> None:
    assert operators.sorted_by(["x", "y", "z"], [2, 1, 2]) == ["y", "x", "z"]
    for keys in ([1, 1.0], [1, "a"], [[1]], [None]):
        with pytest.raises(CelError):
            operators.sorted_by(keys, keys)


def test_membership_of_a_list_and_of_the_keys_of_a_map() -> None:
    assert operators.contains(1.0, [1])
    assert operators.contains("a", {"a": 1})
    for ones in ([1], {1: 1}):
        assert not operators.contains(True, ones)  # noqa: FBT003 (a value)
    assert not operators.contains(1.5, {1: 1})
    for container in ("abc", 1, None):
        with pytest.raises(CelError):
            operators.contains("a", container)


def test_an_index_may_be_any_whole_number() -> None:
    for zero in (0, UInt(0), 0.0):
        assert operators.index([7], zero) == 7
    for key in (-1, 1, 0.5, True, "0", None):
        with pytest.raises(CelError):
            operators.index([7], key)


def test_a_key_finds_its_value_across_number_types() -> None:
    assert operators.index({1: "a"}, 1.0) == "a"
    assert operators.index({BoolKey.TRUE: "a"}, True) == "a"
    with pytest.raises(CelError, match="no such key: `b`"):
        operators.select({"a": 1}, "b")


def test_selection_through_an_optional_gives_optionals() -> None:
    nested = present({"a": {"b": 1}})
    assert operators.select(operators.select(nested, "a"), "b") == present(1)
    assert operators.select(operators.select(nested, "x"), "b") == ABSENT
    assert operators.optional_select({"a": 1}, "b") == ABSENT
    assert operators.optional_index([7], 1) == ABSENT
    assert operators.has(present({"a": 1}), "a")
    assert not operators.has(OptionalValue(present=False), "a")
    with pytest.raises(CelError):
        operators.optional_select([1], "a")


@pytest.mark.parametrize("value", [1, 1.5, "a", None, True, b"a", Timestamp(0)])
def test_a_value_that_is_no_map_has_no_field(value: object) -> None:
    assert not operators.has(value, "a")
    assert operators.optional_select(value, "a") == ABSENT
    assert operators.optional_index(value, "a") == ABSENT
    assert not operators.has(present(value), "a")
    assert operators.optional_select(present(value), "a") == ABSENT
    for operand in (value, present(value)):
        with pytest.raises(CelError):
            operators.select(operand, "a")


def test_a_concatenation_is_paid_for() -> None:
    small = Budget(max_text=3, max_items=3)
    assert operators.add("ab", "c", small) == "abc"
    assert operators.add([1], (2,), small) == [1, 2]
    with pytest.raises(BudgetExhaustedError):
        operators.add("ab", "cd", small)
    with pytest.raises(BudgetExhaustedError):
        operators.add([1, 2], [3, 4], small)
