"""When pods that are being deleted should be gone: from then on no quota is charged for them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from engine.model.time import Micros

_MOST_OBSOLETE: Final = 1024


class Departures:
    """The moments of pods that are being deleted; memory follows the number of these pods."""

    def __init__(self) -> None:
        self._by_key: dict[str, Micros] = {}
        self._queue: list[tuple[Micros, str]] = []  # a heap, with obsolete entries

    def put(self, key: str, gone_by: Micros | None) -> None:
        """Note when a pod should be gone, None for one that nobody deletes, or that is gone."""
        if gone_by is None:
            self._by_key.pop(key, None)
        elif self._by_key.get(key) != gone_by:
            self._by_key[key] = gone_by
            heappush(self._queue, (gone_by, key))
            if len(self._queue) > 2 * len(self._by_key) + _MOST_OBSOLETE:
                self._queue = [(at, each) for each, at in self._by_key.items()]
                heapify(self._queue)

    def is_due(self, now: Micros) -> bool:
        """Return whether `take` would return any."""
        return bool(self._queue) and self._queue[0][0] <= now

    def take(self, now: Micros, most: int | None = None) -> list[str]:
        """Return the keys of pods that should be gone by now, each once.

        Args:
            now: now.
            most: the number of moments to process, the earliest first; None for all.
        """
        keys = []
        for _ in range(len(self._queue) if most is None else most):
            if not self.is_due(now):
                break
            at, key = heappop(self._queue)
            if self._by_key.get(key) == at:
                del self._by_key[key]
                keys.append(key)
        return keys
