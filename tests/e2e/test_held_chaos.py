"""Whatever breaks: no pod is held beyond its bound, none is lost, and none runs twice.

Pods carry our gate from the start, so that they are held whatever becomes of the webhook.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from engine.model.hold import HOLD_GATE, RELEASED_ANNOTATION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import NAME, NAMESPACE, Installed, account, installed, leader_of
from tests.e2e.killing import killed_after
from tests.e2e.link import Link, linked
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.workloads import pod

HOLD_SECONDS = 20
UNHURRIED_SECONDS = 600
"""A bound beyond any test: what is overdue is released whatever happens."""

LATEST_SECONDS = HOLD_SECONDS + 15 + 25
"""After its creation a pod is released at the latest, once somebody can release it.

A Lease runs out in 15 s; the rest is for a busy machine.
"""

SLOW_POD_SECONDS = 60
"""A pod whose write is not answered in 10 s is tried again after that long."""

OUTAGE_SECONDS = 30
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
  placement: {at: Binding}
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster with stowplan on it, whose requests a test can hold up."""

    cluster: Cluster
    namespace: str
    stowplan: Installed
    link: Link

    async def hold(self, count: int, cpu: str) -> list[str]:
        """Create pods with our gate; return their uids."""
        made = [pod(self.namespace, f"held-{n:03}", requests={"cpu": cpu}) for n in range(count)]
        for one in made:
            one["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
        created = await asyncio.gather(*map(self.cluster.create, made))
        return sorted(one["metadata"]["uid"] for one in created)

    async def all_bound(self, uids: list[str], within: float = 2 * SLOW_POD_SECONDS) -> list[Json]:
        """Wait until these very pods, and no others, are bound."""

        async def bound() -> list[Json]:
            pods = await self.cluster.list_all("pods", self.namespace)
            assert sorted(one["metadata"]["uid"] for one in pods) == uids
            waiting = [one["metadata"]["name"] for one in pods if not one["spec"].get("nodeName")]
            assert not waiting, f"{waiting} wait"
            assert not any(one["spec"].get("schedulingGates") for one in pods)
            return pods

        return await eventually(bound, "all pods are bound", within=within)

    async def leader(self) -> Replica:
        """Return the replica that holds the Lease, as soon as one does."""
        return await leader_of(self.cluster, self.stowplan)


@asynccontextmanager
async def staged(
    cluster: Cluster,
    control_plane: ControlPlane,
    namespace: str,
    folder: Path,
    *,
    replicas: int = 1,
    hold_seconds: int = UNHURRIED_SECONDS,
) -> AsyncIterator[Stage]:
    """Install stowplan with held pods behind a link."""
    policy = folder / "policy.yaml"
    await asyncio.to_thread(policy.write_text, POLICY)
    options = [("hold", "true"), ("hold-seconds", str(hold_seconds))]
    async with (
        linked(control_plane, account(control_plane)) as link,
        installed(
            cluster,
            control_plane,
            folder,
            [policy],
            replicas=replicas,
            options=options,
            kubeconfig=link.kubeconfig,
        ) as stowplan,
    ):
        yield Stage(cluster, namespace, stowplan, link)


@pytest.fixture
async def stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    """One replica, and nodes that fill one after the other."""
    for number in range(4):
        await nodes.add(f"node-{number}", {"cpu": "32"})
    async with staged(cluster, control_plane, namespace, tmp_path) as found:
        yield found


def is_write(request: web.Request) -> bool:
    """Return whether a request writes a pod."""
    return request.method == "PATCH" and "/pods/" in request.path


def is_release(request: web.Request) -> bool:
    """Return whether a request writes a pod, and not its status."""
    return is_write(request) and not request.path.endswith("/status")


async def test_the_leader_is_killed_between_every_two_writes(stage: Stage) -> None:
    pods = 3  # a release each
    for last in range(1, pods + 1):
        uids = await _killed_after(stage, last, pods)
        bound = await stage.all_bound(uids)
        assert all(RELEASED_ANNOTATION in one["metadata"]["annotations"] for one in bound)
        await stage.cluster.delete_all("pods", stage.namespace, grace_seconds=0)


async def _killed_after(stage: Stage, last: int, pods: int) -> list[str]:
    """Hold pods, kill the leader when it has made so many writes, and start another."""
    (replica,) = stage.stowplan.replicas
    await stage.leader()
    async with killed_after(last, is_write, replica, stage.link):
        uids = await stage.hold(pods, "1")
    # Its Lease would run out in 15 s.
    await stage.cluster.delete("leases", NAME, NAMESPACE)
    await asyncio.to_thread(replica.start)
    return uids


async def test_another_replica_releases_when_the_leader_is_killed(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "32"})
    async with staged(
        cluster, control_plane, namespace, tmp_path, replicas=2, hold_seconds=HOLD_SECONDS
    ) as stage:
        leader = await stage.leader()
        released = 0

        async def before(request: web.Request) -> None:
            nonlocal released
            released += is_release(request)
            if released == 5:
                leader.kill()  # while this release and others are on their way

        stage.link.before = before
        created = datetime.now(UTC)
        uids = await stage.hold(20, "1")
        bound = await stage.all_bound(uids, within=LATEST_SECONDS)
        assert released >= 5
    for one in bound:
        (condition,) = (c for c in one["status"]["conditions"] if c["type"] == "PodScheduled")
        took = datetime.fromisoformat(condition["lastTransitionTime"]) - created
        assert took.total_seconds() < LATEST_SECONDS


async def test_held_pods_outlive_an_outage_of_the_api_server(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "32"})
    async with staged(
        cluster, control_plane, namespace, tmp_path, hold_seconds=HOLD_SECONDS
    ) as stage:
        await stage.leader()
        stage.link.open.clear()
        uids = await stage.hold(10, "1")
        for part in (control_plane.controllers, control_plane.scheduler, control_plane.api_server):
            part.kill()
        stage.link.open.set()
        await asyncio.sleep(OUTAGE_SECONDS)
        await asyncio.to_thread(control_plane.start)
        await stage.all_bound(uids, within=LATEST_SECONDS)


async def test_a_tenant_removes_the_gate_meanwhile(stage: Stage) -> None:
    await stage.leader()
    stage.link.open.clear()
    uids = await stage.hold(2, "1")
    ungated = {"spec": {"schedulingGates": None}}
    await stage.cluster.patch("pods", "held-000", ungated, stage.namespace)
    stage.link.open.set()
    bound = await stage.all_bound(uids)
    released = {
        one["metadata"]["name"]
        for one in bound
        if RELEASED_ANNOTATION in one["metadata"].get("annotations", {})
    }
    assert released == {"held-001"}


async def test_an_admission_that_refuses_releases_holds_up_its_own_pods_alone(
    stage: Stage,
) -> None:
    name = f"refusing-{stage.namespace}"
    admission = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    rule = {**pods, "operations": ["UPDATE"]}
    keeps_gates = "!has(oldObject.spec.schedulingGates) || has(object.spec.schedulingGates)"
    of_one = "object.metadata.name == 'held-000'"
    policy: Json = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "one-pod", "expression": of_one}],
        "validations": [{"expression": keeps_gates, "message": "not now"}],
    }
    binding: Json = {"policyName": name, "validationActions": ["Deny"]}
    await stage.cluster.create({**admission, "kind": "ValidatingAdmissionPolicy", "spec": policy})
    await stage.cluster.create(
        {**admission, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}
    )
    try:
        await stage.leader()
        await _refuses(stage)
        uids = await stage.hold(5, "1")

        async def others_bound() -> bool:
            found = await stage.cluster.list_all("pods", stage.namespace)
            gated = [one["metadata"]["name"] for one in found if one["spec"].get("schedulingGates")]
            return gated == ["held-000"]

        await eventually(others_bound, "the other pods are released")
    finally:
        await stage.cluster.delete("validatingadmissionpolicybindings", name)
        await stage.cluster.delete("validatingadmissionpolicies", name)
    await stage.all_bound(uids)


async def _refuses(stage: Stage) -> None:
    """Wait until the API server refuses to remove the gate of a pod of that name."""
    tried = pod(stage.namespace, "held-000")
    tried["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    await stage.cluster.create(tried)
    ungated = {"spec": {"schedulingGates": None}}

    async def refused() -> bool:
        try:
            await stage.cluster.patch("pods", "held-000", ungated, stage.namespace, dryRun="All")
        except CallError as error:
            return "not now" in error.message
        return False

    await eventually(refused, "releases are refused")
    await stage.cluster.delete("pods", "held-000", stage.namespace, grace_seconds=0)
