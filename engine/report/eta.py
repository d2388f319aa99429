"""How long a pod waits for its quota, from the releases that were seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable
from typing import Final

from engine.model.time import SECOND, Micros

_WINDOW: Final = 600 * SECOND
_LEAST_SAMPLES: Final = 5
_MOST_SAMPLES: Final = 100
"""Kept of a quota: of one that releases many, the latest say more than those of ten minutes."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class _Releases:
    """The latest releases of one quota.

    Attributes:
        since: when the first pod waited for it, or was released.
        moments: of releases, the oldest first.
    """

    __slots__ = ("moments", "since")

    def __init__(self, since: Micros) -> None:
        self.since = since
        self.moments: deque[Micros] = deque(maxlen=_MOST_SAMPLES)


class ReleaseRates:
    """How often each quota releases a pod that had to wait for it.

    Pods that find room at once do not count: they say how many came, not how soon a pod leaves that
    makes room for the next one.
    """

    def __init__(self) -> None:
        self._quotas: dict[Hashable, _Releases] = {}

    def waits(self, quota: Hashable, now: Micros) -> None:
        """Note that a pod waits for a quota; repeated while one does."""
        self._recent(quota, now)

    def released(self, quota: Hashable, now: Micros) -> None:
        """Note that a pod is released which has waited for a quota."""
        self._recent(quota, now).moments.append(now)

    def interval(self, quota: Hashable, now: Micros) -> Micros | None:
        """Return the mean time between two releases of the last ten minutes, in microseconds.

        Of the latest 100, where there were more. None where there were fewer than five.
        """
        found = self._quotas.get(quota)
        if found is None:
            return None
        began = max(found.since, now - _WINDOW)
        if len(found.moments) == _MOST_SAMPLES:
            began = max(began, found.moments[0])
        count = sum(moment > began for moment in found.moments)
        return Micros((now - began) // count) if count >= _LEAST_SAMPLES else None

    def retain(self, now: Micros, waiting: Container[Hashable]) -> None:
        """Forget quotas which no pod waits for, and which released none in ten minutes."""
        before = now - _WINDOW
        for quota, found in list(self._quotas.items()):
            newest = found.moments[-1] if found.moments else found.since
            if quota not in waiting and newest <= before:
                del self._quotas[quota]

    def _recent(self, quota: Hashable, now: Micros) -> _Releases:
        return self._quotas.setdefault(quota, _Releases(now))


def expected_wait(position: int, interval: Micros) -> Micros:
    """Return how long the pod at a position, from 1, waits for that many releases."""
    return Micros(position * interval)


def eta_text(wait: Micros) -> str:
    """Return a wait in the precision of a guess, rounded up: `about 3 min`."""
    seconds = -(-wait // SECOND)
    if seconds <= _HOUR:
        return f"about {max(1, -(-seconds // _MINUTE))} min"
    if seconds <= _DAY:
        return f"about {-(-seconds // _HOUR)} h"
    return "more than a day"
