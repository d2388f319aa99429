"""Whatever a person can create starts as it would without us, or where the policy says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.advice import advice_of, first_choice, is_untouched, without_advice
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import installed
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes, finish
from tests.e2e.replica import Replica
from tests.e2e.workloads import daemon_set, deployment, is_running, job, pod, stateful_set

ZONE = "topology.kubernetes.io/zone"
# Only what has a generation is for general use, and idle nodes are better than busy ones.
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: rules}
spec:
  filters: [{name: current, expression: "int(node.labels.generation) > 3"}]
  scores: [{plugin: LoadAware}]
"""
# Idle in zone a is node-a1, in zone b node-b1; node-old is idle too, but too old.
LOADS = {"node-a1": "100m", "node-a2": "2", "node-b1": "1", "node-b2": "3", "node-old": "50m"}
IN_ZONE_B: Json = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
        ]
    },
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {
            "weight": 1,
            "preference": {
                "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
            },
        }
    ],
}


@pytest.fixture
async def five_nodes(nodes: Nodes, metrics_api: MetricsServer, namespace: str) -> None:
    """Two zones, and one node that the policy rejects; the scheduler knows them all."""
    for name, cores in LOADS.items():
        generation = "2" if name == "node-old" else "5"
        await nodes.add(name, labels={ZONE: name[5], "generation": generation})
        metrics_api.nodes[name] = {"cpu": cores, "memory": "1Gi"}
    await nodes.known(namespace)


@pytest.fixture
async def replica(
    five_nodes: None,  # noqa: ARG001 (it knows their usage)
    cluster: Cluster,
    control_plane: ControlPlane,
    tmp_path: Path,
) -> AsyncIterator[Replica]:
    """A replica that knows the usage of the nodes, and reviews all pods under `Fail`."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    async with installed(cluster, control_plane, tmp_path, [policy], quotas="Fail") as stowplan:
        (replica,) = stowplan.replicas
        await stowplan.knows_usage(len(LOADS))
        yield replica
        outcomes = await replica.reviews()
    assert not outcomes.keys() & {"error", "malformed", "unreadable"}
    assert "forbidden" not in replica.text()


@pytest.mark.usefixtures("replica")
async def test_pods_start(cluster: Cluster, namespace: str) -> None:
    await _a_bare_pod(cluster, namespace)
    await _a_pod_with_affinity(cluster, namespace)
    await _a_pod_without_a_name(cluster, namespace)
    await _a_pod_with_a_node(cluster, namespace)
    await _a_gated_pod(cluster, namespace)
    await _a_pod_of_another_scheduler(cluster, namespace)
    await _a_pod_of_the_system(cluster)
    await _a_dry_run(cluster, namespace)


@pytest.mark.usefixtures("replica")
async def test_a_daemon_set_starts(cluster: Cluster, namespace: str) -> None:
    await cluster.create(daemon_set(namespace, "agent"))
    agents = await _all_running(cluster, namespace, "app=agent", len(LOADS))
    assert {one["spec"]["nodeName"] for one in agents} == set(LOADS)  # the old one, too
    assert all(is_untouched(one) for one in agents)


@pytest.mark.usefixtures("replica")
async def test_a_job_starts(cluster: Cluster, namespace: str) -> None:
    await cluster.create(job(namespace, "once", pods=3))
    workers = await _all_running(cluster, namespace, "job-name=once", 3)
    assert not without_advice(workers)
    for one in workers:
        assert one["spec"]["nodeName"] != "node-old"
        await finish(cluster, namespace, one["metadata"]["name"])

    async def complete() -> bool:
        status = (await cluster.get("jobs", "once", namespace))["status"]
        return bool(status.get("succeeded") == 3)

    await eventually(complete, "the Job is complete")


@pytest.mark.usefixtures("replica")
async def test_a_stateful_set_starts(cluster: Cluster, namespace: str) -> None:
    await cluster.create(stateful_set(namespace, "db", replicas=3))
    members = await _all_running(cluster, namespace, "app=db", 3)
    assert {one["metadata"]["name"] for one in members} == {"db-0", "db-1", "db-2"}
    assert not without_advice(members)
    assert "node-old" not in {one["spec"]["nodeName"] for one in members}


@pytest.mark.usefixtures("replica")
async def test_a_rollout_goes_through(cluster: Cluster, namespace: str) -> None:
    await cluster.create(deployment(namespace, "web", replicas=4))
    before = await _all_running(cluster, namespace, "app=web", 4)
    change = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
    await cluster.patch("deployments", "web", change, namespace)
    after = await _all_running(cluster, namespace, "app=web,version=2", 4)
    assert not without_advice([*before, *after])
    assert "node-old" not in {one["spec"]["nodeName"] for one in (*before, *after)}


async def _a_bare_pod(cluster: Cluster, namespace: str) -> None:
    await cluster.create(pod(namespace, "bare"))
    made = await _running(cluster, namespace, "bare")
    assert first_choice(made) == "node-a1"
    assert made["spec"]["nodeName"] in _advised(made)


async def _a_pod_with_affinity(cluster: Cluster, namespace: str) -> None:
    made = pod(namespace, "picky")
    made["spec"]["affinity"] = {"nodeAffinity": IN_ZONE_B}
    await cluster.create(made)
    made = await _running(cluster, namespace, "picky")
    assert first_choice(made) == "node-b1"
    assert made["spec"]["nodeName"] in _advised(made)
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = [requirement["key"] for requirement in term["matchExpressions"]]
    assert keys == [ZONE, "generation"]  # theirs, and what the filter says of labels
    preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert IN_ZONE_B["preferredDuringSchedulingIgnoredDuringExecution"][0] in preferred


async def _a_pod_without_a_name(cluster: Cluster, namespace: str) -> None:
    made = pod(namespace, "")
    made["metadata"] = {"namespace": namespace, "generateName": "any-"}
    name = (await cluster.create(made))["metadata"]["name"]
    assert advice_of(await _running(cluster, namespace, name))


async def _a_gated_pod(cluster: Cluster, namespace: str) -> None:
    made = pod(namespace, "gated")
    made["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    made = await cluster.create(made)
    assert advice_of(made)

    async def waits() -> bool:
        conditions = (await cluster.get("pods", "gated", namespace))["status"]["conditions"]
        return any(one["reason"] == "SchedulingGated" for one in conditions)

    await eventually(waits, "the scheduler leaves the gated pod alone")
    await cluster.patch("pods", "gated", {"spec": {"schedulingGates": None}}, namespace)
    made = await _running(cluster, namespace, "gated")
    assert made["spec"]["nodeName"] != "node-old"


async def _a_pod_of_another_scheduler(cluster: Cluster, namespace: str) -> None:
    made = pod(namespace, "foreign")
    made["spec"]["schedulerName"] = "other"
    made = await cluster.create(made)
    assert is_untouched(made)
    assert "affinity" not in made["spec"]
    assert not made["spec"].get("nodeName")
    # Whatever was created before has started by now; this one waits for its own scheduler.
    assert (await cluster.get("pods", "foreign", namespace))["status"]["phase"] == "Pending"


async def _a_pod_with_a_node(cluster: Cluster, namespace: str) -> None:
    made = pod(namespace, "placed")
    made["spec"]["nodeName"] = "node-old"
    assert is_untouched(await cluster.create(made))
    await _running(cluster, namespace, "placed")


async def _a_pod_of_the_system(cluster: Cluster) -> None:
    assert is_untouched(await cluster.create(pod("kube-system", "own"), dry_run=True))


async def _a_dry_run(cluster: Cluster, namespace: str) -> None:
    assert advice_of(await cluster.create(pod(namespace, "tried"), dry_run=True))


def _advised(made: Json) -> tuple[str, ...]:
    """Return the nodes of the first tier: they weigh the same, so the scheduler takes any."""
    advice = advice_of(made)
    return advice.nodes if advice else ()


async def _running(cluster: Cluster, namespace: str, name: str) -> Json:
    await eventually(lambda: is_running(cluster, namespace, name), f"{name} runs")
    return await cluster.get("pods", name, namespace)


async def _all_running(cluster: Cluster, namespace: str, selector: str, count: int) -> list[Json]:
    async def running() -> list[Json]:
        pods = await cluster.list_all("pods", namespace, labelSelector=selector)
        up = [one for one in pods if one["status"]["phase"] == "Running"]
        return up if len(up) == count else []

    return await eventually(running, f"{count} pods with {selector} run")
