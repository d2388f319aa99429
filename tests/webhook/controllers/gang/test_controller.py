from __future__ import annotations

from tests.webhook.controllers.gang.members import members, message
from tests.webhook.controllers.release.controller_world import World
from webhook.controllers.gang import GangState


async def test_nothing_is_done_before_all_members_exist(world: World) -> None:
    members(world, "one", "two")
    replica = world.replica()
    await replica.cycle()
    assert message(replica, "one") == "gang `shop/train`: 2 of 3 members exist"
    assert replica.gangs.counts[GangState.GATHERING] == 1
    world.member("three", "train")
    await replica.cycle()
    assert world.releases() == {"one", "two", "three"}


async def test_a_gang_without_room_for_all_takes_none(world: World) -> None:
    members(world, "one", "two", "three", "four", minimum=4)
    replica = world.replica()
    await replica.cycle()
    assert not world.releases()
    assert not replica.counted()
    assert "gang `shop/train`: " in message(replica, "one")
    world.node("d")
    world.seconds += 3
    await replica.cycle()
    assert len(world.releases()) == 4


async def test_single_pods_take_the_room_that_a_gang_cannot_use(world: World) -> None:
    members(world, "one", "two", "three", "four", minimum=4)
    world.hold("single")
    replica = world.replica()
    await replica.cycle()
    assert world.releases() == {"single"}


async def test_two_gangs_never_hold_a_part_each(world: World) -> None:
    members(world, "a1", "a2", gang="a", minimum=2)
    members(world, "b1", "b2", gang="b", minimum=2)
    replica = world.replica()
    await replica.cycle()
    assert world.releases() in ({"a1", "a2"}, {"b1", "b2"})
    assert sum(replica.counted().values()) == 2


async def test_members_beyond_the_minimum_follow_when_it_runs(world: World) -> None:
    members(world, "one", "two", "three", minimum=2)
    replica = world.replica()
    await replica.cycle()
    released = world.releases()
    assert len(released) == 2
    await replica.cycle()
    assert len(world.releases()) == 3


async def test_a_pod_of_a_gang_that_nobody_describes_is_released_alone(world: World) -> None:
    world.member("one", "unknown")
    replica = world.replica()
    await replica.cycle()
    assert not world.releases()  # its PodGroup may be seen in a moment
    world.seconds += 3
    await replica.cycle()
    assert world.releases() == {"one"}


async def test_a_gang_needs_all_that_it_says_to_be_free(world: World) -> None:
    world.gang("train", 2, resources={"cpu": "13"})
    for name in ("one", "two"):
        world.member(name, "train", "1")
    replica = world.replica()
    await replica.cycle()
    assert not world.releases()
    assert "needs 1 cpu more than is free" in message(replica, "one")
    world.node("d")
    world.seconds += 3
    await replica.cycle()
    assert world.releases() == {"one", "two"}


async def test_a_gang_without_room_is_released_where_it_says_so(world: World) -> None:
    world.gang("train", 4, when_no_room="Release")
    for name in ("one", "two", "three", "four"):
        world.member(name, "train")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 29
    await replica.cycle()
    assert not world.releases()
    world.seconds += 3
    await replica.cycle()
    assert len(world.releases()) == 4
    assert "its gang has no room" in (world.released("one") or "")


async def test_gangs_of_a_group_start_together(world: World) -> None:
    groups = {"gang.scheduling.koordinator.sh/groups": '["shop/a", "shop/b"]'}
    for gang in ("a", "b"):
        world.gang(gang, 1, more=groups)
    world.member("a1", "a", "4")
    replica = world.replica()
    await replica.cycle()
    assert not world.releases()
    assert message(replica, "a1") == "gang `shop/a`: gang `shop/b` of its group has no members"
    world.member("b1", "b", "4")
    await replica.cycle()
    assert world.releases() == {"a1", "b1"}


async def test_a_gang_asks_quota_for_all_of_it(world: World) -> None:
    world.quota("shop", 3, 8)
    world.gang("train", 3)
    for name in ("one", "two", "three"):
        world.member(name, "train", reasons="quota,gang")
    replica = world.replica()
    await replica.cycle()
    assert not world.releases()
    waits = replica.quota_queue.waits
    assert len(waits) == 1
    world.quota("shop", 9, 9, version=2)
    await replica.cycle()
    assert len(world.releases()) == 3


async def test_a_gang_that_asks_for_a_rack_runs_in_one_alone(world: World) -> None:
    for name, rack in (("d", "r1"), ("e", "r2"), ("f", "r2")):
        world.node(name, rack=rack)
    world.gang("train", 2, gang_topology="rack")
    for name in ("one", "two"):
        world.member(name, "train")
    await world.replica().cycle()
    assert {world.released(name) for name in ("one", "two")} == {"e", "f"}


async def test_a_gang_that_fits_no_rack_says_what_is_missing(world: World) -> None:
    world.node("d", rack="r1")
    world.gang("train", 2, gang_topology="rack")
    for name in ("one", "two"):
        world.member(name, "train")
    replica = world.replica()
    await replica.cycle()
    assert not world.releases()
    assert "2 members need 6 cpu in one rack" in message(replica, "one")
