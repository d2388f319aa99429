"""Whatever breaks, pods are created; and what is known afterwards is what there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.advice import advice_of
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed, account, installed, listener, review_of
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.workloads import deployment, pod
from tests.engine.view_facts import facts
from webhook.cluster import Cluster as FollowedCluster

OUTAGE_SECONDS = 30
BURST = 60
BY_LIMITS = Path(__file__).parents[2] / "policies" / "limit-aware"
LIMITS = ("100m", "1", "3", "7")


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster with stowplan on it, and one who listens from before the trouble on."""

    cluster: Cluster
    control_plane: ControlPlane
    nodes: Nodes
    namespace: str
    stowplan: Installed
    listening: FollowedCluster

    async def api_server_back(self) -> None:
        """Start the API server anew, and its clients, which would wait up to a minute by now."""
        plane = self.control_plane
        for part in (plane.controllers, plane.scheduler, plane.api_server):
            part.kill()
        await asyncio.to_thread(plane.start)

    async def change(self) -> None:
        """Let a node come and one go, pods come, go and be replaced, and labels change."""
        await self.nodes.add("node-new", {"cpu": "8"})
        await self.nodes.remove("node-2")
        await self.cluster.patch("nodes", "node-1", {"metadata": {"labels": {"pool": "b"}}})
        await self.cluster.patch("namespaces", self.namespace, {"metadata": {"labels": {"x": "y"}}})
        await self.cluster.patch("deployments", "web", {"spec": {"replicas": 3}}, self.namespace)
        await self.cluster.create(limited(self.namespace, "later", "2"))

    async def knows_all(self) -> None:
        """Wait until those who heard the trouble know what those know who start now."""
        async with (
            listener(account(self.control_plane)) as fresh,
            self.stowplan.another() as started,
        ):

            async def same_view() -> bool:
                return facts(self.listening.view()) == facts(fresh.view())

            async def same_decisions() -> bool:
                new = await answers(started, self.namespace)
                for replica in self.stowplan.replicas:
                    assert await answers(replica, self.namespace) == new, replica.name
                return True

            await eventually(same_view, "the view is that of a fresh start")
            await eventually(same_decisions, "the decisions are those of a fresh start")

    async def settled(self, count: int) -> list[Json]:
        """Wait until so many pods are there and run; return them."""

        async def run() -> list[Json]:
            pods = await self.cluster.list_all("pods", self.namespace)
            up = [one for one in pods if one["status"]["phase"] == "Running"]
            return pods if len(up) == len(pods) == count else []

        return await eventually(run, f"{count} pods run")


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    """Three nodes, a Deployment of six pods, two replicas."""
    for number in range(3):
        await nodes.add(f"node-{number}")
    async with (
        installed(cluster, control_plane, tmp_path, [BY_LIMITS], replicas=2) as stowplan,
        listener(account(control_plane)) as listening,
    ):
        web = deployment(namespace, "web", replicas=6)
        web["spec"]["template"]["spec"] = limited(namespace, "", "500m")["spec"]
        await cluster.create(web)
        stage = Stage(cluster, control_plane, nodes, namespace, stowplan, listening)
        assert all(advice_of(one) for one in await stage.settled(6))
        yield stage


async def test_a_webhook_killed_in_a_burst_holds_no_pod_up(stage: Stage) -> None:
    async with killed_by_half(stage) as killing:
        await asyncio.gather(
            *(
                stage.cluster.create(limited(stage.namespace, f"burst-{number}", "10m"))
                for number in range(BURST)
            )
        )
        await killing  # the burst may be over first
        created = await stage.cluster.list_all("pods", stage.namespace)
        assert len(created) == 6 + BURST
        without = await stage.cluster.create(limited(stage.namespace, "without", "10m"))
        assert advice_of(without) is None
    await stage.settled(6 + BURST + 1)
    assert advice_of(await stage.cluster.create(limited(stage.namespace, "with", "10m")))
    await stage.knows_all()


async def test_a_webhook_that_hangs_holds_pods_up_until_the_time_out(stage: Stage) -> None:
    for replica in stage.stowplan.replicas:
        replica.pause()
    made = limited(stage.namespace, "meanwhile", "10m")
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-0"}  # which stays
    assert advice_of(await stage.cluster.create(made)) is None
    await stage.change()
    for replica in stage.stowplan.replicas:
        replica.resume()

    async def advised() -> bool:
        made = limited(stage.namespace, "again", "10m")
        return advice_of(await stage.cluster.create(made, dry_run=True)) is not None

    await eventually(advised, "pods are advised again")
    await stage.settled(5)
    await stage.knows_all()


async def test_the_view_outlives_an_outage_of_the_api_server(stage: Stage) -> None:
    stage.control_plane.api_server.kill()
    await asyncio.sleep(OUTAGE_SECONDS)
    for replica in stage.stowplan.replicas:
        detail = await replica.detail()
        assert detail["ready"], "what was known is good for minutes"
        assert all("patch" in answer for answer in await answers(replica, stage.namespace))
    await stage.api_server_back()
    await stage.change()
    await stage.settled(4)
    assert advice_of(await stage.cluster.create(limited(stage.namespace, "after", "10m")))
    await stage.knows_all()


async def test_changes_that_the_api_server_has_forgotten_are_found_by_a_new_list(
    stage: Stage,
) -> None:
    for replica in stage.stowplan.replicas:
        replica.pause()
    await stage.api_server_back()  # so that nothing is on its way to them
    await stage.change()
    await stage.settled(4)
    await asyncio.to_thread(stage.control_plane.forget_history)
    for replica in stage.stowplan.replicas:
        replica.resume()
    await stage.knows_all()
    for replica in stage.stowplan.replicas:
        assert "pods: too old resource version" in replica.text()


@asynccontextmanager
async def killed_by_half(stage: Stage) -> AsyncIterator[asyncio.Task[None]]:
    """Kill both replicas as soon as they have answered some reviews; start them afterwards.

    Yields:
        what ends when they are killed.
    """
    answered = await stage.stowplan.reviews()

    async def some() -> bool:
        return await stage.stowplan.reviews() > answered

    async def kill() -> None:
        await eventually(some, "the burst has begun")
        for replica in stage.stowplan.replicas:
            replica.kill()

    killing = asyncio.create_task(kill())
    try:
        yield killing
    finally:
        await killing
    starts = (asyncio.to_thread(replica.start) for replica in stage.stowplan.replicas)
    await asyncio.gather(*starts)


async def answers(replica: Replica, namespace: str) -> list[Json]:
    """Return what a replica would do with some pods."""
    return [
        await replica.review("/mutate", review_of(limited(namespace, "asked", cores)))
        for cores in LIMITS
    ]


def limited(namespace: str, name: str, cores: str) -> Json:
    """Return a pod that asks for little and may use more."""
    made = pod(namespace, name, requests={"cpu": "10m"})
    made["spec"]["containers"][0]["resources"]["limits"] = {"cpu": cores}
    return made
