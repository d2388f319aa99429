from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.release import HeldPodRecord, HeldPodRegistry
from tests.engine.release.pods import pod, sent
from webhook.controllers.release.nominations import ReleasedPods

STOCK = "default-scheduler"


class World:
    """Released pods, and a clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.unbound = ReleasedPods(clock=lambda: self.seconds)

    def release(self, name: str, scheduler: str = STOCK, *, is_in_order: bool = True) -> None:
        annotations = {HOLD_REASONS_ANNOTATION: "order"} if is_in_order else {}
        held = pod(name, annotations=annotations)
        held = replace(held, scheduler_name=scheduler, scheduling_gates=(HOLD_GATE,))
        sent(self.pods, held, self.seconds)

    @property
    def pods(self) -> HeldPodRegistry:
        return self.unbound.pods

    @property
    def counted(self) -> list[str]:
        return [record.pod.name for record in self.pods.unbound()]

    def lost(self) -> list[HeldPodRecord]:
        return self.pods.take_lost(self.seconds)


@pytest.fixture
def world() -> World:
    return World()


def test_the_next_of_an_order_waits_for_the_binding(world: World) -> None:
    world.release("a")
    world.unbound.changed.clear()
    world.unbound.pod_changed(pod("a"), 1, b"{}")  # seen without its gate, not bound yet
    assert world.pods.schedulers_in_order() == {STOCK}
    assert not world.unbound.changed.is_set()
    world.unbound.pod_changed(pod("a", node="node-2"), 2, b"{}")
    assert world.pods.schedulers_in_order() == set()
    assert world.unbound.changed.is_set()


def test_the_next_of_an_order_waits_for_no_pod_that_has_no_node(world: World) -> None:
    world.release("a")
    waits = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    world.unbound.pod_changed(pod("a"), 1, raw_with(waits))
    assert world.pods.schedulers_in_order() == {STOCK}
    world.unbound.changed.clear()
    world.unbound.pod_changed(pod("a"), 2, raw_with({**waits, "reason": "Unschedulable"}))
    assert world.pods.schedulers_in_order() == set()
    assert world.unbound.changed.is_set()
    assert world.counted == ["a"]  # it may still be bound


def test_pods_of_no_order_keep_none_waiting(world: World) -> None:
    world.release("a", is_in_order=False)
    assert world.pods.schedulers_in_order() == set()
    assert world.counted == ["a"]


def test_a_deleted_pod_counts_no_longer(world: World) -> None:
    world.release("a")
    world.unbound.pod_deleted("shop", "a")
    world.release("b")
    world.unbound.pod_changed(pod("b", deletionTimestamp="2026-01-01T00:00:00Z"), 1, b"{}")
    assert (world.counted, world.pods.schedulers_in_order()) == ([], set())


def test_another_pod_of_the_name_is_not_the_released_one(world: World) -> None:
    world.release("a")
    world.unbound.pod_changed(pod("a", uid="other", node="node-1"), 1, b"{}")
    assert world.counted == []


def test_a_release_that_is_repeated_counts_once(world: World) -> None:
    world.release("a")
    world.release("a")
    assert world.counted == ["a"]
    world.pods.of_pod(pod("a")).binding_is_not_awaited()
    assert (world.counted, world.pods.schedulers_in_order()) == ([], set())


def test_schedulers_do_not_wait_for_each_other(world: World) -> None:
    world.release("a", "dead-scheduler")
    assert world.pods.schedulers_in_order() == {"dead-scheduler"}


def test_a_pod_that_is_not_bound_in_time_is_lost_once(world: World) -> None:
    world.release("a")
    world.seconds = 59
    world.release("b")
    assert not world.lost()
    world.seconds = 60
    assert [record.pod.key for record in world.lost()] == ["shop/a"]
    assert not world.lost()
    assert world.counted == ["b"]


def test_who_begins_to_lead_has_released_nothing(world: World) -> None:
    world.release("a")
    world.pods.forget_releases()
    assert (world.counted, world.pods.schedulers_in_order()) == ([], set())


def test_a_nomination_is_unfollowed_once_it_was_seen_for_as_long_as_a_release_lasts(
    world: World,
) -> None:
    world.unbound.pod_changed(nominated("a"), 1, b"")
    world.seconds = 30
    world.unbound.pod_changed(nominated("a"), 2, b"")  # another change
    world.unbound.pod_changed(nominated("b"), 3, b"")
    world.pods.forget_releases()  # a leader begins
    world.seconds = 60
    assert unfollowed(world) == ["a"]
    assert unfollowed(world) == []
    world.seconds = 90
    assert unfollowed(world) == ["b"]
    world.seconds = 120  # nobody has withdrawn that of a
    assert unfollowed(world) == ["a"]


def test_only_nominations_of_released_pods_are_unfollowed(world: World) -> None:
    released: dict[str, Any] = {"annotations": {RELEASED_ANNOTATION: "node-1"}}
    elsewhere = {"annotations": {RELEASED_ANNOTATION: "node-2"}}
    by_the_deadman = {"annotations": {HOLD_REASONS_ANNOTATION: "quota"}}
    pods = [
        nominated("released", **released),
        nominated("by-the-deadman", **by_the_deadman),
        nominated("by-the-scheduler", annotations={}),
        nominated("by-the-scheduler-elsewhere", **elsewhere),
        pod("bound", node="node-1", **released),
        nominated("deleted", deletionTimestamp="2026-01-01T00:00:00Z", **released),
        replace(nominated("held", **released), scheduling_gates=(HOLD_GATE,)),
        nominated("gone", **released),
    ]
    for version, each in enumerate(pods):
        world.unbound.pod_changed(each, version, b"")
    world.unbound.pod_deleted("shop", "gone")
    world.seconds = 60
    assert unfollowed(world) == ["released", "by-the-deadman"]


def nominated(name: str, **metadata: Any) -> Pod:  # noqa: ANN401 (parts of metadata)
    annotated: dict[str, Any] = {"annotations": {RELEASED_ANNOTATION: "node-1"}, **metadata}
    return replace(pod(name, **annotated), nominated_node_name="node-1")


def raw_with(condition: dict[str, str]) -> bytes:
    status = {"conditions": [condition]}
    return msgspec.json.encode({"metadata": {}, "spec": {}, "status": status})


def unfollowed(world: World) -> list[str]:
    return [each.pod.name for each in world.pods.take_unfollowed(world.seconds)]
