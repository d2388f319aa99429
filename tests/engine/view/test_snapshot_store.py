from __future__ import annotations

from engine.view import ClusterState, Domain
from tests.engine.measured_cluster import NOW, node
from tests.engine.view.objects import a_pod


def test_a_view_is_made_once_per_version() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    assert state.view() is state.view()


def test_only_rows_that_an_event_speaks_of_are_out_of_date() -> None:
    state = ClusterState()
    for name in "abc":
        state.set_node(node(name, cpu="4"))
    before = state.view().version
    state.set_pod(a_pod("p", "b"), seen_at=NOW)
    view = state.view()
    assert view.changed_since(before, (Domain.PODS,)).tolist() == [view.rows["b"]]
    assert view.changed_since(before, (Domain.NODES, Domain.METRICS)).size == 0
