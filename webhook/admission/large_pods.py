"""Work on large pods: in a thread of its own and within limits, so that no other review waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from webhook.background import one_at_a_time

_T = TypeVar("_T")

_MOST_WAITING = 4
_SECONDS = 0.75  # below the deadline that the chart's timeout of a quota review leaves


class LargePodsError(Exception):
    """There is no time for another large pod now."""


class LargePods:
    """One thread for large pods: they wait for each other, and for nobody else.

    The interpreter runs one thread at a time, in turns: a second thread would make nothing faster.

    Args:
        most_waiting: pods that may wait for the thread, or have it.
        seconds: longest time that one may take, with its wait.
    """

    def __init__(self, *, most_waiting: int = _MOST_WAITING, seconds: float = _SECONDS) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large pods")
        self._most_waiting = most_waiting
        self._seconds = seconds
        self._waiting = 0

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, which may use nothing that the event loop changes.

        Raises:
            LargePodsError: too many are waiting, or it took too long.
        """
        if self._waiting >= self._most_waiting:
            raise LargePodsError("too many large pods at a time")
        self._waiting += 1
        future = self._executor.submit(one_at_a_time, work)
        future.add_done_callback(self._done(asyncio.get_running_loop()))
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise LargePodsError("no time was left for a pod as large as this") from error

    def _done(self, loop: asyncio.AbstractEventLoop) -> Callable[[object], object]:
        """Callback of the thread: a pod that was given up counts until the thread has left it."""

        def leave() -> None:
            self._waiting -= 1

        def done(_: object) -> None:
            loop.call_soon_threadsafe(leave)

        return done
