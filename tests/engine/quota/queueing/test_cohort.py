from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from engine.model.quantity import INT64_MAX
from engine.model.selectors import parse_selector_text
from engine.quota.queueing import NodeSelection, cohort_of_nodes, sum_of_min, weighted_share
from engine.view import ClusterView
from tests.engine.measured_cluster import cluster, node, pod
from tests.engine.quota.queueing.queues import key, quota


def view() -> ClusterView:
    nodes = [
        replace(node("a", cpu="4"), labels={"pool": "batch"}),
        node("b", cpu="4"),
        replace(node("cordoned", cpu="4"), unschedulable=True),
        replace(node("away", cpu="4"), ready=False),
    ]
    pods = [
        pod(f"on-{name}", name, requests={"cpu": "1"}) for name in ("a", "b", "cordoned", "away")
    ]
    return cluster(nodes, pods)


def test_cordoned_nodes_and_those_that_are_not_ready_do_not_count() -> None:
    found = cohort_of_nodes(view(), NodeSelection(), assumed=(), unbound={})
    assert (found.capacity["cpu"], found.used["cpu"]) == (8_000, 2_000)


def test_a_selector_picks_the_nodes_and_what_runs_on_them() -> None:
    selection = NodeSelection(parse_selector_text("pool=batch"))
    found = cohort_of_nodes(view(), selection, assumed=(), unbound={})
    assert (found.capacity["cpu"], found.used["cpu"]) == (4_000, 1_000)


def test_a_pod_that_is_not_bound_counts_once() -> None:
    found = cohort_of_nodes(
        view(),
        NodeSelection(),
        assumed=[("a", {"cpu": 1_000}), ("cordoned", {"cpu": 1_000})],
        unbound={"cpu": 1_500, "memory": 7},
    )
    assert (found.used["cpu"], found.used["memory"]) == (2_500, 7)


def test_the_sum_of_min_leaves_the_number_of_pods_free() -> None:
    quotas = [quota("a", {"cpu": 3}), quota("b", {"cpu": 4, "memory": 1})]
    usage = {key("a"): {"cpu": 5, "pods": 9}, key("parent"): {"cpu": 100}}
    found = sum_of_min({each.key: each for each in quotas}, usage)
    assert (found.capacity["cpu"], found.capacity["memory"]) == (7, 1)
    assert found.capacity["pods"] > 1_000_000
    assert found.used["cpu"] == 5


def test_pods_assumed_on_a_node_beyond_its_room_free_no_more_than_it_has() -> None:
    # 1 core is bound of 4, and two pods of 3 are nominated: without these 1 is used, not -2.
    pods = [
        pod(name, "a", requests={"cpu": cpu}) for name, cpu in (("p", "1"), ("q", "3"), ("r", "3"))
    ]
    found = cohort_of_nodes(
        cluster([node("a", cpu="4")], pods),
        NodeSelection(),
        assumed=[("a", {"cpu": 3_000}), ("a", {"cpu": 3_000})],
        unbound={},
    )
    assert found.used["cpu"] == 1_000


amounts = st.integers(1, INT64_MAX)
weights = st.integers(1, 1_000_000)


def test_the_share_is_the_greatest_ratio_of_what_is_borrowed_over_the_weight() -> None:
    # cpu (6 - 2) / 10, memory (9 - 0) / 90: 0.4 / 3
    used, capacity = {"cpu": 6, "memory": 9}, {"cpu": 10, "memory": 90}
    assert weighted_share(used, {}, {"cpu": 2}, capacity, 3) == (4 << 168) // (10 * 3)
    assert weighted_share(used, {}, {"cpu": 6, "memory": 9}, capacity, 3) == 0


def test_a_pod_to_be_admitted_counts_as_used() -> None:
    # of cpu 8 with the pod, 4 above min, of 10
    assert weighted_share({"cpu": 6}, {"cpu": 2}, {"cpu": 4}, {"cpu": 10}, 1) == (4 << 168) // 10


def test_what_the_cohort_has_none_of_does_not_count() -> None:
    assert weighted_share({"gpu": 5}, {}, {}, {"cpu": 4}, 1) == 0


@given(amounts, amounts, weights, amounts, amounts, weights)
def test_shares_compare_as_the_fractions_do(
    above: int, capacity: int, weight: int, other: int, other_capacity: int, other_weight: int
) -> None:
    first = weighted_share({"cpu": above}, {}, {}, {"cpu": capacity}, weight)
    second = weighted_share({"cpu": other}, {}, {}, {"cpu": other_capacity}, other_weight)
    exact = Fraction(above, capacity * weight), Fraction(other, other_capacity * other_weight)
    assert (first < second, first == second) == (exact[0] < exact[1], exact[0] == exact[1])
