"""Revocation on the stock scheduler: what a quota of a tree uses above its runtime is taken back.

`left` fills two nodes of 4 cores while nobody else wants any. Then `right` does: nothing is
guaranteed to either, so each may use half.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.model.elastic_quota import NAME_LABEL, REVOKE_ANNOTATION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import quotas_known
from tests.e2e.test_held_admission import gates_of
from tests.e2e.test_reclaim import BORROWERS, Stage, staged
from tests.e2e.workloads import pod

pytestmark = pytest.mark.usefixtures("crds")

_GROUP = "scheduling.sigs.k8s.io"
_OVERUSED_FOR = 120.0


def _quota(stage: Stage, name: str, revoke: str) -> Json:
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": stage.batch,
            "annotations": {REVOKE_ANNOTATION: revoke},
        },
        "spec": {"min": {"cpu": "0"}, "max": {"cpu": "8"}},
    }


async def _create(stage: Stage, namespace: str, quota: str, count: int) -> None:
    """Create pods of 2 cores of a quota, that wait for it."""
    made = [pod(namespace, f"{quota}-{number}", requests={"cpu": "2"}) for number in range(count)]
    for each in made:
        each["metadata"]["labels"] = {NAME_LABEL: quota}

    async def waits() -> bool:
        return bool(gates_of(await stage.cluster.create(made[0], dry_run=True)))

    await eventually(waits, f"pods of {quota} wait")
    await asyncio.gather(*map(stage.cluster.create, made))


async def test_what_a_quota_uses_above_its_runtime_is_taken_back(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    async with staged(cluster, control_plane, nodes, namespace, tmp_path) as stage:
        for name, revoke in (("left", "On"), ("right", "Off")):
            await cluster.create(_quota(stage, name, revoke))
        await quotas_known(stage.stowplan.replicas, 2, _GROUP)
        await _create(stage, stage.batch, "left", BORROWERS)
        await eventually(lambda: stage.run(stage.batch, BORROWERS), "left uses all there is")
        assert len(await stage.names(stage.batch)) == BORROWERS

        await _create(stage, stage.shop, "right", BORROWERS)
        await eventually(
            lambda: stage.run(stage.shop, 2), "right has its half", within=_OVERUSED_FOR + 90
        )
        left = await stage.names(stage.batch)
        assert len(left) == BORROWERS // 2
        revoked = {f"left-{number}" for number in range(BORROWERS)} - left

        async def tells() -> dict[str, str]:
            told = await stage.events(stage.batch, "Revoked")
            assert told.keys() == revoked
            return told

        told = await eventually(tells, "Events say who was evicted")
        text = f"evicted as {stage.batch}/left uses more than its runtime: cpu 8 of 4"
        assert set(told.values()) == {text}
        assert (await stage.events(stage.batch, "Revoking")).keys() == {"left"}
        await eventually(
            lambda: stage.metric('stowplan_reclaims_total{outcome="revoked",source="overuse"} 1.0'),
            "it is counted",
        )
        # Each uses as much as it may now, so nobody else goes.
        assert await stage.run(stage.batch, 2)
        assert await stage.metric('stowplan_evictions_total{result="evicted"} 2.0')
