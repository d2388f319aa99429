"""Work that runs beside the reviews: tasks, one of which watches files, and turns of threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

LOOK_SECONDS = 5.0
"""Time between two looks at files; a kubelet takes up to a minute to change a mounted one."""

_ONE_LARGE_OBJECT: Final = Lock()

_log = logging.getLogger(__name__)


def in_background(stack: AsyncExitStack, work: Coroutine[Any, Any, object]) -> None:
    """Run a task until the stack unwinds, which awaits its end: a Lease is released."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


def one_at_a_time(work: Callable[[], _T]) -> _T:
    """Return the result of work on a large object, in the thread that it is called in.

    The interpreter runs one thread at a time, and decoding keeps it for many milliseconds: a review
    that waits for one large object must not wait for a second one, whoever brings it.
    """
    with _ONE_LARGE_OBJECT:
        return work()


async def on_change(paths: Sequence[Path], act: Callable[[], Awaitable[object]]) -> None:
    """Call `act` whenever files have changed, until cancelled; polling works on every mount."""
    before = fingerprint(paths)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = fingerprint(paths)
        if now == before:
            continue
        before = now
        try:
            await act()
        except Exception:  # noqa: BLE001 - later changes must still be noticed
            _log.exception("a changed file could not be loaded")


def fingerprint(paths: Sequence[Path]) -> frozenset[tuple[str, int, int, int]]:
    """State of some files, and of all files in folders, to be compared with a later one.

    Links are followed: a mounted ConfigMap changes by pointing its links elsewhere.
    """
    return frozenset(_states(paths))


def _states(paths: Sequence[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            try:
                status = file.stat()
            except OSError:
                yield str(file), 0, 0, 0  # a dangling link
                continue
            yield str(file), status.st_ino, status.st_mtime_ns, status.st_size
