from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event

import pytest

from webhook.dashboard.readers import UnavailableError
from webhook.dashboard.rendering import RenderLimiter


async def test_pages_are_rendered_one_at_a_time_and_few_wait() -> None:
    limiter, may_end, prepared = RenderLimiter(), Event(), list[int]()
    has_begun = asyncio.Event()

    def page(number: int) -> asyncio.Task[int]:
        def render() -> int:
            may_end.wait()
            return number

        async def prepare() -> Callable[[], int]:
            prepared.append(number)
            has_begun.set()
            return render

        return asyncio.create_task(limiter.render(prepare))

    pages = [page(number) for number in range(17)]
    await has_begun.wait()
    assert prepared == [0]  # the others have not even made their reports
    with pytest.raises(UnavailableError, match="too many"):
        await page(17)
    may_end.set()
    assert await asyncio.gather(*pages) == list(range(17))


async def test_a_page_that_fails_ends_its_turn() -> None:
    limiter = RenderLimiter()

    async def failing() -> Callable[[], int]:
        raise LookupError

    async def prepare() -> Callable[[], int]:
        return lambda: 1

    with pytest.raises(LookupError):
        await limiter.render(failing)
    assert await limiter.render(prepare) == 1
