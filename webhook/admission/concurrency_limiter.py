"""Bound on concurrent reviews, and the order in which they are decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeVar

_T = TypeVar("_T")


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

    Args:
        limit: reviews that may be in flight.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight = 0
        self._turns = asyncio.Lock()  # first come, first served

    @property
    def in_flight(self) -> int:
        """Number of reviews that have arrived as a whole and have no response yet."""
        return self._in_flight

    def enter(self) -> Admission:
        """Count a review until `leave`, in each of the states."""
        self._in_flight += 1
        if self._in_flight <= self._limit:
            return Admission.FREE
        return Admission.FULL if self._in_flight <= 2 * self._limit else Admission.CROWDED

    def leave(self) -> None:
        """Count a review no longer: it has a response."""
        self._in_flight -= 1

    async def run_serialized(self, decide: Callable[[], _T]) -> _T:
        """Result of `decide`, called when all earlier reviews have been decided."""
        async with self._turns:
            await asyncio.sleep(0)  # reviews of the same burst are counted before the decision
            return decide()
