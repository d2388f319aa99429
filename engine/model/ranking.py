"""The candidates of a decision, put in order as far as that is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MOST_PER_TOTAL: Final = 4
"""Counts are made of totals up to so many times the candidates: beyond, sorting is faster."""


class RankedTotals:
    """What stands at each place of a ranking, and how many totals are at least some score.

    Mostly there are few different totals of many candidates. They are counted then, in a tenth of
    the time that it takes to sort them.

    Attributes:
        size: how many there are.

    Args:
        totals: at least 0, in any order, (n,).
    """

    __slots__ = ("_by_total", "_rising", "size")

    def __init__(self, totals: NDArray[np.int64]) -> None:
        self.size = totals.size
        self._rising: list[int] = []
        self._by_total: NDArray[np.intp] | None = None
        if self.size and totals.item(totals.argmax()) < _MOST_PER_TOTAL * self.size:
            self._by_total = np.bincount(totals).cumsum()  # how many are at most each total
        else:
            self._rising = np.sort(totals).tolist()

    def at(self, place: int) -> int:
        """Return the total at a place, from 0, the best, to `size` - 1."""
        from_worst = self.size - 1 - place
        if self._by_total is None:
            return self._rising[from_worst]
        return int(self._by_total.searchsorted(from_worst, "right"))

    def count_from(self, score: int) -> int:
        """Return how many totals are at least a score."""
        if self._by_total is None:
            return self.size - bisect_left(self._rising, score)
        if score <= 0:
            return self.size
        return self.size - int(self._by_total.item(min(score, self._by_total.size) - 1))


_NO_ROWS: Final = np.zeros(0, np.intp)
_FIRST: Final = 64
"""Candidates that are put in order at least: as many as are named on a pod."""


def no_tie_breakers(rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the same number for all rows, which leaves them in their order."""
    return np.zeros(rows.size, np.uint64)


class Ranking:
    """The candidates by falling total, then by rising tie-breaker, then as they were given.

    Sorting all takes as long as a score of all nodes, and hardly anything but a full explanation
    reads beyond the best. So only those are sorted that are at least as good as the last one read,
    and totals are looked up in `ranked_totals`.

    Attributes:
        rows, given_totals: these, in the order given.

    Args:
        rows: of the candidates, ascending, (n,).
        totals: of each, at least 0, (n,).
        tie_breakers: makes a number for each of some rows.
    """

    def __init__(
        self,
        rows: NDArray[np.intp] = _NO_ROWS,
        totals: NDArray[np.int64] = _NO_ROWS,
        tie_breakers: Callable[[NDArray[np.intp]], NDArray[np.uint64]] = no_tie_breakers,
    ) -> None:
        self.rows, self.given_totals = rows, totals
        self._tie_breakers = tie_breakers
        self._first = _NO_ROWS

    def __len__(self) -> int:
        return self.rows.size

    @cached_property
    def ranked_totals(self) -> RankedTotals:
        """The totals by their places."""
        return RankedTotals(self.given_totals)

    @cached_property
    def totals(self) -> NDArray[np.int64]:
        """All totals, best first."""
        return np.sort(self.given_totals)[::-1]

    @property
    def order(self) -> NDArray[np.intp]:
        """The positions in `rows` and `given_totals` of all candidates, best first."""
        return self.best(None)

    def best(self, most: int | None) -> NDArray[np.intp]:
        """Return the positions of the best candidates, best first; see `order`."""
        end = self.rows.size if most is None else min(most, self.rows.size)
        if self._first.size < end:
            places = np.arange(self.rows.size)
            if max(end, _FIRST) < self.rows.size:
                last = self.ranked_totals.at(max(end, _FIRST) - 1)
                places = (self.given_totals >= last).nonzero()[0]
            self._first = self._in_order(places)
        return self._first[:end]

    def among(self, kept: NDArray[np.bool_]) -> Ranking:
        """Return the ranking of some candidates alone."""
        return Ranking(self.rows[kept], self.given_totals[kept], self._tie_breakers)

    def part(self, start: int, end: int) -> NDArray[np.intp]:
        """Return the rows at the places from `start` to `end`, in any order."""
        totals, ranked = self.given_totals, self.ranked_totals
        inside = totals >= ranked.at(end - 1)
        if start:
            inside &= totals <= ranked.at(start)
        return self.rows[inside]

    def _in_order(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return ascending positions, the best among them, best first.

        Sorting one packed integer per node is ten times as fast as sorting by two keys. From the
        upper bits down it holds the difference to the best total, as many bits of the tie-breaker
        as there is room for, and the place among those given.
        """
        totals = self.given_totals[places]
        best, n = totals.item(totals.argmax()), self.rows.size
        keys = self._tie_breakers(self.rows[places])
        keys &= tie_mask(best, n)
        shortfalls = (best - totals).view(np.uint64)
        shortfalls <<= tie_end(best)
        shortfalls += np.arange(places.size, dtype=np.uint64)
        keys |= shortfalls
        keys.sort()
        keys &= (1 << n.bit_length()) - 1
        return places[keys.view(np.intp)]


NOTHING_RANKED: Final = Ranking()
"""No candidates."""


def tie_mask(best: int, candidates: int) -> int:
    """Return the bits of a tie-breaker that there is room for in a key."""
    return (1 << tie_end(best)) - (1 << candidates.bit_length())


def tie_end(best: int) -> int:
    """Return the number of bits of a key below the total, where this is the best one."""
    return 64 - max(1, best.bit_length())
