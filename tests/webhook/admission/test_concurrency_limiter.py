from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import pairwise

import pytest

from webhook.admission.concurrency_limiter import Admission, ConcurrencyLimiter


def test_reviews_beyond_the_limit_are_shed_and_beyond_twice_the_limit_rejected() -> None:
    limiter = ConcurrencyLimiter(1, time.monotonic)
    admissions = [limiter.enter() for _ in range(3)]
    assert admissions == [Admission.FREE, Admission.FULL, Admission.CROWDED]
    assert limiter.in_flight == 3
    for _ in admissions:
        limiter.leave()
    assert limiter.in_flight == 0
    assert limiter.enter() is Admission.FREE


async def test_decisions_are_made_in_order_of_arrival_and_each_caller_gets_its_own_result() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)
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
    limiter = ConcurrencyLimiter(9, time.monotonic)

    async def review() -> int:
        limiter.enter()
        inside = await limiter.run_serialized(lambda: limiter.in_flight)
        limiter.leave()
        return inside

    assert await asyncio.gather(*(review() for _ in range(3))) == [3, 2, 1]


async def test_it_tells_how_many_wait_for_their_turn_and_how_many_have_had_it() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)

    async def review() -> tuple[int, int]:
        return await limiter.run_serialized(lambda: (limiter.waiting, limiter.taken))

    assert await asyncio.gather(*(review() for _ in range(3))) == [(3, 0), (2, 1), (1, 2)]
    assert (limiter.waiting, limiter.taken) == (0, 3)


async def test_other_tasks_run_between_two_decisions() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)
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
    limiter = ConcurrencyLimiter(9, time.monotonic)

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
    limiter = ConcurrencyLimiter(9, time.monotonic)
    calls: list[int] = []
    tasks = [
        asyncio.create_task(limiter.run_serialized(partial(calls.append, number)))
        for number in range(3)
    ]
    await asyncio.sleep(0)  # the first has its turn, but not decided; the others wait for theirs
    tasks[cancelled].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert calls == [number for number in range(3) if number != cancelled]


class Overload:
    """Reviews of a limiter, and what each found when its turn came, 1 ms after the one before."""

    def __init__(self, limit: int, milliseconds: float = 1.0) -> None:
        self.now = 0.0
        self.limiter = ConcurrencyLimiter(limit, lambda: self.now)
        self.had_room: list[bool] = []
        self._seconds = milliseconds / 1e3

    async def review(self) -> bool:
        """Return whether there was no time for the review, which takes some if there was."""
        self.limiter.enter()
        self.had_room.append(self.limiter.has_room)
        try:
            return await self.limiter.run_serialized(self._decide)
        finally:
            self.limiter.leave()

    def _decide(self) -> bool:
        is_overloaded = self.limiter.is_overloaded
        self.now += self._seconds / 10 if is_overloaded else self._seconds
        return is_overloaded

    async def burst(self, size: int) -> list[bool]:
        """Return what each of many reviews found that came at one moment."""
        return await asyncio.gather(*(self.review() for _ in range(size)))

    async def stream(self, size: int, count: int) -> list[bool]:
        """Return what reviews found that came one for one that had left."""
        reviews = {asyncio.create_task(self.review()) for _ in range(size)}
        found: list[bool] = []
        while reviews:
            done, reviews = await asyncio.wait(reviews, return_when=asyncio.FIRST_COMPLETED)
            found += [task.result() for task in done]
            more = min(len(done), count - len(found) - len(reviews))
            reviews |= {asyncio.create_task(self.review()) for _ in range(more)}
        return found


@pytest.mark.parametrize("milliseconds", [1.0, 10.0])
async def test_a_burst_of_the_limit_waits_as_a_whole_however_slow_the_machine(
    milliseconds: float,
) -> None:
    overload = Overload(100, milliseconds)
    assert not any(await overload.burst(100))


async def test_a_review_that_waited_long_in_a_standing_queue_finds_no_time() -> None:
    overload = Overload(100)
    found = await overload.stream(60, 1_000)
    assert found.index(True) == 100  # a burst may be so long
    assert sum(found[100:160]) == 44  # 16 of 60 in flight waited for less than 20 ms
    assert not any(found[-50:])  # the last of the queue
    assert not any(await overload.burst(100))  # it was empty in between


async def test_in_an_overload_few_may_wait_until_the_queue_is_empty() -> None:
    overload = Overload(100)
    found = await overload.stream(60, 1_000)
    came_before = found.index(True) + 60
    assert all(overload.had_room[:came_before])
    assert not any(overload.had_room[came_before + 60 :])
    overload.had_room.clear()
    await overload.burst(100)
    assert all(overload.had_room)


async def test_an_overload_that_is_not_seen_for_a_second_is_over() -> None:
    overload = Overload(100)
    limiter = overload.limiter
    for _ in range(6):
        limiter.enter()  # the queue is never empty
    await overload.stream(50, 300)
    assert limiter.has_room
    limiter.enter()
    assert not limiter.has_room
    overload.now += 1.1
    assert limiter.has_room


async def test_half_as_many_clients_as_the_limit_are_no_overload_however_slow() -> None:
    assert not any(await Overload(100, milliseconds=50.0).stream(50, 1_000))


def test_reviews_are_crowded_when_seventeen_are_in_flight() -> None:
    limiter = ConcurrencyLimiter(99, time.monotonic)
    for _ in range(16):
        limiter.enter()
    assert not limiter.is_crowded
    limiter.enter()
    assert limiter.is_crowded
