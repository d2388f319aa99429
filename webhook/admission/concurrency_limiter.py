"""Bound on concurrent reviews, and the order in which they are decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import Final, TypeVar

_T = TypeVar("_T")

_CROWD: Final = 16
"""Reviews in flight: a caller waits for some milliseconds before its own is decided."""

_LATE_SECONDS: Final = 0.02
"""Wait of a review in a standing queue after which it gets no more than takes no time."""

_OVERLOAD_SECONDS: Final = 1.0
_SHORTER: Final = 16  # the queue in an overload than it may be otherwise


class Admission(Enum):
    """State of the limiter when a review arrives."""

    FREE = auto()
    FULL = auto()  # beyond the limit: it is shed, which takes decoding it
    CROWDED = auto()  # beyond twice the limit: it is rejected undecoded


class ConcurrencyLimiter:
    """Counts the reviews in flight, and lets one at a time decide in order of arrival.

    Deciding never waits, so without turns all reviews of one burst would be decided in a single
    step of the event loop, the last of them long after its deadline, and nothing would be counted
    in between. With turns the loop accepts new arrivals (and probes) between any two decisions.

    A burst may wait, for it ends. Where more arrives than can be decided, a longer queue makes
    every decision later and none possible, so what waits in a standing queue is kept short: on the
    principle of CoDel (RFC 8289), that queues are there for bursts, and that a queue is as long as
    the time spent in it. A queue is standing when it has not been empty while as many reviews left
    as may be in flight: so a burst of `limit` reviews waits as a whole, whatever the speed of the
    machine. Half of them are no overload: so many clients may each wait for the answer to one.

    An overload lasts until the queue is empty, and for a second at most after it was seen last: the
    clients may be as few by then as would have been none.

    Args:
        limit: reviews that may be in flight.
        clock: monotonic seconds.

    Attributes:
        waiting: reviews that wait for their turn, or have it.
        taken: turns that have ended, or were not needed.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._in_flight = 0
        self._decided = 0  # since none was in flight
        self._is_late = False
        self._overloaded_until = -inf
        self.waiting = 0
        self.taken = 0
        self._turns = asyncio.Lock()  # first come, first served

    @property
    def in_flight(self) -> int:
        """Number of reviews that have arrived as a whole and have no response yet."""
        return self._in_flight

    @property
    def is_crowded(self) -> bool:
        """Whether reviews wait for each other."""
        return self._in_flight > _CROWD

    @property
    def is_overloaded(self) -> bool:
        """Whether the review whose turn it is has waited for long in a standing queue."""
        is_standing = self._decided >= self._limit and self._in_flight > self._limit // 2
        return is_standing and self._is_late

    @property
    def has_room(self) -> bool:
        """Whether a review that has just entered may wait: in an overload only few may."""
        is_overload = self._clock() < self._overloaded_until
        most = max(1, self._limit // _SHORTER) if is_overload else self._limit
        return self._in_flight <= most

    def enter(self) -> Admission:
        """Count a review until `leave`, in each of the states."""
        self._in_flight += 1
        if self._in_flight <= self._limit:
            return Admission.FREE
        return Admission.FULL if self._in_flight <= 2 * self._limit else Admission.CROWDED

    def leave(self) -> None:
        """Count a review no longer: it has a response."""
        self._in_flight -= 1
        if not self._in_flight:
            self._decided, self._overloaded_until = 0, -inf

    def spare_turn(self) -> None:
        """Count the turn of a review that needs none: others are paced by turns."""
        self.taken += 1

    async def run_serialized(self, decide: Callable[[], _T]) -> _T:
        """Result of `decide`, called when all earlier reviews have been decided."""
        late_at = self._clock() + _LATE_SECONDS
        self.waiting += 1
        try:
            async with self._turns:
                await asyncio.sleep(0)  # reviews of the same burst are counted before the decision
                now = self._clock()
                self._is_late = now > late_at
                if self.is_overloaded:
                    self._overloaded_until = now + _OVERLOAD_SECONDS
                return decide()
        finally:
            self._decided += 1
            self.waiting -= 1
            self.taken += 1
