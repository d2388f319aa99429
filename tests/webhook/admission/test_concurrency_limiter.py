from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from webhook.admission.concurrency_limiter import Admission, ConcurrencyLimiter


def test_reviews_beyond_the_limit_are_shed_and_beyond_twice_the_limit_rejected() -> None:
    limiter = ConcurrencyLimiter(1)
    admissions = [limiter.enter() for _ in range(3)]
    assert admissions == [Admission.FREE, Admission.FULL, Admission.CROWDED]
    assert limiter.in_flight == 3
    for _ in admissions:
        limiter.leave()
    assert limiter.in_flight == 0
    assert limiter.enter() is Admission.FREE


async def test_decisions_are_made_in_order_of_arrival_and_each_caller_gets_its_own_result() -> None:
    limiter = ConcurrencyLimiter(9)
    calls: list[str] = []

    def decide(name: str) -> str:
        calls.append(name)
        return name.upper()

    results = await asyncio.gather(
        *(limiter.run_serialized(partial(decide, name)) for name in "abc")
    )
    assert calls == ["a", "b", "c"]
    assert results == ["A", "B", "C"]


async def test_a_whole_burst_is_counted_before_its_first_review_is_decided() -> None:
    limiter = ConcurrencyLimiter(9)

    async def review() -> int:
        limiter.enter()
        inside = await limiter.run_serialized(lambda: limiter.in_flight)
        limiter.leave()
        return inside

    assert await asyncio.gather(*(review() for _ in range(3))) == [3, 2, 1]


async def test_other_tasks_run_between_two_decisions() -> None:
    limiter = ConcurrencyLimiter(9)
    calls: list[str] = []

    async def review() -> None:
        await limiter.run_serialized(lambda: calls.append("decided"))

    async def probe() -> None:
        while len(calls) < 9:
            calls.append("probe")
            await asyncio.sleep(0)

    await asyncio.gather(review(), review(), review(), probe())
    decisions = [at for at, call in enumerate(calls) if call == "decided"]
    assert all(later - earlier > 1 for earlier, later in pairwise(decisions))


async def test_a_failure_ends_only_its_own_review() -> None:
    limiter = ConcurrencyLimiter(9)

    def fail() -> None:
        raise ValueError("on the way")

    first, second = await asyncio.gather(
        limiter.run_serialized(fail),
        limiter.run_serialized(lambda: "decided"),
        return_exceptions=True,
    )
    assert isinstance(first, ValueError)
    assert second == "decided"


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_a_cancelled_review_gives_up_its_turn(cancelled: int) -> None:
    limiter = ConcurrencyLimiter(9)
    calls: list[int] = []
    tasks = [
        asyncio.create_task(limiter.run_serialized(partial(calls.append, number)))
        for number in range(3)
    ]
    await asyncio.sleep(0)  # the first has its turn, but not decided; the others wait for theirs
    tasks[cancelled].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert calls == [number for number in range(3) if number != cancelled]
