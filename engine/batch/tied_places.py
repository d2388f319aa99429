"""The candidates that share the best total, kept as single ones take pods."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.view import IntColumn


class TiedPlaces:
    """The places of candidates that share the best total.

    Args:
        totals: of all candidates, by place; at least one.
        hashes: of their names, by place.

    Attributes:
        total: the best.
        places: those that have it, ascending; at least one.
        hashes: of these, aligned with them.
    """

    def __init__(self, totals: IntColumn, hashes: NDArray[np.uint64]) -> None:
        self.total = int(totals.max())
        self.places = (totals == self.total).nonzero()[0]
        self.hashes = hashes.take(self.places)

    def keep(self, place: int, total: int) -> bool:
        """Take up the new total of a place; return whether that is possible."""
        at = int(self.places.searchsorted(place))
        was_best = at < len(self.places) and int(self.places[at]) == place
        if total >= self.total:
            return was_best and total == self.total
        if was_best:
            for column in (self.places, self.hashes):
                column[at:-1] = column[at + 1 :]
            self.places, self.hashes = self.places[:-1], self.hashes[:-1]
        return len(self.places) > 0
