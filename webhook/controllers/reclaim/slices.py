"""Work of the engine on the event loop, a few milliseconds at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

from engine.reclaim import Steps

_T = TypeVar("_T")

_SLICE_SECONDS: Final = 0.005
"""After which reviews and events come in between; a step more may take some milliseconds."""


class Slices:
    """Runs work in slices, a piece of work after the other: together they would be one long slice.

    Args:
        clock: seconds that only go forward.

    Attributes:
        turn: to be held for as long as work takes.
        pauses: how many there were so far; while it stays the same nothing else has run.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.turn: Final[AbstractAsyncContextManager[object]] = asyncio.Lock()
        self.pauses = 0

    async def complete(self, steps: Steps[_T]) -> _T:
        """Do work; return its result."""
        until = self._clock() + _SLICE_SECONDS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: _T = end.value
                return result
            if self._clock() >= until:
                self.pauses += 1
                await asyncio.sleep(0)
                until = self._clock() + _SLICE_SECONDS
