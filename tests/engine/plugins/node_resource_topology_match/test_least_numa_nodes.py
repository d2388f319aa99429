from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.plugins.node_resource_topology_match.args import NodeResourceTopologyMatchArgs
from engine.plugins.node_resource_topology_match.least_numa_nodes import points
from engine.plugins.node_resource_topology_match.numa_zones import container_requests
from engine.plugins.node_resource_topology_match.plugin import NodeResourceTopologyMatchScore
from tests.engine.measured_cluster import NOW
from tests.engine.topology_cluster import GPU, cluster, node, pod, zones

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.model.numa import NodeZones, NumaLayout
    from engine.model.pod import Pod

SMALL = {"cpu": "4", "memory": "8Gi"}
RULE = NodeResourceTopologyMatchScore(
    NodeResourceTopologyMatchArgs.model_validate({"scoringStrategy": {"type": "LeastNUMANodes"}})
)


def score(one: Pod, told: NodeZones) -> int:
    view = cluster([node(told.node_name)], [told])
    return int(RULE.score(one, view, NOW).values[0])


def asking(cpu: str, **more: str) -> dict[str, str]:
    return {"cpu": cpu, "memory": "1Gi", **more}


def test_each_zone_costs_an_eighth_and_the_nearest_ones_get_half_of_it_back() -> None:
    # 100 // 8 = 12: 100 - 12 + 6, 100 - 24 + 6, 100 - 24, and with room for 4 zones 100 - 25 + 12.
    assert points(1, 8, is_nearest=True) == 94
    assert points(2, 8, is_nearest=True) == 82
    assert points(2, 8, is_nearest=False) == 76
    assert points(1, 4, is_nearest=True) == 87


def test_a_pod_that_needs_two_zones_is_worse_off_than_one_that_needs_one() -> None:
    told = zones("a", SMALL, SMALL, policy="best-effort")
    assert score(pod(asking("4")), told) == 94
    assert score(pod(asking("5")), told) == 82
    assert score(pod(asking("9")), told) == 0


def test_containers_take_from_zones_what_the_next_one_then_lacks() -> None:
    told = zones("a", SMALL, SMALL, policy="none")
    assert score(pod(asking("4"), asking("4")), told) == 94
    assert score(pod(asking("3"), asking("3"), asking("2")), told) == 82  # 1 and 1 are left
    assert score(pod(asking("5"), asking("4")), told) == 0


def test_the_nearest_zones_that_hold_a_pod_are_taken() -> None:
    near = [[10, 20, 12], [20, 10, 30], [12, 30, 10]]
    told = zones("a", SMALL, SMALL, SMALL, distances=near)
    assert score(pod(asking("8")), told) == 82  # the first and the last
    far = zones("a", {"cpu": "1", "memory": "8Gi"}, SMALL, SMALL, distances=near)
    assert score(pod(asking("8")), far) == 76  # only the two that are far from each other


def test_zones_of_unknown_distance_are_as_near_as_any_and_beyond_it_is_no_way() -> None:
    assert score(pod(asking("8")), zones("a", SMALL, SMALL)) == 82
    beyond = [[10, 600], [600, 10]]  # 305 on average
    assert score(pod(asking("8")), zones("a", SMALL, SMALL, distances=beyond)) == 0


def test_what_no_zone_lists_needs_none_but_else_each_zone_must_list_all() -> None:
    told = zones("a", {GPU: "1"}, policy="none")
    assert score(pod(asking("8")), told) == 100
    assert score(pod(asking("1")), zones("a", policy="none")) == 100
    half = zones("a", SMALL | {GPU: "1"}, SMALL)
    assert score(pod(asking("5", **{GPU: "1"})), half) == 0
    assert score(pod(asking("4", **{GPU: "1"})), half) == 94


def test_in_the_scope_of_the_pod_its_containers_are_one() -> None:
    told = zones("a", SMALL, SMALL, scope="pod", policy="none")
    assert score(pod(asking("3"), asking("3")), told) == 82


@pytest.mark.parametrize(("most", "expected"), [("1", 94), ("x", 94), ("2", 75), ("9999", 100)])
def test_how_many_zones_a_kubelet_expects_sets_the_unit(most: str, expected: int) -> None:
    # 100 // 2 = 50: 100 - 50 + 25; of 1024 each costs nothing; 1 and nonsense leave it at 8.
    told = zones("a", SMALL, topologyManagerMaxNUMANodes=most)
    assert score(pod(asking("1")), told) == expected


def test_a_node_of_very_many_zones_is_not_looked_at_in_all_combinations() -> None:
    told = zones("a", *[SMALL] * 64)
    assert score(pod(asking("8")), told) == 82
    assert score(pod(asking("200")), told) == 0  # 50 zones would hold it


# The same, said once more node by node.

_texts = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["1", "2", "4"]), "memory": st.sampled_from(["1Gi", "2Gi"])},
    optional={GPU: st.sampled_from(["0", "1", "2"])},
)
_costs = st.lists(
    st.lists(st.sampled_from([10, 12, 20, 255]), min_size=4, max_size=4), min_size=4, max_size=4
)


def _scalar(requests: Sequence[Mapping[str, int]], told: NodeZones) -> int:
    """Return the points of a node, by upstream's own steps."""
    left = [dict(free) for free in told.available]
    most, is_nearest = 0, True
    for request in requests:
        if not any(name in free for free in left for name in request):
            continue
        found = _needed(request, left, told.layout)
        if found is None:
            return 0
        chosen, is_near = found
        most, is_nearest = max(most, len(chosen)), is_nearest and is_near
        for name, amount in request.items():
            missing = amount
            for i in chosen:
                taken = min(missing, left[i][name])
                left[i][name] -= taken
                missing -= taken
    unit = 100 // told.layout.most_zones
    return 100 - most * unit + unit // 2 * is_nearest if most else 100


def _needed(
    request: Mapping[str, int], left: Sequence[Mapping[str, int]], layout: NumaLayout
) -> tuple[tuple[int, ...], bool] | None:
    for size in range(1, len(left) + 1):
        every = list(combinations(range(len(left)), size))
        far = {some: sum(layout.distances[i][j] for i in some for j in some) for some in every}
        nearest = min(255 * size * size, *far.values())
        fitting = [
            some
            for some in every
            if all(name in left[i] for i in some for name in request)
            and all(sum(left[i][name] for i in some) >= need for name, need in request.items())
        ]
        if fitting:
            best = min(fitting, key=far.__getitem__)
            return best, far[best] == nearest
    return None


@settings(max_examples=120)
@given(
    st.lists(_texts, min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.lists(_texts, min_size=1, max_size=4), _costs, st.sampled_from(["pod", "container"])
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_points_are_what_upstream_gives_node_by_node(
    containers: list[dict[str, str]],
    told: list[tuple[list[dict[str, str]], list[list[int]], str]],
) -> None:
    one = pod(*containers)
    every = [
        zones(f"n{i}", *parts, scope=scope, policy="none", distances=costs)
        for i, (parts, costs, scope) in enumerate(told)
    ]
    view = cluster([node(each.node_name) for each in every], every)
    by_scope = {"pod": [one.shape.peak_requests], "container": container_requests(one)[1]}
    expected = [_scalar(by_scope[each.layout.scope], each) for each in every]
    assert RULE.score(one, view, NOW).values.tolist() == expected
