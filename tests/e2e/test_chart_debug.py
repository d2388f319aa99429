"""Debug pages of an installation: for those whom the cluster's administrator lets read them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.accounts import bound, token_of
from tests.e2e.chart import Release
from tests.e2e.chart_replicas import one_beside
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.workloads import pod

_PAGE = "/debug/decisions"


async def _status(replica: Replica, token: str) -> int:
    return (await replica.page(_PAGE, token))[0]


async def _answers(replica: Replica, token: str, status: int) -> bool:
    return await _status(replica, token) == status


@pytest.mark.usefixtures("crds")
async def test_decisions_are_shown_to_whoever_has_the_role_of_the_chart_and_to_nobody_else(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    token = await token_of(cluster, shop, "reader")
    role = f"{release.name}-debug-reader"
    async with one_beside(
        release, control_plane, cluster, tmp_path, namespace=shop, prefers="node-a"
    ) as replica:
        assert await _status(replica, "") == 401
        assert await _status(replica, f"{token[:-4]}AAAA") == 401
        status, text = await replica.page(_PAGE, token)
        assert (status, f"`system:serviceaccount:{shop}:reader` may not get" in text) == (403, True)
        async with bound(cluster, role, shop, "reader"):
            await eventually(partial(_answers, replica, token, 200), "the role counts")
            await cluster.create(pod(shop, "advised"))
            _, text = await replica.page(_PAGE, token)
            assert [one["pod"]["name"] for one in json.loads(text)] == ["advised"]
        await eventually(partial(_answers, replica, token, 403), "the right has ended")
        assert (await replica.page("/metrics"))[0] == 200
