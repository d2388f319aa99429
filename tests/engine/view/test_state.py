from __future__ import annotations

import msgspec

from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.time import SECOND, Micros
from engine.model.usage import PodUsage
from engine.plugins.load_aware.estimation import LoadSums
from engine.view import ClusterState, Domain, Sum
from engine.view.rows import MOST_RESOURCES
from tests.engine.measured_cluster import NOW, node, report, seconds_ago
from tests.engine.view.objects import GPU, PROFILES, SCHEDULED, a_pod, quota


def test_a_heartbeat_of_a_node_is_no_event() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    before = state.view().version
    state.set_node(node("a", cpu="4"))
    assert state.view().version == before


def test_an_update_of_a_pod_that_changes_nothing_counted_is_no_event() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p", "a"), seen_at=NOW)
    before = state.view().version
    state.set_pod(a_pod("p", "a"), seen_at=Micros(NOW + SECOND))
    assert state.view().version == before


def test_another_version_of_the_cluster_makes_every_node_count_as_changed() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    old = state.view()
    state.set_kubernetes(KubernetesVersion(1, 37))
    new = state.view()
    assert (old.kubernetes, new.kubernetes) == (ASSUMED, KubernetesVersion(1, 37))
    assert list(new.changed_since(old.version, (Domain.NODES,))) == [new.rows["a"]]
    state.set_kubernetes(KubernetesVersion(1, 37))
    assert state.view().version == new.version


def test_pods_may_be_known_before_their_node_and_outlive_it() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p", "a"), seen_at=NOW)
    assert not state.view().valid[state.view().rows["a"]]
    state.set_node(node("a", cpu="4"))
    state.delete_node("a")
    view = state.view()
    # 500m, requested by the one pod that is left.
    assert not view.valid[view.rows["a"]]
    assert view.amount(view.sums[Sum.REQUESTS], "cpu")[view.rows["a"]] == 500
    state.delete_pod("default/p")
    assert "a" not in state.view().rows


def test_a_pod_that_finishes_gives_back_what_it_took() -> None:
    state = ClusterState()
    for name in ("p", "q"):
        state.set_pod(a_pod(name, "a"), seen_at=NOW)
    # 500m twice, and two pods.
    assert state.view().namespaces.requested == {"default": {"cpu": 1000, "pods": 2}}
    state.set_pod(msgspec.structs.replace(a_pod("p", "a"), phase="Succeeded"), seen_at=NOW)
    assert state.view().namespaces.requested == {"default": {"cpu": 500, "pods": 1}}
    assert len([*state.pods_containing("")]) == 1


def test_a_pending_pod_counts_for_its_namespace_and_no_node() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p"), seen_at=NOW)
    assert state.view().namespaces.requested == {"default": {"cpu": 500, "pods": 1}}
    assert not state.view().rows
    assert state.placement("default/p") is None


def test_a_pod_that_does_not_say_when_it_was_bound_was_so_when_first_seen_there() -> None:
    state = ClusterState()
    state.track_sums(PROFILES[:1])
    # Measured 30 s ago for the 60 s before: what was bound 90 s ago or earlier is measured in full.
    for name in "ab":
        measured = {"p": PodUsage({"cpu": 100}, is_prod=True)}
        state.set_usage(report(name, {"cpu": 100}, age=30, pods=measured))

    def delta(name: str) -> int:
        view = state.view()
        return int(LoadSums.of(view, PROFILES[0]).node_delta[0, view.rows[name]])

    state.set_pod(a_pod("p", "a"), seen_at=seconds_ago(600))
    assert delta("a") == 0
    state.set_pod(a_pod("p", "a"), seen_at=seconds_ago(10))
    assert delta("a") == 0
    # Moved 10 s ago: 85 % of 500m, less the 100m measured.
    state.set_pod(a_pod("p", "b"), seen_at=seconds_ago(10))
    assert delta("b") == 325
    # Now it says when it was bound: long before.
    state.set_pod(a_pod("p", "b", conditions=[SCHEDULED]), seen_at=seconds_ago(10))
    assert delta("b") == 0


def test_quotas_of_a_namespace_stand_in_name_order() -> None:
    state = ClusterState()
    for name in ("y", "x"):
        state.set_quota(quota("default", name))
    state.set_quota(quota("default", "x", group="scheduling.sigs.k8s.io"))
    names = [(quota.name, quota.group) for quota in state.view().namespaces.quotas["default"]]
    assert names == [
        ("x", "scheduling.sigs.k8s.io"),
        ("x", "scheduling.x-k8s.io"),
        ("y", "scheduling.x-k8s.io"),
    ]


def test_resources_get_a_place_when_they_are_first_named() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    before = state.view()
    state.set_pod(a_pod("p", "a", template={"limits": {GPU: "2"}}), seen_at=NOW)
    assert before.axis.find(GPU) is None
    assert before.amount(before.sums[Sum.LIMITS], GPU).tolist() == [0]
    view = state.view()
    assert view.amount(view.sums[Sum.LIMITS], GPU).tolist() == [2]


def test_amounts_of_zero_get_no_place() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p", "a", template={"limits": {GPU: "0"}}), seen_at=NOW)
    assert state.view().axis.find(GPU) is None


def test_pods_cannot_name_ever_more_resources() -> None:
    state = ClusterState()
    for i in range(50):
        named = {f"x.io/r{i}-{j}": "1" for j in range(10)}
        state.set_pod(a_pod(f"p{i}", "a", template={"limits": named}), seen_at=NOW)
    assert len(state.view().axis) == MOST_RESOURCES
    # What a node offers always has its place, and then counts what was there before.
    late = f"x.io/r{49}-{9}"
    state.set_node(node("a", cpu="4", **{late: "8"}))
    view = state.view()
    assert view.amount(view.sums[Sum.LIMITS], late).tolist() == [1]
    for i in range(50):
        state.delete_pod(f"default/p{i}")
    assert not state.view().sums.any()


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
