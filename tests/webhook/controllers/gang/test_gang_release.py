from __future__ import annotations

import pytest

from engine.model.gang import POD_GROUP_LABEL
from engine.model.hold import GANG_RELEASED_ANNOTATION, RELEASED_ANNOTATION
from engine.model.node import IMPLICIT_DOMAIN
from tests.webhook.controllers.gang.members import Binder, members
from tests.webhook.controllers.release.controller_world import PODS, World
from webhook.controllers.gang import GangOutcome


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


@pytest.mark.parametrize("topology", [{}, {"stowplan.dev/gang-topology": "pool"}])
async def test_members_that_ask_for_devices_are_released(
    world: World, topology: dict[str, str]
) -> None:
    world.gang("train", 3, more=topology)
    requests = {"cpu": "3", f"{IMPLICIT_DOMAIN}gpu": "1"}  # no node offers it as a resource
    for name in ("one", "two", "three"):
        containers = [{"name": "main", "resources": {"requests": requests}}]
        labels = {POD_GROUP_LABEL: "train"}
        world.create(
            name, "shop", "3", reasons="gang", gated=True, labels=labels, containers=containers
        )
    replica = world.replica()
    await replica.cycle()
    assert replica.gang_outcomes == [GangOutcome.RELEASED]
    assert {world.released(name) for name in ("one", "two", "three")} == {"a", "b", "c"}


async def test_members_of_a_release_say_when_it_was(world: World) -> None:
    members(world, "one", "two", "three")
    await world.replica().cycle()
    annotations = [world.stored(name)["metadata"]["annotations"] for name in ("one", "two")]
    moments = {each[GANG_RELEASED_ANNOTATION] for each in annotations}
    assert moments == {"2026-01-02T03:04:05Z"}
    assert all(RELEASED_ANNOTATION in each for each in annotations)


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
    await replica.lead(10)
    assert len(world.releases()) == 3
    assert replica.gang_outcomes == [GangOutcome.RELEASED]


async def test_a_member_that_was_refused_until_its_room_was_given_back_goes_without_a_node(
    world: World,
) -> None:
    members(world, "one", "two", "three")
    replica = world.replica()

    def refuse() -> None:
        if all(world.nominated(name) for name in ("one", "two", "three")):
            denial, path = "denied the request: not now", f"{PODS}/three"
            world.server.fail_next(3, 403, method="PATCH", path_prefix=path, message=denial)
            replica.on_sleep = lambda: None

    replica.on_sleep = refuse
    replica.see()
    await replica.controller.cycle()
    await replica.lead(20)
    assert world.nominated("three") == ""
    assert world.released("three") == "its gang runs, and its room is gone"
