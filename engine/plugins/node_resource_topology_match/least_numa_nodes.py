"""LeastNUMANodes: the fewer zones a pod must be spread over, and the nearer they are, the better.

Source: scheduler-plugins, pkg/noderesourcetopology/least_numa.go.

All combinations of zones are looked at in turn, upstream however many there are; here the first
`_MOST_COMBINATIONS` of a node, which are all of 8 zones. A pod that fits none of them does not fit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations, groupby, islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.numa import UNKNOWN_DISTANCE, NumaLayout
from engine.model.resources import Amounts
from engine.plugins.base import MAX_SCORE
from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.node_resource_topology_match.numa_zones import ABSENT, ZoneTables, first_of
from engine.view import BoolColumn, IntColumn

_MOST_COMBINATIONS: Final = 255
_AT_ONCE: Final = 2**14
"""Sums per batch: nodes that are done take no part in later batches."""

_NO_LIMIT: Final = ABSENT // 2
"""The bound of a resource with a request of 0: a zone must still list it."""

_Rows = NDArray[np.intp]


class _Combinations(NamedTuple):
    """The combinations of as many zones each, the nearest first.

    Attributes:
        zones: which they are, in order of their ids, (n_combinations, size).
        is_nearest: whether none is nearer, (n_combinations,).
    """

    zones: NDArray[np.intp]
    is_nearest: BoolColumn


class _Found(NamedTuple):
    """Rows where a request fits.

    Attributes:
        rows: which they are, (n_found,).
        every: the combinations of as many zones as it needs there.
        chosen: which of them it gets, (n_found,).
    """

    rows: _Rows
    every: _Combinations
    chosen: NDArray[np.intp]


def points(zones: int | IntColumn, most_zones: int, *, is_nearest: bool | BoolColumn) -> IntColumn:
    """Return the points for needing so many zones of so many that a node can have."""
    unit = MAX_SCORE // most_zones
    return np.asarray(MAX_SCORE - zones * unit + np.where(is_nearest, unit // 2, 0))


def least_numa_nodes(
    zones: ZoneTables, layout: NumaLayout, rows: _Rows, requests: Sequence[Amounts]
) -> IntColumn:
    """Return the points of the nodes of one layout, (n_rows,).

    Args:
        zones: of all nodes.
        layout: of the nodes.
        rows: where they stand.
        requests: what each container asks for, in order, or the pod as a whole. Each takes what it
            needs before the next one is looked at.
    """
    search = _Search(zones, layout, rows, requests)
    most = np.zeros(rows.size, np.int64)
    is_nearest, fits = np.ones(rows.size, np.bool_), np.ones(rows.size, np.bool_)
    for number, request in enumerate(requests, 1):
        concerned = zones.is_listed(request)[rows] & fits
        fits &= ~concerned
        for found, every, chosen in search.needed(request, np.flatnonzero(concerned)):
            fits[found] = True
            most[found] = np.maximum(most[found], every.zones.shape[1])
            is_nearest[found] &= every.is_nearest[chosen]
            if number < len(requests):
                search.take(request, found, every.zones[chosen])
    scores = np.where(most == 0, MAX_SCORE, points(most, layout.most_zones, is_nearest=is_nearest))
    return np.where(fits, scores, 0)


class _Search:
    """The amounts left in the zones of a group of nodes while requests are placed.

    Amounts are floats. INVARIANT: they are capped, and no combination has more than 8 zones or so,
    so all sums are exact; one with an ABSENT in it is far below 0.
    """

    def __init__(
        self, zones: ZoneTables, layout: NumaLayout, rows: _Rows, requests: Sequence[Amounts]
    ) -> None:
        names = dict.fromkeys(name for request in requests for name in request)
        self._zones = zones
        self._rows = rows
        self._combinations = _combinations(layout)
        self._left = {
            name: zones.available(name)[: len(layout)].take(rows, axis=1) for name in names
        }

    def needed(self, request: Amounts, rows: _Rows) -> Iterator[_Found]:
        """Yield where a request fits, and into what, of all rows where anything of it is listed."""
        if not rows.size:
            return
        first, *more = self._combinations
        rows = yield from self._among(first, request, rows)
        rows = rows.compress(self._fit_together(request, rows))
        for every in more:
            if not rows.size:
                return
            may_fit = self._may_fit(request, rows, every.zones.shape[1])
            left_over = yield from self._among(every, request, rows.compress(may_fit))
            rows = np.concatenate([rows.compress(~may_fit), left_over])

    def take(self, request: Amounts, rows: _Rows, zones: NDArray[np.intp]) -> None:
        """Take a request from zones of some rows, (n_rows, n_zones), first from the first."""
        missing: dict[str, float | FloatColumn] = dict(request)
        for zone in zones.T:
            at = zone * self._rows.size + rows
            for name in request:
                left = self._left[name].reshape(-1)
                free = left.take(at)
                placed = np.minimum(missing[name], free)
                left[at] = free - placed
                missing[name] = missing[name] - placed

    def _among(
        self, every: _Combinations, request: Amounts, rows: _Rows
    ) -> Generator[_Found, None, _Rows]:
        """Yield where a request fits into one of some combinations; return the other rows."""
        left = self._left_on(request, rows)
        at = 0
        while rows.size and at < len(every.zones):
            combinations = every.zones[at : at + max(1, _AT_ONCE // rows.size)]
            first = first_of(_suitable(combinations, request, left))
            is_found = first < len(combinations)
            if is_found.any():
                yield _Found(rows.compress(is_found), every, first.compress(is_found) + at)
                rows = rows.compress(~is_found)
                left = self._left_on(request, rows)
            at += len(combinations)
        return rows

    def _left_on(self, request: Amounts, rows: _Rows) -> Mapping[str, FloatColumn]:
        if rows.size == self._rows.size:
            return self._left
        return {name: self._left[name].take(rows, axis=1) for name in request}

    def _may_fit(self, request: Amounts, rows: _Rows, size: int) -> BoolColumn:
        """Return on which rows so many zones had the request before any was placed."""
        names = frozenset(request)
        may_fit = np.ones(self._rows.size, np.bool_)
        for name, amount in request.items():
            most = self._zones.most_in(name, names)[size - 1]
            may_fit &= most[self._rows] >= (amount or _NO_LIMIT)
        return may_fit[rows]

    def _fit_together(self, request: Amounts, rows: _Rows) -> BoolColumn:
        """Return on which rows the zones that list everything hold the request together."""
        left = self._left_on(request, rows)
        lists_all = np.logical_and.reduce([left[name] != ABSENT for name in request])
        together = [
            (np.maximum(left[name], 0) * lists_all).sum(axis=0) >= amount
            for name, amount in request.items()
        ]
        return np.asarray(np.logical_and.reduce(together))


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
        zones: sum(layout.distances[zone][other] for zone in zones for other in zones)
        for zones in those
    }
    nearest = min(UNKNOWN_DISTANCE * pairs, *length.values())
    ways = [zones for zones in those if length[zones] < (UNKNOWN_DISTANCE + 1) * pairs]
    ways.sort(key=length.__getitem__)
    return _Combinations(
        np.array(ways, np.intp).reshape(len(ways), size),
        np.array([length[zones] == nearest for zones in ways], np.bool_),
    )


def _suitable(
    combinations: NDArray[np.intp], request: Amounts, left: Mapping[str, FloatColumn]
) -> BoolColumn:
    """Return which combinations hold the request, and list all resources in each of their zones.

    The shape is (n_combinations, n_rows).
    """
    suitable: BoolColumn = np.ones((1, 1), np.bool_)
    for name, amount in request.items():
        total = left[name][combinations[:, 0]]
        for zones in combinations.T[1:]:
            total += left[name][zones]
        suitable = suitable & (total >= (amount or _NO_LIMIT))
    return suitable
