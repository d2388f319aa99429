"""A gang beside single pods that keep nearly all room busy: it reserves what comes free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gang_stage import POLICY as PACKED
from tests.e2e.gangs import Gangs, is_bound
from tests.e2e.installed import leader_of
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import elastic_quota
from tests.e2e.test_binding import binding
from tests.e2e.test_quota_queue import forged, queueing, worker

pytestmark = pytest.mark.usefixtures("crds")

ROOM, SINGLES = 32, 30  # cores, and pods of one core: 94 % of them
LIVES_SECONDS = tuple(float(4 + 7 * number % 16) for number in range(16))  # one by one, no wave
STARTED_WITHIN_SECONDS = 180.0  # some 70 on an idle machine


class SinglePods:
    """Pods of one core, always as many: where one ends, another is created.

    Args:
        cluster: that they run on.
        namespace: of theirs.
        make: returns one of a namespace and a name.
    """

    def __init__(self, cluster: Cluster, namespace: str, make: Callable[[str, str], Json]) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._make = make
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
        await self._cluster.create(self._make(self._namespace, f"single-{self._created:04}"))

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
async def room(nodes: Nodes) -> None:
    for number in range(ROOM // 4):
        await nodes.add(f"node-{number}", {"cpu": "4"})


async def starts_beside(
    singles: SinglePods, gangs: Gangs, *, size: int = 16, cpu: str = "1"
) -> None:
    """See that a gang starts beside single pods that keep the room busy."""
    async with running(singles.come_and_go()) as going:

        async def are_busy() -> bool:
            return sum(map(is_bound, await singles.all())) == SINGLES

        await eventually(are_busy, "single pods run on nearly all cores")
        await gangs.define("train", size)
        await gangs.join("train", *(f"m-{number}" for number in range(size)), cpu=cpu)

        async def started() -> bool:
            assert not going.done(), going.exception()
            return sum((await gangs.nodes_of("train")).values()) == size

        await eventually(started, "all members are bound", within=STARTED_WITHIN_SECONDS)
        told = await gangs.events("GangReserving")
        waited = f"there was no room for all {size} members for "
        assert any(each.startswith(waited) for each in told)


@pytest.mark.usefixtures("room")
async def test_a_gang_starts_beside_held_pods_that_keep_the_room_busy(
    cluster: Cluster, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with (
        queueing(cluster, control_plane, tmp_path) as stowplan,
        passing_namespaces(cluster, f"{namespace}-singles") as (busy,),
    ):
        await leader_of(cluster, stowplan)
        quota = elastic_quota(busy, {"cpu": "100"})
        quota["spec"]["min"] = {"cpu": "100"}  # so that they wait for nothing but nodes
        await cluster.create(quota)
        await starts_beside(SinglePods(cluster, busy, forged), Gangs(cluster, namespace))


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(("size", "cpu"), [(16, "1"), (8, "3")])
async def test_a_gang_starts_beside_pods_of_the_scheduler_that_keep_the_room_busy(
    cluster: Cluster,
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    size: int,
    cpu: str,
) -> None:
    async with (
        binding(*(cluster, control_plane, tmp_path, PACKED), options=[("hold", "true")]),
        passing_namespaces(cluster, f"{namespace}-singles") as (busy,),
    ):
        singles, gangs = SinglePods(cluster, busy, worker), Gangs(cluster, namespace)
        await starts_beside(singles, gangs, size=size, cpu=cpu)
