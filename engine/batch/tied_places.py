"""The candidates that share the best total, kept as single ones take pods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.ranking import tie_mask
from engine.pipeline import tie_factor
from engine.view import IntColumn

_MOST_FEW: Final = 16
"""Up to so many integers, Python is done before numpy has begun."""


class TiedPlaces(ABC):
    """The places of candidates that share the best total.

    Attributes:
        total: the best.
    """

    def __init__(self, total: int) -> None:
        self.total = total

    @abstractmethod
    def first(self, pod: Pod) -> int:
        """Return the place that comes first for a pod."""

    @abstractmethod
    def keep(self, place: int, total: int) -> bool:
        """Take up the new total of a place; return whether that is possible."""


def tied_places(totals: IntColumn, hashes: NDArray[np.uint64], candidates: int) -> TiedPlaces:
    """Return the places of the best.

    Args:
        totals: of all candidates, by place; at least one.
        hashes: `name_hashes` of them, by place.
        candidates: the number of those that are in.
    """
    total = totals.item(totals.argmax())
    places = (totals == total).nonzero()[0]
    mask = tie_mask(total, candidates)
    kind = _Few if places.size <= _MOST_FEW else _Many
    return kind(total, places, hashes.take(places), mask)


class _Few(TiedPlaces):
    """Few of them, as integers of Python."""

    def __init__(
        self, total: int, places: NDArray[np.intp], hashes: NDArray[np.uint64], mask: int
    ) -> None:
        super().__init__(total)
        self._places: list[int] = places.tolist()
        self._hashes: list[int] = hashes.tolist()
        self._mask = mask

    def first(self, pod: Pod) -> int:
        """Return the place that comes first for a pod."""
        if len(self._places) == 1:
            return self._places[0]
        factor, mask = tie_factor(pod), self._mask
        keys = [name * factor & mask for name in self._hashes]
        return self._places[keys.index(min(keys))]

    def keep(self, place: int, total: int) -> bool:
        """Take up the new total of a place; return whether that is possible."""
        places = self._places
        at = bisect_left(places, place)
        was_best = at < len(places) and places[at] == place
        if total >= self.total:
            return was_best and total == self.total
        if was_best:
            del places[at], self._hashes[at]
        return bool(places)


class _Many(TiedPlaces):
    """Any number of them, as columns."""

    def __init__(
        self, total: int, places: NDArray[np.intp], hashes: NDArray[np.uint64], mask: int
    ) -> None:
        super().__init__(total)
        self._places = places
        self._hashes = hashes
        self._mask = np.uint64(mask)

    def first(self, pod: Pod) -> int:
        """Return the place that comes first for a pod."""
        keys = self._hashes * np.uint64(tie_factor(pod))
        keys &= self._mask
        return int(self._places[keys.argmin()])

    def keep(self, place: int, total: int) -> bool:
        """Take up the new total of a place; return whether that is possible."""
        at = int(self._places.searchsorted(place))
        was_best = at < len(self._places) and int(self._places[at]) == place
        if total >= self.total:
            return was_best and total == self.total
        if was_best:
            for column in (self._places, self._hashes):
                column[at:-1] = column[at + 1 :]
            self._places, self._hashes = self._places[:-1], self._hashes[:-1]
        return len(self._places) > 0
