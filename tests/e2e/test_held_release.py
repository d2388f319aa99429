"""Held pods on the stock scheduler: decided late, nominated, released, and bound there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.model.hold import HOLD_GATE, RELEASED_ANNOTATION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import Installed, installed
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import pod

HELD = ("hold", "true")
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
  placement: {at: Release}
"""


async def test_a_held_pod_is_nominated_and_released(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "4"})
    async with holding(cluster, control_plane, tmp_path):
        await cluster.create(held(namespace, "one"))
        found = await landed(cluster, namespace, "one")
    assert found["metadata"]["annotations"][RELEASED_ANNOTATION] == "node-a"
    assert found["spec"]["nodeName"] == "node-a"
    assert "schedulingGates" not in found["spec"]


@asynccontextmanager
async def holding(
    cluster: Cluster, control_plane: ControlPlane, folder: Path, policy: str = POLICY
) -> AsyncIterator[Installed]:
    """Install stowplan with a policy that decides at release."""
    file = folder / "policy.yaml"
    file.write_text(policy, encoding="utf-8")
    async with installed(cluster, control_plane, folder, [file], options=[HELD]) as stowplan:
        yield stowplan


def held(namespace: str, name: str, cpu: str = "1") -> Json:
    """Return a pod with our gate."""
    made = pod(namespace, name, requests={"cpu": cpu})
    made["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
    return made


async def landed(cluster: Cluster, namespace: str, name: str) -> Json:
    """Wait until a pod is bound; return it."""

    async def bound() -> Json:
        found = await cluster.get("pods", name, namespace)
        assert found["spec"].get("nodeName"), found
        return found

    return await eventually(bound, f"pod {name} is bound")
