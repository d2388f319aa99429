"""Preemption for held pods on the stock scheduler: who is evicted, and who is not.

Two nodes of 4 cores are full of pods of 2 and priority 0, until `urgent` ones are created and held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.model.pod_classes import (
    MINIMUM_PRIORITY_ANNOTATION,
    PREEMPTION_ANNOTATION,
    TOLERATION_SECONDS_ANNOTATION,
    WHILE_HELD,
)
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed, installed
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.priorities import priority_class
from tests.e2e.workloads import is_running, pod

pytestmark = pytest.mark.usefixtures("crds")

OPTIONS = [("hold", "true"), ("preemption", "true"), ("hold-seconds", "60")]
LOW = 4

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: urgent }
spec:
  match: { objectSelector: { matchLabels: { tier: urgent } } }
  scores: [{ plugin: NodeResourcesBalancedAllocation }]
  placement: { at: Binding, preemption: MODE }
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster, with the namespaces of those who need room and those who run."""

    cluster: Cluster
    stowplan: Installed
    policy: Path
    shop: str
    batch: str

    async def fill(self, priority_class: str = "", **labels: str) -> None:
        """Fill the nodes with pods of `batch`."""
        spec = {"priorityClassName": priority_class} if priority_class else {}
        made = [
            _with(pod(self.batch, f"batch-{i}", requests={"cpu": "2"}), labels, spec)
            for i in range(LOW)
        ]
        await asyncio.gather(*map(self.cluster.create, made))
        for i in range(LOW):
            await self.runs(self.batch, f"batch-{i}")

    async def need(self, name: str, cpu: str = "2", **spec: object) -> None:
        """Create a pod of `shop` that is held, and urgent."""
        made = pod(self.shop, name, requests={"cpu": cpu})
        more = {"priorityClassName": f"urgent-{self.shop}", **spec}
        await self.cluster.create(_with(made, {"tier": "urgent"}, more))

    async def holds(self) -> bool:
        """Return whether urgent pods are held."""
        tried = _with(pod(self.shop, "tried"), {"tier": "urgent"}, {})
        made = await self.cluster.create(tried, dry_run=True)
        return bool(made["spec"].get("schedulingGates"))

    async def runs(self, namespace: str, name: str) -> None:
        """Wait until a pod runs."""
        await eventually(lambda: is_running(self.cluster, namespace, name), f"{name} runs")

    async def left(self) -> set[str]:
        """Return the names of the pods of `batch` that nobody is ending."""
        pods = await self.cluster.list_all("pods", self.batch)
        return {
            each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]
        }

    async def events(self, namespace: str, reason: str) -> dict[str, str]:
        """Return the messages of Events with a reason, by the name of the pod."""
        events = await self.cluster.list_all("events", namespace)
        return {
            each["involvedObject"]["name"]: each["message"]
            for each in events
            if each["reason"] == reason
        }

    async def says(self, name: str, text: str) -> str:
        """Wait until the condition of a pod of `shop` says something; return all of it."""

        async def found() -> str:
            status = (await self.cluster.get("pods", name, self.shop))["status"]
            messages = [each.get("message", "") for each in status.get("conditions", ())]
            return next((message for message in messages if text in message), "")

        return await eventually(found, f"{name} says `{text}`")


def _with(made: Json, labels: Mapping[str, str], spec: Mapping[str, object]) -> Json:
    metadata = {**made["metadata"], "labels": {**made["metadata"].get("labels", {}), **labels}}
    return {**made, "metadata": metadata, "spec": {**made["spec"], **spec}}


@pytest.fixture
async def stage(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    """Two nodes, and the policy in mode On, or that of a parameter."""
    for name in ("node-a", "node-b"):
        await nodes.add(name, {"cpu": "4"})
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.replace("MODE", getattr(request, "param", "On")), encoding="utf-8")
    folder = tmp_path / "logs"
    folder.mkdir()
    urgent, annotations = f"urgent-{namespace}", {PREEMPTION_ANNOTATION: WHILE_HELD}
    async with (
        priority_class(cluster, urgent, 1000, annotations=annotations, preempts=False),
        passing_namespaces(cluster, f"{namespace}-batch") as (batch,),
        installed(cluster, control_plane, folder, [policy], options=OPTIONS) as stowplan,
    ):
        found = Stage(cluster, stowplan, policy, namespace, batch)
        await eventually(found.holds, "pods are held")
        yield found


async def test_a_pod_of_lower_priority_makes_room(stage: Stage) -> None:
    await stage.fill()
    await stage.need("web")
    await stage.runs(stage.shop, "web")
    left = await stage.left()
    assert len(left) == LOW - 1
    (victim,) = {f"batch-{i}" for i in range(LOW)} - left
    told = await stage.events(stage.batch, "Preempted")
    assert told.keys() == {victim}
    assert f"evicted for pod `{stage.shop}/web`" in told[victim]
    assert (await stage.events(stage.shop, "Preempting")).keys() == {"web"}
    metrics = (await stage.stowplan.replicas[0].metrics()).splitlines()
    assert 'stowplan_evictions_total{result="evicted"} 1.0' in metrics


@pytest.mark.parametrize("stage", ["DryRun"], indirect=True)
async def test_a_dry_run_evicts_nobody(stage: Stage) -> None:
    await stage.fill()
    await stage.need("web")

    async def told() -> str:
        return (await stage.events(stage.shop, "WouldPreempt")).get("web", "")

    message = await eventually(told, "the plan is told")
    assert f"would evict `{stage.batch}/batch-" in message
    assert len(await stage.left()) == LOW
    # Its class never preempts, so it waits for room that an autoscaler may make.
    spec = (await stage.cluster.get("pods", "web", stage.shop))["spec"]
    assert not spec.get("schedulingGates")
    assert not spec.get("nodeName")


async def test_a_class_that_tolerates_it_holds(stage: Stage) -> None:
    patient = f"patient-{stage.shop}"
    annotations = {MINIMUM_PRIORITY_ANNOTATION: "5000", TOLERATION_SECONDS_ANNOTATION: "-1"}
    async with priority_class(stage.cluster, patient, 10, annotations=annotations, preempts=False):
        await stage.fill(patient)
        await stage.need("web")
        await stage.says("web", "tolerate preemption")
        assert len(await stage.left()) == LOW
        # From now on 1,000 is enough.
        enough = {"metadata": {"annotations": {MINIMUM_PRIORITY_ANNOTATION: "1000"}}}
        await stage.cluster.patch("priorityclasses", patient, enough)
        await stage.runs(stage.shop, "web")
        assert len(await stage.left()) == LOW - 1


async def test_a_disruption_budget_holds(stage: Stage) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": stage.batch},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    await stage.cluster.create(budget)
    await stage.fill()
    await stage.need("web")
    await stage.says("web", "PodDisruptionBudget")
    assert len(await stage.left()) == LOW
    await stage.cluster.delete("poddisruptionbudgets", "all", stage.batch)
    await stage.runs(stage.shop, "web")
    assert len(await stage.left()) == LOW - 1


async def test_where_nobody_makes_room_autoscalers_see_the_pod(stage: Stage) -> None:
    await stage.fill()
    await stage.need("web", cpu="5")  # more than any node has

    async def is_unschedulable() -> bool:
        status = (await stage.cluster.get("pods", "web", stage.shop))["status"]
        return any(
            (each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable")
            for each in status.get("conditions", ())
        )

    await eventually(is_unschedulable, "web is Unschedulable")
    assert len(await stage.left()) == LOW


async def test_pods_on_several_nodes_are_evicted_where_rules_look_at_them(stage: Stage) -> None:
    """`web` wants no pod of `app: cache` in its zone; there is one on each of the two nodes."""
    for name in ("node-a", "node-b"):
        zone = {"metadata": {"labels": {"topology.kubernetes.io/zone": "one"}}}
        await stage.cluster.patch("nodes", name, zone)
    caches = [
        _with(
            pod(stage.batch, f"cache-{name}", requests={"cpu": "1"}),
            {"app": "cache"},
            {"nodeSelector": {"kubernetes.io/hostname": name}},
        )
        for name in ("node-a", "node-b")
    ]
    await asyncio.gather(*map(stage.cluster.create, caches))
    for each in caches:
        await stage.runs(stage.batch, each["metadata"]["name"])
    term = {
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": {"app": "cache"}},
        "namespaces": [stage.batch],
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await stage.need("web", cpu="1", affinity=affinity)
    await stage.runs(stage.shop, "web")
    assert await stage.left() == set()
