"""How even nodes could be at best: a lower bound, as if pods were divisible and fitted anywhere.

A convex problem: the levels x of nodes of sizes c, of which what stays fills a, are to have the
least variance, where x >= a and the amounts, the sum of c x, are given. Its minimum has
x = max(a, m + s c), with m the mean of x, and one s for all nodes (Karush, Kuhn and Tucker). The
least sum of (x - t)^2 is convex in t, so m is found by bisection; each s is exact.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Levels: TypeAlias = NDArray[np.float64]

_STEPS: Final = 60  # halvings: from 100 % to less than what a double tells apart
_ROUNDING: Final = 1e-9


def least_spread(levels: Levels, fixed: Levels, sizes: Levels) -> float | None:
    """Return the least standard deviation of levels with the same amounts; None if not known.

    Args:
        levels: of each node, (n,).
        fixed: how much of that cannot be elsewhere, (n,); of a node that has less, nothing is
            known: some of what was fixed has gone.
        sizes: of each node, (n,); one of size 0 keeps its level.
    """
    if not levels.size or (levels < fixed - _ROUNDING).any():
        return None
    total = float(sizes @ levels)
    low, high = 0.0, float(max(levels.max(), total / sizes[sizes > 0].min(initial=np.inf)))
    for _ in range(_STEPS):
        target = (low + high) / 2
        found = _nearest(target, fixed, sizes, total)
        if found.mean() > target:
            low = target
        else:
            high = target
    return float(_nearest(high, fixed, sizes, total).std())


def _nearest(target: float, fixed: Levels, sizes: Levels, total: float) -> Levels:
    """Return the levels nearest to a target, by the sum of squares, with this total amount."""
    nodes = np.flatnonzero(sizes)
    starts = (fixed[nodes] - target) / sizes[nodes]  # the slope from which on a node gets more
    order = nodes[np.argsort(starts)]
    starts = np.sort(starts)
    # Of the first so many nodes that get more: total = rest + target * sum of c + s * sum of c^2.
    rest = float(sizes @ fixed) - (sizes[order] * fixed[order]).cumsum()
    slopes = (total - rest - target * sizes[order].cumsum()) / (sizes[order] ** 2).cumsum()
    enough = np.append(slopes[:-1] <= starts[1:], True)
    levels = fixed.copy()
    if nodes.size:
        slope = slopes[int(enough.argmax())]
        levels[nodes] = np.maximum(fixed[nodes], target + slope * sizes[nodes])
    return levels
