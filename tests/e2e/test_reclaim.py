"""Reclaim on the stock scheduler: who borrows gives back, budgets hold, and nobody falls below min.

`batch` fills two nodes of 4 cores with pods of 2; `shop` is guaranteed what it then asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from engine.model.elastic_quota import RECLAIM_ANNOTATION
from engine.model.hold import QUEUED_CONDITION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import NAME, NAMESPACE, Installed, account, installed
from tests.e2e.link import Link, linked
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import GROUP, quotas_known
from tests.e2e.test_quota_queue import all_queue
from tests.e2e.workloads import deployment, is_running, pod
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("crds")

BORROWERS = 4
OPTIONS = [("hold", "true"), ("quota-mode", "Queue"), ("reclaim-after-seconds", "1")]


@dataclass(frozen=True, slots=True)
class Stage:
    """A full cluster, with the namespaces of those who borrow and those who may take back."""

    cluster: Cluster
    stowplan: Installed
    shop: str
    batch: str

    async def limit(self, shop: str, batch: str, mode: str = "On") -> None:
        """Create the quotas, with their `min` of cpu."""
        known = len(await self.cluster.list_all(f"elasticquotas.{GROUP}"))
        for namespace, least in ((self.shop, shop), (self.batch, batch)):
            quota = {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {
                    "name": "team",
                    "namespace": namespace,
                    "annotations": {RECLAIM_ANNOTATION: mode},
                },
                "spec": {"min": {"cpu": least}, "max": {"cpu": "8"}},
            }
            await self.cluster.create(quota)
        await quotas_known(self.stowplan.replicas, known + 2)
        await all_queue(self.stowplan, self.shop)

    async def borrow(self) -> None:
        """Fill the cluster with pods of `batch`."""
        await self.queue(self.batch, *(f"batch-{number}" for number in range(BORROWERS)))
        await eventually(lambda: self.run(self.batch, BORROWERS), "the cluster is full")

    async def run(self, namespace: str, count: int) -> bool:
        """Return whether so many pods of a namespace run."""
        pods = await self.cluster.list_all("pods", namespace)
        return [each["status"]["phase"] for each in pods].count("Running") == count

    async def queue(self, namespace: str, *names: str) -> None:
        """Create pods of 2 cores."""
        made = [pod(namespace, name, requests={"cpu": "2"}) for name in names]
        await asyncio.gather(*map(self.cluster.create, made))

    async def names(self, namespace: str) -> set[str]:
        """Return the names of the pods of a namespace that nobody is ending."""
        pods = await self.cluster.list_all("pods", namespace)
        return {
            each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]
        }

    async def runs(self, name: str) -> None:
        """Wait until a pod of `shop` runs."""
        await eventually(lambda: is_running(self.cluster, self.shop, name), f"{name} runs")

    async def reason(self, name: str, reason: str) -> str:
        """Wait until a pod of `shop` has a reason to wait; return the message."""

        async def found() -> str:
            conditions = (await self.cluster.get("pods", name, self.shop))["status"]["conditions"]
            queued = [each for each in conditions if each["type"] == QUEUED_CONDITION]
            assert [each["reason"] for each in queued] == [reason], queued
            message: str = queued[0]["message"]
            return message

        return await eventually(found, f"{name} waits: {reason}")

    async def events(self, namespace: str, reason: str) -> dict[str, str]:
        """Return the messages of Events with a reason, by the name of the pod."""
        events = await self.cluster.list_all("events", namespace)
        return {
            each["involvedObject"]["name"]: each["message"]
            for each in events
            if each["reason"] == reason
        }

    async def metric(self, line: str) -> bool:
        """Return whether a metric of the first replica has a value."""
        return line in (await self.stowplan.replicas[0].metrics()).splitlines()


@asynccontextmanager
async def staged(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    shop: str,
    folder: Path,
    *,
    link: Link | None = None,
) -> AsyncIterator[Stage]:
    """Install stowplan on two nodes of 4 cores."""
    for name in ("node-a", "node-b"):
        await nodes.add(name, {"cpu": "4"})
    async with AsyncExitStack() as stack:
        (batch,) = await stack.enter_async_context(passing_namespaces(cluster, f"{shop}-batch"))
        kubeconfig = None if link is None else link.kubeconfig
        stowplan = await stack.enter_async_context(
            installed(
                *(cluster, control_plane, folder, []),
                quotas="Fail",
                options=[*OPTIONS, ("hard-reclaim-namespaces", shop)],
                kubeconfig=kubeconfig,
            )
        )
        yield Stage(cluster, stowplan, shop, batch)


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with staged(cluster, control_plane, nodes, namespace, tmp_path) as found:
        yield found


async def test_who_borrows_gives_back_as_much_as_is_guaranteed(stage: Stage) -> None:
    await stage.limit(shop="4", batch="2")
    await stage.borrow()
    await stage.queue(stage.shop, "web-1", "web-2", "web-3")
    await eventually(lambda: stage.run(stage.shop, 2), "as many run as min guarantees")
    left = await stage.names(stage.batch)
    assert len(left) == 2
    evicted = {f"batch-{number}" for number in range(BORROWERS)} - left
    told = await stage.events(stage.batch, "Reclaimed")
    assert told.keys() == evicted
    assert all(f"{stage.batch}/team borrows cpu" in message for message in told.values())
    assert all(f"evicted for pod `{stage.shop}/web-" in message for message in told.values())
    assert len(await stage.events(stage.shop, "Reclaiming")) == 2
    await eventually(
        lambda: stage.metric('stowplan_reclaims_total{outcome="bound",source="quota"} 2.0'),
        "both are counted",
    )
    assert await stage.metric('stowplan_evictions_total{result="evicted"} 2.0')
    labels = f'quota="team",quota_namespace="{stage.batch}"'
    assert await stage.metric(f"stowplan_quota_evicted_pods_total{{{labels}}} 2.0")
    # The third is beyond min, and so takes nothing back: it waits for room to borrow.
    (waiting,) = (
        each["metadata"]["name"]
        for each in await stage.cluster.list_all("pods", stage.shop)
        if each["spec"].get("schedulingGates")
    )
    await stage.reason(waiting, "WaitingForQuota")
    assert await stage.names(stage.batch) == left


async def test_nobody_falls_below_min(stage: Stage) -> None:
    await stage.limit(shop="4", batch="6")
    await stage.borrow()
    await stage.queue(stage.shop, "web-1")
    await stage.runs("web-1")
    await stage.queue(stage.shop, "web-2")

    async def is_released() -> bool:
        spec = (await stage.cluster.get("pods", "web-2", stage.shop))["spec"]
        return not (spec.get("schedulingGates") or spec.get("nodeName"))

    await eventually(is_released, "web-2 is Pending, where autoscalers see it")
    assert len(await stage.names(stage.batch)) == 3


async def test_a_dry_run_evicts_nobody(stage: Stage) -> None:
    await stage.limit(shop="4", batch="2", mode="DryRun")
    await stage.borrow()
    await stage.queue(stage.shop, "web-1")

    async def told() -> str:
        return (await stage.events(stage.shop, "WouldReclaim")).get("web-1", "")

    message = await eventually(told, "the plan is told")
    assert f"would evict `{stage.batch}/batch-" in message
    assert len(await stage.names(stage.batch)) == BORROWERS
    assert await stage.metric('stowplan_reclaims_total{outcome="reported",source="quota"} 1.0')
    found = await stage.cluster.get("pods", "web-1", stage.shop)
    assert not found["status"].get("nominatedNodeName")


def no_disruption(namespace: str) -> Json:
    """Return a budget that protects all pods of a namespace."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": namespace},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }


async def test_a_disruption_budget_holds(stage: Stage) -> None:
    await stage.limit(shop="4", batch="2")
    await stage.cluster.create(no_disruption(stage.batch))
    await stage.borrow()
    await stage.queue(stage.shop, "web-1")
    message = await stage.reason("web-1", "BlockedByPDB")
    assert "PodDisruptionBudget" in message
    assert len(await stage.names(stage.batch)) == BORROWERS
    await stage.cluster.delete("poddisruptionbudgets", "all", stage.batch)
    await stage.runs("web-1")
    assert len(await stage.names(stage.batch)) == BORROWERS - 1


async def test_a_budget_gives_way_to_a_quota_that_reclaims_hard(stage: Stage) -> None:
    await stage.limit(shop="4", batch="2", mode="Hard")
    await stage.cluster.create(no_disruption(stage.batch))
    await stage.borrow()
    await stage.queue(stage.shop, "web-1")
    await stage.runs("web-1")
    assert len(await stage.names(stage.batch)) == BORROWERS - 1
    (message,) = (await stage.events(stage.batch, "Reclaimed")).values()
    assert "no other plan keeps to PodDisruptionBudgets" in message
    assert await stage.metric('stowplan_evictions_total{result="deleted"} 1.0')


async def test_a_deployment_misses_no_more_pods_at_a_time_than_it_says(stage: Stage) -> None:
    await stage.limit(shop="4", batch="2")
    web = deployment(stage.batch, "web", replicas=8, requests={"cpu": "1"})
    web["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    await stage.cluster.create(web)
    await eventually(lambda: stage.run(stage.batch, 8), "the cluster is full")
    most = 0

    async def count() -> None:
        """Note how many pods of the Deployment were ending at a time, in the order of events."""
        nonlocal most
        ending = set[str]()
        async with stage.cluster.watch("pods", stage.batch) as events:
            async for event in events:
                metadata = event["object"]["metadata"]
                if event["type"] == "DELETED":
                    ending.discard(metadata["name"])
                elif "deletionTimestamp" in metadata:
                    ending.add(metadata["name"])
                most = max(most, len(ending))

    counting = asyncio.create_task(count())
    await stage.queue(stage.shop, "web-1", "web-2")
    await eventually(lambda: stage.run(stage.shop, 2), "as many run as min guarantees")
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    assert most == 1
    assert len(await stage.events(stage.batch, "Reclaimed")) == 4


def is_nomination(request: web.Request) -> bool:
    return request.method == "PATCH" and request.path.endswith("/web-1/status")


def is_dry_run(request: web.Request) -> bool:
    return request.path.endswith("/eviction") and "dryRun" in request.query


def is_record(request: web.Request) -> bool:
    return request.method in {"PATCH", "POST"} and "/configmaps" in request.path


def is_eviction(request: web.Request) -> bool:
    return request.path.endswith("/eviction") and "dryRun" not in request.query


@pytest.mark.parametrize("is_last", [is_nomination, is_dry_run, is_record, is_eviction])
async def test_the_leader_is_killed_between_two_steps(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
    *,
    is_last: Callable[[web.Request], bool],
) -> None:
    async with (
        linked(control_plane, account(control_plane)) as link,
        staged(cluster, control_plane, nodes, namespace, tmp_path, link=link) as stage,
    ):
        await stage.limit(shop="4", batch="2")
        await stage.borrow()
        (replica,) = stage.stowplan.replicas
        killed = asyncio.Event()

        async def after(request: web.Request) -> None:
            if is_last(request) and not killed.is_set():
                killed.set()
                await asyncio.to_thread(replica.kill)

        link.after = after
        await stage.queue(stage.shop, "web-1")
        await asyncio.wait_for(killed.wait(), PATIENCE_SECONDS)
        # Its Lease would run out in 15 s.
        await cluster.delete("leases", NAME, NAMESPACE)
        await asyncio.to_thread(replica.start)
        await stage.runs("web-1")
        assert len(await stage.names(stage.batch)) == BORROWERS - 1
        (evicted,) = await _evicted(stage)
        assert evicted.startswith("batch-")


async def _evicted(stage: Stage) -> set[str]:
    return {f"batch-{number}" for number in range(BORROWERS)} - await stage.names(stage.batch)
