"""A replica that is killed between two of its writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from tests.e2e.link import Link
from tests.e2e.replica import Replica
from tests.patience import PATIENCE_SECONDS


@asynccontextmanager
async def killed_after(
    last: int, is_step: Callable[[web.Request], bool], replica: Replica, link: Link
) -> AsyncIterator[None]:
    """Have a replica killed when it has made so many steps, one at a time.

    What is to make it do so stands in the block, which is left once the replica is killed. What it
    sent by then and waits for its turn is not carried out: its sender has gone.

    Args:
        last: the number of the last step that is carried out.
        is_step: whether a request is one.
        replica: it is started again by the test.
        link: its way to the API server; free again after the block.
    """
    killed, one_at_a_time, steps = asyncio.Event(), asyncio.Lock(), 0
    let_go = link.before

    async def before(request: web.Request) -> None:
        if is_step(request):
            await one_at_a_time.acquire()
            if killed.is_set():
                one_at_a_time.release()
                raise web.HTTPServiceUnavailable

    async def after(request: web.Request) -> None:
        nonlocal steps
        if not is_step(request):
            return
        steps += 1
        if steps == last:
            await asyncio.to_thread(replica.kill)
            killed.set()
        one_at_a_time.release()

    link.before, link.after = before, after
    yield
    await asyncio.wait_for(killed.wait(), PATIENCE_SECONDS)
    link.before = link.after = let_go
