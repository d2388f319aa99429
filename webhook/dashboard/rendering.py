"""Turns in which pages are rendered: reviews share the interpreter with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeVar

from webhook.dashboard.readers import UnavailableError

_MOST_WAITING: Final = 16
_REST: Final = 3.0
"""By how much longer nothing is rendered than the last page took: a quarter of a processor is what
readers take at most, however many there are."""

_Rendered = TypeVar("_Rendered")


class RenderLimiter:
    """One page at a time is made, and then nothing for a while."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def render(self, prepare: Callable[[], Awaitable[Callable[[], _Rendered]]]) -> _Rendered:
        """Return what is rendered.

        Args:
            prepare: makes the reports, on the event loop; returns what renders them in a thread.

        Raises:
            UnavailableError: too many wait already.
        """
        if self._waiting >= _MOST_WAITING:
            text = "too many readers at a time"
            raise UnavailableError(HTTPStatus.SERVICE_UNAVAILABLE, text)
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        spent_seconds = 0.0
        try:
            work = await prepare()
            rendered, spent_seconds = await asyncio.to_thread(_timed, work)
            return rendered
        finally:
            asyncio.get_running_loop().call_later(_REST * spent_seconds, self._turn.release)


def _timed(work: Callable[[], _Rendered]) -> tuple[_Rendered, float]:
    """Return the result of some work, and the seconds of processor time that it took."""
    began = time.thread_time()
    return work(), time.thread_time() - began
