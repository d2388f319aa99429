from __future__ import annotations

import pytest

from tests.webhook.controllers.gang.members import Binder, members, message
from tests.webhook.controllers.release.controller_world import World
from webhook.controllers.gang import GangOutcome


async def test_a_gang_has_started_when_its_members_are_bound(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()
    await replica.cycle()
    Binder(world).bind("one", "two", "three")
    await replica.cycle()
    assert replica.gang_outcomes == [GangOutcome.RELEASED, GangOutcome.STARTED]


async def test_members_that_run_are_kept_where_too_few_are_bound(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()
    await replica.cycle()
    Binder(world, but="three").bind("one", "two", "three")
    world.seconds += 61
    await replica.cycle()
    assert replica.gang_outcomes == [GangOutcome.RELEASED, GangOutcome.FAILED]
    assert len(world.server.objects("pods")) == 3
    assert "2 of 3 members are bound after 60 s; they are kept" in str(
        world.server.objects("events")
    )


async def test_a_gang_that_failed_is_created_again_where_it_says_so(world: World) -> None:
    world.gang("train", 3, on_gang_failure="Recreate")
    for name in ("one", "two", "three"):
        world.member(name, "train")
    replica = world.replica()
    await replica.cycle()
    Binder(world, but="three").bind("one", "two", "three")
    world.seconds += 61
    await replica.cycle()
    assert not world.server.objects("pods")
    assert "3 are evicted" in str(world.server.objects("events"))
    for name in ("one", "two", "three"):
        world.member(name, "train")
    await replica.cycle()
    assert not world.releases()
    assert "2 of 3 members are bound after 60 s" in message(replica, "one")
    assert "it is tried again in 10 s" in message(replica, "one")
    world.seconds += 11
    await replica.cycle()
    assert len(world.releases()) == 3


async def test_a_new_leader_ends_a_gang_that_failed_too(world: World) -> None:
    world.gang("train", 3, on_gang_failure="Recreate")
    for name in ("one", "two", "three"):
        world.member(name, "train")
    await world.replica().cycle()
    Binder(world, but="three").bind("one", "two", "three")
    replica = world.replica()
    await replica.cycle()
    assert len(world.server.objects("pods")) == 3
    world.seconds += 61
    await replica.cycle()
    assert not world.server.objects("pods")


async def test_a_gang_that_has_run_is_never_ended_for_a_new_member(world: World) -> None:
    world.gang("train", 3, on_gang_failure="Recreate")
    for name in ("one", "two", "three"):
        world.member(name, "train")
    replica = world.replica()
    await replica.cycle()
    Binder(world).bind("one", "two", "three")
    await replica.cycle()
    node = world.stored("three")["spec"]["nodeName"]
    world.delete("three")
    world.member("four", "train")
    world.seconds += 30
    await replica.cycle()
    assert world.released("four") == node
    world.seconds += 61
    await replica.cycle()
    await world.replica().cycle()
    assert len(world.server.objects("pods")) == 3


@pytest.mark.parametrize(("mode", "left"), [("Strict", set()), ("NonStrict", {"a1", "b1", "b2"})])
async def test_a_strict_gang_that_fails_fails_with_its_group(
    world: World, mode: str, left: set[str]
) -> None:
    koordinator = {
        "gang.scheduling.koordinator.sh/groups": '["shop/a", "shop/b"]',
        "gang.scheduling.koordinator.sh/mode": mode,
    }
    for gang, minimum in (("a", 1), ("b", 2)):
        world.gang(gang, minimum, more=koordinator, on_gang_failure="Recreate")
    for name in ("a1", "b1", "b2"):
        world.member(name, name[0])
    replica = world.replica()
    await replica.cycle()
    Binder(world, but="b2").bind("a1", "b1", "b2")
    world.seconds += 61
    await replica.cycle()
    assert {name for _, name in world.server.objects("pods")} == left
    told = str(world.server.objects("events"))
    assert "1 of 2 members are bound after 60 s" in told
    assert ("gang `shop/b` of its group failed" in told) is (mode == "Strict")
