from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from webhook.admission.concurrency_limiter import Admission, ConcurrencyLimiter


def test_reviews_beyond_the_bound_find_no_room_and_then_the_door_shut() -> None:
    turnstile = ConcurrencyLimiter(1)
    rooms = [turnstile.enter() for _ in range(3)]
    assert rooms == [Admission.FREE, Admission.FULL, Admission.CROWDED]
    assert turnstile.in_flight == 3
    for _ in rooms:
        turnstile.leave()
    assert turnstile.in_flight == 0
    assert turnstile.enter() is Admission.FREE


async def test_turns_are_taken_in_order_of_arrival_and_each_gets_what_comes_of_its_own() -> None:
    turnstile = ConcurrencyLimiter(9)
    told: list[str] = []

    def decide(name: str) -> str:
        told.append(name)
        return name.upper()

    came_of_it = await asyncio.gather(
        *(turnstile.run_serialized(partial(decide, one)) for one in "abc")
    )
    assert told == ["a", "b", "c"]
    assert came_of_it == ["A", "B", "C"]


async def test_a_whole_burst_is_counted_before_its_first_review_is_decided() -> None:
    turnstile = ConcurrencyLimiter(9)

    async def review() -> int:
        turnstile.enter()
        inside = await turnstile.run_serialized(lambda: turnstile.in_flight)
        turnstile.leave()
        return inside

    assert await asyncio.gather(*(review() for _ in range(3))) == [3, 2, 1]


async def test_other_work_gets_between_two_decisions() -> None:
    turnstile = ConcurrencyLimiter(9)
    told: list[str] = []

    async def review() -> None:
        await turnstile.run_serialized(lambda: told.append("decided"))

    async def probe() -> None:
        while len(told) < 9:
            told.append("probe")
            await asyncio.sleep(0)

    await asyncio.gather(review(), review(), review(), probe())
    decisions = [at for at, what in enumerate(told) if what == "decided"]
    assert all(later - earlier > 1 for earlier, later in pairwise(decisions))


async def test_a_failure_ends_only_its_own_turn() -> None:
    turnstile = ConcurrencyLimiter(9)

    def fail() -> None:
        raise ValueError("on the way")

    first, second = await asyncio.gather(
        turnstile.run_serialized(fail),
        turnstile.run_serialized(lambda: "decided"),
        return_exceptions=True,
    )
    assert isinstance(first, ValueError)
    assert second == "decided"


@pytest.mark.parametrize("who", [0, 1])
async def test_a_review_whose_caller_left_gives_up_its_turn(who: int) -> None:
    turnstile = ConcurrencyLimiter(9)
    told: list[int] = []
    tasks = [
        asyncio.create_task(turnstile.run_serialized(partial(told.append, number)))
        for number in range(3)
    ]
    await asyncio.sleep(0)  # the first has its turn, but not decided; the others wait for theirs
    tasks[who].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert told == [number for number in range(3) if number != who]
