"""`stowplan doctor` on a real API server: what it finds, and how it reaches replicas."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.e2e.chart import CONFIGURATIONS, Release, of_kind, rendered
from tests.e2e.chart_replicas import (
    becomes,
    chart_control,
    chart_replicas,
    one_beside,
    running,
    values_beside,
)
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod

_STOWPLAN = Path(sys.executable).with_name("stowplan")


async def _examined(
    control_plane: ControlPlane, release: Release, shop: str
) -> tuple[int | None, dict[str, list[Json]]]:
    """Run `stowplan doctor`; return its exit status, and what it found by check."""
    process = await asyncio.create_subprocess_exec(
        *(_STOWPLAN, "doctor", "--json", "--kubeconfig", control_plane.kubeconfig()),
        *("--namespace", release.namespace, "--release", release.name, "--pod-namespace", shop),
        stdout=PIPE,
    )
    said, _ = await process.communicate()
    found: dict[str, list[Json]] = {}
    for finding in json.loads(said):
        found.setdefault(finding["check"], []).append(finding)
    return process.returncode, found


def _bad(found: dict[str, list[Json]]) -> list[str]:
    findings = [one for each in found.values() for one in each]
    return [one["message"] for one in findings if one["level"] in ("warning", "problem")]


@pytest.mark.usefixtures("crds")
async def test_the_doctor_finds_a_whole_installation_well_and_a_broken_one_ill(
    cluster: Cluster,
    control_plane: ControlPlane,
    metrics_api: MetricsServer,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):  # one alone is not preferred to any other
        await nodes.add(name)
        metrics_api.nodes[name] = {"cpu": "1", "memory": "1Gi"}
    async with one_beside(
        release, control_plane, cluster, tmp_path, namespace=shop, prefers="node-a"
    ):
        status, found = await _examined(control_plane, release, shop)
        assert (status, _bad(found)) == (0, [])
        assert found["admission"][0]["message"].startswith("a pod comes back with advice")

        nobody = [{"op": "remove", "path": "/rules/0"}]
        await cluster.patch("clusterroles", release.name, nobody, how="json")
        for kind in CONFIGURATIONS:
            await cluster.delete(kind, release.name)
        status, found = await _examined(control_plane, release, shop)
        assert status == 2
        assert "there is no MutatingWebhookConfiguration" in _bad(found)[0]
        account = f"system:serviceaccount:{release.namespace}:{release.name}"
        assert f"{account} may not list nodes" in _bad(found)


@pytest.mark.usefixtures("crds")
async def test_the_doctor_asks_replicas_by_the_api_server(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    address = _address()
    if not address:
        pytest.skip("the API server reaches no pod on a loopback address, and there is no other")
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    async with fronting([]) as front:
        values = values_beside(f"https://{LOCAL}:{front.port}", "node-a")
        await release.change(**values)
        replicas = chart_replicas(
            release,
            control_plane,
            tmp_path / "two",
            count=2,
            values=values,
            more=[("host", "0.0.0.0")],  # noqa: S104 - a pod has an address of its own
        )
        control = chart_control(release, control_plane, tmp_path / "control", values=values)
        async with running([*replicas, *control]):
            front.targets = [replica.port for replica in replicas]
            await becomes(cluster, shop, "node-a")
            for replica in replicas:
                await _pod_of(cluster, release, values, replica, address)
            _, found = await _examined(control_plane, release, shop)
            ready = [one["message"] for one in found["replicas"] if one["level"] == "ok"]
            assert ready == [
                *(f"{replica.name} is ready and knows 2 nodes" for replica in replicas),
                "all replicas use the same policies (1)",
            ]
            assert [one["level"] for one in found["admission"]] == ["ok", "ok"]


def _address() -> str:
    """Return an address of this machine that is not its own loopback; empty for none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        found: str = probe.getsockname()[0]
        return "" if found.startswith("127.") else found


async def _pod_of(
    cluster: Cluster, release: Release, values: dict[str, object], replica: Replica, address: str
) -> None:
    """Create the pod of a replica, as if the replica ran in it."""
    manifests = rendered(namespace=release.namespace, release=release.name, values=values)
    template = of_kind(manifests, "Deployment")["spec"]["template"]
    made = {
        **pod(release.namespace, replica.name),
        "spec": {**template["spec"], "nodeName": "node-a"},
    }
    made["metadata"]["labels"] = template["metadata"]["labels"]
    made["spec"]["containers"][0]["ports"] = [{"name": "webhook", "containerPort": replica.port}]
    await cluster.create(made)

    async def runs() -> bool:
        found = await cluster.get("pods", replica.name, release.namespace)
        return bool(found["status"]["phase"] == "Running")

    await eventually(runs, f"{replica.name} runs")
    status = {"podIP": address, "podIPs": [{"ip": address}]}
    await cluster.patch(
        "pods", replica.name, {"status": status}, release.namespace, subresource="status"
    )
