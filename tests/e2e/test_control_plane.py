from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes, finish
from tests.e2e.reviewer import Reviewer, rule
from tests.e2e.workloads import controlled, deployment, job, pod

_PODS_CREATED = [rule("", ["pods"], "CREATE")]


async def _running(cluster: Cluster, namespace: str, count: int) -> list[Json]:
    """Return the pods of a namespace, once there are so many and all run."""

    async def running() -> list[Json]:
        pods = await cluster.list_all("pods", namespace)
        ready = len(pods) == count and all(one["status"]["phase"] == "Running" for one in pods)
        return pods if ready else []

    return await eventually(running, f"{count} pods run")


async def test_a_deployment_is_scheduled_and_runs(
    cluster: Cluster, nodes: Nodes, namespace: str
) -> None:
    for name in ("node-a", "node-b", "node-c"):
        await nodes.add(name)
    await nodes.known(namespace)
    await cluster.create(deployment(namespace, "web", replicas=5))
    pods = await _running(cluster, namespace, 5)
    assert {one["spec"]["nodeName"] for one in pods} == {"node-a", "node-b", "node-c"}

    async def available() -> bool:
        status = (await cluster.get("deployments", "web", namespace))["status"]
        return bool(status.get("availableReplicas") == 5)

    await eventually(available, "the deployment is available")


async def test_a_deleted_pod_ends_and_its_successor_runs(
    cluster: Cluster, nodes: Nodes, namespace: str
) -> None:
    await nodes.add("node-a")
    await cluster.create(deployment(namespace, "web", replicas=1))
    (first,) = await _running(cluster, namespace, 1)
    await cluster.delete("pods", first["metadata"]["name"], namespace)

    async def replaced() -> bool:
        pods = await cluster.list_all("pods", namespace)
        return [one["metadata"]["uid"] for one in pods] != [first["metadata"]["uid"]]

    await eventually(replaced, "another pod")
    await _running(cluster, namespace, 1)


async def test_a_job_completes(cluster: Cluster, nodes: Nodes, namespace: str) -> None:
    await nodes.add("node-a")
    await cluster.create(job(namespace, "once"))
    (only,) = await _running(cluster, namespace, 1)
    await finish(cluster, namespace, only["metadata"]["name"])

    async def complete() -> bool:
        status = (await cluster.get("jobs", "once", namespace))["status"]
        return bool(status.get("succeeded") == 1)

    await eventually(complete, "the job is complete")


async def test_a_failed_node_takes_no_pods(cluster: Cluster, nodes: Nodes, namespace: str) -> None:
    await nodes.add("node-a")
    await nodes.add("node-b")
    await nodes.set_ready("node-a", ready=False)

    async def tainted() -> bool:
        node = await cluster.get("nodes", "node-a")
        return any(taint["effect"] == "NoSchedule" for taint in node["spec"].get("taints", ()))

    await eventually(tainted, "the node is tainted")
    await nodes.known(namespace)
    await cluster.create(deployment(namespace, "web", replicas=3))
    pods = await _running(cluster, namespace, 3)
    assert {one["spec"]["nodeName"] for one in pods} == {"node-b"}


async def test_the_uid_of_a_pod_is_known_to_the_validating_phase_alone(
    cluster: Cluster, namespace: str, reviewer: Reviewer
) -> None:
    async with (
        reviewer.asked(cluster, "Mutating", namespace, _PODS_CREATED) as mutating,
        reviewer.asked(cluster, "Validating", namespace, _PODS_CREATED) as validating,
    ):
        generated = pod(namespace, "")
        generated["metadata"] = {"namespace": namespace, "generateName": "web-"}
        stored = await cluster.create(generated)
        (before,) = reviewer.requests(mutating)
        (after,) = reviewer.requests(validating)
    assert "name" not in before
    assert "name" not in before["object"]["metadata"]
    assert "uid" not in before["object"]["metadata"]
    assert after["name"] == stored["metadata"]["name"]
    assert after["object"]["metadata"]["uid"] == stored["metadata"]["uid"]


async def test_a_controllers_pod_names_the_controller_that_made_it(
    cluster: Cluster, namespace: str, reviewer: Reviewer
) -> None:
    async with reviewer.asked(cluster, "Mutating", namespace, _PODS_CREATED) as path:
        await cluster.create(deployment(namespace, "web", replicas=1))

        async def asked() -> list[Json]:
            return list(reviewer.requests(path))

        (request,) = await eventually(asked, "a review")
    made_by = request["userInfo"]["username"]
    assert made_by == "system:serviceaccount:kube-system:replicaset-controller"
    assert controlled(request["object"]) == "ReplicaSet"


async def test_objects_outlive_an_outage_of_the_api_server(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str
) -> None:
    await nodes.add("node-a")
    await cluster.create(deployment(namespace, "web", replicas=1))
    await _running(cluster, namespace, 1)
    control_plane.api_server.kill()
    with pytest.raises(OSError, match="connect"):
        await cluster.list_all("pods", namespace)
    await asyncio.to_thread(control_plane.api_server.start)
    await cluster.patch("deployments", "web", {"spec": {"replicas": 2}}, namespace)
    await _running(cluster, namespace, 2)


async def test_a_watch_from_a_forgotten_version_is_gone(
    cluster: Cluster, control_plane: ControlPlane, namespace: str
) -> None:
    old = (await cluster.get("namespaces", namespace))["metadata"]["resourceVersion"]
    await cluster.create(pod(namespace, "one"))
    await cluster.delete("pods", "one", namespace, grace_seconds=0)
    await asyncio.to_thread(control_plane.forget_history)
    with pytest.raises(CallError) as refused:
        await cluster.list_all("pods", namespace, resourceVersion=old, resourceVersionMatch="Exact")
    assert refused.value.status == 410
    assert await _first_event(cluster, namespace, old) == ("ERROR", 410)


async def _first_event(cluster: Cluster, namespace: str, version: str) -> tuple[str, int | None]:
    """Return type and code of what a watch from a version starts with."""
    async with cluster.watch(
        "pods", namespace, resourceVersion=version, timeoutSeconds=10
    ) as events:
        async for event in events:
            return event["type"], event["object"].get("code")
    return "nothing", None


async def test_metrics_are_served_through_the_api_server(
    cluster: Cluster, metrics_api: MetricsServer
) -> None:
    metrics_api.nodes["node-a"] = {"cpu": "250m", "memory": "1Gi"}
    listed = await cluster.list_all("nodes.metrics.k8s.io")
    assert [(one["metadata"]["name"], one["usage"]["cpu"]) for one in listed] == [
        ("node-a", "250m")
    ]


@pytest.mark.usefixtures("crds")
async def test_both_quotas_and_node_metrics_can_be_stored(cluster: Cluster, namespace: str) -> None:
    for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
        quota = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"namespace": namespace, "name": "team"},
            "spec": {"max": {"cpu": "4"}},
        }
        await cluster.create(quota)
        stored = await cluster.get(f"elasticquotas.{group}", "team", namespace)
        assert stored["spec"] == {"max": {"cpu": "4"}}
    usage = {"nodeUsage": {"resources": {"cpu": "1"}}}
    metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    await cluster.create({**metric, "metadata": {"name": "node-a"}, "spec": {}})
    await cluster.patch(
        "nodemetrics", "node-a", {"status": {"nodeMetric": usage}}, subresource="status"
    )
    assert (await cluster.get("nodemetrics", "node-a"))["status"] == {"nodeMetric": usage}


def test_a_kubeconfig_is_written_for_any_user(control_plane: ControlPlane) -> None:
    path: Path = control_plane.kubeconfig("system:serviceaccount:shop:web")
    assert path.read_text(encoding="utf-8").count(control_plane.url) == 1
