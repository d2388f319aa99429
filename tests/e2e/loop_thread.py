"""What a whole file of tests shares, beside the event loop that each of them has for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

_T = TypeVar("_T")


@contextmanager
def entered(shared: AbstractAsyncContextManager[_T]) -> Iterator[_T]:
    """Enter a context in an event loop of its own, which runs in a thread until the block is left.

    So a fixture of scope `module` can keep an installation: its servers go on between tests. What
    it yields may be used from any loop where it keeps no connection of its own open.
    """
    ready: Future[tuple[_T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def hold() -> None:
        left = asyncio.Event()
        try:
            async with shared as value:
                ready.set_result((value, asyncio.get_running_loop(), left))
                await left.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="shared") as executor:
        held = executor.submit(asyncio.run, hold())
        value, loop, left = ready.result()
        try:
            yield value
        finally:
            loop.call_soon_threadsafe(left.set)
            held.result()
