from __future__ import annotations

import msgspec

from engine.model.elastic_quota import ElasticQuota
from engine.model.koordinator_quota import DEFAULT_QUOTA, TreeSettings
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.quota.tree.counting import bounds_in, tree_in, usage_in, usage_outside
from engine.view import ClusterState
from tests.builders import node_from
from tests.engine.quota.tree.quotas import quota, tree_pod

_NODE = {
    "metadata": {"name": "node-a"},
    "status": {"allocatable": {"cpu": "8", "memory": "1Gi", "pods": "10"}},
}


def _state(*quotas: ElasticQuota) -> ClusterState:
    state = ClusterState()
    for each in quotas:
        state.set_quota(each)
    return state


def _put(state: ClusterState, *pods: Pod) -> None:
    for pod in pods:
        state.set_pod(pod, seen_at=Micros(0))


def test_a_pod_counts_for_the_quota_of_its_label_or_of_its_namespace() -> None:
    listing = quota("listing", tree=TreeSettings(namespaces=("shop",)))
    state = _state(quota("web", namespace="web"), quota("batch"), listing)
    _put(
        state,
        tree_pod("web", "a", "1"),
        tree_pod("web", "b", "2", "batch"),
        tree_pod("shop", "c", "4"),
        tree_pod("shop", "d", "8", "batch", queued=True),
        tree_pod("other", "e", "16", "gone"),
    )
    view = state.view()
    usage = usage_in(view, tree_in(view))
    assert {name: amounts["cpu"] for name, amounts in usage.used.items()} == {
        "web": 1000,
        "batch": 2000,
        "listing": 4000,
        DEFAULT_QUOTA: 16000,
    }
    assert usage.queued == {"batch": {"cpu": 8000, "pods": 1}}


def test_a_pod_that_leaves_or_changes_its_label_is_counted_no_longer() -> None:
    state = _state(quota("batch"), quota("web"))
    _put(
        state, tree_pod("shop", "a", "1", "batch"), tree_pod("shop", "b", "2", "batch", queued=True)
    )
    _put(state, tree_pod("shop", "a", "1", "web"), tree_pod("shop", "b", "2", "batch"))
    facts = state.view().namespaces
    assert facts.labelled == {
        "shop/web": {"cpu": 1000, "pods": 1},
        "shop/batch": {"cpu": 2000, "pods": 1},
    }
    assert not facts.labelled_queued
    for name in ("a", "b"):
        state.delete_pod(f"shop/{name}")
    assert not state.view().namespaces.labelled


def test_pods_of_no_quota_take_of_nodes_what_is_bound() -> None:
    # Nobody may ever place the others: a scheduler that is gone, or a selector that no node has.
    state = _state(quota("batch"))
    bound = msgspec.structs.replace(tree_pod("other", "b", "2"), node_name="node-a")
    labelled = msgspec.structs.replace(tree_pod("other", "c", "3", "gone"), node_name="node-a")
    _put(state, tree_pod("other", "a", "1"), bound, labelled, tree_pod("other", "d", "4", "gone"))
    view = state.view()
    tree = tree_in(view)
    assert usage_outside(view, tree) == {"cpu": 5000, "pods": 2}
    running = [msgspec.structs.replace(each, phase="Running") for each in (bound, labelled)]
    _put(state, *running)
    assert usage_outside(state.view(), tree) == {"cpu": 5000, "pods": 2}


def test_what_a_tree_has_shrinks_by_bound_pods_of_no_quota_alone() -> None:
    state = _state(quota("batch", most={"cpu": 10_000}))
    state.set_node(node_from(_NODE))
    _put(state, tree_pod("other", "a", "3"), tree_pod("shop", "b", "9", "batch", queued=True))
    bounds = []
    for node_name in ("", "node-a"):
        _put(state, msgspec.structs.replace(tree_pod("other", "a", "3"), node_name=node_name))
        view = state.view()
        (_, runtime), *_ = bounds_in(view, tree_in(view)).of("batch")
        bounds.append(runtime)
    assert bounds == [{"cpu": 8000}, {"cpu": 5000}]


def test_queued_pods_request_and_do_not_use() -> None:
    state = _state(
        quota("top", most={"cpu": 6000}, tree=TreeSettings(is_parent=True)),
        quota("left", "top", most={"cpu": 10_000}),
    )
    state.set_node(node_from(_NODE))
    _put(state, tree_pod("shop", "a", "3", "left"), tree_pod("shop", "b", "4", "left", queued=True))
    view = state.view()
    bounds = bounds_in(view, tree_in(view))
    assert bounds.used == {"top": {"cpu": 3000}, "left": {"cpu": 3000}}
    assert bounds.requests["left"].request == {"cpu": 7000}
    key = bounds.tree.children_of("top")[0].key
    assert bounds.of("left") == (
        (key, {"cpu": 6000}),
        ((key[0], key[1], "top"), {"cpu": 6000}),
    )
