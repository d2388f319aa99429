from __future__ import annotations

import asyncio

import pytest

from webhook.turnstile import Room, Turnstile


def test_reviews_beyond_the_bound_find_no_room_and_then_the_door_shut() -> None:
    turnstile = Turnstile(1)
    with turnstile.enter() as first, turnstile.enter() as second, turnstile.enter() as third:
        assert (first, second, third) == (Room.FREE, Room.FULL, Room.CROWDED)
        assert turnstile.inside == 3
    with turnstile.enter() as later:
        assert later is Room.FREE


def test_a_review_that_fails_leaves_its_room() -> None:
    turnstile = Turnstile(1)
    with pytest.raises(ValueError, match="on the way"), turnstile.enter():
        raise ValueError("on the way")
    assert turnstile.inside == 0


async def test_turns_are_taken_one_at_a_time_in_order_of_arrival() -> None:
    turnstile = Turnstile(9)
    told: list[str] = []

    async def review(name: str) -> None:
        async with turnstile.turn():
            told.append(f"{name} begins")
            await asyncio.sleep(0)
            told.append(f"{name} ends")

    await asyncio.gather(review("a"), review("b"))
    assert told == ["a begins", "a ends", "b begins", "b ends"]


async def test_a_whole_burst_is_counted_before_its_first_review_is_decided() -> None:
    turnstile = Turnstile(9)
    counted: list[int] = []

    async def review() -> None:
        with turnstile.enter():
            async with turnstile.turn():
                counted.append(turnstile.inside)

    await asyncio.gather(*(review() for _ in range(3)))
    assert counted == [3, 2, 1]


async def test_other_work_gets_between_two_decisions() -> None:
    turnstile = Turnstile(9)
    told: list[str] = []

    async def review() -> None:
        async with turnstile.turn():
            told.append("decided")

    async def probe() -> None:
        while len(told) < 9:
            told.append("probe")
            await asyncio.sleep(0)

    await asyncio.gather(review(), review(), review(), probe())
    first, last = told.index("decided"), len(told) - told[::-1].index("decided") - 1
    assert "probe" in told[first:last]


async def test_a_review_whose_caller_left_gives_up_its_turn() -> None:
    turnstile = Turnstile(9)
    begun = asyncio.Event()

    async def waits_for_ever() -> None:
        async with turnstile.turn():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(waits_for_ever())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with turnstile.turn():
        pass
