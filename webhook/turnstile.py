"""How many reviews are worked on at a time, and in which order they are decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto


class Room(Enum):
    """What a review finds on arrival."""

    FREE = auto()
    FULL = auto()  # it must be shed, which takes reading it
    CROWDED = auto()  # as many again are being shed already: it is turned away unread


class Turnstile:
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
    def inside(self) -> int:
        """How many reviews have arrived and are not answered yet."""
        return self._inside

    @contextmanager
    def enter(self) -> Iterator[Room]:
        """Count a review until it is answered; says whether there is room for it."""
        self._inside += 1
        try:
            if self._inside <= self._most:
                yield Room.FREE
            else:
                yield Room.FULL if self._inside <= 2 * self._most else Room.CROWDED
        finally:
            self._inside -= 1

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one's turn to decide."""
        async with self._turns:
            await asyncio.sleep(0)  # those that came with us are counted before we decide
            yield
