"""Whatever breaks while a gang is released: it starts as a whole, or keeps no room."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from engine.model.hold import RELEASED_ANNOTATION
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gang_stage import NAMES, GangStage, gang_stage
from tests.e2e.gangs import is_bound, nominated
from tests.e2e.installed import NAME, NAMESPACE
from tests.e2e.killing import killed_after
from tests.e2e.nodes import Nodes
from tests.e2e.priorities import priority_class
from tests.e2e.test_held_chaos import is_release, is_write
from tests.e2e.workloads import pod

pytestmark = pytest.mark.usefixtures("crds")


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[GangStage]:
    async with gang_stage(cluster, control_plane, nodes, namespace, tmp_path) as found:
        yield found


@pytest.mark.parametrize("last", [1, 3, 4, 5])
async def test_the_leader_is_killed_between_two_writes(stage: GangStage, last: int) -> None:
    # Three nominations and three releases.
    (replica,) = stage.stowplan.replicas
    async with killed_after(last, is_write, replica, stage.link):
        await stage.gangs.define("train", 3)
        await stage.gangs.join("train", *NAMES[:3])
    bound = sum((await stage.gangs.nodes_of("train")).values())
    assert bound <= max(0, last - 3)
    await stage.cluster.delete("leases", NAME, NAMESPACE)  # it would run out in 15 s
    await asyncio.to_thread(replica.start)
    for member in await stage.gangs.all_bound("train", 3):
        released = member["metadata"]["annotations"][RELEASED_ANNOTATION]
        assert released == member["spec"]["nodeName"]


async def test_a_member_deleted_while_it_is_nominated_takes_all_back(stage: GangStage) -> None:
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


async def test_a_node_that_goes_while_members_are_nominated_is_replaced(stage: GangStage) -> None:
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


async def test_a_gang_that_fails_to_start_is_created_again(
    stage: GangStage,
) -> None:
    # The room of one member is taken once it is released: a higher priority ignores nominations.
    name = f"urgent-{stage.gangs.namespace}"
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

    async def ended() -> bool:
        assert await stage.gangs.events("GangFailed")
        return not await stage.gangs.pods("train")

    stage.link.before = before
    async with priority_class(stage.cluster, name, 1000):
        await stage.gangs.define("train", 5, seconds=5, on_gang_failure="Recreate")
        await stage.gangs.join("train", *NAMES)
        await eventually(ended, "the gang has been ended")
    (message,) = await stage.gangs.events("GangFailed")
    # On a busy machine not all of the four are bound by then.
    assert re.fullmatch("[0-4] of 5 members are bound after 5 s; 5 are evicted", message)


async def test_a_scheduler_that_restarts_forgets_no_prepared_gang(
    stage: GangStage, control_plane: ControlPlane
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
