"""A stage for tests of gangs: five nodes, and stowplan, whose requests a test can hold up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gangs import Gangs
from tests.e2e.installed import Installed, account, installed, leader_of
from tests.e2e.link import Link, linked
from tests.e2e.nodes import Nodes

NAMES = ("m-0", "m-1", "m-2", "m-3", "m-4")
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  match: {objectSelector: {matchLabels: {policy: packed}}}
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
  placement: {at: Binding}
"""


@dataclass(frozen=True, slots=True)
class GangStage:
    """Gangs of one namespace, and stowplan, whose requests a test can hold up."""

    cluster: Cluster
    gangs: Gangs
    nodes: Nodes
    stowplan: Installed
    link: Link


@asynccontextmanager
async def gang_stage(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, folder: Path
) -> AsyncIterator[GangStage]:
    """Install stowplan behind a link, beside five nodes with room for a member of 3 cores each."""
    for number in range(5):
        await nodes.add(f"node-{number}", {"cpu": "4"})
    policy = folder / "policy.yaml"
    await asyncio.to_thread(policy.write_text, POLICY)
    async with (
        linked(control_plane, account(control_plane)) as link,
        installed(
            cluster,
            control_plane,
            folder,
            [policy],
            options=[("hold", "true"), ("recreate-gangs", "true")],
            kubeconfig=link.kubeconfig,
        ) as stowplan,
    ):
        stage = GangStage(cluster, Gangs(cluster, namespace), nodes, stowplan, link)
        await leader_of(cluster, stowplan)
        yield stage
