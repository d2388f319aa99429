from __future__ import annotations

from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, node
from tests.engine.view.objects import a_pod


def test_a_bound_pod_is_found_by_its_name() -> None:
    state = ClusterState()
    bound = a_pod("p", "a")
    state.set_pod(bound, seen_at=NOW)
    assert state.placement("default/p") == ("a", bound.shape)
    assert state.placement("default/q") is None


def test_one_string_stands_for_a_pod_wherever_its_key_is_kept() -> None:
    state = ClusterState()
    first = "default/p"
    state.set_pod(a_pod(on="a"), seen_at=NOW)
    stored = state.pod_key(first)
    assert stored == first
    assert stored is not first
    state.set_pod(a_pod(on="b"), seen_at=NOW)
    assert state.pod_key(first) is stored
    assert state.pod_key("default/unknown") == "default/unknown"


def test_nodes_are_counted_without_a_view() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_node(node("b"))
    state.set_pod(a_pod(on="c"), seen_at=NOW)
    state.delete_node("a")
    assert (state.node_count, state.version) == (1, state.view().version)
    assert state.node_count == int(state.view().valid.sum())
