"""A gang beside single pods that keep nearly all room busy: it reserves what comes free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gangs import Gangs, is_bound
from tests.e2e.installed import Installed, leader_of
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import elastic_quota
from tests.e2e.test_quota_queue import forged, queueing

pytestmark = pytest.mark.usefixtures("crds")

MEMBERS = tuple(f"m-{number:02}" for number in range(16))
ROOM, SINGLES = 32, 30  # cores, and pods of one core: 94 % of them
LIVES_SECONDS = tuple(float(4 + 7 * number % 16) for number in range(16))  # one by one, no wave
STARTED_WITHIN_SECONDS = 600.0  # some 70, unless a single pod takes room at the last moment


class SinglePods:
    """Pods of one core that wait for quota, always as many: where one ends, another is created."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._created = 0
        self._ends_at: dict[str, float] = {}  # by name, of those that run

    async def come_and_go(self) -> None:
        """End those that have run for a while, and create others; until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            pods = await self.all()
            for made in filter(is_bound, pods):
                name = made["metadata"]["name"]
                self._ends_at.setdefault(name, now() + LIVES_SECONDS[int(name[-4:]) % 16])
            ended = [name for name, end in self._ends_at.items() if end <= now()]
            for name in ended:
                del self._ends_at[name]
            await asyncio.gather(*map(self._delete, ended))
            left = len(pods) - len(ended)
            await asyncio.gather(*(self._create() for _ in range(SINGLES - left)))
            await asyncio.sleep(0.3)

    async def all(self) -> list[Json]:
        """Return those that are there."""
        return await self._cluster.list_all("pods", self._namespace)

    async def _create(self) -> None:
        self._created += 1
        await self._cluster.create(forged(self._namespace, f"single-{self._created:04}"))

    async def _delete(self, name: str) -> None:
        await self._cluster.delete("pods", name, self._namespace, grace_seconds=0)


@asynccontextmanager
async def running(work: Coroutine[None, None, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run something until the block is left."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def stowplan(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, tmp_path: Path
) -> AsyncIterator[Installed]:
    for number in range(ROOM // 4):
        await nodes.add(f"node-{number}", {"cpu": "4"})
    async with queueing(cluster, control_plane, tmp_path) as found:
        yield found


async def test_a_gang_starts_beside_single_pods_that_keep_the_room_busy(
    cluster: Cluster, stowplan: Installed, namespace: str
) -> None:
    await leader_of(cluster, stowplan)
    gangs = Gangs(cluster, namespace)
    async with AsyncExitStack() as stack:
        singles_of = passing_namespaces(cluster, f"{namespace}-singles")
        (busy,) = await stack.enter_async_context(singles_of)
        quota = elastic_quota(busy, {"cpu": "100"})
        quota["spec"]["min"] = {"cpu": "100"}  # so that they wait for nothing but nodes
        await cluster.create(quota)
        singles = SinglePods(cluster, busy)
        going = await stack.enter_async_context(running(singles.come_and_go()))

        async def are_busy() -> bool:
            return sum(map(is_bound, await singles.all())) == SINGLES

        await eventually(are_busy, "single pods run on nearly all cores")
        await gangs.define("train", len(MEMBERS))
        await gangs.join("train", *MEMBERS, cpu="1")

        async def started() -> bool:
            assert not going.done(), going.exception()
            return sum((await gangs.nodes_of("train")).values()) == len(MEMBERS)

        await eventually(started, "all members are bound", within=STARTED_WITHIN_SECONDS)
        told = await gangs.events("GangReserving")
        assert any(each.startswith("there was no room for all 16 members for 6") for each in told)
