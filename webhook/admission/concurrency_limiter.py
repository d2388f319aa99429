"""How many reviews are worked on at a time, and in which order they are decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeVar

_T = TypeVar("_T")


class Admission(Enum):
    """What a review finds on arrival."""

    FREE = auto()
    FULL = auto()  # it must be shed, which takes reading it
    CROWDED = auto()  # as many again are being shed already: it is turned away unread


class ConcurrencyLimiter:
    """Counts the reviews inside, and lets one at a time decide in order of arrival.

    Deciding never waits, so without turns all reviews of one burst would be decided in a single
    step of the event loop, the last of them long after its deadline, with nobody counted in
    between. With turns the loop looks for new arrivals (and probes) between any two decisions.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside = 0
        self._turns = asyncio.Lock()  # first come, first served

    @property
    def in_flight(self) -> int:
        """How many reviews have arrived and are not answered yet."""
        return self._inside

    def enter(self) -> Admission:
        """Count a review until it is answered and leaves; says whether there is room for it."""
        self._inside += 1
        if self._inside <= self._most:
            return Admission.FREE
        return Admission.FULL if self._inside <= 2 * self._most else Admission.CROWDED

    def leave(self) -> None:
        """Count a review no more: it is answered, whatever the answer."""
        self._inside -= 1

    async def run_serialized(self, decide: Callable[[], _T]) -> _T:
        """Wait for one's turn to decide, and return what comes of it."""
        async with self._turns:
            await asyncio.sleep(0)  # those that came with us are counted before we decide
            return decide()
