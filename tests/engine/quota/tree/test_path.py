from __future__ import annotations

from dataclasses import replace

import msgspec

from engine.model.elastic_quota import DEFAULT_QUOTA, NAME_LABEL, ElasticQuota, TreeSettings
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.quota import RESOURCE_QUOTA_RULES, Reservation
from engine.quota.tree import QuotaPaths
from engine.quota.tree.path import bounds_in, tree_in, usage_in, usage_outside
from engine.view import ClusterState
from tests.builders import node_from, pod_from
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


def _pod(namespace: str, name: str, cpu: str, label: str) -> Pod:
    metadata = {"namespace": namespace, "name": name, "labels": {NAME_LABEL: label}}
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return pod_from({"metadata": metadata, "spec": spec})


def _asks(cpu: int, uid: str = "a", after: int = 0) -> Reservation:
    return Reservation(uid, "", {"cpu": cpu}, after)


def _path_state() -> ClusterState:
    state = ClusterState()
    for each in (
        quota("top", most={"cpu": 6000}, tree=TreeSettings(is_parent=True)),
        quota("batch", "top", most={"cpu": 5000}),
        quota("team", "top", most={"cpu": 4000}, namespace="team"),
    ):
        state.set_quota(each)
    return state


def test_a_pod_is_compared_with_the_quota_of_its_label_and_all_above() -> None:
    state, paths = _path_state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    state.set_pod(_pod("shop", "a", "3", "batch"), seen_at=Micros(0))
    view = state.view()
    assert paths.judge(view, "shop", "batch", _asks(2000), 0.0, dry_run=True).allowed
    over = paths.judge(view, "shop", "batch", _asks(2001), 0.0)
    assert over.exceeded == ("batch",)
    both = paths.judge(view, "shop", "batch", _asks(3001), 0.0)
    assert both.exceeded == ("batch", "top")
    # What waits is compared with what could ever be free.
    assert paths.judge_queued(view, "shop", "batch", _asks(5000), 0.0).allowed
    assert not paths.judge_queued(view, "shop", "batch", _asks(5001), 0.0).allowed


def test_an_admitted_pod_counts_until_it_is_observed_however_late() -> None:
    state, observed = _path_state(), dict[str, int]()
    paths = QuotaPaths(
        RESOURCE_QUOTA_RULES, version_of=lambda uid: observed.get(uid, 0), unseen_seconds=75
    )

    def admits(uid: str, at: float, after: int = 0) -> bool:
        asked = _asks(2000, uid, after)
        return paths.judge(state.view(), "shop", "batch", asked, at).allowed

    # Two of 2,000 fit 5,000; the counts of the view are read again after 0.1 s.
    assert [admits("a", 0.0), admits("b", 0.01, after=7), admits("c", 0.02)] == [True, True, False]
    assert not admits("c", 60.0)
    assert admits("a", 60.01)  # sent again: counted once
    observed["b"] = 7  # the version that is changed: not the change itself
    assert not admits("c", 61.0)
    observed["b"] = 8  # the view has it, or has seen it end
    assert admits("c", 61.2)
    assert [admits("d", 74.9), admits("d", 75.1)] == [False, True]  # the first never came


def test_pods_of_a_name_count_once_and_a_denied_one_not_at_all() -> None:
    state, paths = _path_state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    view = state.view()
    for uid in ("a", "b"):
        named = Reservation(uid, "db-0", {"cpu": 2000})
        assert paths.judge(view, "shop", "batch", named, 0.0).allowed
    assert paths.judge(view, "shop", "batch", _asks(3000, "c"), 1.0).allowed
    paths.withdraw("c")
    assert paths.judge(view, "shop", "batch", _asks(3000, "d"), 2.0).allowed
    assert not paths.judge(view, "shop", "batch", _asks(1, "e"), 3.0).allowed


def test_only_so_many_pods_wait_for_a_quota_of_the_tree() -> None:
    state, paths = _path_state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    few = replace(quota("batch", "top", most={"cpu": 5000}), max_queued=2)
    state.set_quota(few)
    view = state.view()
    waits = [paths.judge_queued(view, "shop", "batch", _asks(1), 0.0) for _ in range(3)]
    assert [verdict.allowed for verdict in waits] == [True, True, False]
    expected = "too many pods wait for quota: batch, waiting: 2, limited: 2"
    assert waits[2].message == expected


def test_the_quota_of_a_namespace_is_left_to_its_reservations_those_above_are_not() -> None:
    state, paths = _path_state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    state.set_pod(_pod("shop", "a", "3", "batch"), seen_at=Micros(0))
    view = state.view()
    assert [each.name for each in paths.quotas_of(view, "team", "")] == ["top"]
    assert paths.judge(view, "team", "", _asks(4500), 0.0).exceeded == ("top",)
    assert paths.judge(view, "elsewhere", "", _asks(9000), 0.0).allowed


def test_a_changed_quota_counts_at_once_and_a_reservation_changes_nothing() -> None:
    state, paths = _path_state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    tree = paths.tree(state.view())
    batch = quota("batch", "top", most={"cpu": 5000})
    state.set_quota(replace(batch, version=7, reservations="{}"))
    assert paths.tree(state.view()) is tree
    state.set_quota(replace(batch, version=8, max={"cpu": 1000}))
    assert not paths.judge(state.view(), "shop", "batch", _asks(1001), 0.0).allowed
