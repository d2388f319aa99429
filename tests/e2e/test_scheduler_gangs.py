"""Gangs of the scheduler itself beside stowplan: it leaves them alone, and its own still start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model.gang import POD_GROUP_LABEL
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.features import require
from tests.e2e.gangs import Gangs, is_bound
from tests.e2e.installed import installed, leader_of
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import pod

pytestmark = pytest.mark.usefixtures("crds")

_FEATURE, _API = "GenericWorkload", "scheduling.k8s.io/v1beta1"


@pytest.fixture
async def gangs(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> AsyncIterator[Gangs]:
    """stowplan, which holds pods, where the scheduler has gangs too; two nodes with 4 cores."""
    await require(cluster, _FEATURE, stage="BETA")
    async with control_plane.featuring(_FEATURE, _API):
        for name in ("node-a", "node-b"):
            await nodes.add(name, {"cpu": "4"})
        options = [("hold", "true")]
        async with installed(cluster, control_plane, tmp_path, [], options=options) as stowplan:
            await leader_of(cluster, stowplan)
            await _holds(cluster, Gangs(cluster, namespace))
            yield Gangs(cluster, namespace)


async def _holds(cluster: Cluster, gangs: Gangs) -> None:
    """Wait until members of our gangs are held."""
    await gangs.define("tried", 1)

    async def held() -> bool:
        member = gangs.member("tried", "tried", "1", is_held=False)
        return "schedulingGates" in (await cluster.create(member, dry_run=True))["spec"]

    await eventually(held, "members are held")


async def test_a_gang_of_the_scheduler_starts_as_a_whole_and_is_not_held(
    cluster: Cluster, gangs: Gangs
) -> None:
    namespace = gangs.namespace
    await cluster.create(
        {
            "apiVersion": _API,
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": namespace},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
    )
    first = await cluster.create(_member(namespace, "m-0"))
    assert "schedulingGates" not in first["spec"]
    assert [each for each in cluster.warnings if "leaves it to the scheduler" in each]
    await cluster.create(pod(namespace, "other", requests={"cpu": "1"}))
    await _bound(cluster, namespace, "other")
    assert not is_bound(await cluster.get("pods", "m-0", namespace))
    await cluster.create(_member(namespace, "m-1"))
    await _bound(cluster, namespace, "m-0")
    await _bound(cluster, namespace, "m-1")


async def test_a_gang_of_stowplan_starts_where_the_scheduler_has_gangs_too(gangs: Gangs) -> None:
    await gangs.define("train", 2)
    await gangs.join("train", "m-0", "m-1", is_held=False)
    await gangs.all_bound("train", 2)


def _member(namespace: str, name: str) -> Json:
    """Return a pod of a group of the scheduler, whose label names a gang of ours."""
    made = pod(namespace, name, requests={"cpu": "1"})
    made["metadata"]["labels"] = {POD_GROUP_LABEL: "tried"}
    made["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return made


async def _bound(cluster: Cluster, namespace: str, name: str) -> None:
    async def bound() -> bool:
        return is_bound(await cluster.get("pods", name, namespace))

    await eventually(bound, f"{name} is bound")
