from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.model.decision import Advice
from engine.model.node import DeviceClass
from engine.model.scheduler_plugins import SINGLE_ZONE
from engine.plugins.base import PASS, Cycle
from engine.plugins.node_resource_topology_match import (
    ABSENT,
    NodeResourceTopologyMatchArgs,
    NodeResourceTopologyMatchFilter,
    NodeResourceTopologyMatchScore,
    ZoneTables,
    container_requests,
    first_of,
    is_host_level,
    is_native,
    is_shared,
    points,
    whole_units,
)
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, by_node
from tests.engine.topology_cluster import GPU, cluster, node, pod, zones

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.model.pod import Pod
    from engine.model.scheduler_plugins import NodeZones, NumaLayout
    from engine.view import ClusterView


@pytest.mark.parametrize(
    "args",
    [
        {"scoringStrategy": {"type": "Fastest"}},
        {"scoringStrategy": {}},
        {"scoringStrategy": {"type": "MostAllocated", "resources": [{"weight": 1}]}},
        {"cache": {"resyncMethod": "Sometimes"}},
        {"preemptionMode": "On"},
        {"discardReservedNodes": "yes"},
    ],
)
def test_args_are_checked(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NodeResourceTopologyMatchArgs.model_validate(args)


def test_args_have_the_upstream_defaults() -> None:
    args = NodeResourceTopologyMatchArgs()
    assert args.scoring_strategy.type == "LeastAllocated"
    assert args.weights == {"cpu": 1, "memory": 1}
    written = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}]}
    parsed = NodeResourceTopologyMatchArgs.model_validate({"scoringStrategy": written})
    assert parsed.weights == {"cpu": 1}


SMALL = {"cpu": "4", "memory": "8Gi"}
RULE = NodeResourceTopologyMatchScore(
    NodeResourceTopologyMatchArgs.model_validate({"scoringStrategy": {"type": "LeastNUMANodes"}})
)


def score(one: Pod, told: NodeZones) -> int:
    view = cluster([node(told.node_name)], [told])
    return int(RULE.score(Cycle(one, view, NOW)).values[0])


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
    assert RULE.score(Cycle(one, view, NOW)).values.tolist() == expected


def verdict(one: Pod, told: NodeZones | None, **allocatable: str) -> str:
    """Return why a pod may not go to a node, "" if it may."""
    view = cluster([node("a", **allocatable)], [told] if told else [])
    rule = NodeResourceTopologyMatchFilter(NodeResourceTopologyMatchArgs())
    (code,) = rule.filter(Cycle(one, view, NOW)).codes.tolist()
    return "" if code == PASS else rule.reasons(code, Cycle(one, view, NOW))[0]


def test_what_no_zone_holds_alone_cannot_be_aligned() -> None:
    told = zones("a", SMALL, SMALL)
    assert verdict(pod({"cpu": "4", "memory": "1Gi"}), told) == ""
    assert verdict(pod({"cpu": "5", "memory": "1Gi"}), told) == "cannot align container"


def test_containers_take_the_lowest_zone_that_holds_them_one_after_the_other() -> None:
    three, two = {"cpu": "3", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}
    told = zones("a", SMALL, SMALL)
    assert verdict(pod(three, three), told) == ""
    assert verdict(pod(three, three, two), told) == "cannot align container"
    assert verdict(pod(two, two, three), told) == ""  # 2 and 2 in the first, 3 in the second
    assert verdict(pod(two, three, three), told) == "cannot align container"


def test_in_the_scope_of_the_pod_all_containers_go_to_one_zone() -> None:
    two = {"cpu": "3", "memory": "1Gi"}
    told = zones("a", SMALL, SMALL, scope="pod")
    assert verdict(pod(two), told) == ""
    assert verdict(pod(two, two), told) == "cannot align pod"


def test_init_containers_leave_their_zone_as_it_was() -> None:
    whole, half = {"cpu": "4", "memory": "8Gi"}, {"cpu": "2", "memory": "1Gi"}
    told = zones("a", SMALL)
    assert verdict(pod(whole, init=[whole, half]), told) == ""
    too_much = {"cpu": "5", "memory": "1Gi"}
    assert verdict(pod(half, init=[too_much]), told) == "cannot align init container"


def test_a_sidecar_is_called_one() -> None:
    sides = {"requests": {"cpu": "5", "memory": "1Gi"}, "limits": {"cpu": "5", "memory": "1Gi"}}
    sidecar = {"restartPolicy": "Always", "resources": sides}
    one = pod({"cpu": "1", "memory": "1Gi"}, initContainers=[sidecar])
    assert verdict(one, zones("a", SMALL)) == "cannot align sidecar container"


def test_a_pod_that_is_not_guaranteed_shares_cpu_and_memory_but_no_device() -> None:
    much = {"cpu": "50", "memory": "100Gi"}
    told = zones("a", SMALL | {GPU: "1"}, SMALL)
    assert verdict(pod(much, is_guaranteed=False), told) == ""
    one, two = {GPU: "1", **much}, {GPU: "2"}
    assert verdict(pod(one, is_guaranteed=False), told, **{GPU: "2"}) == ""
    assert verdict(pod(one, one, is_guaranteed=False), told, **{GPU: "2"}) != ""
    assert verdict(pod(two, is_guaranteed=False), told, **{GPU: "2"}) != ""


def test_a_device_that_belongs_to_no_zone_is_anywhere_on_the_node() -> None:
    asked = {"cpu": "1", "memory": "1Gi", GPU: "1", "ephemeral-storage": "1Gi"}
    told = zones("a", SMALL, SMALL)
    assert verdict(pod(asked, asked), told, **{GPU: "2"}) == ""
    assert verdict(pod(asked), told) == "cannot align container"  # the node has none at all


def test_devices_of_a_class_are_in_no_zone_of_a_node_without_a_plugin_for_them() -> None:
    gpu = DeviceClass(name="gpu", resource=GPU)
    rule = NodeResourceTopologyMatchFilter(NodeResourceTopologyMatchArgs())
    fits, too_much = ({"cpu": cpu, "memory": "1Gi", GPU: "1"} for cpu in ("1", "5"))
    nodes = [node("a"), node("b", **{GPU: "2"})]
    told = [zones("a", SMALL), zones("b", SMALL | {GPU: "0"})]
    view = cluster(nodes, [*told, gpu])

    def rejected(one: Pod) -> set[str]:
        rejects = rule.filter(Cycle(one, view, NOW)).rejects.tolist()
        return {name for name, is_rejected in zip(view.names, rejects, strict=True) if is_rejected}

    assert rejected(pod(fits)) == {"b"}
    assert rejected(pod(too_much)) == {"a", "b"}


def test_a_best_effort_pod_passes_unless_it_asks_for_a_device() -> None:
    told = zones("a", SMALL)
    assert verdict(pod({}), told) == ""
    assert verdict(pod({GPU: "1"}), told) == "cannot align container"


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_a_kubelet_of_another_policy_takes_every_pod(policy: str) -> None:
    huge = pod({"cpu": "50", "memory": "1Gi"})
    assert verdict(huge, zones("a", SMALL, policy=policy)) == ""
    assert verdict(huge, None) == ""


def test_a_node_where_a_pod_is_expected_is_discarded_if_asked_for() -> None:
    args = NodeResourceTopologyMatchArgs.model_validate({"discardReservedNodes": True})
    state = ClusterState()
    for name in "ab":
        state.set_node(node(name))
        state.set_extra(zones(name, SMALL))
    small = pod({"cpu": "1", "memory": "1Gi"}, name="one")
    state.assume(small, Advice(nodes=("a",), id="1"), at=NOW)
    view = state.view()
    rule = NodeResourceTopologyMatchFilter(args)
    codes = rule.filter(Cycle(small, view, NOW)).codes.tolist()
    assert [code and rule.reasons(code, Cycle(small, view, NOW)) for code in codes] == [
        ("invalid node topology data",),
        PASS,
    ]
    points = NodeResourceTopologyMatchScore(args).score(Cycle(small, view, NOW)).values
    assert by_node(view, points)["a"] == 0 < by_node(view, points)["b"]


def test_to_a_pod_that_is_not_guaranteed_all_nodes_are_as_good() -> None:
    view = cluster([node("a"), node("b")], [zones("a", SMALL)])
    burstable = pod({"cpu": "1"}, is_guaranteed=False)
    rule = NodeResourceTopologyMatchScore(NodeResourceTopologyMatchArgs())
    assert by_node(view, rule.score(Cycle(burstable, view, NOW)).values) == {"a": 100, "b": 100}


# The filter, said once more node by node.

_reason_texts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "1", "2", "4"]),
        "memory": st.sampled_from(["1Gi", "2Gi"]),
        "hugepages-2Mi": st.sampled_from(["2Mi", "4Mi"]),
        GPU: st.sampled_from(["0", "1", "2"]),
        "ephemeral-storage": st.just("1Gi"),
    },
)
_lists = st.lists(_reason_texts, max_size=3)


_AFFINE = {"cpu", "memory", "hugepages-2Mi"}


def _home(
    request: Mapping[str, int], left: list[dict[str, int]], offered: set[str], shared: set[str]
) -> int | None:
    """Return the lowest zone that holds a request, None if there is none."""
    fitting = set(range(65))
    for name, amount in request.items():
        listing = {i for i, free in enumerate(left) if name in free}
        if not amount:
            continue
        if name not in offered:
            return None
        if listing or name in _AFFINE:
            fitting &= {i for i in listing if name in shared or left[i][name] >= amount}
    return min(fitting, default=None)


def _scalar_scores(one: Pod, told: NodeZones, offered: set[str]) -> bool:
    """Return whether a node passes, by upstream's own steps."""
    left = [dict(free) for free in told.available]
    shared = set() if one.shape.qos_class == "Guaranteed" else _AFFINE
    if told.layout.scope == "pod":
        return _home(one.shape.peak_requests, left, offered, shared) is not None
    init, app = container_requests(one)
    if any(_home(request, left, offered, shared) is None for request in init):
        return False
    for request in app:
        zone = _home(request, left, offered, shared)
        if zone is None:
            return False
        for name in request.keys() - shared:
            if zone < len(left) and name in left[zone]:
                left[zone][name] -= request[name]
    return True


@settings(max_examples=150)
@given(
    st.lists(_reason_texts, min_size=1, max_size=3),
    _lists,
    st.lists(st.tuples(_lists, st.sampled_from(["pod", "container"])), min_size=1, max_size=4),
    st.booleans(),
)
def test_the_filter_says_what_upstream_says_node_by_node(
    containers: list[dict[str, str]],
    init: list[dict[str, str]],
    told: list[tuple[list[dict[str, str]], str]],
    is_guaranteed: bool,  # noqa: FBT001 (drawn)
) -> None:
    one = pod(*containers, init=init, is_guaranteed=is_guaranteed)
    every = [
        zones(f"n{i}", *parts, policy=SINGLE_ZONE, scope=scope)
        for i, (parts, scope) in enumerate(told)
    ]
    offers = {GPU: "4", "hugepages-2Mi": "64Mi"}
    view = cluster([node(each.node_name, **offers) for each in every], every)
    rule = NodeResourceTopologyMatchFilter(NodeResourceTopologyMatchArgs())
    passes = [code == PASS for code in rule.filter(Cycle(one, view, NOW)).codes.tolist()]
    offered = {"cpu", "memory", "ephemeral-storage", *offers}
    asks = any(GPU in each for each in (*containers, *init))
    is_free = one.shape.qos_class == "BestEffort" and not asks
    assert passes == [is_free or _scalar_scores(one, each, offered) for each in every]


def scores(one: Pod, view: ClusterView, strategy: str, **weights: int) -> dict[str, int]:
    resources = [{"name": name, "weight": weight} for name, weight in weights.items()]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    rule = NodeResourceTopologyMatchScore(NodeResourceTopologyMatchArgs.model_validate(args))
    return by_node(view, rule.normalize(rule.score(Cycle(one, view, NOW)).values))


def test_strategies_rank_by_the_worst_zone_that_holds_the_pod() -> None:
    big, full = {"cpu": "8", "memory": "8Gi"}, {"cpu": "1", "memory": "8Gi"}
    view = cluster(
        [node("roomy"), node("tight"), node("untold")],
        [zones("roomy", big, full), zones("tight", SMALL, big)],
    )
    one = pod({"cpu": "2", "memory": "2Gi"})
    # roomy: of 8 cores 6 are left, 75 %, of 8Gi 75 %; the full zone holds no 2 cores but 75 % of
    # its memory would be left: (0 + 75) / 2 = 37, the least. tight: (50 + 75) / 2 = 62.
    assert scores(one, view, "LeastAllocated") == {"roomy": 37, "tight": 62, "untold": 0}
    # Taken: roomy min((25 + 25) / 2, (0 + 25) / 2) = 12; tight min((50 + 25) / 2 = 37, 25).
    assert scores(one, view, "MostAllocated") == {"roomy": 12, "tight": 25, "untold": 0}
    # Weighed 3 to 1: roomy min(75, 75 / 4 = 18), tight min((3 * 50 + 75) / 4 = 56, 75).
    assert scores(one, view, "LeastAllocated", cpu=3) == {"roomy": 18, "tight": 56, "untold": 0}
    # Shares 1/4 and 1/4 are even, 100; 1/2 and 1/4 vary by 1/32: int(96.875). The full zone: 0.
    assert scores(one, view, "BalancedAllocation") == {"roomy": 100, "tight": 96, "untold": 0}


def test_cpu_counts_in_whole_cores_when_scored() -> None:
    view = cluster([node("a")], [zones("a", {"cpu": "3500m", "memory": "4Gi"})])
    # 1.5 of 3.5 cores are 2 of 4 in whole ones: 50 % left. Of the memory 75 %. (50 + 75) / 2.
    assert scores(pod({"cpu": "1500m", "memory": "1Gi"}), view, "LeastAllocated") == {"a": 62}


def test_each_container_is_scored_for_itself() -> None:
    view = cluster([node("a")], [zones("a", SMALL)])
    # (75 + 75) / 2 and (50 + 50) / 2: 75 and 50, the mean is 62.5.
    one = pod({"cpu": "1", "memory": "2Gi"}, {"cpu": "2", "memory": "4Gi"})
    assert scores(one, view, "LeastAllocated") == {"a": 62}


def test_tables_are_as_high_as_the_node_with_the_most_zones() -> None:
    view = cluster(
        [node("one"), node("two"), node("none")],
        [zones("one", {"cpu": "1500m"}), zones("two", {"cpu": "2"}, {"memory": "1Gi"})],
    )
    tables = ZoneTables.of(view)
    assert tables.available("cpu").tolist() == [[1500, 2000, ABSENT], [ABSENT, ABSENT, ABSENT]]
    assert tables.whole_units("cpu").tolist() == [[2, 2, 1], [1, 1, 1]]  # in cores, rounded up
    assert tables.exist().tolist() == [[True, True, False], [False, True, False]]


def test_a_node_that_tells_of_more_zones_makes_all_tables_higher() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_extra(zones("a", {"cpu": "1"}))
    assert ZoneTables.of(state.view()).available("cpu").shape == (1, 1)
    state.set_node(node("b"))
    state.set_extra(zones("b", *[{"cpu": "1"}] * 3))
    view = state.view()
    assert ZoneTables.of(view).available("cpu").shape == (3, 2)
    some = ZoneTables.of(view.take(np.array([0])))
    assert some.available("cpu").tolist() == [[1000], [ABSENT], [ABSENT]]


def test_nodes_are_found_by_what_their_kubelet_does() -> None:
    told = [zones("a", scope="pod"), zones("b"), zones("c", policy="none")]
    tables = ZoneTables.of(cluster(map(node, "abcd"), told))
    assert tables.has("single-numa-node", "pod").tolist() == [True, False, False, False]
    assert tables.has("single-numa-node", "container").tolist() == [False, True, False, False]
    assert not tables.has("restricted", "pod").any()
    assert sorted(int(row) for _, rows in tables.rows_by_layout() for row in rows) == [0, 1, 2]


def test_a_node_offers_what_it_lists_and_four_resources_always() -> None:
    view = cluster([node("a", **{GPU: "0", "gpu": "2"}), node("b")])
    offered = {name: ZoneTables.of(view).is_offered(name).tolist() for name in (GPU, "gpu")}
    assert offered == {GPU: [True, False], "gpu": [False, False]}
    assert ZoneTables.of(view).is_offered("ephemeral-storage").all()


def test_a_node_lists_what_any_of_its_zones_lists() -> None:
    tables = ZoneTables.of(
        cluster(map(node, "abc"), [zones("a", {"cpu": "1"}, {GPU: "0"}), zones("b", {"cpu": "1"})])
    )
    assert tables.is_listed([GPU]).tolist() == [True, False, False]
    assert tables.is_listed([GPU, "cpu"]).tolist() == [True, True, False]
    assert not tables.is_listed([]).any()


def test_the_most_of_some_zones_is_that_of_those_that_list_all_the_rest() -> None:
    told = zones("a", {"cpu": "1", GPU: "1"}, {"cpu": "8"}, {"cpu": "4", GPU: "0"})
    tables = ZoneTables.of(cluster([node("a")], [told]))
    assert tables.most_in("cpu", frozenset(["cpu"])).T.tolist() == [[8000, 12000, 13000]]
    one, two, three = tables.most_in("cpu", frozenset(["cpu", GPU]))[:, 0].tolist()
    assert (one, two) == (4000, 5000)
    assert three < 0  # one of three lists no GPU


def test_the_first_of_each_column_is_found_among_as_many_as_255() -> None:
    suitable = np.zeros((255, 3), np.bool_)
    suitable[[0, 254, 254], [0, 0, 1]] = True
    assert first_of(suitable).tolist() == [0, 254, 255]


@pytest.mark.parametrize(
    ("resource", "native", "host_level", "shared"),
    [
        ("cpu", True, False, True),
        ("hugepages-2Mi", True, False, True),
        ("ephemeral-storage", True, True, False),
        ("kubernetes.io/x", True, False, False),
        (GPU, False, True, False),
    ],
)
def test_resources_belong_to_zones_in_three_ways(
    resource: str,
    native: bool,  # noqa: FBT001 (a parameter)
    host_level: bool,  # noqa: FBT001 (a parameter)
    shared: bool,  # noqa: FBT001 (a parameter)
) -> None:
    assert is_native(resource) is native
    assert is_host_level(resource) is host_level
    assert is_shared(resource, "Burstable") is shared
    assert not is_shared(resource, "Guaranteed")


def test_only_cpu_has_parts_of_a_whole() -> None:
    assert whole_units("cpu", 1001) == 2
    assert whole_units("memory", 1001) == 1001


def test_what_containers_request_is_bounded() -> None:
    one = pod({"cpu": "1", "memory": "9E"}, {}, init=[{GPU: "2"}])
    assert container_requests(one) == ([{GPU: 2}], [{"cpu": 1000, "memory": 2**48}, {}])


def test_caches_and_preemption_of_upstream_are_accepted_and_change_nothing() -> None:
    upstreams = {
        "cacheResyncPeriodSeconds": 5,
        "cache": {"resyncMethod": "All", "informerMode": "Shared"},
        "preemptionMode": "Enabled",
    }
    both = NodeResourceTopologyMatchArgs.model_validate(upstreams), NodeResourceTopologyMatchArgs()
    view = cluster([node("a")], [zones("a", SMALL, SMALL)])
    for cpu in ("1", "5"):  # one that a zone holds, and one that none does
        one = pod({"cpu": cpu, "memory": "1Gi"})
        rejects = [
            NodeResourceTopologyMatchFilter(args).filter(Cycle(one, view, NOW)) for args in both
        ]
        scores = [
            NodeResourceTopologyMatchScore(args).score(Cycle(one, view, NOW)) for args in both
        ]
        assert rejects[0].rejects.tolist() == rejects[1].rejects.tolist() == [cpu == "5"]
        assert scores[0].values.tolist() == scores[1].values.tolist()
