"""How long a gang waits after it could not be started, so that others have their turn.

Upstream's wait is constant, see scheduler-plugins, pkg/coscheduling/core/core.go, BackoffPodGroup;
this one doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from engine.model.gang import GangKey
from engine.model.time import SECOND, Micros, date

FIRST_BACKOFF_SECONDS: Final = 10
LONGEST_BACKOFF_SECONDS: Final = 600


class _Failures(msgspec.Struct, frozen=True, gc=False):
    """Failures of a gang in a row, the last of them, and until when it waits."""

    count: int
    last: Micros
    until: Micros


class GangBackoff:
    """Remembers the gangs that failed lately.

    A gang is forgotten when it has started, or has not failed for twice the longest wait: so it
    holds no more than fail meanwhile.

    Args:
        first_seconds: the wait after the first failure, doubled by each further one.
        most_seconds: the longest wait.
    """

    def __init__(
        self,
        *,
        first_seconds: int = FIRST_BACKOFF_SECONDS,
        most_seconds: int = LONGEST_BACKOFF_SECONDS,
    ) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._failures: dict[GangKey, _Failures] = {}  # INVARIANT: the one that failed last is last

    @property
    def failed_at(self) -> Mapping[GangKey, datetime]:
        """When gangs failed last; what the sort `Coscheduling` goes by."""
        return {key: date(failures.last) for key, failures in self._failures.items()}

    def failed(self, key: GangKey, now: Micros) -> None:
        """Remember that a gang could not be started."""
        self._forget_old(now)
        before = self._failures.pop(key, None)
        count = 1 if before is None else before.count + 1
        doubled = min(count - 1, self._most.bit_length())
        seconds = min(self._first * 2**doubled, self._most)
        self._failures[key] = _Failures(count, now, Micros(now + seconds * SECOND))

    def started(self, key: GangKey) -> None:
        """Forget the failures of a gang."""
        self._failures.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._failures.clear()

    def refusal(self, key: GangKey, now: Micros) -> str:
        """Return why a gang is not tried now, "" if it may be."""
        failures = self._failures.get(key)
        if failures is None or now >= failures.until:
            return ""
        seconds = -(-(failures.until - now) // SECOND)
        return f"podGroup {key} failed recently; it is tried again in {seconds} s"

    def _forget_old(self, now: Micros) -> None:
        """Forget those whose last failure is long ago, the oldest of which are first."""
        oldest = now - 2 * self._most * SECOND
        for key in list(self._failures):
            if self._failures[key].last > oldest:
                break
            del self._failures[key]
