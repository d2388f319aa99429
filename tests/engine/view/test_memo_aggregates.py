from __future__ import annotations

import pytest

from engine.view import ClusterState, ClusterView, Domain
from engine.view import memo as remembered
from engine.view.memo import AggregateCache
from tests.engine.measured_cluster import NOW, node, pod

NODES = (Domain.NODES,)


class Counted:
    """How many nodes there are, with a record of how often that was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, view: ClusterView) -> int:
        self.calls += 1
        return int(view.valid.sum())


def two_nodes() -> ClusterState:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    state.set_node(node("b", cpu="4"))
    return state


def test_what_is_common_is_made_once_until_a_node_changes() -> None:
    state, counted = two_nodes(), Counted()
    assert state.view().node_aggregate("count", NODES, counted) == 2
    state.set_pod(pod("web", "a"), seen_at=NOW)
    assert state.view().node_aggregate("count", NODES, counted) == 2
    assert counted.calls == 1
    state.set_node(node("c", cpu="4"))
    assert state.view().node_aggregate("count", NODES, counted) == 3
    assert counted.calls == 2


def test_a_row_that_comes_with_a_pod_alone_is_a_change_too() -> None:
    """What is made of columns would otherwise be shorter than they are."""
    state = two_nodes()
    assert state.view().node_aggregate("rows", NODES, len) == 2
    state.set_pod(pod("web", "not-seen-yet"), seen_at=NOW)
    assert state.view().node_aggregate("rows", NODES, len) == 3


def test_some_rows_have_in_common_what_they_have() -> None:
    view, counted = two_nodes().view(), Counted()
    assert view.node_aggregate("count", NODES, counted) == 2
    part = view.take(view.valid.nonzero()[0][:1])
    assert part.node_aggregate("count", NODES, counted) == 1


def test_an_old_view_is_answered_and_not_remembered() -> None:
    state, counted = two_nodes(), Counted()
    old = state.view()
    state.delete_node("b")
    new = state.view()
    assert new.node_aggregate("count", NODES, counted) == 1
    assert old.node_aggregate("count", NODES, counted) == 2
    assert new.node_aggregate("count", NODES, counted) == 1
    assert counted.calls == 2


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    cache, view, counted = AggregateCache(2), two_nodes().view(), Counted()
    for key in ("x", "y", "x", "z", "x", "y"):
        cache.get(key, view, NODES, counted)
    assert counted.calls == 4  # x, y, z, and y again


def test_what_nobody_asks_for_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "FORGOTTEN_AFTER", 10)
    state, cache, counted = two_nodes(), AggregateCache(99), Counted()
    cache.get("of a policy that is gone", state.view(), NODES, counted)
    cache.get("asked for", state.view(), NODES, len)
    for number in range(11):
        state.set_pod(pod(f"p{number}", "a"), seen_at=NOW)
    assert cache.get("asked for", state.view(), NODES, str) == 2  # type: ignore[comparison-overlap]
    cache.get("new", state.view(), NODES, len)
    cache.get("of a policy that is gone", state.view(), NODES, counted)
    assert counted.calls == 2
