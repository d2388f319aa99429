"""How well a request fits each NUMA zone, by the three strategies that look at single zones.

Source: scheduler-plugins, pkg/noderesourcetopology: least_allocated.go, most_allocated.go,
balanced_allocation.go. All count in whole units, cpu in cores, and every resource of the request,
those that no zone lists included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from engine.model.resources import Amounts
from engine.plugins.arithmetic import FloatColumn, trunc_div
from engine.plugins.base import MAX_SCORE
from engine.plugins.numa_zones import ZoneTables, whole_units
from engine.view import IntColumn

ZoneScore: TypeAlias = Callable[[Amounts, ZoneTables, Mapping[str, int]], IntColumn]
"""Scores a request in each zone, (most, n), 0 where it does not fit.

Takes the request, the zones and the weights of resources, 1 for those that are not listed. What it
says of a zone that there is not is of no interest.
"""


def least_allocated(request: Amounts, zones: ZoneTables, weights: Mapping[str, int]) -> IntColumn:
    """Return the weighted mean of what is left of each resource, in percent."""
    return _weighted(request, zones, weights, lambda left, asked: left - asked)


def most_allocated(request: Amounts, zones: ZoneTables, weights: Mapping[str, int]) -> IntColumn:
    """Return the weighted mean of what is taken of each resource, in percent."""
    return _weighted(request, zones, weights, np.full_like)


def balanced_allocation(
    request: Amounts,
    zones: ZoneTables,
    weights: Mapping[str, int],  # noqa: ARG001 (protocol)
) -> IntColumn:
    """Return how equal the shares are that are taken of resources; weights count nothing."""
    shares = np.ones((max(len(request), 1), zones.most, len(zones.view)))
    for share, (name, amount) in zip(shares, request.items(), strict=False):
        np.divide(whole_units(name, amount), zones.whole_units(name), out=share)
        share[zones.available(name) <= 0] = 1
    spread = shares - shares.mean(axis=0)
    squares = (spread**2).sum(axis=0) - spread.sum(axis=0) ** 2 / len(shares)
    variance = squares / max(len(shares) - 1, 1)
    points: IntColumn = ((1 - variance) * MAX_SCORE).astype(np.int64)
    return np.where((shares > 1).any(axis=0), 0, points)


STRATEGIES: Final[Mapping[str, ZoneScore]] = {
    "BalancedAllocation": balanced_allocation,
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
}
"""By the names that args use."""


def _weighted(
    request: Amounts,
    zones: ZoneTables,
    weights: Mapping[str, int],
    part: Callable[[FloatColumn, float], FloatColumn],
) -> IntColumn:
    """Return the weighted mean of `part` of each resource in percent, truncated twice."""
    total = np.zeros((zones.most, len(zones.view)))
    for name, amount in request.items():
        left = zones.whole_units(name)
        percent = part(left, whole_units(name, amount))
        percent *= MAX_SCORE
        percent /= left
        np.trunc(percent, out=percent)  # exact, for the reason given in `trunc_div`
        fits = zones.available(name) >= max(amount, 1)
        percent *= fits * weights.get(name, 1)
        total += percent
    return trunc_div(total.astype(np.int64), sum(weights.get(name, 1) for name in request) or 1)
