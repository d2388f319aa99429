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

from engine.model.hold import HOLD_FOR_PREEMPTION, HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.pod_classes import PREEMPTION_ANNOTATION, WHILE_HELD
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gang_stage import GangStage
from tests.e2e.gangs import Gangs, is_bound, nominated
from tests.e2e.installed import NAME, NAMESPACE, account, installed, leader_of
from tests.e2e.killing import killed_after
from tests.e2e.link import linked
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.priorities import priority_class
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
  placement: { at: Binding, preemption: On }
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
        made["metadata"]["annotations"] = {HOLD_REASONS_ANNOTATION: HOLD_FOR_PREEMPTION}
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

        await eventually(are_bound, f"{names} are bound")

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
    urgent, annotations = f"urgent-{namespace}", {PREEMPTION_ANNOTATION: WHILE_HELD}
    async with (
        # Before anybody could find that it is not there.
        priority_class(cluster, urgent, 1000, annotations=annotations, preempts=False),
        passing_namespaces(cluster, f"{namespace}-low") as (low,),
        linked(control_plane, account(control_plane)) as link,
    ):
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
            await leader_of(cluster, stowplan)
            yield Stage(found, low)


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
    async with killed_after(last, is_step, replica, link):
        await need()
    await stage.cluster.delete("leases", NAME, NAMESPACE)  # it would run out in 15 s
    await asyncio.to_thread(replica.start)
