from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import deployment
from webhook.cluster import load_recorded


async def test_a_recording_of_the_cluster_holds_what_runs_on_it(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    namespace: str,
    metrics_api: MetricsServer,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a", {"cpu": "4", "memory": "8Gi", "pods": "110"})
    metrics_api.nodes["node-a"] = {"cpu": "1500m", "memory": "2Gi"}
    await cluster.create(deployment(namespace, "web", replicas=3, requests={"cpu": "500m"}))

    async def bound() -> bool:
        pods = await cluster.list_all("pods", namespace)
        return len(pods) == 3 and all(one["spec"].get("nodeName") for one in pods)

    await eventually(bound, "three pods are bound")
    file = tmp_path / "cluster.json"
    program = Path(sys.executable).with_name("stowplan")
    flags = ["--kubeconfig", str(control_plane.kubeconfig()), "--output", str(file)]
    recording = await asyncio.create_subprocess_exec(
        program, "snapshot", *flags, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await recording.communicate()
    assert recording.returncode == 0, (out, err)

    recorded = load_recorded([file])
    assert not recorded.problems
    view = recorded.state.view()
    assert view.names[view.rows["node-a"]] == "node-a"
    assert view.namespaces.requested[namespace] == {"cpu": 1500, "pods": 3}
    usage = recorded.state.usage("node-a")
    assert usage is not None
    assert usage.usage == {"cpu": 1500, "memory": 2 * 1024**3}
