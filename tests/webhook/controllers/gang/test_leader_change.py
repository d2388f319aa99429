from __future__ import annotations

import asyncio

import pytest

from tests.webhook.controllers.gang.members import members
from tests.webhook.controllers.release.controller_world import World


@pytest.mark.parametrize("writes", range(7))
@pytest.mark.parametrize("is_limited", [False, True])
async def test_a_leader_may_end_between_any_two_writes(
    world: World, writes: int, *, is_limited: bool
) -> None:
    members(world, "one", "two", "three", reasons="gang,quota" if is_limited else "gang")
    if is_limited:
        world.quota("shop", maximum=9)  # room for the gang, and for nothing that is counted twice
    first, second = world.replica(), world.replica()
    left = writes

    def may_write() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    first.release.writer._paced.may_write = may_write  # noqa: SLF001 (its end)
    first.see()
    await first.controller.cycle()
    for _ in range(200):
        first.see()
        await asyncio.sleep(0.001)
    await first.controller.end()
    released = len(world.releases())
    assert released == max(0, writes - 3)
    await second.lead(6)
    nodes = [world.released(name) for name in ("one", "two", "three")]
    assert sorted(filter(None, nodes)) == ["a", "b", "c"]
    assert second.counted() == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("writes", range(4))
async def test_a_leader_that_ends_counts_members_where_they_are_nominated_to(
    world: World, writes: int
) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()
    left = writes

    def may_write() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    replica.release.writer._paced.may_write = may_write  # noqa: SLF001 (its end)
    replica.see()
    await replica.controller.cycle()
    for _ in range(20):  # until it writes no more
        await asyncio.sleep(0.001)
    await replica.controller.end()
    replica.see()
    nominated = {world.nominated(name) for name in ("one", "two", "three")} - {""}
    assert replica.counted() == dict.fromkeys(nominated, 1)


async def test_a_new_leader_takes_back_what_was_only_nominated(world: World) -> None:
    members(world, "one", "two", "three")
    for name, node in (("one", "a"), ("two", "b")):
        pod = world.stored(name)
        world.server.replace({**pod, "status": {"nominatedNodeName": node}})
    world.delete("three")
    replica = world.replica()
    await replica.cycle()
    assert [world.nominated(name) for name in ("one", "two")] == ["", ""]
    assert not replica.counted()


async def test_a_gang_that_an_earlier_leader_prepared_keeps_its_turn(world: World) -> None:
    members(world, "one", "two", "three")
    for name, node in (("one", "c"), ("two", "b"), ("three", "a")):
        pod = world.stored(name)
        world.server.replace({**pod, "status": {"nominatedNodeName": node}})
    world.hold("single")
    replica = world.replica()
    await replica.cycle()
    # The single pod, which comes after it, gets nothing of its room.
    assert {world.released(name) for name in ("one", "two", "three")} == {"a", "b", "c"}
    assert world.nominated("single") == ""


async def test_a_gang_that_an_earlier_leader_prepared_keeps_no_room_without_its_turn(
    world: World,
) -> None:
    world.quota("shop", maximum=8)
    members(world, "one", "two", "three", reasons="gang,quota")
    for name, node in (("one", "c"), ("two", "b"), ("three", "a")):
        pod = world.stored(name)
        world.server.replace({**pod, "status": {"nominatedNodeName": node}})
    replica = world.replica()
    await replica.cycle()
    await replica.cycle()
    assert not any(world.nominated(name) for name in ("one", "two", "three"))
    assert not replica.counted()
    assert not world.releases()


async def test_what_was_taken_back_is_left_alone_while_the_watch_does_not_show_it(
    world: World,
) -> None:
    members(world, "one", "two")
    pod = world.stored("one")
    world.server.replace({**pod, "status": {"nominatedNodeName": "a"}})
    replica = world.replica()
    replica.see()
    await replica.controller.cycle()
    await replica.writes()
    assert not world.nominated("one")
    world.seconds += 3  # nothing is seen meanwhile
    held = replica.held.get("shop/one")
    assert held is not None
    assert held.pod.nominated_node_name == "a"
    assert not replica.controller.releases.may_try(held)
    replica.see()
    world.member("three", "train")
    await replica.cycle()
    assert len(world.releases()) == 3
