"""Three quotas that queue, three replicas, random pods, and leaders that are killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.elastic_load import ElasticLoad, remove, tenants_of
from tests.e2e.nodes import Nodes
from tests.e2e.quota_oracle import Judgement, Patience, judge
from tests.e2e.test_quota_queue import queueing

pytestmark = pytest.mark.usefixtures("crds")

SECONDS = 45.0
RECLAIM_SECONDS, RECLAIM_AFTER_SECONDS = 62.0, 3
PATIENCE = Patience(idle=60.0, within_min=120.0)
"""A Lease runs out in 15 s; a busy machine takes some more."""

IN_VAIN = 3
"""Evictions that a killed leader may leave without a pod for which they were made: of so few a
ratio says nothing. `bench_elastic` judges it."""


async def test_max_holds_and_nothing_waits_for_free_room_whoever_is_killed(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, tmp_path: Path
) -> None:
    for name in "abcd":
        await nodes.add(f"node-{name}")  # 16 cores
    async with queueing(cluster, control_plane, tmp_path, replicas=3) as stowplan:
        tenants = await tenants_of(cluster, stowplan, [(6, 12), (4, 10), (2, 16)])
        load = ElasticLoad(cluster, tenants, random.Random(19))
        try:
            async with load.recorded():
                killing = asyncio.create_task(load.kill_leaders(stowplan, [8.0, 29.0]))
                await load.come_and_go(SECONDS)
                await killing
                await load.drain()
        finally:
            await remove(cluster, tenants)
    found = judge(load.recording, PATIENCE)
    assert load.kills == 2
    assert len(found.waits) > 20, "pods waited for quota"
    assert_kept(found)


async def test_who_borrows_gives_back_and_no_promise_is_broken_whoever_is_killed(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, tmp_path: Path
) -> None:
    for name in "abcd":
        await nodes.add(f"node-{name}")  # 16 cores, all of them borrowed by two of the three
    async with queueing(
        *(cluster, control_plane, tmp_path),
        replicas=3,
        reclaim_after_seconds=RECLAIM_AFTER_SECONDS,
    ) as stowplan:
        tenants = await tenants_of(cluster, stowplan, [(4, 12), (4, 12), (4, 12)])
        load = ElasticLoad(
            *(cluster, tenants, random.Random(19)),
            life_seconds=900.0,
            busy_seconds=20.0,
            quiet_seconds=8.0,
            sizes=["1"],
        )
        try:
            async with load.recorded():
                killing = asyncio.create_task(load.kill_leaders(stowplan, [38.0]))
                await load.come_and_go(RECLAIM_SECONDS, until=load.evicted)
                await killing
                await load.settle()
        finally:
            await remove(cluster, tenants)
    found = judge(load.recording, PATIENCE)
    assert load.kills == 1
    assert found.evictions > 0
    assert_kept(found)


def assert_kept(found: Judgement) -> None:
    assert not found.overshoot
    assert not found.idle_waits
    assert not found.late_within_min
    assert not found.below_min
    assert not found.hasty
    assert found.evictions <= found.reclaimed + IN_VAIN
