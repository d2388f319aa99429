"""LeastNUMANodes: the fewer zones a pod must be spread over, and the nearer they are, the better.

Source: scheduler-plugins, pkg/noderesourcetopology/least_numa.go.

All combinations of zones are looked at in turn, upstream however many there are; here the first
`_MOST_COMBINATIONS` of a node, which are all of 8 zones. A pod that fits none of them does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations, groupby, islice
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.numa import UNKNOWN_DISTANCE, NumaLayout
from engine.model.resources import Amounts
from engine.plugins.arithmetic import FloatColumn
from engine.plugins.base import MAX_SCORE
from engine.plugins.numa_zones import ABSENT
from engine.view import BoolColumn, IntColumn

_MOST_COMBINATIONS: Final = 255

Tables: TypeAlias = Mapping[str, FloatColumn]
"""What is free of each resource in each zone of some nodes, (n_zones, n); ABSENT for nothing.

Floats, for their products are many times faster. INVARIANT: amounts are capped, and no combination
has more than 8 zones or so, so all sums are exact; one with an ABSENT in it is far below 0.
"""

_NO_LIMIT: Final = ABSENT // 2


class _Combinations(NamedTuple):
    """The combinations of as many zones each, the nearest first.

    Attributes:
        members: which zones are in it, 0 or 1, (n_combinations, n_zones).
        is_nearest: whether none is nearer, (n_combinations,).
    """

    members: FloatColumn
    is_nearest: BoolColumn


def points(zones: int | IntColumn, most_zones: int, *, is_nearest: bool | BoolColumn) -> IntColumn:
    """Return the points for needing so many zones of so many that a node can have."""
    unit = MAX_SCORE // most_zones
    return np.asarray(MAX_SCORE - zones * unit + np.where(is_nearest, unit // 2, 0))


def least_numa_nodes(
    layout: NumaLayout, count: int, requests: Sequence[Amounts], tables: Tables
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
    for number, request in enumerate(requests, 1):
        concerned = np.zeros(count, np.bool_)
        for name in request:
            concerned |= (tables[name] != ABSENT).any(axis=0)
        rows = np.flatnonzero(concerned & fits)
        for size, every in enumerate(_combinations(layout), 1):
            if size > 1:
                rows = rows[_may_fit(request, tables, rows)]
            if not rows.size:
                break
            suitable = _suitable(every, request, tables, rows)
            is_found, first = suitable.any(axis=0), suitable.argmax(axis=0)
            found, chosen = rows[is_found], first[is_found]
            most[found] = np.maximum(most[found], size)
            is_nearest[found] &= every.is_nearest[chosen]
            concerned[found] = False
            if number < len(requests):
                _take(every.members[chosen] > 0, request, tables, found)
            rows = rows[~is_found]
        fits &= ~concerned
    scores = np.where(most == 0, MAX_SCORE, points(most, layout.most_zones, is_nearest=is_nearest))
    return np.where(fits, scores, 0)


@lru_cache(maxsize=256)
def _combinations(layout: NumaLayout) -> tuple[_Combinations, ...]:
    """Return the combinations of zones by their number, from one on.

    Equally near ones stay in the order of their zones. Distances beyond what is unknown are no way.
    """
    zones = range(len(layout))
    every = chain.from_iterable(combinations(zones, size + 1) for size in zones)
    return tuple(
        _of_one_size(layout, list(those), size)
        for size, those in groupby(islice(every, _MOST_COMBINATIONS), len)
    )


def _of_one_size(layout: NumaLayout, those: list[tuple[int, ...]], size: int) -> _Combinations:
    pairs = size * size
    length = {
        some: sum(layout.distances[one][other] for one in some for other in some) for some in those
    }
    nearest = min(UNKNOWN_DISTANCE * pairs, *length.values())
    ways = [some for some in those if length[some] < (UNKNOWN_DISTANCE + 1) * pairs]
    ways.sort(key=length.__getitem__)
    members = [[float(zone in some) for zone in range(len(layout))] for some in ways]
    return _Combinations(
        np.array(members, np.float64).reshape(len(ways), len(layout)),
        np.array([length[some] == nearest for some in ways], np.bool_),
    )


def _suitable(
    every: _Combinations, request: Amounts, tables: Tables, rows: NDArray[np.intp]
) -> BoolColumn:
    """Return which combinations have what is asked for, and all resources in each of their zones.

    The shape is (n_combinations, n_rows), and there is always one more combination, which has not.
    """
    suitable = np.zeros((len(every.members) + 1, rows.size), np.bool_)
    suitable[:-1] = True
    for name, amount in request.items():
        free = tables[name] if rows.size == tables[name].shape[-1] else tables[name][:, rows]
        suitable[:-1] &= every.members @ free >= (amount or _NO_LIMIT)
    return suitable


def _may_fit(request: Amounts, tables: Tables, rows: NDArray[np.intp]) -> BoolColumn:
    """Return on which rows all zones together that list everything have what is asked for."""
    free = {name: tables[name][:, rows] for name in request}
    lists_all = np.logical_and.reduce([some != ABSENT for some in free.values()])
    together = [
        (np.maximum(some, 0) * lists_all).sum(axis=0) >= request[name]
        for name, some in free.items()
    ]
    return np.asarray(np.logical_and.reduce(together))


def _take(members: BoolColumn, request: Amounts, tables: Tables, rows: NDArray[np.intp]) -> None:
    """Take a request from the zones that are members, (n_rows, n_zones), first from the first."""
    for name, amount in request.items():
        left = np.full(rows.size, float(amount))
        for zone, is_member in enumerate(members.T):
            free = tables[name][zone]
            taken = np.where(is_member, np.minimum(left, free[rows]), 0)
            free[rows] -= taken
            left -= taken
