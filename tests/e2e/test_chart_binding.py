"""Bindings as the chart has the API server ask about them: the leader answers, and is found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.chart import Release
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import is_running, pod

_SLICES = "endpointslices.discovery.k8s.io"


@pytest.mark.usefixtures("crds")
async def test_the_leader_is_asked_about_bindings_and_hands_over_when_it_ends(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    service = f"{release.name}-leader"

    async def led_to(address: str) -> bool:
        found = [
            endpoint["addresses"]
            for one in await cluster.list_all(_SLICES, release.namespace)
            if one["metadata"]["name"] == f"{service}-ipv4"
            for endpoint in one["endpoints"]
        ]
        return found == [[address]]

    async with fronting([]) as front, fronting([]) as leaders_front:
        url = f"https://{LOCAL}:{front.port}"
        binding = {"enabled": True, "url": f"https://{LOCAL}:{leaders_front.port}"}
        values = values_beside(url, "node-a", binding=binding)
        await release.change(**values)
        serving = chart_replicas(release, control_plane, tmp_path / "one", count=1, values=values)
        first, second = (
            chart_control(
                *(release, control_plane, tmp_path / name),
                values=values,
                more=[("pod-ips", address)],
            )[0]
            for name, address in (("first", "10.0.0.1"), ("second", "10.0.0.2"))
        )
        async with running([*serving, first]):
            await eventually(lambda: led_to("10.0.0.1"), "the first is found")
            front.targets = [serving[0].port]
            leaders_front.targets = [first.port]
            async with running([second]):
                await eventually(lambda: _asked(cluster, shop, first), "the leader is asked")
                assert not await second.reviews("bind")
                await asyncio.to_thread(first.stop)
                await eventually(lambda: led_to("10.0.0.2"), "the second is found")
                leaders_front.targets = [second.port]
                await eventually(lambda: _asked(cluster, shop, second), "the second is asked")


async def _asked(cluster: Cluster, namespace: str, leader: Replica) -> bool:
    """Create a pod that is bound; return whether a leader was asked about any binding."""
    made = await cluster.create(
        {**pod(namespace, ""), "metadata": {"namespace": namespace, "generateName": "bound-"}}
    )
    name = made["metadata"]["name"]
    await eventually(lambda: is_running(cluster, namespace, name), f"{name} runs")
    return bool(await leader.reviews("bind"))
