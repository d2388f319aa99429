"""Holding pods on a real API server: only while somebody releases them, and in time.

The test holds the Lease as a leader that releases pods would, or would no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from engine.model.hold import (
    HOLD_GATE,
    HOLD_REASONS_ANNOTATION,
    RELEASE_BY_ANNOTATION,
    RELEASING_ANNOTATION,
)
from engine.placement import ADVICE_ANNOTATION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import NAME, NAMESPACE, Installed, installed
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import deployment, pod

HOLD_MAX, HOLD_SECONDS = 3, 10
LEASE_SECONDS = 15
RENEW_SECONDS = 0.5

LATE = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: late}
spec:
  scores: [{name: by-name, expression: "node.name == 'node-a' ? 1 : 0"}]
  placement: {at: Admission, releaseInOrder: true}
"""


class Leader:
    """A holder of the Lease that is none of the replicas."""

    def __init__(self, cluster: Cluster) -> None:
        self.releases = True
        self._cluster = cluster

    async def renew(self) -> None:
        """Hold the Lease until cancelled, whoever has it."""
        while True:
            moment = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
            says = "true" if self.releases else "false"
            lease = {
                "metadata": {"annotations": {RELEASING_ANNOTATION: says}},
                "spec": {
                    "holderIdentity": "a leader",
                    "leaseDurationSeconds": LEASE_SECONDS,
                    "renewTime": moment,
                },
            }
            with suppress(CallError, aiohttp.ClientError):
                await self._cluster.patch("leases", NAME, lease, NAMESPACE)
            await asyncio.sleep(RENEW_SECONDS)

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def holding(
    cluster: Cluster,
    control_plane: ControlPlane,
    folder: Path,
    *options: tuple[str, str],
    policy: str = LATE,
) -> AsyncIterator[Installed]:
    file = folder / "policy.yaml"
    file.write_text(policy, encoding="utf-8")
    hold = [("hold", "true"), ("hold-seconds", str(HOLD_SECONDS)), *options]
    async with installed(cluster, control_plane, folder, [file], options=hold) as stowplan:
        yield stowplan


def gates_of(created: Json) -> list[str]:
    return [gate["name"] for gate in created["spec"].get("schedulingGates") or ()]


async def is_held(cluster: Cluster, namespace: str) -> bool:
    """Return whether a pod would be held if it were created now."""
    tried = await cluster.create(pod(namespace, "tried"), dry_run=True)
    return gates_of(tried) == [HOLD_GATE]


async def is_advised(cluster: Cluster, namespace: str) -> bool:
    """Return whether a pod would be advised if it were created now."""
    tried = await cluster.create(pod(namespace, "tried"), dry_run=True)
    annotations = tried["metadata"].get("annotations", {})
    return ADVICE_ANNOTATION in annotations and not gates_of(tried)


async def refusals(stowplan: Installed) -> dict[str, int]:
    """Return how many pods were advised instead of held, by reason."""
    return {
        sample.labels["reason"]: int(sample.value)
        for family in text_string_to_metric_families(await stowplan.replicas[0].metrics())
        for sample in family.samples
        if sample.name == "stowplan_holds_refused_total"
    }


async def test_a_pod_is_held_on_the_api_server_as_the_policy_says(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    await nodes.add("node-b", {"cpu": "4"})
    async with (
        holding(cluster, control_plane, tmp_path) as stowplan,
        Leader(cluster).leading(),
    ):
        await eventually(lambda: is_held(cluster, namespace), "pods are held")
        before = datetime.now(UTC)
        held = await cluster.create(pod(namespace, "held"))
        after = datetime.now(UTC)
        annotations = held["metadata"]["annotations"]
        assert gates_of(held) == [HOLD_GATE]
        assert annotations[HOLD_REASONS_ANNOTATION] == "order"
        assert ADVICE_ANNOTATION in annotations
        release_by = datetime.fromisoformat(annotations[RELEASE_BY_ANNOTATION])
        held_at = release_by - timedelta(seconds=HOLD_SECONDS)
        assert before - timedelta(seconds=1) <= held_at <= after + timedelta(seconds=1)

        forged = pod(namespace, "forged")
        forged["metadata"]["annotations"] = {
            RELEASE_BY_ANNOTATION: "2126-01-01T00:00:00Z",
            HOLD_REASONS_ANNOTATION: "none",
        }
        forged["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
        stored = await cluster.create(forged)
        assert gates_of(stored) == [HOLD_GATE]
        assert stored["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == "order"
        assert stored["metadata"]["annotations"][RELEASE_BY_ANNOTATION] < "2126"

        theirs = pod(namespace, "theirs")
        theirs["spec"]["schedulingGates"] = [{"name": "example.org/theirs"}]
        system = pod(namespace, "system")
        system["spec"]["priorityClassName"] = "system-cluster-critical"
        for never in (theirs, system):
            created = await cluster.create(never)
            assert HOLD_GATE not in gates_of(created)
            annotations = created["metadata"].get("annotations", {})
            assert (ADVICE_ANNOTATION in annotations) is (never is theirs)

        await cluster.create(deployment(namespace, "web", replicas=2))

        async def all_are_held() -> bool:
            web = await cluster.list_all("pods", namespace, labelSelector="app=web")
            return [gates_of(each) for each in web] == [[HOLD_GATE]] * 2

        await eventually(all_are_held, "the pods of a Deployment are held")
        assert (await stowplan.replicas[0].reviews())["held"] >= 4  # tries count too
        assert await refusals(stowplan) == {}


async def test_pods_are_advised_again_when_the_leader_releases_none_or_is_gone(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    await nodes.add("node-b", {"cpu": "4"})
    leader = Leader(cluster)
    async with holding(cluster, control_plane, tmp_path) as stowplan:
        async with leader.leading():
            await eventually(lambda: is_held(cluster, namespace), "pods are held")
            leader.releases = False
            what = "pods are advised when the leader releases none"
            await eventually(lambda: is_advised(cluster, namespace), what)
            advised = await cluster.create(pod(namespace, "advised"))
            assert not gates_of(advised)
            assert await refusals(stowplan) == {"not_releasing": 1}
            leader.releases = True
            await eventually(lambda: is_held(cluster, namespace), "pods are held again")
        what = "pods are advised when the leader is gone"
        await eventually(lambda: is_advised(cluster, namespace), what)


async def test_pods_are_advised_beyond_the_cap_and_while_one_is_overdue(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    await nodes.add("node-b", {"cpu": "4"})
    cap = ("hold-max", str(2 * HOLD_MAX))  # of which a namespace has half
    async with (
        holding(cluster, control_plane, tmp_path, cap) as stowplan,
        Leader(cluster).leading(),
    ):
        await eventually(lambda: is_held(cluster, namespace), "pods are held")
        names = [f"held-{number}" for number in range(HOLD_MAX)]
        for name in names:
            assert gates_of(await cluster.create(pod(namespace, name))) == [HOLD_GATE]
        await eventually(lambda: is_advised(cluster, namespace), "pods are advised beyond the cap")
        await cluster.create(pod(namespace, "one-too-many"))
        assert await refusals(stowplan) == {"full": 1}

        await cluster.delete("pods", names.pop(), namespace)
        await eventually(lambda: is_held(cluster, namespace), "there is room again")
        what = "pods are advised while one is overdue"
        await eventually(lambda: is_advised(cluster, namespace), what)
        await cluster.create(pod(namespace, "while-overdue"))
        assert await refusals(stowplan) == {"full": 1, "overdue": 1}

        for name in names:
            assert not gates_of(await released(cluster, namespace, name))
        await eventually(lambda: is_held(cluster, namespace), "pods are held again")


async def test_a_pod_that_anybody_releases_keeps_what_filters_promise(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    await nodes.add("node-b", {"cpu": "4"})
    guarded = LATE.replace(
        "scores:",
        "filters: [{name: gpu-guard, expression: \"!('gpu' in node.labels)\"}]\n  scores:",
    )
    async with (
        holding(cluster, control_plane, tmp_path, policy=guarded),
        Leader(cluster).leading(),
    ):
        await eventually(lambda: is_held(cluster, namespace), "pods are held")
        held = await cluster.create(pod(namespace, "held"))
        for each in (held, await released(cluster, namespace, "held")):
            (term,) = each["spec"]["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]["nodeSelectorTerms"]
            assert term == {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}


async def released(cluster: Cluster, namespace: str, name: str) -> Json:
    """Take our gate off a pod, as anybody may who can patch pods."""
    gate = "/spec/schedulingGates/0"
    patch = [
        {"op": "test", "path": f"{gate}/name", "value": HOLD_GATE},
        {"op": "remove", "path": gate},
    ]
    return await cluster.patch("pods", name, patch, namespace, how="json")
