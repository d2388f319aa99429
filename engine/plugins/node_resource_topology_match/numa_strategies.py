"""Scores of a request in each NUMA zone, by the three strategies for single zones.

Source: scheduler-plugins, pkg/noderesourcetopology: least_allocated.go, most_allocated.go,
balanced_allocation.go. All count in whole units, cpu in cores, and every resource of the request,
those that no zone lists included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from engine.model.resources import Amounts
from engine.plugins.base import MAX_SCORE
from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.node_resource_topology_match.numa_zones import ZoneTables, whole_units

ZoneScore: TypeAlias = Callable[[Amounts, ZoneTables, Mapping[str, int]], FloatColumn]
"""Gives the least score that any zone that fits a request gives it, (n,), 0 where none fits.

Takes the request, the zones and the weights of resources, 1 for those that are not listed.

Masks are made floats and multiplied by: `np.where` takes several times as long when one cannot
guess what comes next.
"""

_UNFIT: Final = 2.0**62
"""The offset of zones that do not fit: more than any score."""


def least_allocated(request: Amounts, zones: ZoneTables, weights: Mapping[str, int]) -> FloatColumn:
    """Return the weighted mean of what is left of each resource, in percent."""
    return _weighted(request, zones, weights, lambda left, request: left - request)


def most_allocated(request: Amounts, zones: ZoneTables, weights: Mapping[str, int]) -> FloatColumn:
    """Return the weighted mean of what is taken of each resource, in percent."""
    return _weighted(request, zones, weights, np.full_like)


def balanced_allocation(
    request: Amounts,
    zones: ZoneTables,
    weights: Mapping[str, int],  # noqa: ARG001 (protocol)
) -> FloatColumn:
    """Return how equal the shares are that are taken of resources; weights count nothing.

    To the last bit as upstream, for it is truncated: sums go resource by resource, in order.
    """
    fits = zones.exist()
    count = max(len(request), 1)
    shares = np.empty((count, *fits.shape))
    shares[len(request) :] = 1
    for share, (name, amount) in zip(shares, request.items(), strict=False):
        divisor, where_none_is_left = zones.divisor(name)
        np.divide(whole_units(name, amount), divisor, out=share)
        np.add(share, where_none_is_left, out=share)
        fits &= share <= 1
    mean = shares.sum(axis=0)
    mean /= count
    shares -= mean
    rest = shares.sum(axis=0)
    rest *= rest
    rest /= count
    shares *= shares
    variance = shares.sum(axis=0)
    variance -= rest
    variance /= max(count - 1, 1)
    variance -= (~fits).astype(np.float64) * _UNFIT
    greatest = variance.max(axis=0)
    return np.where(greatest < -_UNFIT / 2, 0, np.trunc((1 - greatest) * MAX_SCORE))


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
) -> FloatColumn:
    """Return the least weighted mean of `part` of each resource in percent, truncated twice."""
    total = np.zeros((zones.most, len(zones.view)))
    for name, amount in request.items():
        left = zones.whole_units(name)
        percent = part(left, whole_units(name, amount))
        percent *= MAX_SCORE
        percent /= left
        np.trunc(percent, out=percent)  # exact, for the reason given in `trunc_div`
        fits = zones.available(name) >= max(amount, 1)
        percent *= fits.astype(np.float64)
        percent *= weights.get(name, 1)
        total += percent
    total /= sum(weights.get(name, 1) for name in request) or 1
    np.trunc(total, out=total)
    total += (total == 0) * _UNFIT
    least = total.min(axis=0)
    return np.where(least == _UNFIT, 0, least)
