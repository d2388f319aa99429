"""Shares of what is bounded for all: amounts, turns, processor time.

What one takes beyond its share, it takes from itself. What never belongs here: what is shared, and
among whom.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

_T = TypeVar("_T")


class Shares:
    """What each has of a budget: none may have more than is left.

    So one alone has half of it at most, and the next half of what is left then. Whatever others
    have taken, one may have a quarter of an equal part: with tens of them that take all they can,
    that is half as much again as the budget together.
    """

    def __init__(self, budget: int) -> None:
        self._budget = self._left = budget
        self._taken = Counter[str]()  # INVARIANT: together with what is left, the budget

    def has_room(self, who: str, amount: int) -> bool:
        """Return whether somebody may have so much more."""
        own = self._taken[who] + amount
        sharers = len(self._taken) + (who not in self._taken)
        return own <= max(self._left, self._budget // (4 * sharers))

    def take(self, who: str, amount: int) -> None:
        """Let somebody have more, or less of a negative amount."""
        self._left -= amount
        self._taken[who] += amount
        if not self._taken[who]:
            del self._taken[who]


class FairTurns:
    """One turn at a time, by which those who wait have equal time.

    This is start-time fair queueing (Goyal, Vin and Cheng, 1996): next is who has had least, and
    who comes has had no less than whoever has the turn. Nor has who comes had less than an equal
    part of what was spent meanwhile, so that newcomers without end come behind those that wait.
    Where no time is told, all have one turn after the other.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # of those who wait
        self._had: dict[str, float] = {}  # seconds
        self._who: str | None = None  # has the turn
        self._least = 0.0  # what who comes has had

    @asynccontextmanager
    async def of(self, who: str) -> AsyncIterator[None]:
        """Wait for a turn, which lasts as long as the context."""
        await self.take(who)
        try:
            yield
        finally:
            self.end()

    async def take(self, who: str) -> None:
        """Wait for a turn, which lasts until `end`."""
        if who not in self._lines:
            self._had[who] = max(self._had.get(who, 0.0), self._least)
        if self._who is None:
            self._begin(who)
            return
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(who, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had just come
                self.end()
            raise

    def spend(self, seconds: float) -> None:
        """Note what the turn of this moment takes."""
        if self._who is not None:
            self._had[self._who] += seconds
            self._least += seconds / len({self._who, *self._lines})

    def end(self) -> None:
        self._who = None
        while self._lines:
            who = min(self._lines, key=self._had.__getitem__)
            line = self._lines.pop(who)
            turn = line.popleft()
            if line:
                self._lines[who] = line  # behind others that have had as much
            if not turn.done():
                self._begin(who)
                turn.set_result(None)
                return
        self._had.clear()
        self._least = 0.0

    def _begin(self, who: str) -> None:
        self._who, self._least = who, max(self._least, self._had[who])
        self._had = {
            each: had
            for each, had in self._had.items()
            if had > self._least or each == who or each in self._lines
        }


_MOST_WAITING: Final = 16
_REST: Final = 3.0
"""By how much longer nothing is rendered than the last page took: a quarter of a processor is what
readers take at most, however many there are."""

_LONGEST_PREPARATION_SECONDS: Final = 0.1  # that counts: others have the event loop meanwhile


class CrowdedError(Exception):
    """Too many wait already."""


class RenderLimiter:
    """One page at a time is made, of each reader in turn, and then nothing for a while."""

    def __init__(self) -> None:
        self._turns = FairTurns()
        self._waiting = Shares(2 * _MOST_WAITING)  # so one alone may have as many

    async def render(self, who: str, prepare: Callable[[], Awaitable[Callable[[], _T]]]) -> _T:
        """Return what is rendered for a reader.

        Args:
            who: the reader.
            prepare: makes the report on the event loop, and returns what renders it in a thread.

        Raises:
            CrowdedError: too many pages wait.
        """
        if not self._waiting.has_room(who, 1):
            raise CrowdedError("too many readers at a time")
        self._waiting.take(who, 1)
        try:
            await self._turns.take(who)
        finally:
            self._waiting.take(who, -1)
        began, spent_seconds = time.thread_time(), 0.0
        try:
            work = await prepare()
            prepared_in = min(time.thread_time() - began, _LONGEST_PREPARATION_SECONDS)
            rendered, rendered_in = await asyncio.to_thread(_timed, work)
            spent_seconds = prepared_in + rendered_in
            self._turns.spend(spent_seconds)
            return rendered
        finally:
            asyncio.get_running_loop().call_later(_REST * spent_seconds, self._turns.end)


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    """Return the result of some work, and the seconds of processor time that it took."""
    began = time.thread_time()
    return work(), time.thread_time() - began
