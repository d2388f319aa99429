"""Gangs beside the stock scheduler: all members that must run together start, or none holds room.

Members carry our gate from the start, but where a test is about the webhook.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from engine.model.hold import RELEASED_ANNOTATION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gangs import Gangs, is_bound, nominated
from tests.e2e.installed import NAME, NAMESPACE, Installed, account, installed
from tests.e2e.link import Link, linked
from tests.e2e.nodes import Nodes
from tests.e2e.test_held_chaos import is_release, is_write
from tests.e2e.workloads import pod

pytestmark = pytest.mark.usefixtures("crds")

NAMES = ("m-0", "m-1", "m-2", "m-3", "m-4")
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  match: {objectSelector: {matchLabels: {policy: packed}}}
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
  placement: {at: Release}
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """Gangs of one namespace, and stowplan, whose requests a test can hold up."""

    cluster: Cluster
    gangs: Gangs
    nodes: Nodes
    stowplan: Installed
    link: Link


@asynccontextmanager
async def staged(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, folder: Path
) -> AsyncIterator[Stage]:
    """Install stowplan behind a link."""
    policy = folder / "policy.yaml"
    await asyncio.to_thread(policy.write_text, POLICY)
    async with (
        linked(control_plane, account(control_plane)) as link,
        installed(
            cluster,
            control_plane,
            folder,
            [policy],
            options=[("hold", "true"), ("recreate-gangs", "true")],
            kubeconfig=link.kubeconfig,
        ) as stowplan,
    ):
        stage = Stage(cluster, Gangs(cluster, namespace), nodes, stowplan, link)
        await leads(stage)
        yield stage


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    """Five nodes, each with room for one member of 3 cores."""
    for number in range(5):
        await nodes.add(f"node-{number}", {"cpu": "4"})
    async with staged(cluster, control_plane, nodes, namespace, tmp_path) as found:
        yield found


async def leads(stage: Stage) -> None:
    """Wait until the replica leads."""

    async def found() -> bool:
        lease = await stage.cluster.get("leases", NAME, NAMESPACE)
        holder = lease["spec"]["holderIdentity"]
        return any(f"{holder} leads" in replica.text() for replica in stage.stowplan.replicas)

    await eventually(found, "a replica leads")


async def storm(stage: Stage, count: int) -> None:
    """Create single pods of 2 cores, one after the other."""
    for number in range(count):
        made = pod(stage.gangs.namespace, f"storm-{number:02}", requests={"cpu": "2"})
        await stage.cluster.create(made)


async def test_a_prepared_gang_starts_as_a_whole_in_a_storm(stage: Stage) -> None:
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
    assert await stage.gangs.events("GangReleased") == ["5 members are released"]


async def test_members_are_held_by_the_webhook_until_all_exist(stage: Stage) -> None:
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


async def said(stage: Stage, name: str, *texts: str) -> bool:
    """Return whether the condition of a pod contains texts."""
    message = await stage.gangs.condition(name)
    assert all(text in message for text in texts), message
    return True


async def test_two_gangs_that_want_the_same_room_start_one_after_the_other(stage: Stage) -> None:
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


@pytest.mark.parametrize("last", [1, 3, 4, 5])
async def test_the_leader_is_killed_between_two_writes(stage: Stage, last: int) -> None:
    # Three nominations and three releases.
    (replica,) = stage.stowplan.replicas
    killed, one_at_a_time, writes = asyncio.Event(), asyncio.Lock(), 0

    async def before(request: web.Request) -> None:
        if is_write(request):
            await one_at_a_time.acquire()

    async def after(request: web.Request) -> None:
        nonlocal writes
        if not is_write(request):
            return
        writes += 1
        if writes == last:
            await asyncio.to_thread(replica.kill)
            killed.set()
        one_at_a_time.release()

    stage.link.before, stage.link.after = before, after
    await stage.gangs.define("train", 3)
    await stage.gangs.join("train", *NAMES[:3])
    await asyncio.wait_for(killed.wait(), 60)
    bound = sum((await stage.gangs.nodes_of("train")).values())
    assert bound <= max(0, last - 3)
    stage.link.before = stage.link.after = _go_on
    await stage.cluster.delete("leases", NAME, NAMESPACE)  # it would run out in 15 s
    await asyncio.to_thread(replica.start)
    for member in await stage.gangs.all_bound("train", 3):
        released = member["metadata"]["annotations"][RELEASED_ANNOTATION]
        assert released == member["spec"]["nodeName"]


async def _go_on(_: web.Request) -> None:
    """Let a request pass."""


async def test_a_member_deleted_while_it_is_nominated_takes_all_back(stage: Stage) -> None:
    deleted: list[str] = []

    async def after(request: web.Request) -> None:
        if is_write(request) and not deleted:
            deleted.append("m-4")
            await stage.cluster.delete("pods", "m-4", stage.gangs.namespace, grace_seconds=0)

    stage.link.after = after
    await stage.gangs.define("train", 5)
    await stage.gangs.join("train", *NAMES)

    async def taken_back() -> bool:
        assert await stage.gangs.events("GangTakenBack")
        return not any(nominated(each) for each in await stage.gangs.pods("train"))

    await eventually(taken_back, "nothing is nominated any more")
    assert not await stage.gangs.nodes_of("train")
    await stage.gangs.join("train", "m-5")
    await stage.gangs.all_bound("train", 5)  # after its back-off of 10 s


async def test_a_node_that_goes_while_members_are_nominated_is_replaced(stage: Stage) -> None:
    gone: list[str] = []

    async def after(request: web.Request) -> None:
        if is_write(request) and request.path.endswith("/status") and not gone:
            name = request.path.split("/")[-2]
            found = await stage.cluster.get("pods", name, stage.gangs.namespace)
            gone.append(nominated(found))
            await stage.cluster.delete("nodes", gone[0])
            stage.nodes.names.remove(gone[0])

    stage.link.after = after
    await stage.gangs.define("train", 4)
    await stage.gangs.join("train", *NAMES[:4])
    await stage.gangs.all_bound("train", 4)
    assert gone[0] not in await stage.gangs.nodes_of("train")


async def test_an_autoscaler_is_told_of_a_gang_without_room_where_it_says_so(stage: Stage) -> None:
    await stage.gangs.define("train", 6, seconds=120, when_no_room="Release")
    await stage.gangs.join("train", *NAMES, "m-5")

    async def unschedulable() -> list[Json]:
        pods = await stage.gangs.pods("train")
        return [each for each in pods if is_unschedulable(each)]

    waiting = await eventually(unschedulable, "a member is Unschedulable", within=60)
    assert len(waiting) == 1
    await stage.nodes.add("node-new", {"cpu": "4"})  # as an autoscaler would
    await stage.gangs.all_bound("train", 6)


async def test_a_gang_that_waits_for_room_says_nothing_to_autoscalers(stage: Stage) -> None:
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


async def test_a_gang_that_fails_to_start_is_created_again_where_it_says_so(stage: Stage) -> None:
    # The room of one member is taken once it is released: a higher priority ignores nominations.
    name = f"urgent-{stage.gangs.namespace}"
    await stage.cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1000,
        }
    )
    taken: list[str] = []

    async def before(request: web.Request) -> None:
        if is_release(request) and not taken:
            taken.append("rival")
            rival = pod(stage.gangs.namespace, "rival", requests={"cpu": "3"})
            rival["spec"]["priorityClassName"] = name
            await stage.cluster.create(rival)
            await eventually(rival_bound, "the rival is bound")

    async def rival_bound() -> bool:
        return is_bound(await stage.cluster.get("pods", "rival", stage.gangs.namespace))

    stage.link.before = before
    await stage.gangs.define("train", 5, seconds=5, on_gang_failure="Recreate")
    await stage.gangs.join("train", *NAMES)

    async def ended() -> bool:
        assert await stage.gangs.events("GangFailed")
        return not await stage.gangs.pods("train")

    try:
        await eventually(ended, "the gang has been ended", within=60)
    finally:
        await stage.cluster.delete("priorityclasses", name)
    (message,) = await stage.gangs.events("GangFailed")
    assert message == "4 of 5 members are bound after 5 s; 5 are evicted"


async def test_a_scheduler_that_restarts_forgets_no_prepared_gang(
    stage: Stage, control_plane: ControlPlane
) -> None:
    may_release = asyncio.Event()

    async def before(request: web.Request) -> None:
        if is_release(request):
            await may_release.wait()

    stage.link.before = before
    await stage.gangs.define("train", 5)
    await stage.gangs.join("train", *NAMES)

    async def prepared() -> bool:
        return all(nominated(each) for each in await stage.gangs.pods("train"))

    await eventually(prepared, "all members are nominated")
    await asyncio.to_thread(control_plane.scheduler.restart)
    may_release.set()
    for member in await stage.gangs.all_bound("train", 5):
        released = member["metadata"]["annotations"][RELEASED_ANNOTATION]
        assert released == member["spec"]["nodeName"]
