"""Whatever breaks while others are evicted: the room that they leave is used, and nobody else goes.

Two nodes of 4 cores are full of a pod each, of priority 0; what needs room has our gate from the
start, so that it is held whatever becomes of the webhook.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from engine.model.hold import HOLD_FOR_PLACEMENT, HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.priority_class import PREEMPTION_ANNOTATION, WHILE_HELD
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gang_stage import GangStage, leads
from tests.e2e.gangs import Gangs, is_bound, nominated
from tests.e2e.installed import NAME, NAMESPACE, account, installed
from tests.e2e.link import linked
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.test_held_chaos import is_write
from tests.e2e.workloads import is_running, pod

pytestmark = pytest.mark.usefixtures("crds")

OPTIONS = [("hold", "true"), ("preemption", "true"), ("hold-seconds", "60")]
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: urgent }
spec:
  scores: [{ plugin: NodeResourcesBalancedAllocation }]
  placement: { at: Release, preemption: On }
"""
LOW = ("low-a", "low-b")
MEMBERS = ("m-0", "m-1")


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster whose nodes are full, and stowplan, whose requests a test can hold up."""

    gang_stage: GangStage
    low: str
    """The namespace of those who run."""

    @property
    def cluster(self) -> Cluster:
        return self.gang_stage.cluster

    @property
    def namespace(self) -> str:
        return self.gang_stage.gangs.namespace

    def urgent(self, made: Json) -> Json:
        """Return a pod as one for which others are evicted."""
        made["spec"]["priorityClassName"] = f"urgent-{self.namespace}"
        return made

    async def need_pod(self) -> None:
        """Create a pod that no node takes."""
        made = self.urgent(pod(self.namespace, "web", requests={"cpu": "3"}))
        made["metadata"]["annotations"] = {HOLD_REASONS_ANNOTATION: HOLD_FOR_PLACEMENT}
        made["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
        await self.cluster.create(made)

    async def need_gang(self) -> None:
        """Create a gang of two, for which both nodes are needed."""
        gangs = self.gang_stage.gangs
        await gangs.define("train", len(MEMBERS))
        made = [self.urgent(gangs.member("train", name, "3")) for name in MEMBERS]
        await asyncio.gather(*map(self.cluster.create, made))

    async def bound(self, *names: str) -> None:
        """Wait until pods are bound."""

        async def are_bound() -> bool:
            pods = await self.cluster.list_all("pods", self.namespace)
            waiting = [each["metadata"]["name"] for each in pods if not is_bound(each)]
            assert not waiting, f"{waiting} wait"
            return {each["metadata"]["name"] for each in pods} == {*names}

        await eventually(are_bound, f"{names} are bound", within=120)

    async def left(self) -> int:
        """Return how many pods of low priority nobody is ending."""
        pods = await self.cluster.list_all("pods", self.low)
        return sum("deletionTimestamp" not in each["metadata"] for each in pods)


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    for name in ("node-a", "node-b"):
        await nodes.add(name, {"cpu": "4"})
    policy = tmp_path / "policy.yaml"
    await asyncio.to_thread(policy.write_text, POLICY)
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {
            "name": f"urgent-{namespace}",
            "annotations": {PREEMPTION_ANNOTATION: WHILE_HELD},
        },
        "value": 1000,
        "preemptionPolicy": "Never",
    }
    async with (
        passing_namespaces(cluster, f"{namespace}-low") as (low,),
        linked(control_plane, account(control_plane)) as link,
    ):
        await cluster.create(urgent)  # before anybody could find that it is not there
        for name in LOW:
            await cluster.create(pod(low, name, requests={"cpu": "4"}))
            await eventually(partial(is_running, cluster, low, name), f"{name} runs")
        async with installed(
            cluster,
            control_plane,
            tmp_path,
            [policy],
            options=OPTIONS,
            kubeconfig=link.kubeconfig,
        ) as stowplan:
            found = GangStage(cluster, Gangs(cluster, namespace), nodes, stowplan, link)
            await leads(found)
            yield Stage(found, low)
        await cluster.delete("priorityclasses", f"urgent-{namespace}")


def is_step(request: web.Request) -> bool:
    """Return whether a request writes a pod, evicts one, or tries to."""
    return is_write(request) or request.path.endswith("/eviction")


async def test_a_gang_gets_the_room_of_two_nodes(stage: Stage) -> None:
    reserved: list[bool] = []

    async def before(request: web.Request) -> None:
        if request.path.endswith("/eviction"):
            members = await stage.gang_stage.gangs.pods("train")
            reserved.append(all(map(nominated, members)))

    stage.gang_stage.link.before = before
    await stage.need_gang()
    await stage.bound(*MEMBERS)
    assert await stage.left() == 0
    assert reserved == [True] * 4  # two dry runs, two evictions
    events = await stage.cluster.list_all("events", stage.low)
    told = [each["message"] for each in events if each["reason"] == "Preempted"]
    assert len(told) == len(LOW)
    assert all(f"gang `{stage.namespace}/train` needs room for 2 pods" in each for each in told)


@pytest.mark.parametrize("last", [2, 3, 4, 5])
async def test_the_leader_is_killed_while_a_pod_preempts(stage: Stage, last: int) -> None:
    # The plan, the nomination, the dry run, the eviction, and the release; conditions between them.
    await _killed_after(stage, last, stage.need_pod)
    await stage.bound("web")
    assert await stage.left() == len(LOW) - 1


@pytest.mark.parametrize("last", [2, 4, 6, 7, 8, 9])
async def test_the_leader_is_killed_while_a_gang_preempts(stage: Stage, last: int) -> None:
    # Two of each.
    await _killed_after(stage, last, stage.need_gang)
    await stage.bound(*MEMBERS)
    assert await stage.left() == 0


async def _killed_after(stage: Stage, last: int, need: Callable[[], Awaitable[None]]) -> None:
    """Kill the leader when it has made so many steps, one at a time, and start another."""
    link, (replica,) = stage.gang_stage.link, stage.gang_stage.stowplan.replicas
    killed, one_at_a_time, steps = asyncio.Event(), asyncio.Lock(), 0

    async def before(request: web.Request) -> None:
        if is_step(request):
            await one_at_a_time.acquire()

    async def after(request: web.Request) -> None:
        nonlocal steps
        if not is_step(request):
            return
        steps += 1
        if steps == last:  # nothing that waits for its turn goes on: its sender has gone
            await asyncio.to_thread(replica.kill)
            killed.set()
        one_at_a_time.release()

    link.before, link.after = before, after
    await need()
    await asyncio.wait_for(killed.wait(), 60)
    link.before = link.after = _go_on
    await stage.cluster.delete("leases", NAME, NAMESPACE)  # it would run out in 15 s
    await asyncio.to_thread(replica.start)


async def _go_on(_: web.Request) -> None:
    """Let a request pass."""
