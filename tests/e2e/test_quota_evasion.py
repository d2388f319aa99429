"""No pod gets round quota on a real API server, whoever creates it and whatever it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import FailurePolicy, Installed
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import enforced, limit
from tests.e2e.workloads import daemon_set

pytestmark = pytest.mark.usefixtures("crds")


@pytest.fixture(params=["Ignore", "Fail"])
async def stowplan(
    crds: None,  # noqa: ARG001 (they must be there when replicas start)
    cluster: Cluster,
    control_plane: ControlPlane,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Installed]:
    """One replica that enforces quotas, asked as the chart says."""
    policy: FailurePolicy = request.param
    async with enforced(
        cluster, control_plane, tmp_path, replicas=1, failure_policy=policy
    ) as installed:
        yield installed


async def test_a_daemon_set_gets_no_more_than_the_quota_of_its_namespace(
    cluster: Cluster, nodes: Nodes, namespace: str, stowplan: Installed
) -> None:
    for name in ("node-a", "node-b", "node-c"):
        await nodes.add(name)
    await limit(cluster, stowplan, namespace, {"cpu": "1"})
    await cluster.create(daemon_set(namespace, "agent", requests={"cpu": "600m"}))

    async def is_denied() -> bool:
        events = await cluster.list_all("events", namespace)
        return any("exceeded quota: team" in event["message"] for event in events)

    await eventually(is_denied, "the DaemonSet is told of the quota")
    assert len(await cluster.list_all("pods", namespace)) == 1
    # An administrator may exempt a namespace as a whole.
    labels = {"metadata": {"labels": {"stowplan.dev/quota": "disabled"}}}
    await cluster.patch("namespaces", namespace, labels)

    async def is_everywhere() -> bool:
        return len(await cluster.list_all("pods", namespace)) == len(nodes.names)

    await eventually(is_everywhere, "the DaemonSet has a pod on every node")
