"""Explanations of what is on a cluster, by the policies of that cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from engine.model.policy_resource import PolicyKind
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.definitions import defined, definition_of_the_chart
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import daemon_set, deployment, job, stateful_set

_PROGRAM: Final = Path(sys.executable).with_name("stowplan")


@pytest.fixture
async def definitions(cluster: Cluster) -> AsyncIterator[None]:
    """Both kinds of policies, defined for this test."""
    names = [f"{kind.plural}.stowplan.dev" for kind in PolicyKind]
    async with defined(cluster, *map(definition_of_the_chart, names)):
        yield


def _policy(name: str, expression: str, namespace: str = "") -> Json:
    kind = PolicyKind.NAMESPACED if namespace else PolicyKind.CLUSTER
    return {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": kind.value,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"scores": [{"name": "r", "expression": expression}]},
    }


async def _explained(control_plane: ControlPlane, *given: str) -> tuple[Any, str]:
    """Return the explanation of something on the cluster as JSON, and the notes beside it."""
    running = await asyncio.create_subprocess_exec(
        _PROGRAM,
        *("explain", *given, "--live", "--kubeconfig", str(control_plane.kubeconfig()), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await running.communicate()
    assert running.returncode == 0, err
    return msgspec.json.decode(out), err.decode()


@pytest.mark.usefixtures("definitions")
async def test_a_workload_and_its_pod_are_decided_by_the_policies_of_the_cluster(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str
) -> None:
    await nodes.add("node-a")
    await nodes.add("node-b")
    await cluster.create(_policy("prefers-b", "node.name == 'node-b' ? 1 : 0"))
    await cluster.create(_policy("of-the-team", "node.name == 'node-a' ? 1 : 0", namespace))
    await cluster.create(_policy("of-another-team", "1.0", "default"))
    await cluster.create(_policy("broken", "nod.podCount"))
    await cluster.create(deployment(namespace, "web", replicas=1, requests={"cpu": "500m"}))

    async def runs() -> bool:
        pods = await cluster.list_all("pods", namespace)
        return [each["status"]["phase"] for each in pods] == ["Running"]

    await eventually(runs, "the pod runs, so that nobody else writes it any more")
    report, notes = await _explained(control_plane, "deploy/web", "-n", namespace)
    assert report["pod"] == {"namespace": namespace, "name": "web-*"}
    assert report["policies"] == ["prefers-b", f"{namespace}/of-the-team"]
    (pod,) = await cluster.list_all("pods", namespace)
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    # Each policy gives one node 100. The scheduler spreads by default: the node with a pod of the
    # Deployment has round(1 x ln(2 + 2) + 3 - 1) = 3, the other round(3 - 1) = 2, so of 100 points
    # 100 x (3 + 2 - 3) / 3 = 66 and 100, twice.
    assert {row["node"]: row["total"] for row in report["ranking"]} == {
        "node-a": 300,
        "node-b": 300,
        node: 232,
    }
    assert "placementpolicies/broken:7:17: spec.scores[0].expression: unknown name `nod`" in notes

    report, notes = await _explained(control_plane, f"po/{name}", "-n", namespace)
    prefix = pod["metadata"]["generateName"]  # all of the name that there is at admission
    assert report["pod"] == {"namespace": namespace, "name": f"{prefix}*"}
    assert f"it runs on {node}, and is decided as if it was created now" in notes
    (after,) = await cluster.list_all("pods", namespace)
    assert after["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


async def test_every_type_is_found_by_its_short_name(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a")
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(_policy("given", "node.allocatable.cpu")))
    await cluster.create(stateful_set(namespace, "db", replicas=0))
    await cluster.create(daemon_set(namespace, "agent"))
    await cluster.create(job(namespace, "once"))
    template = job(namespace, "", pods=1)["spec"]
    await cluster.create(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "nightly", "namespace": namespace},
            "spec": {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": template}},
        }
    )
    for target, verdict in (
        ("sts/db", "Place"),
        ("ds/agent", "Abstain"),  # its pods are bound to their nodes
        ("job/once", "Place"),
        ("cj/nightly", "Place"),
    ):
        report, _ = await _explained(
            control_plane, target, "-n", namespace, "--policies", str(policy)
        )
        name = {"sts/db": "db-0"}.get(target, f"{target.partition('/')[2]}-*")
        assert report["pod"] == {"namespace": namespace, "name": name}
        assert report["verdict"] == verdict
