"""The candidates of a decision, put in order as far as that is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.ranked_totals import RankedTotals

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
        """Return the positions of the best candidates, best first; see `order`.

        Args:
            most: how many, None for all.
        """
        end = self.rows.size if most is None else min(most, self.rows.size)
        if self._first.size < end:
            places = np.arange(self.rows.size)
            if max(end, _FIRST) < self.rows.size:
                last = self.ranked_totals.at(max(end, _FIRST) - 1)
                places = (self.given_totals >= last).nonzero()[0]
            self._first = self._in_order(places)
        return self._first[:end]

    def among(self, kept: NDArray[np.bool_]) -> Ranking:
        """Return the ranking of some candidates alone.

        Args:
            kept: which of `rows` these are.
        """
        return Ranking(self.rows[kept], self.given_totals[kept], self._tie_breakers)

    def part(self, start: int, end: int) -> NDArray[np.intp]:
        """Return the rows at the places from `start` to `end`, in any order.

        Args:
            start: the first place; that before it has another total.
            end: the one past the last, greater than `start`; it has another total, too.
        """
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
    """Return the bits of a tie-breaker that there is room for in a key.

    Args:
        best: the best total.
        candidates: the number of all candidates.
    """
    return (1 << tie_end(best)) - (1 << candidates.bit_length())


def tie_end(best: int) -> int:
    """Return the number of bits of a key below the total, where this is the best one."""
    return 64 - max(1, best.bit_length())
