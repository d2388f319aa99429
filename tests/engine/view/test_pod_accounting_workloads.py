from __future__ import annotations

from engine.model.decision import Advice
from engine.model.scheduler_plugins import Workload
from engine.view import ClusterState
from engine.view.namespaces import PodCounts
from tests.engine.measured_cluster import NOW
from tests.engine.topology_cluster import node, pod

CART, FRONT = ("shop", "cart"), ("shop", "front")


def test_pods_are_counted_by_workload_and_node_and_an_empty_one_is_forgotten() -> None:
    book = PodCounts[Workload, str]()
    for name in ("a", "b", "a"):
        book.count(CART, name, 1)
    book.count(FRONT, "b", 1)
    assert book.counts == {CART: {"a": 2, "b": 1}, FRONT: {"b": 1}}
    book.count(CART, "b", -1)
    book.count(FRONT, "b", -1)
    assert book.counts == {CART: {"a": 2}}


def test_what_was_given_out_stays_as_it_was() -> None:
    book = PodCounts[Workload, str]()
    book.count(CART, "a", 1)
    held = book.counts
    book.unshare()
    book.count(CART, "a", 1)
    book.count(FRONT, "b", 1)
    assert held == {CART: {"a": 1}}
    book.unshare()
    book.count(CART, "a", -1)
    book.count(CART, "a", -1)
    assert held == {CART: {"a": 1}}
    assert book.counts == {FRONT: {"b": 1}}


def test_a_state_counts_the_pods_of_app_groups_where_they_are_or_are_expected() -> None:
    state = ClusterState()
    for name in "ab":
        state.set_node(node(name))
    state.set_pod(pod(name="one", on="a", workload="cart"), seen_at=NOW)
    state.set_pod(pod(name="plain", on="a"), seen_at=NOW)
    state.set_pod(pod(name="waits", workload="cart"), seen_at=NOW)
    first = state.view()
    state.assume(pod(name="new", workload="cart"), Advice(nodes=("b",), id="1"), at=NOW)
    assert first.workloads == {CART: {"a": 1}}
    assert state.view().workloads == {CART: {"a": 1, "b": 1}}
    state.set_pod(pod(name="one", on="b", workload="front"), seen_at=NOW)  # another of its name
    assert state.view().workloads == {CART: {"b": 1}, FRONT: {"b": 1}}
    state.delete_pod("default/one")
    assert state.view().workloads == {CART: {"b": 1}}
