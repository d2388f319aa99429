"""Koordinator's tree of quotas, by its own definition, checked and filled in as the chart says."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.chart import Release
from tests.e2e.chart_replicas import one_beside
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import quotas_known
from tests.e2e.test_held_admission import gates_of
from tests.e2e.test_quota_queue import queueing, remove_gate
from tests.e2e.workloads import is_running, pod

_GROUP = "scheduling.sigs.k8s.io"
_QUOTAS = f"elasticquotas.{_GROUP}"
_DOMAIN = "quota.scheduling.koordinator.sh"


def _quota(namespace: str, name: str, least: str, **labels: str) -> Json:
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                f"{_DOMAIN}/{key.replace('_', '-')}": value for key, value in labels.items()
            },
        },
        "spec": {"min": {"cpu": least}, "max": {"cpu": "40"}},
    }


async def _refused(cluster: Cluster, quota: Json) -> str:
    with pytest.raises(CallError) as refused:
        await cluster.create(quota)
    return refused.value.message


@pytest.mark.usefixtures("crds")
async def test_a_tree_is_filled_in_and_kept_whole(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    async with one_beside(
        release, control_plane, cluster, tmp_path, namespace=shop, prefers="node-a"
    ):
        # The parent first, and its children at once: the watch has not delivered it yet.
        await cluster.create(_quota(shop, "top", "20", is_parent="true", tree_id="t1"))
        stored = await cluster.create(_quota(shop, "left", "12", parent="top"))
        assert stored["metadata"]["labels"] == {
            f"{_DOMAIN}/parent": "top",
            f"{_DOMAIN}/tree-id": "t1",
        }
        weight = stored["metadata"]["annotations"][f"{_DOMAIN}/shared-weight"]
        assert json.loads(weight) == {"cpu": "40"}
        assert "fill quota lost failed, parent not exist" in await _refused(
            cluster, _quota(shop, "lost", "1", parent="nobody")
        )
        assert "all brothers' MinQuota > parent MinQuota, parent: top" in await _refused(
            cluster, _quota(shop, "right", "9", parent="top")
        )
        await cluster.create(_quota(shop, "right", "8", parent="top"))

        with pytest.raises(CallError, match="delete quota failed, quota top has 2 child quotas"):
            await cluster.delete(_QUOTAS, "top", shop)
        moved = {"metadata": {"labels": {f"{_DOMAIN}/tree-id": "t2"}}}
        with pytest.raises(CallError, match=r"left tree id changed \[t1\] vs \[t2\]"):
            await cluster.patch(_QUOTAS, "left", moved, shop)
        for name in ("left", "right", "top"):
            await eventually(partial(_is_deleted, cluster, shop, name), f"quota {name} is deleted")


async def _is_deleted(cluster: Cluster, namespace: str, name: str) -> bool:
    try:
        await cluster.delete(_QUOTAS, name, namespace)
    except CallError as refused:
        return "child quotas" not in refused.message
    return True


def _labelled(namespace: str, name: str, quota: str) -> Json:
    made = pod(namespace, name, requests={"cpu": "1"})
    made["metadata"]["labels"] = {f"{_DOMAIN}/name": quota}
    return made


@pytest.mark.usefixtures("crds")
async def test_pods_of_any_namespace_wait_for_the_quota_of_their_label_and_all_above(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a")
    async with queueing(cluster, control_plane, tmp_path) as stowplan:
        top = _quota("default", "top", "1", is_parent="true")
        top["spec"]["max"] = {"cpu": "3"}
        for quota in (
            top,
            _quota("default", "left", "1", parent="top"),
            _quota("default", "right", "0", parent="top"),
        ):
            await cluster.create(quota)
        await quotas_known(stowplan.replicas, 3, _GROUP)
        names = [f"left-{i}" for i in range(3)] + ["right-0"]
        for name in names:
            made = _labelled(namespace, name, name.partition("-")[0])
            await eventually(partial(_is_created_held, cluster, made), f"{name} waits")

        async def running() -> list[str]:
            states = [await is_running(cluster, namespace, name) for name in names]
            return [name for name, runs in zip(names, states, strict=True) if runs]

        async def three_run() -> bool:
            return len(await running()) == 3

        await eventually(three_run, "as many run as the quota above has room for")
        (last,) = set(names) - set(await running())
        # Whoever ends its wait meets the same bound.
        with pytest.raises(CallError, match="exceeded quota: top"):
            await remove_gate(cluster, namespace, last)
        assert len(await running()) == 3
        await cluster.delete("pods", (await running())[0], namespace, grace_seconds=0)
        await eventually(partial(is_running, cluster, namespace, last), "the last one follows")
        for name in ("left", "right", "top"):
            await cluster.delete_all("pods", namespace, grace_seconds=0)
            await eventually(partial(_is_deleted, cluster, "default", name), f"{name} is deleted")


async def _is_created_held(cluster: Cluster, made: Json) -> bool:
    """Create a pod that is held; while the leader is not known to release any, none is stored."""
    tried = await cluster.create(made, dry_run=True)
    if not gates_of(tried):
        return False
    await cluster.create(made)
    return True
