from __future__ import annotations

from pathlib import Path

from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.view import Sum
from tests.webhook.cluster.recording import node, obj
from tests.webhook.cluster.reflecting import eventually
from tests.webhook.cluster.test_live_cluster import Live, living


def requested(live: Live) -> int:
    """Return the millicores that the pods of node `alpha` request."""
    view = live.cluster.view()
    return int(view.amount(view.sums[Sum.REQUESTS], "cpu")[view.rows["alpha"]])


async def test_pods_of_a_live_cluster_are_counted_as_its_version_does(tmp_path: Path) -> None:
    container = {"name": "app", "resources": {"requests": {"cpu": "1"}}}
    status = {
        "resources": {"requests": {"cpu": "3"}},
        "allocatedResources": {"cpu": "3"},
        "phase": "Running",
    }
    spec = {"nodeName": "alpha", "containers": [container]}
    pod = obj("Pod", "resized", "shop", spec=spec, status=status)
    async with living(
        tmp_path,
        node("alpha"),
        pod,
        prepare=lambda server: server.play("GET", "/version", lambda _: {"gitVersion": "v1.37.2"}),
    ) as live:
        # 1.37 takes what the status of the pod says, 1.36 the container's 1000 millicores.
        await eventually(lambda: "alpha" in live.cluster.view().rows and requested(live) == 3000)
        assert live.cluster.view().kubernetes == KubernetesVersion(1, 37)


async def test_a_cluster_that_does_not_say_its_version_is_followed_all_the_same(
    tmp_path: Path,
) -> None:
    async with living(
        tmp_path,
        node("alpha"),
        prepare=lambda server: server.play("GET", "/version", lambda _: {"gitVersion": 3}),
    ) as live:
        await eventually(lambda: "alpha" in live.cluster.view().rows)
        assert live.cluster.view().kubernetes == ASSUMED


async def test_the_version_is_read_again_from_time_to_time(tmp_path: Path) -> None:
    async with living(tmp_path, node("alpha")) as live:
        state = live.cluster.state
        await eventually(lambda: state.kubernetes == KubernetesVersion(1, 35))
        live.server.play("GET", "/version", lambda _: {"gitVersion": "v1.37.0"})
        live.time.pass_by()
        await eventually(lambda: state.kubernetes == KubernetesVersion(1, 37))
