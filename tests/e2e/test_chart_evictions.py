"""Evictions by an installed chart: its leader takes back what is borrowed, and may nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.e2e.chart import Release
from tests.e2e.chart_replicas import (
    chart_control,
    chart_replicas,
    running,
    values_beside,
)
from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.installed import Installed
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.serving import LOCAL
from tests.e2e.test_reclaim import BORROWERS, Stage
from tests.e2e.workloads import is_running, pod

pytestmark = pytest.mark.usefixtures("crds")

QUEUE: dict[str, object] = {"quota.mode": "Queue", "hold": {"enabled": True}}


@pytest.fixture
async def ours(control_plane: ControlPlane, release: Release) -> AsyncIterator[Cluster]:
    """The cluster as a replica, maybe a compromised one, may change it."""
    user = f"system:serviceaccount:{release.namespace}:{release.name}-control"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{release.namespace}"]
    pair = control_plane.authority.issue(user, groups=[*groups, "system:authenticated"])
    async with connected(control_plane, pair) as seen:
        yield seen


async def refusal(seen: Cluster, namespace: str, name: str, options: Mapping[str, object]) -> str:
    """Return why a pod may not be evicted; empty if it may. Nobody is evicted."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": options,
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    try:
        await seen.call("POST", path, body, params={"dryRun": "All"})
    except CallError as refused:
        return refused.message
    return ""


async def test_a_leader_with_the_account_of_the_chart_takes_back_what_is_borrowed(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):  # two borrowers each, and a pod of our own CronJob
        await nodes.add(name, {"cpu": "4500m"})
    async with AsyncExitStack() as stack:
        front = await stack.enter_async_context(fronting([]))
        (batch,) = await stack.enter_async_context(passing_namespaces(cluster, f"{shop}-batch"))
        values = values_beside(f"https://{LOCAL}:{front.port}", "node-b", **QUEUE)
        await release.change(**values)
        (replica,) = chart_replicas(
            release, control_plane, tmp_path / "one", count=1, values=values
        )
        (leader,) = chart_control(
            *(release, control_plane, tmp_path / "control"),
            values=values,
            more=[("reclaim-after-seconds", "1")],
        )
        await stack.enter_async_context(running([replica, leader]))
        front.targets = [replica.port]
        stage = Stage(cluster, Installed([replica], front, (), tmp_path), shop, batch)
        await stage.limit(shop="4", batch="2")

        async def holds() -> bool:
            tried = await cluster.create(pod(batch, "tried"), dry_run=True)
            return "schedulingGates" in tried["spec"]

        await eventually(holds, "pods are held")
        await stage.borrow()
        await stage.queue(shop, "web-1")
        await stage.runs("web-1")
        assert len(await stage.names(batch)) == BORROWERS - 1
        assert len(await stage.events(batch, "Reclaimed")) == 1
        record = f"{release.name}-reclaim"
        written = await cluster.get("configmaps", record, release.namespace)
        await cluster.delete("configmaps", record, release.namespace)
    assert written["data"]


async def test_its_account_evicts_a_pod_by_its_uid_and_ends_none_otherwise(
    cluster: Cluster, nodes: Nodes, release: Release, shop: str, ours: Cluster
) -> None:
    await nodes.add("node-a")
    await release.change(**QUEUE, **{"placement.mode": "Enforce"})
    made = await cluster.create(pod(shop, "runs"))
    await eventually(lambda: is_running(cluster, shop, "runs"), "it runs")
    by_uid = {"preconditions": {"uid": made["metadata"]["uid"]}}

    async def in_force() -> bool:
        return "by its uid alone" in await refusal(ours, shop, "runs", {})

    await eventually(in_force, "the policy is in force")
    assert await refusal(ours, shop, "runs", by_uid) == ""
    forbidden: list[Json] = [
        {**by_uid, "gracePeriodSeconds": 0},
        {**by_uid, "propagationPolicy": "Orphan"},
        {"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}},
    ]
    for options in forbidden:
        assert "by its uid alone" in await refusal(ours, shop, "runs", options), options
    another = {"preconditions": {"uid": "00000000-0000-4000-8000-000000000001"}}
    assert "UID in the precondition" in await refusal(ours, shop, "runs", another)
    kept_from = await refusal(ours, "kube-system", "any", by_uid)
    assert "kept from" in kept_from
    with pytest.raises(CallError, match="403"):
        await ours.delete("pods", "runs", shop)
    with pytest.raises(CallError, match="403"):
        await ours.patch("configmaps", "other", {"data": {}}, release.namespace)
    with pytest.raises(CallError, match="403"):
        await ours.create(_config_map("other", shop))

    async def is_refused() -> bool:
        try:
            await ours.create(_config_map("other", release.namespace), dry_run=True)
        except CallError as refused:
            return "creates no ConfigMap but" in refused.message
        return False

    # By another policy: the API server takes them up one after the other.
    await eventually(is_refused, "the policy of ConfigMaps is in force")


async def deletion_refusal(
    seen: Cluster, namespace: str, name: str, options: Mapping[str, object]
) -> str:
    """Return why a pod may not be deleted; empty if it may. Nobody is deleted."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **options}
    try:
        await seen.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body)
    except CallError as refused:
        return refused.message
    return ""


async def test_with_hard_reclaim_its_account_deletes_a_pod_as_it_was_read(
    cluster: Cluster, nodes: Nodes, release: Release, shop: str, ours: Cluster
) -> None:
    await nodes.add("node-a")
    hard = {"placement.mode": "Enforce", "quota.hardReclaimNamespaces": [shop]}
    await release.change(**QUEUE, **hard)
    vital, waiting = pod(shop, "vital"), pod(shop, "waits")
    vital["spec"]["priorityClassName"] = "system-cluster-critical"
    waiting["spec"] |= {"nodeSelector": {"none": "such"}, "terminationGracePeriodSeconds": 0}
    for each in (pod(shop, "runs"), vital, waiting, pod("kube-system", "runs")):
        await cluster.create(each)

    async def all_run() -> bool:
        places = [(shop, "runs"), (shop, "vital"), ("kube-system", "runs")]
        return all([await is_running(cluster, *place) for place in places])

    await eventually(all_run, "they run")

    async def refusal_of(name: str, namespace: str = shop, **more: object) -> str:
        metadata = (await cluster.get("pods", name, namespace))["metadata"]
        as_read = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        options = {"preconditions": as_read, **more}
        return await deletion_refusal(ours, namespace, name, options)

    async def in_force() -> bool:
        return "as it was read" in await deletion_refusal(ours, shop, "runs", {})

    await eventually(in_force, "the policy is in force")
    assert await refusal_of("runs") == ""
    uid = (await cluster.get("pods", "runs", shop))["metadata"]["uid"]
    forbidden: list[Json] = [
        {"gracePeriodSeconds": 0},
        {"gracePeriodSeconds": 31},
        {"propagationPolicy": "Orphan"},
        {"preconditions": {"uid": uid}},
    ]
    for options in forbidden:
        assert "as it was read" in await refusal_of("runs", **options), options
    assert "kept for what runs the cluster" in await refusal_of("vital")
    assert "has no node" in await refusal_of("waits")
    assert "kept from" in await refusal_of("runs", "kube-system")
    await cluster.delete("pods", "runs", "kube-system", grace_seconds=0)


async def test_without_queues_its_account_evicts_nobody(
    cluster: Cluster, release: Release, shop: str, ours: Cluster
) -> None:
    await release.change(**{**QUEUE, "quota.mode": "Enforce"})
    made = await cluster.create(pod(shop, "waits"))
    by_uid = {"preconditions": {"uid": made["metadata"]["uid"]}}
    assert "cannot create resource" in await refusal(ours, shop, "waits", by_uid)


def _config_map(name: str, namespace: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
    }
