from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from engine.model.pod import Pod
from tests.webhook.controllers.release.releases import pod
from webhook.controllers.release.pacing import Release, UnboundReleases

STOCK = "default-scheduler"


class World:
    """Released pods of two at most, and a clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.unbound = UnboundReleases(most=2, lost_seconds=60, clock=lambda: self.seconds)

    def release(self, name: str, scheduler: str = STOCK, *, is_placed: bool = True) -> None:
        release = Release(
            key=f"shop/{name}",
            uid=f"uid-{name}",
            scheduler_name=scheduler,
            node_name="node-1",
            is_placed=is_placed,
        )
        self.unbound.add(release)

    @property
    def room(self) -> int:
        return self.unbound.room(STOCK)


@pytest.fixture
def world() -> World:
    return World()


def test_room_is_given_back_by_a_binding(world: World) -> None:
    world.release("a")
    world.release("b")
    assert world.room == 0
    world.unbound.changed.clear()
    world.unbound.pod_changed(pod("a"), 1, b"")  # seen without its gate, not bound yet
    assert (world.room, world.unbound.changed.is_set()) == (0, False)
    world.unbound.pod_changed(pod("a", node="node-2"), 2, b"")
    assert (world.room, world.unbound.changed.is_set()) == (1, True)
    (landing,) = world.unbound.take_landings()
    assert (landing.release.node_name, landing.pod.node_name) == ("node-1", "node-2")
    assert not world.unbound.take_landings()


def test_room_is_given_back_by_a_deletion_and_nothing_has_landed(world: World) -> None:
    world.release("a")
    world.unbound.pod_deleted("shop", "a")
    world.release("b")
    world.unbound.pod_changed(pod("b", deletionTimestamp="2026-01-01T00:00:00Z"), 1, b"")
    assert (world.room, len(world.unbound)) == (2, 0)
    assert not world.unbound.take_landings()


def test_another_pod_of_the_name_is_not_the_released_one(world: World) -> None:
    world.release("a")
    world.unbound.pod_changed(pod("a", uid="other", node="node-1"), 1, b"")
    assert (world.room, len(world.unbound)) == (2, 0)
    assert not world.unbound.take_landings()


def test_a_release_that_is_repeated_counts_once(world: World) -> None:
    world.release("a")
    world.release("a")
    assert (world.room, len(world.unbound)) == (1, 1)
    world.unbound.discard("shop/a")
    assert world.room == 2


def test_schedulers_do_not_wait_for_each_other(world: World) -> None:
    world.release("a", "dead-scheduler")
    world.release("b", "dead-scheduler")
    assert world.unbound.room("dead-scheduler") == 0
    assert world.room == 2


def test_pods_that_fit_nowhere_take_no_room(world: World) -> None:
    for name in "abc":
        world.release(name, is_placed=False)
    assert (world.room, len(world.unbound)) == (2, 3)


def test_a_pod_that_is_not_bound_in_time_is_lost_once_and_gives_its_room_back(
    world: World,
) -> None:
    world.release("a")
    world.seconds = 59
    world.release("b")
    assert not world.unbound.take_lost()
    world.seconds = 60
    assert [release.key for release in world.unbound.take_lost()] == ["shop/a"]
    assert not world.unbound.take_lost()
    assert world.room == 1


def test_who_begins_to_lead_has_released_nothing(world: World) -> None:
    world.release("a")
    world.unbound.clear()
    assert (world.room, len(world.unbound)) == (2, 0)


def test_a_nomination_is_stale_once_it_was_seen_for_as_long_as_a_release_lasts(
    world: World,
) -> None:
    world.unbound.pod_changed(nominated("a"), 1, b"")
    world.seconds = 30
    world.unbound.pod_changed(nominated("a"), 2, b"")  # another change
    world.unbound.pod_changed(nominated("b"), 3, b"")
    world.unbound.clear()  # a leader begins
    world.seconds = 60
    assert stale(world) == ["a"]
    assert stale(world) == []
    world.seconds = 90
    assert stale(world) == ["b"]
    world.seconds = 120  # nobody has withdrawn that of a
    assert stale(world) == ["a"]


def test_only_nominations_of_released_pods_are_stale(world: World) -> None:
    released: dict[str, Any] = {"annotations": {RELEASED_ANNOTATION: "node-1"}}
    elsewhere = {"annotations": {RELEASED_ANNOTATION: "node-2"}}
    by_the_deadman = {"annotations": {HOLD_REASONS_ANNOTATION: "placement"}}
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
    assert stale(world) == ["released", "by-the-deadman"]


def nominated(name: str, **metadata: Any) -> Pod:  # noqa: ANN401 (parts of metadata)
    annotated: dict[str, Any] = {"annotations": {RELEASED_ANNOTATION: "node-1"}, **metadata}
    return replace(pod(name, **annotated), nominated_node_name="node-1")


def stale(world: World) -> list[str]:
    return [each.name for each in world.unbound.take_stale_nominations()]
