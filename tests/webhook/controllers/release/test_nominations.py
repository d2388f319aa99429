from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.release import HeldPod
from tests.webhook.controllers.release.controller_world import Replica, World, running_world
from webhook.controllers.release import Nominations
from webhook.controllers.release import nominations as nominations_module


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        world.node("a")
        world.node("b")
        yield world


@pytest.fixture
def replica(world: World) -> Replica:
    world.hold("p")
    replica = world.replica()
    replica.see()
    return replica


@pytest.fixture
def nominations(replica: Replica) -> Nominations:
    return replica.release.nominations


def _held(replica: Replica) -> HeldPod:
    (held,) = replica.held
    return held


def test_a_second_nomination_replaces_the_first_and_is_told(
    replica: Replica, nominations: Nominations, caplog: pytest.LogCaptureFixture
) -> None:
    pod = _held(replica).pod
    with caplog.at_level(logging.INFO):
        nominations.nominate(pod, "a")
        nominations.nominate(pod, "a")
        assert not caplog.messages
        nominations.nominate(pod, "b")
    assert caplog.messages == ["pod `shop/p` is nominated to `b`, not to `a`"]
    assert replica.counted() == {"b": 1}
    nominations.withdraw(pod)
    assert replica.counted() == {}


def test_a_nomination_elsewhere_is_told_of_a_pod_that_was_withdrawn_first(
    world: World, replica: Replica, nominations: Nominations, caplog: pytest.LogCaptureFixture
) -> None:
    world.server.replace({**world.stored("p"), "status": {"nominatedNodeName": "a"}})
    replica.see()
    pod = _held(replica).pod
    nominations.withdraw(pod)
    with caplog.at_level(logging.INFO):
        nominations.nominate(pod, "a")
        nominations.withdraw(pod)
        assert not caplog.messages
        nominations.nominate(pod, "b")
    assert caplog.messages == ["pod `shop/p` is nominated to `b`, not to `a`"]


def test_what_comes_late_of_an_earlier_pod_leaves_the_nomination_of_the_later(
    world: World, replica: Replica, nominations: Nominations
) -> None:
    earlier = _held(replica).pod
    world.delete("p")
    replica.see()
    world.hold("p")
    replica.see()
    nominations.nominate(_held(replica).pod, "a")
    nominations.withdraw(earlier)
    nominations.nominate(earlier, "b")
    assert replica.counted() == {"a": 1}


def test_a_pod_counts_where_the_watch_shows_it_once_nobody_decides_it(
    world: World, replica: Replica, nominations: Nominations
) -> None:
    nominations.nominate(_held(replica).pod, "b")
    nominations.follow(_held(replica))
    assert replica.counted() == {}
    world.server.replace({**world.stored("p"), "status": {"nominatedNodeName": "a"}})
    replica.see()
    nominations.nominate(_held(replica).pod, "b")
    nominations.follow(_held(replica))
    assert replica.counted() == {"a": 1}


def test_pods_are_set_aside_for_a_moment(replica: Replica, nominations: Nominations) -> None:
    held = _held(replica)
    nominations.nominate(held.pod, "a")
    with nominations.set_aside([held]):
        assert replica.counted() == {}
    assert replica.counted() == {"a": 1}


def test_nobody_else_counts_a_held_pod_on_a_node() -> None:
    controllers = Path(nominations_module.__file__).parents[1]
    callers = [path for path in controllers.rglob("*.py") if "state.nominate(" in path.read_text()]
    assert [path.name for path in callers] == ["nominations.py"]
