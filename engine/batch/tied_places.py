"""The candidates that share the best total, kept as they take pods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.ranking import tie_mask
from engine.pipeline import tie_factor
from engine.view import IntColumn

_MOST_FEW: Final = 64
"""Of so many the orders of as many pods are found in less time than the first of each."""


class TiedPlaces(ABC):
    """The places of candidates that share the best total.

    Attributes:
        total: the best.
    """

    def __init__(
        self, total: int, places: NDArray[np.intp], hashes: NDArray[np.uint64], mask: int
    ) -> None:
        self.total = total
        self._places = places
        self._hashes = hashes
        self._mask = np.uint64(mask)
        self._at = 0  # of the place that came first last

    def _first_at(self, pod: Pod) -> int:
        """Return which of the places comes first for a pod."""
        keys = self._hashes * np.uint64(tie_factor(pod))
        keys &= self._mask
        return int(keys.argmin())

    @abstractmethod
    def first(self, pods: Sequence[Pod], at: int) -> int:
        """Return the place that comes first for a pod.

        Args:
            pods: that come one after the other.
            at: the position of the pod among them.
        """

    @abstractmethod
    def keep(self, total: int) -> bool:
        """Take up a new total of the place that came first last; return whether that is possible.

        It is not where the best total is another one now.
        """


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
    """Few of them: each pod has an order of its own, and takes the first that is left."""

    def __init__(
        self, total: int, places: NDArray[np.intp], hashes: NDArray[np.uint64], mask: int
    ) -> None:
        super().__init__(total, places, hashes, mask)
        self._left = places.size
        self._is_left = [True] * self._left
        self._orders: dict[int, Sequence[int]] = {}  # by the identity of pods, which others hold

    def first(self, pods: Sequence[Pod], at: int) -> int:
        """Return the place that comes first for a pod; see `TiedPlaces`."""
        order = self._orders.get(id(pods[at]))
        if order is None:
            self._at = self._first_anew(pods[at : at + self._left])
        else:
            is_left = self._is_left
            for first in order:
                if is_left[first]:
                    break
            self._at = first
        return self._places.item(self._at)

    def keep(self, total: int) -> bool:
        """Take up a new total of the place that came first last; see `TiedPlaces`."""
        if total >= self.total:
            return total == self.total
        self._is_left[self._at] = False
        self._left -= 1
        return self._left > 0

    def _first_anew(self, pods: Sequence[Pod]) -> int:
        """Return which place comes first for the first of some pods; find the orders of all."""
        if self._left < len(self._is_left):
            self._places = self._places[self._is_left]
            self._hashes = self._hashes[self._is_left]
            self._is_left, self._orders = [True] * self._left, {}
        if self._left == 1:
            return 0
        if len(pods) == 1:
            return self._first_at(pods[0])
        factors = np.array([tie_factor(pod) for pod in pods], np.uint64)
        keys = self._hashes * factors[:, np.newaxis]
        keys &= self._mask
        orders = keys.argsort(axis=1, kind="stable").tolist()
        self._orders = dict(zip(map(id, pods), orders, strict=True))
        first: int = orders[0][0]
        return first


class _Many(TiedPlaces):
    """Any number of them."""

    def first(self, pods: Sequence[Pod], at: int) -> int:
        """Return the place that comes first for a pod; see `TiedPlaces`."""
        self._at = self._first_at(pods[at])
        return self._places.item(self._at)

    def keep(self, total: int) -> bool:
        """Take up a new total of the place that came first last; see `TiedPlaces`."""
        if total >= self.total:
            return total == self.total
        for column in (self._places, self._hashes):
            column[self._at : -1] = column[self._at + 1 :]
        self._places, self._hashes = self._places[:-1], self._hashes[:-1]
        return len(self._places) > 0
