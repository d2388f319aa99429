from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.plugins.lib.arithmetic import (
    GREATEST_PERCENT,
    bounded_percent,
    free_percent,
    least_reaching,
    minmax_normalize,
    percent_bounds,
    percent_of,
    percent_reaches,
    rounded,
    sum_of_rows,
    trunc_div,
)

_near_the_edge = st.integers(2**53 - 3, 2**53 + 3)
_dividends = (
    st.integers(-(2**63) + 1, 2**63 - 1) | _near_the_edge | _near_the_edge.map(lambda i: -i)
)
_divisors = st.integers(1, 2**40) | _near_the_edge | st.integers(-100, -1)


def _go_divide(dividend: int, divisor: int) -> int:
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _go_round(value: float) -> int:
    """Go's math.Round by its definition, exact because `%` of floats is."""
    rest = math.fmod(value, 1)
    return int(value - rest) + (int(math.copysign(1, value)) if abs(rest) >= 0.5 else 0)


@given(_dividends, _divisors)
@example(2**53 - 1, 1)
@example(2**53 - 1, 2**53 - 1)
@example((2**26 + 1) * 2**26 - 1, 2**26 + 1)  # the true quotient lies one 2**-26 below an integer
def test_division_truncates_toward_zero(dividend: int, divisor: int) -> None:
    column = np.array([dividend], np.int64)
    expected = _go_divide(dividend, divisor)
    assert trunc_div(column, divisor).tolist() == [expected]
    assert trunc_div(column, np.array([divisor], np.int64)).tolist() == [expected]


@given(st.integers(1, 2**27), st.integers(1, 2**26 - 1), st.sampled_from([-1, 0, 1]))
def test_division_is_exact_next_to_whole_quotients(divisor: int, quotient: int, off: int) -> None:
    dividend = divisor * quotient + off
    assert trunc_div(np.array([dividend], np.int64), divisor).tolist() == [dividend // divisor]


def test_one_large_value_does_not_spoil_the_others() -> None:
    # 7 / 2 = 3.5 -> 3 and -7 / 2 -> -3, on the path that 2**62 forces as well.
    dividends = np.array([7, -7, 2**62], np.int64)
    assert trunc_div(dividends, 2).tolist() == [3, -3, 2**61]
    assert trunc_div(np.array([], np.int64), 2).tolist() == []


@given(st.floats(-(2.0**51), 2.0**51))
@example(0.5)
@example(-2.5)
@example(0.49999999999999994)
@example(2.0**51 - 0.5)
def test_a_half_is_rounded_away_from_zero(value: float) -> None:
    assert rounded(np.array([value])).tolist() == [_go_round(value)]


@given(st.integers(-(2**53), 2**53), st.integers(-(2**56), 2**56))
def test_free_percent_is_a_truncated_percentage(capacity: int, free: int) -> None:
    capacity = capacity or 1
    columns = np.array([float(capacity)]), np.array([free], np.int64)
    percent = _go_divide(free * 100, capacity)
    assert free_percent(*columns).tolist() == [max(-(2.0**53), min(percent, 2.0**53))]


@given(st.floats(allow_nan=False))
def test_a_percentage_beyond_all_bounds_is_at_the_bound(percent: float) -> None:
    expected = int(max(-GREATEST_PERCENT, min(percent, GREATEST_PERCENT)))
    assert bounded_percent(np.array([percent])).tolist() == [expected]


@given(st.integers(-(2**48), 2**48), st.integers(-3_000_000, 3_000_000))
def test_percent_of_is_truncated_and_never_wraps(amount: int, percent: int) -> None:
    columns = np.array([amount], np.int64), np.array([percent], np.int64)
    assert percent_of(*columns).tolist() == [_go_divide(amount * percent, 100)]


@given(
    st.integers(-(2**56), 2**56) | st.integers(-1000, 1000),
    st.integers(1, 2**48) | st.integers(1, 1000),
    st.integers(-200, 200),
)
@example(65499, 100_000, 65)  # 65.499 rounds to 65
@example(65500, 100_000, 65)  # 65.5 rounds away from zero, to 66
@example(-5, 1000, -1)  # -0.5 rounds away from zero, to -1
@example(-15, 1000, -2)
def test_a_bound_is_reached_exactly_when_the_rounded_percentage_exceeds_the_threshold(
    used: int, total: int, threshold: int
) -> None:
    bounds = percent_bounds(np.array([threshold], np.int64))
    reached = percent_reaches(np.array([used], np.int64), np.array([float(total)]), bounds)
    rounded = _go_round(float(used) / float(total) * 100)
    assert reached.tolist() == [rounded > threshold]


@given(
    st.integers(1, 2**48) | st.integers(1, 1000),
    st.integers(-200, 200) | st.integers(-(2**63), 2**63 - 1),
)
@example(100_000, 65)  # 65,500
def test_the_least_amount_that_reaches_a_bound_is_found(total: int, threshold: int) -> None:
    totals, bounds = np.array([float(total)]), percent_bounds(np.array([threshold], np.int64))
    least = least_reaching(totals, bounds)
    if least[0] < 2**60:
        assert percent_reaches(least, totals, bounds).tolist() == [True]
    if least[0] > -(2**60):
        assert percent_reaches(least - 1, totals, bounds).tolist() == [False]


def test_no_amount_reaches_a_bound_that_is_not_there() -> None:
    assert least_reaching(np.array([1000.0]), np.array([np.inf])).tolist() == [2**60]


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4), st.sampled_from([99, 100])
)
@example([5, 5], 100)
@example([-(2**63), 2**63 - 1, 0], 100)
@example([0, 1, 3], 99)
def test_stretching_is_exact_however_far_apart_scores_are(scores: list[int], points: int) -> None:
    least, spread = min(scores), max(scores) - min(scores)
    expected = [(score - least) * points // (spread or 1) for score in scores]
    assert minmax_normalize(np.array(scores, np.int64), points).tolist() == expected


def test_stretching_nothing_gives_nothing() -> None:
    assert minmax_normalize(np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_the_sum_of_rows_is_a_column_of_its_own(rows: int) -> None:
    matrix = np.arange(rows * 4, dtype=np.float64).reshape(rows, 4)
    total = sum_of_rows(matrix)
    assert total.tolist() == matrix.sum(axis=0).tolist()
    assert not np.shares_memory(total, matrix)
