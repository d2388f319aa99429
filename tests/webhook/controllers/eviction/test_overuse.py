from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.eviction import Victim
from engine.model.elastic_quota import NAME_LABEL, EvictionMode
from tests.engine.quota.tree.quotas import quota
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.eviction.worlds import World
from webhook.cluster.client.connection import connected
from webhook.controllers.eviction.writer import EvictionOutcome, EvictionResult

# `left` and `right` share 8 cores. Nothing is guaranteed, so each gets half as both want more.
_LEFT = replace(
    quota("left", least={"cpu": 0}, most={"cpu": 8_000}, namespace="batch"), revoke=EvictionMode.ON
)
_RIGHT = quota("right", least={"cpu": 0}, most={"cpu": 8_000}, namespace="shop")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two nodes of 4 cores, full of pods of `left`; pods of `right` wait for 8 cores."""
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server, connection)
        made.modes["shop"] = EvictionMode.OFF  # nobody is reclaimed for
        made.tree = [_LEFT, _RIGHT]
        for node in ("a", "b"):
            made.node(node)
            for number in (1, 2):
                made.run(f"{node}{number}", "2", node=node, labels={NAME_LABEL: "left"})
        made.queue("web", "8", labels={NAME_LABEL: "right"})
        yield made


async def test_what_is_used_above_the_runtime_for_two_minutes_is_taken_back(world: World) -> None:
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 118)
    assert len(world.pods("batch")) == 4
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.REVOKED]
    assert leader.evictions == [EvictionResult.EVICTED] * 2
    assert len(world.pods("batch")) == 2
    victims = {"a1", "a2", "b1", "b2"} - world.pods("batch")
    assert world.events()[0] == ("left", "Revoking")
    assert set(world.events()[1:]) == {(victim, "Revoked") for victim in victims}
    messages = [event["message"] for event in world.server.objects("events").values()]
    assert all("batch/left uses more than its runtime: cpu 8 of 4" in text for text in messages)
    assert not leader.context.planned.of_others("")


async def test_a_dry_run_tells_it_once_and_evicts_nobody(world: World) -> None:
    world.tree[0] = replace(_LEFT, revoke=EvictionMode.DRY_RUN)
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 200)
    assert world.events() == [("left", "WouldRevoke")]
    assert leader.ended == [EvictionOutcome.REPORTED]
    assert len(world.pods("batch")) == 4


async def test_without_the_annotation_nothing_is_taken_back(world: World) -> None:
    world.tree[0] = replace(_LEFT, revoke=EvictionMode.OFF)
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 200)
    assert (world.events(), len(world.pods("batch"))) == ([], 4)


async def test_pods_of_namespaces_that_do_not_queue_stay(world: World) -> None:
    del world.modes["batch"]
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 200)
    assert (world.events(), len(world.pods("batch"))) == ([], 4)


async def test_a_moment_without_overuse_begins_the_wait_anew(world: World) -> None:
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 100)
    waiting = world.stored("shop", "web")
    world.server.delete("pods", "shop", "web")
    await leader.lead_until(lambda: world.seconds > 110)
    world.server.create(waiting)
    await leader.lead_until(lambda: world.seconds > 220)
    assert len(world.pods("batch")) == 4


async def test_a_quota_that_is_switched_off_stops_it_at_once(world: World) -> None:
    leader = world.leader()
    world.server.fail_next(1, 503, method="POST", path_prefix="/api/v1/namespaces/batch/pods")

    def switch_off() -> None:
        if world.seconds > 120:
            world.tree[0] = replace(_LEFT, revoke=EvictionMode.OFF, version=2)

    leader.on_sleep = switch_off
    await leader.lead_until(lambda: world.seconds > 300)
    assert len(world.pods("batch")) == 4


async def test_a_budget_that_allows_one_lets_one_go(world: World) -> None:
    world.protect(1)
    leader = world.leader()
    await leader.lead_until(lambda: bool(leader.ended))
    assert len(world.pods("batch")) == 3


async def test_what_a_budget_allows_is_not_taken_from_another_plan(world: World) -> None:
    world.protect(1)
    leader = world.leader()
    leader.see()
    victim = leader.running.get("batch/a1")
    assert victim is not None
    planned = Victim(
        key=victim.key,
        uid=victim.uid,
        quota=None,
        owner=victim.uid,
        assigned_at=0,
        node_name="a",
        requests={},
    )
    leader.context.planned.set("uid-of-a-pod", [planned])
    await leader.lead_until(lambda: world.seconds > 200)
    assert len(world.pods("batch")) == 4


async def test_guards_bound_how_many_go_at_once(world: World) -> None:
    for number in range(12):
        world.run(f"small-{number}", "1", node="a", labels={NAME_LABEL: "left"})
    leader = world.leader()
    await leader.lead_until(lambda: bool(leader.ended))
    assert len(leader.evictions) == 10
