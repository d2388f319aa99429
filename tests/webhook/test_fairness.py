from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.fairness import CrowdedError, FairTurns, RenderLimiter, Shares


def taken(shares: Shares, who: str) -> int:
    """Return how often somebody finds room for one more, and takes it."""
    count = 0
    while shares.has_room(who, 1):
        shares.take(who, 1)
        count += 1
    return count


def test_each_may_have_what_is_left() -> None:
    # a has 50 of 100, b half of the other 50, c half of the other 25 (12 + 1 <= 25 - 12).
    shares = Shares(100)
    assert [taken(shares, name) for name in "abc"] == [50, 25, 13]
    assert taken(shares, "a") == 0
    shares.take("a", -50)
    assert taken(shares, "b") == 19  # 18 more, so 43 + 1 <= 62 - 18, and 44 + 1 > 62 - 19
    assert not Shares(0).has_room("a", 1)


def test_each_may_have_a_quarter_of_an_equal_part_however_many_have_taken_what_they_can() -> None:
    # The fifth may have half of what is left, 31, and the thirtieth 1,000 // (4 * 30).
    shares = Shares(1_000)
    had = [taken(shares, f"team-{number}") for number in range(30)]
    assert had[:5] == [500, 250, 125, 63, 50]
    assert had[29] == 8
    assert sum(had) < 1_500


@given(st.lists(st.sampled_from("abcde"), max_size=300))
def test_hardly_more_is_taken_than_there_is_and_something_is_left(asked: list[str]) -> None:
    shares, count = Shares(100), 0
    for who in asked:
        if shares.has_room(who, 1):
            shares.take(who, 1)
            count += 1
    assert count <= 100 + 5 * (100 // 4 // 5)
    assert shares.has_room("another", 1)


async def test_who_wants_many_turns_has_one_and_waits_again_behind_others() -> None:
    turns, had = FairTurns(), list[str]()

    async def want(who: str) -> None:
        async with turns.of(who):
            had.append(who)
            await asyncio.sleep(0)

    await asyncio.gather(*map(want, ["a", "a", "a", "a", "b", "c", "b"]))
    assert had == ["a", "a", "b", "c", "a", "b", "a"]


async def test_who_takes_long_has_fewer_turns() -> None:
    turns, had = FairTurns(), list[str]()

    async def want(who: str, seconds: float) -> None:
        async with turns.of(who):
            had.append(who)
            await asyncio.sleep(0)
            turns.spend(seconds)

    slow, quick = [("slow", 3.0)] * 4, [("quick", 1.0)] * 7
    await asyncio.gather(*(want(*each) for each in [*slow, *quick]))
    assert "".join(who[0] for who in had) == "sqqqsqqqsqs"


async def test_who_did_not_want_turns_has_none_to_make_up_for() -> None:
    turns, had = FairTurns(), list[str]()

    async def want(who: str) -> None:
        async with turns.of(who):
            had.append(who)
            turns.spend(1.0)

    await turns.take("a")
    for _ in range(5):
        turns.spend(1.0)
        again = asyncio.create_task(turns.take("a"))
        await asyncio.sleep(0)
        turns.end()
        await again
    waiting = [asyncio.create_task(want(who)) for who in "aaabbb"]
    await asyncio.sleep(0)
    turns.spend(1.0)
    turns.end()
    await asyncio.gather(*waiting)
    assert "".join(had) == "bababa"


async def test_newcomers_without_end_keep_nobody_from_a_second_turn() -> None:
    turns, had = FairTurns(), list[str]()

    async def want(who: str) -> None:
        async with turns.of(who):
            had.append(who)
            await asyncio.sleep(0)
            turns.spend(1.0)

    async def newcomers(group: int) -> None:
        for number in range(50):
            await want(f"new-{group}-{number}")

    crowd = [asyncio.create_task(newcomers(group)) for group in range(4)]
    await asyncio.sleep(0)
    await want("regular")
    await want("regular")
    assert len(had) < 30
    await asyncio.gather(*crowd)


async def test_who_waits_no_longer_takes_no_turn_from_others() -> None:
    turns, had = FairTurns(), list[str]()

    async def want(who: str) -> None:
        async with turns.of(who):
            had.append(who)

    await turns.take("first")
    waiting = [asyncio.create_task(want(who)) for who in ["a", "a", "b"]]
    await asyncio.sleep(0)
    for given_up in waiting[:2]:
        given_up.cancel()
    await asyncio.gather(*waiting[:2], return_exceptions=True)
    turns.end()
    await waiting[2]
    async with turns.of("a"):
        assert had == ["b"]


async def test_pages_are_rendered_one_at_a_time_and_few_wait() -> None:
    limiter, may_end, prepared = RenderLimiter(), Event(), list[int]()
    has_begun = asyncio.Event()

    def page(number: int, who: str = "ann") -> asyncio.Task[int]:
        def render() -> int:
            may_end.wait()
            return number

        async def prepare() -> Callable[[], int]:
            prepared.append(number)
            has_begun.set()
            return render

        return asyncio.create_task(limiter.render(who, prepare))

    pages = [page(number) for number in range(17)]
    await has_begun.wait()
    assert prepared == [0]  # the others have not even made their reports
    with pytest.raises(CrowdedError, match="too many"):
        await page(17)
    another = page(99, "bob")
    may_end.set()
    assert await asyncio.gather(*pages, another) == [*range(17), 99]
    assert prepared[:3] == [0, 99, 1]


async def test_a_page_that_fails_ends_its_turn() -> None:
    limiter = RenderLimiter()

    async def failing() -> Callable[[], int]:
        raise LookupError

    async def prepare() -> Callable[[], int]:
        return lambda: 1

    with pytest.raises(LookupError):
        await limiter.render("ann", failing)
    assert await limiter.render("ann", prepare) == 1
