"""From a kubeconfig to what a policy would have done: two commands on a live cluster."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import pstdev

import msgspec
import pytest

from engine.model.rule_outcomes import Measure
from engine.report import ArmPlacement, ArmReport, PodFate, SimulationReport, Spread
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import controlled, daemon_set, deployment, job, stateful_set

_PROGRAM = Path(sys.executable).with_name("stowplan")
_CORES = 4
_NODES = 6
_PODS = 12 + 3 + 2  # without those of the DaemonSet
_HOT = "node-0"
_AGENT = 50  # millicores
_POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  filters: [{name: not-there, expression: "node.labels['kubernetes.io/hostname'] != 'node-0'"}]
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
"""


async def test_two_commands_tell_what_a_policy_would_have_done_to_a_live_cluster(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
    metrics_api: MetricsServer,
    tmp_path: Path,
) -> None:
    for number in range(_NODES):
        zone = {"topology.kubernetes.io/zone": f"zone-{number % 2}"}
        await nodes.add(f"node-{number}", {"cpu": f"{_CORES}"}, labels=zone)
        used = "3500m" if f"node-{number}" == _HOT else "500m"
        metrics_api.nodes[f"node-{number}"] = {"cpu": used, "memory": "1Gi"}
    await cluster.create(daemon_set(namespace, "agent", requests={"cpu": f"{_AGENT}m"}))
    await cluster.create(deployment(namespace, "web", replicas=12, requests={"cpu": "300m"}))
    await cluster.create(stateful_set(namespace, "db", replicas=3, requests={"cpu": "1"}))
    await cluster.create(job(namespace, "task", pods=2, requests={"cpu": "200m"}))

    async def bound() -> Sequence[Json]:
        pods = await cluster.list_all("pods", namespace)
        assert len(pods) == _PODS + _NODES
        assert all(each["spec"].get("nodeName") for each in pods)
        return pods

    pods = await eventually(bound, "all pods are bound")
    file, policy = tmp_path / "cluster.json", tmp_path / "packed.yaml"
    policy.write_text(_POLICY, encoding="utf-8")

    began = time.monotonic()
    await _stowplan("snapshot", "--kubeconfig", control_plane.kubeconfig(), "--output", file)
    recorded_after = time.monotonic() - began
    page = tmp_path / "report.html"
    report = await _simulated(file, "--arm", policy, "--html", page)
    print(f"recorded after {recorded_after:.1f} s, simulated {time.monotonic() - began:.1f} s")

    # The recording is the cluster: its figures are those of the objects.
    assert sorted(report.cluster.nodes) == sorted(nodes.names)
    assert report.cluster.fixed_pods == _NODES  # of the DaemonSet
    assert report.arrivals.pods == _PODS
    stock, packed, recorded = report.arms
    assert [arm.placement for arm in report.arms] == [
        ArmPlacement.STOCK,
        ArmPlacement.ADVICE,
        ArmPlacement.RECORDED,
    ]
    requested = _requested(pods, nodes.names)
    assert _cpu(recorded).mean == pytest.approx(sum(requested) / _NODES, abs=0.1)
    assert _cpu(recorded).spread == pytest.approx(pstdev(requested), abs=0.1)
    assert _cpu(recorded).max == pytest.approx(max(requested), abs=0.1)
    assert recorded.hot_nodes == 1

    # What would have been: all run, stock nearly as it was, and the policy does what it says.
    assert [arm.landed for arm in report.arms] == [_PODS] * 3
    assert abs(_cpu(stock).spread - _cpu(recorded).spread) < 10
    (rule,) = packed.rejections
    assert (rule.policy, rule.rule) == ("packed", "not-there")
    assert _cpu(packed).spread > _cpu(stock).spread  # it packs
    at = report.cluster.nodes.index(_HOT)
    (levels,) = (
        each.percent
        for each in packed.levels
        if (each.measure, each.resource) == (Measure.REQUESTS, "cpu")
    )
    assert levels[at] == pytest.approx(_AGENT / _CORES / 10, abs=0.1)  # its agent alone
    assert "<html" in page.read_text(encoding="utf-8")

    # And a what-if on the same recording: the pods of a node find another one.
    report = await _simulated(file, "--drain", "node-1")
    (arm,) = report.arms
    moved = [
        each
        for each in pods
        if each["spec"]["nodeName"] == "node-1" and controlled(each) != "DaemonSet"
    ]
    assert {each.pod.name for each in arm.outcomes} == {each["metadata"]["name"] for each in moved}
    assert all(each.fate is PodFate.PLACED and each.node != "node-1" for each in arm.outcomes)


async def _simulated(file: Path, *arguments: object) -> SimulationReport:
    """Return the report of `stowplan simulate`."""
    out = await _stowplan("simulate", "--cluster", file, "--json", *arguments)
    return msgspec.json.decode(out, type=SimulationReport)


async def _stowplan(*arguments: object) -> bytes:
    """Return what a command prints that succeeds."""
    process = await asyncio.create_subprocess_exec(
        _PROGRAM,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, (arguments, error.decode())
    return out


def _requested(pods: Sequence[Json], names: Sequence[str]) -> list[float]:
    """Return the percentage of the cpu of each node that pods request."""
    millicores = dict.fromkeys(names, 0)
    for each in pods:
        (container,) = each["spec"]["containers"]
        cpu: str = container["resources"]["requests"]["cpu"]
        amount = int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1_000
        millicores[each["spec"]["nodeName"]] += amount
    return [amount / _CORES / 10 for amount in millicores.values()]


def _cpu(arm: ArmReport) -> Spread:
    """Return the distribution of requests of cpu."""
    (found,) = (
        each for each in arm.spreads if (each.measure, each.resource) == (Measure.REQUESTS, "cpu")
    )
    return found
