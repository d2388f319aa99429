"""LeastNUMANodes: the fewer zones a pod must be spread over, and the nearer they are, the better.

Source: scheduler-plugins, pkg/noderesourcetopology/least_numa.go.

All combinations of zones are looked at in turn, upstream however many there are; here the first
`_MOST_COMBINATIONS` of a node, which are all of 8 zones. A pod that fits none of them does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain, combinations, islice
from typing import Final, NamedTuple

import numpy as np

from engine.model.numa import UNKNOWN_DISTANCE, NumaLayout
from engine.model.resources import Amounts
from engine.plugins.base import MAX_SCORE
from engine.plugins.numa_zones import ABSENT
from engine.view import BoolColumn, IntColumn

_MOST_COMBINATIONS: Final = 255

Tables = Mapping[str, IntColumn]
"""What is free of each resource in each zone of some nodes, (n_zones, n); ABSENT for nothing."""


class _Combination(NamedTuple):
    """Some zones of a node, by position, and whether none of as many are nearer to each other."""

    zones: tuple[int, ...]
    is_nearest: bool


def points(zones: int | IntColumn, most_zones: int, *, is_nearest: bool | BoolColumn) -> IntColumn:
    """Return the points for needing so many zones of so many that a node can have."""
    unit = MAX_SCORE // most_zones
    return np.asarray(MAX_SCORE - zones * unit + np.where(is_nearest, unit // 2, 0))


def least_numa_nodes(
    layout: NumaLayout, count: int, requests: Iterable[Amounts], tables: Tables
) -> IntColumn:
    """Return the points of nodes of one layout, (count,).

    Args:
        layout: of the nodes.
        count: how many there are.
        requests: what each container asks for, in order, or the pod as a whole.
        tables: what is free of all that they ask for. Overwritten: each request takes what it needs
            before the next one is looked at.
    """
    most = np.zeros(count, np.int64)
    is_nearest, fits = np.ones(count, np.bool_), np.ones(count, np.bool_)
    for request in requests:
        waiting = np.zeros(count, np.bool_)
        for name in request:
            waiting |= (tables[name] != ABSENT).any(axis=0)
        for combination in _combinations(layout):
            if not waiting.any():
                break
            found = waiting & _holds(combination.zones, request, tables)
            most[found] = np.maximum(most[found], len(combination.zones))
            is_nearest[found] &= combination.is_nearest
            _take(combination.zones, request, tables, found)
            waiting &= ~found
        fits &= ~waiting
    scores = np.where(most == 0, MAX_SCORE, points(most, layout.most_zones, is_nearest=is_nearest))
    return np.where(fits, scores, 0)


@lru_cache(maxsize=1024)
def _combinations(layout: NumaLayout) -> tuple[_Combination, ...]:
    """Return the combinations of zones, the smallest first, of these the nearest.

    Equally near ones stay in the order of their zones. Distances beyond what is unknown are no way.
    """
    zones = range(len(layout))
    every = chain.from_iterable(combinations(zones, size + 1) for size in zones)
    ordered: list[_Combination] = []
    by_size: dict[int, list[tuple[int, ...]]] = {}
    for some in islice(every, _MOST_COMBINATIONS):
        by_size.setdefault(len(some), []).append(some)
    for size, those in by_size.items():
        pairs = size * size
        lengths = {some: _length(layout, some) for some in those}
        nearest = min(UNKNOWN_DISTANCE * pairs, *lengths.values())
        ordered += [
            _Combination(some, lengths[some] == nearest)
            for some in sorted(those, key=lengths.__getitem__)
            if lengths[some] < (UNKNOWN_DISTANCE + 1) * pairs
        ]
    return tuple(ordered)


def _length(layout: NumaLayout, zones: tuple[int, ...]) -> int:
    """Return the sum of all distances between zones, each to itself included."""
    return sum(layout.distances[one][other] for one in zones for other in zones)


def _holds(zones: tuple[int, ...], request: Amounts, tables: Tables) -> BoolColumn:
    """Return where zones together have what is asked for, and each of them all resources."""
    holds = True
    for name, amount in request.items():
        free = tables[name][list(zones)]
        holds = holds & (free != ABSENT).all(axis=0)
        if amount:
            holds = holds & (free.sum(axis=0) >= amount)
    return np.asarray(holds)


def _take(zones: tuple[int, ...], request: Amounts, tables: Tables, rows: BoolColumn) -> None:
    """Take a request from zones on some rows, as much as there is from the first of them."""
    for name, amount in request.items():
        left = np.full(np.count_nonzero(rows), amount, np.int64)
        for zone in zones:
            free = tables[name][zone]
            taken = np.minimum(left, free[rows])
            free[rows] -= taken
            left -= taken
