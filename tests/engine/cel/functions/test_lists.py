from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Budget, BudgetExhaustedError, Environment, compile_program
from engine.cel.functions import lists
from engine.cel.values import (
    ABSENT,
    DYN,
    INT_MAX,
    UINT_MAX,
    Duration,
    Timestamp,
    UInt,
    equal,
    present,
)
from engine.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[1, 2, 3].slice(1, 3)", [2, 3]),
        ("[1, 2, 3].slice(3, 3)", []),
        ("[1, [2, [3]]].flatten()", [1, 2, [3]]),
        ("[1, [2, [3]]].flatten(2)", [1, 2, 3]),
        ("[[1]].flatten(0)", [[1]]),
        ("[1, 1.0, 1u, true, 'a', 'a', null, null].distinct()", [1, True, "a", None]),
        ("[[1], [1.0], {'a': 1}, {'a': 1u}].distinct()", [[1], {"a": 1}]),
        ("[0.0/0.0, 0.0/0.0].distinct().size()", 2),
        ("lists.range(3)", [0, 1, 2]),
        ("[1, 2].reverse()", [2, 1]),
        ("['b', 'a'].sort()", ["a", "b"]),
        ("[].sort()", []),
        ("[1, 2].first()", present(1)),
        ("[1, 2].last()", present(2)),
        ("[].first()", ABSENT),
    ],
)
def test_lists(source: str, value: object) -> None:
    assert equal(evaluate(source), value)


@pytest.mark.parametrize(
    "source",
    [
        "[1].slice(-1, 1)",
        "[1].slice(1, 0)",
        "[1].slice(0, 2)",
        "[1].flatten(-1)",
        "lists.range(-1)",
        "[1, 'a'].sort()",
        "[1, 1.0].sort()",
        "[[1]].sort()",
    ],
)
def test_these_fail(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)


def test_comparing_all_with_all_is_paid_for() -> None:
    # Lists cannot be hashed, so each of 1,000 is compared with all before it.
    lists = [[number] for number in range(1000)]
    assert evaluate("x.distinct().size()", Budget(100_000), x=lists) == 1000
    with pytest.raises(BudgetExhaustedError):
        evaluate("x.distinct().size()", Budget(10_000), x=lists)
    assert evaluate("x.distinct().size()", Budget(100), x=list(range(1000))) == 1000


INTS = st.lists(st.integers(-100, 100), max_size=8)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], True),
        (["a", "b", "b", "c"], True),
        ([2.0, 1.0], False),
        ([1], True),
        ([], True),
        ([False, True], True),
        ([True, False], False),
        ([b"a", b"B"], False),
        ([Duration(1), Duration(2)], True),
        ((Timestamp(2), Timestamp(1)), False),
        ([1, UInt(2), 2.5], True),
    ],
)
def test_a_list_is_sorted_when_no_neighbours_are_out_of_order(
    values: list[object], *, expected: bool
) -> None:
    assert lists.is_sorted(Budget(), values) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 3], 4),
        ([1.0, 3.0], 4.0),
        ([UInt(1), UInt(3)], UInt(4)),
        ([Duration(60), Duration(1)], Duration(61)),
        ([], 0),
        ((2,), 2),
        ([math.inf, 1.0], math.inf),
    ],
)
def test_the_sum_has_the_type_of_the_elements(values: list[object], expected: object) -> None:
    total = lists.sum_of(Budget(), values)
    assert total == expected
    assert type(total) is type(expected)


@pytest.mark.parametrize(
    "values",
    [
        [1, UInt(1)],
        [1, 1.0],
        ["a", "b"],
        ["a"],
        [True, True],
        [Duration(1), Timestamp(1)],
        [INT_MAX, 1, -1],  # the sum fits, but not on the way
        [UInt(UINT_MAX), UInt(1)],
        [Duration(INT_MAX), Duration(1)],
    ],
)
def test_what_cannot_be_added_has_no_sum(values: list[object]) -> None:
    with pytest.raises(CelError):
        lists.sum_of(Budget(), values)


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        ([3, 1, 2], 1, 3),
        ([1], 1, 1),
        (["b", "a"], "a", "b"),
        ([True, False], False, True),
        ((Duration(2), Duration(-2)), Duration(-2), Duration(2)),
        ([1, 2.5, UInt(2)], 1, 2.5),
    ],
)
def test_the_extremes_are_elements(values: list[object], least: object, greatest: object) -> None:
    assert lists.minimum(Budget(), values) == least
    assert lists.maximum(Budget(), values) == greatest


def test_of_equal_elements_the_first_is_taken() -> None:
    assert type(lists.minimum(Budget(), [1, 1.0])) is int
    assert type(lists.maximum(Budget(), [1.0, 1])) is float


@pytest.mark.parametrize("choose", [lists.minimum, lists.maximum])
def test_an_empty_list_has_no_extremes(choose: Callable[[Budget, list[object]], object]) -> None:
    with pytest.raises(CelError, match="empty list"):
        choose(Budget(), [])


@pytest.mark.parametrize("function", [lists.minimum, lists.maximum, lists.is_sorted])
@pytest.mark.parametrize("values", [[1, "a"], [[1]], [None], [{}], [True, 1]])
def test_elements_without_an_order_are_refused(
    function: Callable[[Budget, list[object]], object], values: list[object]
) -> None:
    with pytest.raises(CelError):
        function(Budget(), values)


@pytest.mark.parametrize(
    ("values", "item", "first", "last"),
    [
        ([1, 2, 2, 3], 2, 1, 2),
        (["a", "b", "b", "c"], "b", 1, 2),
        ([1.0], 1.1, -1, -1),
        ([], "string", -1, -1),
        ([1, 1.0, UInt(1), True], 1, 0, 2),  # the three numbers are equal, the bool is not
        ([[1], [1]], [1.0], 0, 1),
        ([{"a": [1]}], {"a": [1]}, 0, 0),
        ([math.nan], math.nan, -1, -1),
    ],
)
def test_an_item_is_found_by_equality(
    values: list[object], item: object, first: int, last: int
) -> None:
    assert lists.index_of(Budget(), values, item) == first
    assert lists.last_index_of(Budget(), values, item) == last
    assert lists.includes(Budget(), values, item) is (first >= 0)


@pytest.mark.parametrize(
    ("target", "item", "expected"),
    [
        ("model-a", "model-a", True),
        ("model-a", "model", False),
        (1, 1.0, True),
        ({"a": 1}, "a", False),
        ((1, 2), 2, True),
        ([[1, 2]], [1, 2], True),
        ([1, 2], [1, 2], False),
    ],
)
def test_what_is_no_list_includes_itself_only(
    target: object, item: object, *, expected: bool
) -> None:
    assert lists.includes(Budget(), target, item) is expected


def test_long_lists_cost_steps_so_that_loops_over_them_end() -> None:
    budget = Budget(iterations=100)
    assert lists.index_of(budget, [0] * 3_200, 1) == -1
    assert budget.steps_left == 50  # 3200 / 64 spent
    with pytest.raises(BudgetExhaustedError):
        lists.includes(budget, [0] * 6_400, 1)


@given(INTS)
def test_lists_of_ints_behave_as_pythons(values: list[int]) -> None:
    assert lists.sum_of(Budget(), values) == sum(values)
    assert lists.is_sorted(Budget(), values) is (values == sorted(values))
    if values:
        assert lists.minimum(Budget(), values) == min(values)
        assert lists.maximum(Budget(), values) == max(values)


@given(INTS, st.integers(-100, 100))
def test_first_and_last_position_mirror_each_other(values: list[int], item: int) -> None:
    back = lists.last_index_of(Budget(), values[::-1], item)
    expected = -1 if back < 0 else len(values) - 1 - back
    assert lists.index_of(Budget(), values, item) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "x.max() == 3 && x.sum() == 6 && !x.isSorted() && x.includes(2)",
        "x.indexOf(2) == 2 && x.lastIndexOf(5) == -1",
    ],
)
def test_the_functions_are_part_of_the_language(expression: str) -> None:
    program = compile_program(expression, Environment(variables={"x": DYN}))
    assert program.evaluate({"x": [3, 1, 2]}) is True


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[1.5].filter(x, x > 2.0).sum() / 2.0", 0.0),
        ("[1.5, 2.5].sum() / 2.0", 2.0),
        ("[1].filter(x, x > 2).sum()", 0),
        ("[1u].filter(x, x > 2u).sum()", UInt(0)),
        ("[duration('1s')].filter(x, x > duration('2s')).sum()", Duration(0)),
        ("[].sum()", 0),
        ("dyn([]).sum()", 0),
    ],
)
def test_the_sum_of_no_elements_is_of_the_type_of_the_elements(
    expression: str, expected: object
) -> None:
    found = compile_program(expression, Environment()).evaluate({})
    assert (type(found), found) == (type(expected), expected)


def test_the_smallest_and_largest_ignore_that_nan_has_no_order() -> None:
    for expression in ("[1.0, 0.0 / 0.0].min()", "[1.0, 0.0 / 0.0].max()"):
        assert compile_program(expression, Environment()).evaluate({}) == 1.0


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("sets.contains([1, 2], [2u, 1.0, 1])", True),
        ("sets.contains([1], [true])", False),
        ("sets.contains([], [])", True),
        ("sets.equivalent([1, 1, 2], [2, 1])", True),
        ("sets.equivalent([1, 2], [1])", False),
        ("sets.intersects([[1]], [[1.0], 2])", True),
        ("sets.intersects([], [])", False),
    ],
)
def test_sets(source: str, value: object) -> None:
    assert evaluate(source) is value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[1, 2u, 4.5].mean()", 2.5),
        ("[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].stddev()", 2.0),  # a mean of 5, 32 / 8
        ("[7].stddev()", 0.0),
        ("[0.1, 0.2, 0.3, 1e16, -1e16].mean() == [1e16, 0.3, -1e16, 0.2, 0.1].mean()", True),
    ],
)
def test_statistics(source: str, value: object) -> None:
    assert equal(evaluate(source), value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("[].mean()", "an empty list has no mean"),
        ("[1, dyn('a')].stddev()", "only numbers have a stddev"),
        ("[dyn(true)].mean()", "only numbers have a mean"),
        ("[1.0, 0.0 / 0.0].mean()", "numbers that are not finite have no mean"),
    ],
)
def test_what_has_no_statistics(source: str, message: str) -> None:
    with pytest.raises(CelError, match=message):
        evaluate(source)
