"""Gangs beside the stock scheduler: all members that must run together start, or none holds room.

Members carry our gate from the start, but where a test is about the webhook.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from engine.model.hold import RELEASED_ANNOTATION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gang_stage import NAMES, GangStage, gang_stage
from tests.e2e.gangs import is_bound, nominated
from tests.e2e.nodes import Nodes
from tests.e2e.test_held_chaos import is_release
from tests.e2e.workloads import pod

pytestmark = pytest.mark.usefixtures("crds")


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[GangStage]:
    async with gang_stage(cluster, control_plane, nodes, namespace, tmp_path) as found:
        yield found


async def storm(stage: GangStage, count: int) -> None:
    """Create single pods of 2 cores, one after the other."""
    for number in range(count):
        made = pod(stage.gangs.namespace, f"storm-{number:02}", requests={"cpu": "2"})
        await stage.cluster.create(made)


async def test_a_prepared_gang_starts_as_a_whole_in_a_storm(stage: GangStage) -> None:
    # Any two pods of the storm take the room of a member; unprepared none of five starts.
    raging: list[asyncio.Task[None]] = []

    async def before(request: web.Request) -> None:
        if is_release(request) and not raging:
            raging.append(asyncio.create_task(storm(stage, 15)))
            await asyncio.sleep(0.3)  # the storm rages before the first member is released

    stage.link.before = before
    await stage.gangs.define("train", 5)
    await stage.gangs.join("train", *NAMES)
    members = await stage.gangs.all_bound("train", 5)
    await asyncio.gather(*raging)
    for member in members:
        assert member["metadata"]["annotations"][RELEASED_ANNOTATION] == member["spec"]["nodeName"]
    others = [each for each in await stage.gangs.pods() if each not in members]
    assert not any(is_bound(each) for each in others if "storm" in each["metadata"]["name"])

    async def told() -> bool:
        return await stage.gangs.events("GangReleased") == ["5 members are released"]

    await eventually(told, "an Event says so, written after the last release")


async def test_members_are_held_by_the_webhook_until_all_exist(stage: GangStage) -> None:
    await stage.gangs.define("train", 3)

    async def held() -> bool:
        await stage.gangs.join("train", "m-0", is_held=False)
        found = await stage.cluster.get("pods", "m-0", stage.gangs.namespace)
        if "schedulingGates" in found["spec"]:
            return True
        await stage.cluster.delete("pods", "m-0", stage.gangs.namespace, grace_seconds=0)
        return False

    await eventually(held, "members are held")
    await stage.gangs.join("train", "m-1", is_held=False)
    await eventually(
        lambda: said(stage, "m-0", "gang `", "2 of 3 members exist"), "it says what it waits for"
    )
    await stage.gangs.join("train", "m-2", is_held=False)
    await stage.gangs.all_bound("train", 3)


async def said(stage: GangStage, name: str, *texts: str) -> bool:
    """Return whether the condition of a pod contains texts."""
    message = await stage.gangs.condition(name)
    assert all(text in message for text in texts), message
    return True


async def test_two_gangs_that_want_the_same_room_start_one_by_one(
    stage: GangStage,
) -> None:
    for gang in ("a", "b"):
        await stage.gangs.define(gang, 4)
    made = [stage.gangs.member(gang, f"{gang}-{n}", "3") for n in range(4) for gang in ("a", "b")]
    await asyncio.gather(*map(stage.cluster.create, made))

    async def first() -> str:
        bound = {gang: sum((await stage.gangs.nodes_of(gang)).values()) for gang in ("a", "b")}
        assert 4 in bound.values(), bound
        assert 0 in bound.values(), bound
        return max(bound, key=lambda gang: bound[gang])

    winner = await eventually(first, "one gang runs, and nothing of the other")
    loser = "b" if winner == "a" else "a"
    assert not any(nominated(each) for each in await stage.gangs.pods(loser))
    for each in await stage.gangs.pods(winner):
        name = each["metadata"]["name"]
        await stage.cluster.delete("pods", name, stage.gangs.namespace, grace_seconds=0)
    await stage.gangs.all_bound(loser, 4)


async def test_an_autoscaler_is_told_of_a_gang_without_room(
    stage: GangStage,
) -> None:
    await stage.gangs.define("train", 6, seconds=120, when_no_room="Release")
    await stage.gangs.join("train", *NAMES, "m-5")

    async def unschedulable() -> list[Json]:
        pods = await stage.gangs.pods("train")
        return [each for each in pods if is_unschedulable(each)]

    waiting = await eventually(unschedulable, "a member is Unschedulable")
    assert len(waiting) == 1
    await stage.nodes.add("node-new", {"cpu": "4"})  # as an autoscaler would
    await stage.gangs.all_bound("train", 6)


async def test_a_gang_that_waits_for_room_says_nothing_to_autoscalers(stage: GangStage) -> None:
    await stage.gangs.define("train", 6)
    await stage.gangs.join("train", *NAMES, "m-5")
    await eventually(lambda: said(stage, "m-0", "gang `"), "it says what it waits for")
    pods = await stage.gangs.pods("train")
    assert not any(is_bound(each) or nominated(each) for each in pods)
    assert not any(is_unschedulable(each) for each in pods)


def is_unschedulable(found: Json) -> bool:
    """Return whether the scheduler finds no node for a pod."""
    conditions = found["status"].get("conditions", [])
    return any(each.get("reason") == "Unschedulable" for each in conditions)
