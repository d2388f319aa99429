from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.eviction import NodeFit
from engine.model.elastic_quota import EvictionMode
from engine.model.hold import QueuedReason
from engine.model.time import Micros
from engine.view import WhatIf
from tests.webhook.controllers.release.controller_world import BEGIN, World, running_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        world.node("a", cpu="4")
        yield world


async def test_in_mode_dry_run_a_pod_without_a_node_is_told_of_later(world: World) -> None:
    world.quota("shop", minimum=4, reclaim=EvictionMode.DRY_RUN)
    world.create("other", "elsewhere", "3", nodeName="a")
    world.queue("p", cpu="2")
    replica = world.replica()
    replica.pods.begin_evictions()
    await replica.cycle()
    assert world.releases() == {"p"}
    assert replica.pods.take_released_without_node("quota", Micros(BEGIN - 1)) == []
    (told,) = replica.pods.take_released_without_node("quota", BEGIN)
    assert told.key == "shop/p"
    assert replica.pods.take_released_without_node("quota", BEGIN) == []


@pytest.mark.parametrize("mode", list(EvictionMode))
async def test_within_min_a_pod_without_a_node_stays_only_where_pods_are_evicted_for_it(
    world: World, mode: EvictionMode
) -> None:
    world.quota("shop", minimum=4, reclaim=mode)
    world.create("other", "elsewhere", "3", nodeName="a")
    world.queue("p", cpu="2")
    replica = world.replica()
    await replica.cycle()
    if mode is not EvictionMode.ON:
        assert world.releases() == {"p"}
        assert world.nominated("p") == ""
        return
    assert world.releases() == set()
    for _ in range(2):
        wait = replica.quota_queue.waits["shop/p"]
        assert (wait.reason, wait.is_within_min) == (QueuedReason.WAITING_FOR_CAPACITY, True)
        record = replica.pods.by_key("shop/p")
        assert record is not None
        assert record.within_min_since == BEGIN
        world.seconds += 1
        await replica.cycle()
    world.server.delete("pods", "elsewhere", "other")
    replica.applier.delete_pod("elsewhere", "other")
    world.seconds += 2
    await replica.cycle()
    assert world.releases() == {"p"}
    await replica.cycle()
    assert replica.quota_queue.blocked() == []


async def test_what_borrows_and_finds_no_node_is_released_for_autoscalers(world: World) -> None:
    world.node("b", cpu="4")
    world.create("one", "elsewhere", "3", nodeName="a")
    world.create("other", "elsewhere", "3", nodeName="b")
    world.quota("batch", reclaim=EvictionMode.ON)
    world.queue("p", "batch", cpu="2")  # 2 cores are free, on two nodes
    await world.replica().cycle()
    assert world.releases() == {"p"}


async def test_two_pods_within_min_that_no_policy_places_are_not_released_for_the_same_room(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, policy=None) as world:
        world.node("a", cpu="4")
        world.quota("shop", minimum=4, reclaim=EvictionMode.ON)
        world.create("other", "elsewhere", "3", nodeName="a")
        for name in ("p", "q"):
            world.queue(name)
        replica = world.replica()
        for _ in range(2):
            await replica.cycle()
            assert world.releases() == {"p"}
            assert world.nominated("p") == ""  # the scheduler chooses
            assert replica.quota_queue.waits["shop/q"].reason is QueuedReason.WAITING_FOR_CAPACITY
            world.seconds += 2
        world.bind("p", "a")
        await replica.cycle()
        assert world.releases() == {"p"}


async def test_a_bug_in_a_rule_keeps_no_pod(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_fit: NodeFit, _what_if: WhatIf) -> str:
        raise AssertionError

    monkeypatch.setattr(NodeFit, "first", failing)
    world.quota("shop", minimum=4, reclaim=EvictionMode.ON)
    world.queue("p")
    await world.replica().cycle()
    assert world.releases() == {"p"}


async def test_what_a_pod_is_nominated_to_does_not_stand_in_its_own_way(world: World) -> None:
    world.quota("shop", minimum=4, reclaim=EvictionMode.ON)
    world.queue("p", cpu="4")
    world.server.replace({**world.stored("p"), "status": {"nominatedNodeName": "a"}})
    await world.replica().cycle()
    assert (world.releases(), world.nominated("p")) == ({"p"}, "")
