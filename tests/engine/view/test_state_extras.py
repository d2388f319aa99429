"""Objects that only some rules read: how they come into views, and which rows they change."""

from __future__ import annotations

import numpy as np

from engine.model.scheduler_plugins import AppGroup, Disk, NodeDisks
from engine.view import ClusterState, ClusterView, Domain
from tests.engine.topology_cluster import node


def _disks(name: str, left: int) -> NodeDisks:
    return NodeDisks(name, (Disk(left, left, left),))


def _state() -> ClusterState:
    state = ClusterState()
    for name in "abcdefgh":
        state.set_node(node(name))
    return state


def _column(view: ClusterView, read: list[str]) -> list[int]:
    """Return what is left on each node, and note which ones were looked at."""

    def compute(part: ClusterView) -> np.ndarray:
        read.extend(part.names)
        found = [part.lookup(NodeDisks, name) for name in part.names]
        return np.array([disks.disks[0].total if disks else -1 for disks in found], np.int64)

    return list(map(int, view.node_column("left", (Domain.TOPOLOGY,), compute)))


def test_an_object_is_found_by_its_type_and_key() -> None:
    state = _state()
    group = AppGroup("default/a", {})
    state.set_extra(_disks("a", 5))
    state.set_extra(group)
    view = state.view()
    assert view.lookup(NodeDisks, "a") == _disks("a", 5)
    assert view.lookup(AppGroup, "default/a") is group
    assert view.lookup(AppGroup, "a") is None


def test_a_view_keeps_what_it_was_given() -> None:
    state = _state()
    state.set_extra(_disks("a", 5))
    before = state.view()
    state.set_extra(_disks("a", 7))
    after = state.view()
    state.delete_extra(NodeDisks, "a")
    state.delete_extra(NodeDisks, "a")
    seen = [view.lookup(NodeDisks, "a") for view in (before, after, state.view())]
    assert seen == [_disks("a", 5), _disks("a", 7), None]


def test_only_the_row_of_its_node_is_looked_at_again() -> None:
    state, read = _state(), list[str]()
    _column(state.view(), read)
    read.clear()
    state.set_extra(_disks("c", 5))
    state.set_extra(AppGroup("default/c", {}))
    assert _column(state.view(), read)[2] == 5
    assert read == ["c"]
    read.clear()
    state.delete_extra(NodeDisks, "c")
    assert _column(state.view(), read)[2] == -1
    assert read == ["c"]


def test_what_is_told_of_a_node_before_it_comes_is_known_when_it_does() -> None:
    state, read = _state(), list[str]()
    _column(state.view(), read)
    state.set_extra(_disks("new", 5))
    assert "new" not in state.view().names
    state.set_node(node("new"))
    view = state.view()
    assert _column(view, read)[view.rows["new"]] == 5


def test_a_view_of_some_rows_knows_the_whole() -> None:
    view = _state().view()
    part = view.take(np.array([2, 0]))
    assert part.whole is view
    assert part.take(np.array([1])).whole is view
    assert view.whole is view
