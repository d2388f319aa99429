"""The processor time of each step of an event loop: what an answer waits for at most once."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, Final, NamedTuple

_KEPT: Final = 2_000  # of the longest steps


class Step(NamedTuple):
    """One callback of the event loop, or one turn of a task.

    Attributes:
        seconds: of the processor, of the thread of the loop.
        collecting: how many of them garbage was collected.
        what: the task or the callback.
    """

    seconds: float
    collecting: float
    what: str


class Steps:
    """Measures the steps of asyncio's own event loop; others run their callbacks elsewhere.

    Attributes:
        count: of the steps since the last `take`.
        seconds: of all of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._longest: list[Step] = []
        self._collecting = self._collected_since = 0.0
        self._least = 0.0  # seconds of a step that is kept
        gc.callbacks.append(self._collection)
        run = asyncio.Handle._run  # noqa: SLF001 - nothing else sees each step

        def timed(handle: asyncio.Handle) -> None:
            self._collecting = 0.0
            start = time.thread_time()
            run(handle)
            self._note(time.thread_time() - start, handle)

        asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]  # noqa: SLF001

    def take(self, most: int) -> list[Step]:
        """Return the longest steps since the last time, and begin anew."""
        longest = sorted(self._longest, reverse=True)[:most]
        self._longest.clear()
        self.count, self.seconds, self._least = 0, 0.0, 0.0
        return longest

    def _note(self, seconds: float, handle: asyncio.Handle) -> None:
        self.count += 1
        self.seconds += seconds
        if seconds > self._least:
            self._longest.append(Step(seconds, self._collecting, _name_of(handle)))
            if len(self._longest) == 2 * _KEPT:
                self._longest.sort(reverse=True)
                del self._longest[_KEPT:]
                self._least = self._longest[-1].seconds

    def _collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collected_since = time.thread_time()
        else:
            self._collecting += time.thread_time() - self._collected_since


def _name_of(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_name()}: {getattr(owner.get_coro(), '__qualname__', '')}"
    return str(getattr(callback, "__qualname__", callback))
