"""Work that goes on beside everything else, until the block that began it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any


def in_background(stack: AsyncExitStack, work: Coroutine[Any, Any, object]) -> None:
    """Run something until the stack unwinds, which then waits for its end: a Lease is let go of."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
