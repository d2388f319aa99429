"""The candidates of a decision, put in order as far as that is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

_NO_ROWS: Final = np.zeros(0, np.intp)
_FIRST: Final = 64
"""Candidates that are put in order at least: as many as are named on a pod."""

_END_OF_NARROW: Final = 1 << 16


def no_tie_breakers(rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the same number for all rows, which leaves them in their order."""
    return np.zeros(rows.size, np.uint64)


class Ranking:
    """The candidates by falling total, then by rising tie-breaker, then as they were given.

    Sorting all by both takes as long as a score of all nodes, and hardly anything but a full
    explanation reads beyond the best: by totals alone it takes a quarter, and the ties are broken
    as far as the order is read.

    Args:
        rows: of the candidates, ascending, (n,).
        totals: of each, at least 0, (n,).
        tie_breakers: makes a number for each of some rows.

    Attributes:
        rows, given_totals: these, in the order given.
    """

    def __init__(
        self,
        rows: NDArray[np.intp] = _NO_ROWS,
        totals: NDArray[np.int64] = _NO_ROWS,
        tie_breakers: Callable[[NDArray[np.intp]], NDArray[np.uint64]] = no_tie_breakers,
    ) -> None:
        self.rows, self.given_totals = rows, totals
        self._tie_breakers = tie_breakers
        self._by_total: NDArray[np.intp] | None = None
        self._totals: NDArray[np.int64] = totals
        self._first = _NO_ROWS

    def __len__(self) -> int:
        return self.rows.size

    @property
    def totals(self) -> NDArray[np.int64]:
        """All totals, best first."""
        self._sort_by_total()
        return self._totals

    @property
    def rows_by_total(self) -> NDArray[np.intp]:
        """All rows, best first, but those of equal totals in any order."""
        return self.rows[self._sort_by_total()]

    @property
    def order(self) -> NDArray[np.intp]:
        """The positions in `rows` and `given_totals` of all candidates, best first."""
        return self.best(None)

    def best(self, most: int | None) -> NDArray[np.intp]:
        """Return the positions of the best candidates, best first; see `order`.

        Args:
            most: how many, None for all.
        """
        end = self.rows.size if most is None else min(most, self.rows.size)
        if self._first.size < end:
            by_total = self._sort_by_total()
        if self._first.size < end:
            last = self._totals[max(end, _FIRST) - 1] if end < self.rows.size else 0
            reached = self.rows.size - int(self._totals[::-1].searchsorted(last))
            self._first = self._in_order(by_total[:reached], self._totals[:reached])
        return self._first[:end]

    def _sort_by_total(self) -> NDArray[np.intp]:
        """Return the positions by falling total; sort them the first time."""
        if self._by_total is None:
            if self.rows.size <= _FIRST:
                order = self._first = self._in_order(np.arange(self.rows.size), self.given_totals)
            else:
                order = _by_falling(self.given_totals)
            self._by_total, self._totals = order, self.given_totals[order]
        return self._by_total

    def _in_order(self, places: NDArray[np.intp], totals: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return positions, which have these totals and stand by rising row, best first.

        Sorting one packed integer per node is ten times as fast as sorting by two keys. From the
        upper bits down it holds the difference to the best total, as many bits of the tie-breaker
        as there is room for, and the place among those given.
        """
        if not places.size:
            return places
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
    """Return the bits of a tie-breaker that there is room for in a key.

    Args:
        best: the best total.
        candidates: the number of all candidates.
    """
    return (1 << tie_end(best)) - (1 << candidates.bit_length())


def tie_end(best: int) -> int:
    """Return the number of bits of a key below the total, where this is the best one."""
    return 64 - max(1, best.bit_length())


def _by_falling(totals: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the order by falling total, then rising position, given totals of at least 0."""
    if not totals.size:
        return _NO_ROWS
    best = totals.item(totals.argmax())
    shortfalls = best - totals
    if best < _END_OF_NARROW:  # numpy sorts these by digits
        return shortfalls.astype(np.uint16).argsort(kind="stable")
    return shortfalls.argsort(kind="stable")
