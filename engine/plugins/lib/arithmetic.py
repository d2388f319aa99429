"""Go's arithmetic on whole columns: exact, and as fast as numpy allows.

numpy floors where Go truncates, and divides int64 about ten times slower than float64. The one
place where either matters is here, each function with the argument why its result is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.plugins.base import MAX_SCORE
from engine.view import BoolColumn, IntColumn, extremes

FloatColumn: TypeAlias = NDArray[np.float64]
"""One float64 per node."""

_EXACT = 2**53
"""Every integer of a smaller magnitude is a float64."""

_FAR = 2**60
"""More than any node can use."""

_GREATEST_INT = 2**63 - 1

_BELOW_HALF = float(np.nextafter(0.5, 0))

GREATEST_PERCENT = 2**36
"""The greatest magnitude of a percentage; a node a billion times too full is just full.

INVARIANT: times a maximum score of 100 it stays within int64.
"""


def trunc_div(dividend: IntColumn, divisor: IntColumn | FloatColumn | int) -> IntColumn:
    """Return `dividend / divisor` as Go divides integers: truncated toward zero.

    Args:
        dividend: above -2**63.
        divisor: never zero; a column of floats holds integers of a magnitude of at most 2**53,
            which saves looking at each.

    Below 2**53 in magnitude float64 division is exact enough. Let a, b > 0 be such integers and k
    the least integer above the true quotient a/b, which is not one itself; with 2**e < k <=
    2**(e+1) the float64 below k is k - 2**(e-52). As a/b <= k - 1/b, it can only round up to k if
    1/b <= 2**(e-53), but b * 2**e <= b * (k-1) <= a < 2**53. So the rounded quotient lies in
    [k-1, k) and truncates to k-1. (For k = 1, a/b <= 1 - 1/b <= 1 - 2**-53, a float64 itself.)
    Whole quotients are exact, and signs mirror.
    """
    if _within(dividend, _EXACT) and _is_exact(divisor):
        return (dividend / divisor).astype(np.int64)
    if not isinstance(divisor, int):
        divisor = divisor.astype(np.int64)
    quotient: IntColumn = dividend // divisor
    quotient += (quotient < 0) & (quotient * divisor != dividend)
    return quotient


def rounded(values: FloatColumn) -> IntColumn:
    """Return values as Go's `math.Round` gives them: to the nearest, a half away from zero.

    Adding the float64 below a half instead of the half itself keeps what lies below it from being
    carried over; a half itself, being a tie then, is carried.
    """
    return np.trunc(values + np.copysign(_BELOW_HALF, values)).astype(np.int64)


def free_percent(capacity: FloatColumn, free: IntColumn) -> FloatColumn:
    """Return how much of `capacity` is free, in whole percent truncated toward zero.

    Negative where more is taken than there is, and at most 2**53 in magnitude. Floats, for what is
    made of them next is as exact in floats and twice as fast; see `bounded_percent`.
    """
    if not _within(free, _EXACT // 100):
        percents = trunc_div(free * 100, capacity)
        return np.clip(percents, -_EXACT, _EXACT).astype(np.float64)
    percent: FloatColumn = np.multiply(free, 100.0)
    percent /= capacity
    np.trunc(percent, out=percent)  # for the reason given in `trunc_div`
    return percent


def sum_of_rows(matrix: FloatColumn) -> FloatColumn:
    """Return the sum of the rows of a matrix, a new column; two, as of cpu and memory, at once."""
    total: FloatColumn = (
        np.add(*matrix) if len(matrix) == 2 else np.add.reduce(matrix, axis=0)  # noqa: PLR2004
    )
    return total


def any_of_rows(matrix: BoolColumn) -> BoolColumn:
    """Return where any row of a matrix is set, a new column."""
    return reduce(np.logical_or, matrix) if len(matrix) > 1 else matrix[0].copy()


def bounded_percent(percent: FloatColumn) -> IntColumn:
    """Return percentages truncated toward zero, and at most GREATEST_PERCENT in magnitude.

    A weighted mean of what `free_percent` gave is exact up to there: with weights that add up to
    less than 2**16 it is a quotient of integers below 2**53.
    """
    if not _within(percent, GREATEST_PERCENT):
        percent = np.clip(percent, -GREATEST_PERCENT, GREATEST_PERCENT)
    return percent.astype(np.int64)


def default_normalize(scores: IntColumn, *, reverse: bool = False) -> IntColumn:
    """Return scores scaled so that the greatest becomes MAX_SCORE, truncated.

    Source: pkg/scheduler/framework/plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """
    greatest = int(scores.max(initial=0))
    scaled = trunc_div(scores * MAX_SCORE, greatest) if greatest else scores
    return MAX_SCORE - scaled if reverse else scaled


def inverse_minmax(costs: IntColumn) -> IntColumn:
    """Return MAX_SCORE for the least cost and 0 for the greatest; MAX_SCORE for all equal ones.

    In floats and truncated from there, as scheduler-plugins' NetworkOverhead and Peaks do.
    """
    if not costs.size:
        return costs
    low, high = map(int, extremes(costs))
    above = MAX_SCORE * (costs - low).astype(np.float64) / ((high - low) or 1)
    return MAX_SCORE - above.astype(np.int64)


def minmax_normalize(scores: IntColumn, points: int = MAX_SCORE) -> IntColumn:
    """Return scores stretched from 0 for the least to `points` for the greatest, truncated.

    All equal scores become 0, as in scheduler-plugins, whose scorers do this one by one. Exact
    however far apart scores are.
    """
    if not scores.size:
        return scores
    least, greatest = map(int, extremes(scores))
    spread = greatest - least
    if spread * points > _GREATEST_INT:
        exact = (scores.astype(object) - least) * points // spread
        return exact.astype(np.int64)
    return trunc_div((scores - least) * points, spread or 1)


def percent_of(amounts: IntColumn, percents: IntColumn) -> IntColumn:
    """Return `amounts * percents / 100` as Go computes it, had its integers no end.

    An amount is 100 * whole + rest, both of its sign, so both terms of the sum have one sign and
    truncating the second truncates the whole.
    """
    whole = trunc_div(amounts, 100)
    rest = amounts - 100 * whole
    return whole * percents + trunc_div(rest * percents, 100)


def percent_bounds(thresholds: IntColumn) -> FloatColumn:
    """Return the least float64 x for which Go's `math.Round(x)` is greater than each threshold.

    Go rounds half away from zero, so Round(x) > t, that is Round(x) >= t + 1, holds from t + 1/2
    on where t >= 0; where t < 0 the half itself still rounds down to t, so it holds just above.
    """
    halves = thresholds + 0.5
    return np.where(thresholds >= 0, halves, np.nextafter(halves, np.inf))


def percent_reaches(used: IntColumn, total: FloatColumn, bounds: FloatColumn) -> BoolColumn:
    """Return where Go's `float64(used) / float64(total) * 100` is at least `bounds`.

    The three operations round as Go's do, because they are the same IEEE operations in the same
    order; `total` is never zero.
    """
    percent = used / total
    percent *= 100
    return percent >= bounds


def least_reaching(total: FloatColumn, bounds: FloatColumn) -> IntColumn:
    """Return the least whole amount that `percent_reaches` its bound.

    Where that is more than _FAR it is _FAR, and it may be any below -_FAR where it is less.

    Rounding never turns an order around, so the amounts that reach a bound are all from one on,
    and that one lies next to `bounds / 100 * total`, by less than the margin that is searched.
    """
    near = np.clip(bounds / 100 * total, -_FAR, _FAR)
    margin = np.abs(near) * 2.0**-40 + 2
    low, high = np.floor(near - margin).astype(np.int64), np.ceil(near + margin).astype(np.int64)
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        reached = percent_reaches(middle, total, bounds)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.minimum(high, _FAR)


def _is_exact(divisor: IntColumn | FloatColumn | int) -> bool:
    if isinstance(divisor, int):
        return abs(divisor) < _EXACT
    return divisor.dtype == np.float64 or _within(divisor, _EXACT)


def _within(values: IntColumn | FloatColumn, bound: int) -> bool:
    """Return whether all values lie strictly between -bound and bound."""
    if not values.size:
        return True
    least, greatest = extremes(values)
    return bool(-bound < least and greatest < bound)


def broken_line(points: Sequence[tuple[int, int]], at: int) -> int:
    """Return the height at `at` of the straight lines between points, truncated toward zero.

    Before the first point and after the last it is level.
    """
    before, height = points[0]
    for place, next_height in points:
        if at <= place:
            if place == before:
                return next_height
            risen, run = (next_height - height) * (at - before), place - before
            return height + (risen // run if risen >= 0 else -(-risen // run))
        before, height = place, next_height
    return height
