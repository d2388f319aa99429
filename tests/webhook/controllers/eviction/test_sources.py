from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model import api
from engine.model.hold import HOLD_FOR_PREEMPTION, HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.pod_classes import (
    MINIMUM_PRIORITY_ANNOTATION,
    TOLERATION_SECONDS_ANNOTATION,
    priority_class_of,
)
from engine.policy import PolicySet
from engine.release import Phase
from tests.engine.policy.worlds import policy
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.eviction.worlds import Leader, World
from webhook.cluster.client.connection import connected
from webhook.controllers.eviction.writer import EvictionOutcome


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two nodes of 4 cores, full of pods of `batch`; no quota guarantees anything."""
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server, connection)
        made.modes, made.minimums = {}, {"shop": 0, "batch": 0}
        made.policies = preempting("On")
        for node in ("a", "b"):
            made.node(node)
            for number in (1, 2):
                made.run(f"{node}{number}", "2", node=node)
        yield made


def preempting(mode: str) -> PolicySet:
    return PolicySet([policy(f"placement: {{at: Binding, preemption: {mode}}}", "urgent")])


def hold(world: World, name: str = "web", cpu: str = "2", *, priority: int = 100) -> None:
    """Hold a pod of `shop`."""
    world.server.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "shop",
                "name": name,
                "creationTimestamp": "2026-01-02T04:04:05Z",
                "annotations": {HOLD_REASONS_ANNOTATION: HOLD_FOR_PREEMPTION},
            },
            "spec": {
                "schedulerName": "default-scheduler",
                "schedulingGates": [{"name": HOLD_GATE}],
                "priority": priority,
                "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            },
        }
    )


def without_node(leader: Leader) -> None:
    """Play the release controller: no node takes a held pod, until its room is there."""

    def see() -> None:
        for held in leader.held:
            if leader.pods.of(held).phase is Phase.RESERVED:
                leader.world.bind(held.pod.name, held.pod.nominated_node_name)
            elif leader.pods.of(held).phase is not Phase.RECLAIMING:
                leader.pods.of(held).finds_no_node(leader.world.clock())
        leader.pods.set_order(leader.held)

    leader.on_sleep = see


async def test_pods_of_lower_priority_make_room_at_once(world: World) -> None:
    hold(world)
    leader = world.leader()
    without_node(leader)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    victim = next(iter({"a1", "a2", "b1", "b2"} - world.pods("batch")))
    assert world.stored("shop", "web")["spec"]["nodeName"] == victim[0]
    assert world.events() == [("web", "Preempting"), (victim, "Preempted")]
    assert world.seconds < 10


async def test_dry_run_tells_and_evicts_nobody(world: World) -> None:
    world.policies = preempting("DryRun")
    hold(world)
    leader = world.leader()
    without_node(leader)
    await leader.lead_until(lambda: bool(world.events()))
    assert leader.ended == [EvictionOutcome.REPORTED]
    assert len(world.pods("batch")) == 4
    assert world.events() == [("web", "WouldPreempt")]


async def test_dry_run_tells_of_a_pod_that_was_released(world: World) -> None:
    world.policies = preempting("DryRun")
    hold(world)
    leader = world.leader()
    leader.see()
    leader.pods.begin_evictions()

    def release() -> None:
        held = leader.held.get("shop/web")
        if held is not None and leader.pods.evicts:
            leader.pods.released_without_node(held, "preemption", world.now())
            pod = world.stored("shop", "web")
            spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
            world.server.replace({**pod, "spec": spec})

    leader.on_sleep = release
    await leader.lead_until(lambda: bool(world.events()))
    assert leader.ended == [EvictionOutcome.REPORTED]
    assert world.events() == [("web", "WouldPreempt")]


async def test_a_budget_is_in_the_way(world: World) -> None:
    world.protect(0)
    hold(world)
    leader = world.leader()
    without_node(leader)
    await leader.lead_until(lambda: "PodDisruptionBudgets" in leader.note("web"))
    assert len(world.pods("batch")) == 4
    held = leader.held.get("shop/web")
    assert held is not None
    assert not leader.pods.of(held).is_reclaim_in_vain  # it waits: a budget may allow it later


async def test_a_class_tolerates_it(world: World) -> None:
    hold(world)
    for name in ("a1", "a2", "b1", "b2"):
        pod = world.stored("batch", name)
        world.server.replace({**pod, "spec": {**pod["spec"], "priorityClassName": "patient"}})
    leader = world.leader()
    annotations = {MINIMUM_PRIORITY_ANNOTATION: "1000", TOLERATION_SECONDS_ANNOTATION: "-1"}
    patient = api.PriorityClass(metadata=api.ObjectMeta(name="patient", annotations=annotations))
    leader.applier.state.set_extra(priority_class_of(patient))
    without_node(leader)
    await leader.lead_until(lambda: "tolerate" in leader.note("web"))
    assert len(world.pods("batch")) == 4


async def test_a_pod_that_nobody_makes_room_for_waits_in_vain(world: World) -> None:
    hold(world, priority=0)
    leader = world.leader()
    without_node(leader)

    def is_in_vain() -> bool:
        held = leader.held.get("shop/web")
        return held is not None and leader.pods.of(held).is_reclaim_in_vain

    await leader.lead_until(is_in_vain)
    assert len(world.pods("batch")) == 4


async def test_a_new_leader_goes_on(world: World) -> None:
    hold(world)
    first = world.leader()
    without_node(first)
    await first.lead_until(lambda: bool(world.nominated("web")))
    first.leads = False
    second = world.leader()
    without_node(second)
    await second.lead_until(lambda: bool(second.ended))
    assert second.ended == [EvictionOutcome.BOUND]
    assert len(world.pods("batch")) == 3


@pytest.mark.parametrize("last", range(1, 10))
@pytest.mark.parametrize(("cpu", "victims"), [("2", 1), ("4", 2)])
async def test_a_leader_may_end_before_any_write_of_a_preemption(
    world: World, cpu: str, victims: int, last: int
) -> None:
    hold(world, cpu=cpu)
    leader = world.leader()
    without_node(leader)
    leader.end_after(last)
    await leader.lead_until(lambda: not leader.leads or bool(leader.ended))
    successor = world.leader()
    without_node(successor)
    await successor.lead_until(lambda: bool(world.stored("shop", "web")["spec"].get("nodeName")))
    assert len(world.pods("batch")) == 4 - victims
