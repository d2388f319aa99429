from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model.hold import GANG_RELEASED_ANNOTATION, RELEASED_ANNOTATION
from tests.webhook.controllers.release.controller_world import (
    PODS,
    Replica,
    World,
    running_world,
)
from webhook.controllers.gang import GangOutcome, GangState


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Three nodes, each with room for one member."""
    async with running_world(tmp_path) as made:
        for name in ("a", "b", "c"):
            made.node(name)
        yield made


def members(
    world: World, *names: str, gang: str = "train", minimum: int = 3, reasons: str = "gang"
) -> None:
    world.gang(gang, minimum)
    for name in names:
        world.member(name, gang, reasons=reasons)


def message(replica: Replica, name: str) -> str:
    held = replica.held.get(f"shop/{name}")
    wait = None if held is None else replica.gangs.wait(held)
    return "" if wait is None else wait.detail


async def test_all_members_are_nominated_before_the_first_is_released(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()
    gated: list[int] = []

    def look() -> None:
        names = ("one", "two", "three")
        if all(world.nominated(name) for name in names):
            gated.append(sum(bool(world.gates(name)) for name in names))

    replica.on_sleep = look
    await replica.cycle()
    assert gated[0] == 3
    assert {world.released(name) for name in ("one", "two", "three")} == {"a", "b", "c"}
    assert replica.gang_outcomes == [GangOutcome.RELEASED]


async def test_members_of_a_release_say_when_it_was(world: World) -> None:
    members(world, "one", "two", "three")
    await world.replica().cycle()
    annotations = [world.stored(name)["metadata"]["annotations"] for name in ("one", "two")]
    moments = {each[GANG_RELEASED_ANNOTATION] for each in annotations}
    assert moments == {"2026-01-02T03:04:05Z"}
    assert all(RELEASED_ANNOTATION in each for each in annotations)


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


async def test_a_member_that_is_deleted_meanwhile_takes_all_back(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()

    def delete() -> None:
        if world.nominated("one"):
            world.delete("three")
            replica.on_sleep = lambda: None

    replica.on_sleep = delete
    await replica.cycle()
    await replica.cycle()
    assert not world.releases()
    assert [world.nominated(name) for name in ("one", "two")] == ["", ""]
    assert not replica.counted()
    assert replica.gang_outcomes == [GangOutcome.CHANGED]
    assert "is not held any more" in str(world.server.objects("events"))


async def test_members_that_run_may_be_gone_before_the_others_are_released(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()
    await replica.cycle()
    Binder(world).bind("one", "two", "three")
    await replica.cycle()
    world.delete("three")
    world.member("four", "train")

    def delete() -> None:
        if world.nominated("four"):
            world.delete("one")
            replica.on_sleep = lambda: None

    replica.on_sleep = delete
    await replica.cycle()
    assert world.released("four") is None
    assert replica.gang_outcomes[-1] is GangOutcome.CHANGED


async def test_a_gang_that_failed_is_tried_again_after_a_while(world: World) -> None:
    await test_a_member_that_is_deleted_meanwhile_takes_all_back(world)
    replica = world.replica()
    world.member("three", "train")
    await replica.cycle()  # a new leader does not know of it
    assert len(world.releases()) == 3


async def test_room_that_others_take_meanwhile_is_found_elsewhere(world: World) -> None:
    world.node("d")
    members(world, "one", "two", "three")
    replica = world.replica()

    def take() -> None:
        node = world.nominated("one")
        if node:
            world.create("rival", "shop", "3", nodeName=node)
            replica.on_sleep = lambda: None

    replica.on_sleep = take
    await replica.cycle()
    taken = world.stored("rival")["spec"]["nodeName"]
    assert {world.released(name) for name in ("one", "two", "three")} == {"a", "b", "c", "d"} - {
        taken
    }


async def test_room_that_others_take_meanwhile_may_be_the_last(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()

    def take() -> None:
        node = world.nominated("one")
        if node:
            world.create("rival", "shop", "3", nodeName=node)
            replica.on_sleep = lambda: None

    replica.on_sleep = take
    await replica.cycle()
    await replica.cycle()
    assert not world.releases()
    assert not any(world.nominated(name) for name in ("one", "two", "three"))


async def test_a_member_that_admission_refuses_takes_all_back(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()

    def refuse() -> None:
        if all(world.nominated(name) for name in ("one", "two", "three")):
            denial = "denied the request: not now"
            world.server.fail_next(3, 403, method="PATCH", path_prefix=PODS, message=denial)
            replica.on_sleep = lambda: None

    replica.on_sleep = refuse
    await replica.cycle()
    assert not world.releases()
    assert replica.gang_outcomes == [GangOutcome.REFUSED]
    assert not replica.counted()
    world.seconds += 5
    await replica.cycle()
    assert not any(world.nominated(name) for name in ("one", "two", "three"))


async def test_the_others_follow_once_a_member_is_released(world: World) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()

    def refuse() -> None:
        if all(world.nominated(name) for name in ("one", "two", "three")):
            denial = "denied the request: not now"
            world.server.fail_next(1, 403, method="PATCH", path_prefix=PODS, message=denial)
            replica.on_sleep = lambda: None

    replica.on_sleep = refuse
    replica.see()
    await replica.controller.cycle()
    await replica.lead(4)
    assert len(world.releases()) == 3
    assert replica.gang_outcomes == [GangOutcome.RELEASED]


class Binder:
    """Binds released pods, but for some."""

    def __init__(self, world: World, *, but: str = "") -> None:
        self._world = world
        self._but = but

    def bind(self, *names: str) -> None:
        for name in names:
            if name != self._but and self._world.released(name):
                self._world.bind(name, self._world.nominated(name))


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

    first.controller._parts.writes.writer._paced._may_write = may_write  # noqa: SLF001 (its end)
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
    assert not replica.controller._parts.decided.may_try(held)  # noqa: SLF001 (what holds all writes)
    replica.see()
    world.member("three", "train")
    await replica.cycle()
    assert len(world.releases()) == 3


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


async def test_nothing_smaller_overtakes_a_gang_that_has_waited_for_long(world: World) -> None:
    members(world, "one", "two", "three", "four", minimum=4)
    replica = world.replica()
    await replica.cycle()
    world.seconds += 601
    await replica.cycle()
    assert sum(replica.counted().values()) == 3
    world.create("single", "shop", "3", gated=True, created="2026-01-02T03:14:00Z")
    await replica.cycle()
    assert not world.releases()
    world.node("d")
    world.seconds += 3
    await replica.cycle()
    nodes = {world.released(name) for name in ("one", "two", "three", "four")}
    assert nodes == {"a", "b", "c", "d"}


async def test_room_kept_for_a_gang_that_waited_is_let_go_with_it(world: World) -> None:
    members(world, "one", "two", "three", "four", minimum=4)
    replica = world.replica()
    world.seconds += 601
    await replica.cycle()
    world.delete("four")
    await replica.cycle()
    assert not replica.counted()


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
