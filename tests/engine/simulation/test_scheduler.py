from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from engine.model.decision import PlacementRequest
from engine.model.hold import RELEASED_ANNOTATION
from engine.simulation.scheduler import (
    SchedulerModel,
    node_order,
    node_scores,
    search,
    unschedulable_message,
)
from engine.view import ClusterState, WhatIf
from tests.engine.measured_cluster import NOW, cluster, node, pod
from tests.engine.plugins.neighbour_worlds import node_model_of

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "10"}
LARGE = {"cpu": "64", "memory": "128Gi", "pods": "10"}
HALF = {"cpu": "2", "memory": "4Gi"}


def incoming(name: str = "p", **spec: Any) -> PlacementRequest:  # noqa: ANN401 (any part)
    return PlacementRequest(pod=pod(name, **spec), raw=b"")


def test_a_pod_goes_to_the_node_with_the_most_points() -> None:
    # a: (4 - 2 - 1) / 4 = 25 % of the cpu, (8 - 4 - 2) / 8 = 25 % of the memory: 25 points;
    # b: 75 and 75: 75 points. The pod keeps both balanced, 50 + (50 + 0) / 2 = 75 points each.
    view = cluster([node("a", **ROOM), node("b", **ROOM)], [pod("q", "a", requests=HALF)])
    request = incoming(requests={"cpu": "1", "memory": "2Gi"})
    scores = node_scores(request.pod, view, NOW)
    assert scores["NodeResourcesFit"].tolist() == [25, 75]
    assert scores["NodeResourcesBalancedAllocation"].tolist() == [75, 75]
    assert SchedulerModel(0).place(request, view, NOW) == "b"


def test_preferred_affinity_counts_twice() -> None:
    # 2 * 100 for the label of a, against 75 - 25 = 50 that b has more.
    view = cluster([node("a", **ROOM), node("b", **ROOM)], [pod("q", "a", requests=HALF)])
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]
    }
    request = incoming(requests={"cpu": "1"}, affinity={"nodeAffinity": preferred})
    assert SchedulerModel(0).place(request, view, NOW) == "a"


def test_pods_that_differ_in_their_image_volumes_have_points_of_their_own() -> None:
    # 4000 MiB on one node of two count half, of which 1000 MiB for the one container is the most.
    holds = {"images": [{"names": ["registry.example/data:1"], "sizeBytes": 4000 << 20}]}
    nodes = [
        node_model_of({"metadata": {"name": name}, "status": {"allocatable": ROOM, **status}})
        for name, status in (("a", holds), ("b", {}))
    ]
    view = cluster(nodes)
    image = {"name": "data", "image": {"reference": "registry.example/data:1"}}
    without, with_volume = incoming(), incoming(volumes=[image])
    assert node_scores(without.pod, view, NOW)["ImageLocality"].tolist() == [0, 0]
    assert node_scores(with_volume.pod, view, NOW)["ImageLocality"].tolist() == [100, 0]


def test_a_nominated_node_is_taken_if_it_can_take_the_pod_and_forgotten_if_not() -> None:
    view = cluster([node("a", **ROOM), node("b", **ROOM)], [pod("q", "a", requests=HALF)])

    def placed(cpu: str, nominated: str) -> str:
        request = incoming(requests={"cpu": cpu})
        pod = structs.replace(request.pod, nominated_node_name=nominated)
        return SchedulerModel(0).place(replace(request, pod=pod), view, NOW)

    assert placed("1", "a") == "a"
    assert placed("3", "a") == "b"
    assert placed("1", "gone") == "b"


def test_a_pod_that_fits_nowhere_has_no_node_and_reasons() -> None:
    tainted = {"key": "dedicated", "effect": "NoSchedule"}
    toleration = {"key": "x", "operator": "Exists"}
    view = cluster([node("a", **ROOM), node("b", cpu="1", memory="8Gi", pods="0")])
    request = incoming(requests={"cpu": "8"}, tolerations=[toleration, tainted])
    assert SchedulerModel(0).place(request, view, NOW) == ""
    assert unschedulable_message(request, view, NOW) == (
        "0/2 nodes are available: 1 Too many pods, 2 Insufficient cpu."
    )
    assert unschedulable_message(request, cluster([]), NOW) == "0/0 nodes are available."
    assert SchedulerModel(0).place(request, cluster([]), NOW) == ""


def test_equal_nodes_are_taken_by_chance_and_the_seed_decides() -> None:
    view = cluster([node(name, **ROOM) for name in "abcd"])

    def landed(seed: int) -> list[str]:
        model = SchedulerModel(seed)
        return [model.place(incoming(requests={"cpu": "1"}), view, NOW) for _ in range(64)]

    assert landed(1) == landed(1) != landed(2)
    assert set(landed(1)) == set("abcd")


def test_in_a_large_cluster_each_search_begins_where_the_last_one_ended() -> None:
    # Of 200 nodes 100 are enough: the first ones, then the others, then the first again.
    names = [f"n{i:03}" for i in range(200)]
    view, model = cluster([node(name, **ROOM) for name in names]), SchedulerModel(3)
    for start in [0, 100] * 8:
        landed = model.place(incoming(requests={"cpu": "1"}), view, NOW)
        assert landed in names[start : start + 100]


def test_in_a_small_cluster_all_nodes_are_looked_at_each_time() -> None:
    names = [f"n{i:03}" for i in range(99)]
    view = cluster([node(name, **ROOM) for name in names[:-1]] + [node(names[-1], **LARGE)])
    model = SchedulerModel(3)
    for _ in range(4):
        assert model.place(incoming(requests={"cpu": "1"}), view, NOW) == names[-1]


def test_pods_that_were_placed_count() -> None:
    what_if = WhatIf(cluster([node("a", **ROOM), node("b", **ROOM)]))
    model = SchedulerModel(0)
    for i in range(4):
        request = incoming(f"p{i}", requests=HALF)
        name = model.place(request, what_if.view, NOW)
        what_if.place(request.pod, what_if.view.rows[name])
    assert model.place(incoming(requests=HALF), what_if.view, NOW) == ""


def test_a_pod_that_names_its_nodes_moves_the_search_by_these_alone() -> None:
    names = [f"n{i:03}" for i in range(200)]
    view, model = cluster([node(name, **ROOM) for name in names]), SchedulerModel(0)
    field = {"key": "metadata.name", "operator": "In", "values": ["n150"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert model.place(incoming(affinity=affinity), view, NOW) == "n150"
    # That was one node: the next searches look at places 1 to 100, and 101 to 0.
    for after in [names[1:101], [*names[101:], names[0]]]:
        assert model.place(incoming(requests={"cpu": "1"}), view, NOW) in after


def test_a_search_goes_around_and_ends_at_the_last_node_that_is_needed() -> None:
    order, passes = np.array([4, 2, 0, 3, 1]), np.array([True, True, False, True, False])
    # From place 3 on: 3 and 1 are rows that pass, then 4 and 2 do not, 0 does.
    assert search(order, passes, 3, 2).feasible.tolist() == [3, 1]
    assert search(order, passes, 3, 2).looked_at == 2
    assert search(order, passes, 8, 3).looked_at == 5
    found = search(order, passes, 0, 9)
    assert (found.feasible.tolist(), found.looked_at) == ([0, 3, 1], 5)


def test_the_order_takes_a_node_of_each_zone_in_turn() -> None:
    zones = {"n5": "a", "n1": "b", "n2": "b", "n3": "a", "n4": "b", "n6": None}
    state = ClusterState()
    for name, zone in zones.items():
        labels = {} if zone is None else {"topology.kubernetes.io/zone": zone}
        state.set_node(node_model_of({"metadata": {"name": name, "labels": labels}}))
    view = state.view()
    names = [view.names[row] for row in node_order(view)]
    # Zones in the order of their first nodes: b by n1, a by n3, none by n6.
    assert names == ["n1", "n3", "n6", "n2", "n5", "n4"]


def test_claims_of_volumes_and_devices_keep_a_pod_off_no_node() -> None:
    view = cluster([node("a", **ROOM)])
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    devices = {"name": "gpu", "resourceClaimName": "gpu"}
    request = incoming(volumes=[claim], resourceClaims=[devices])
    assert SchedulerModel(0).place(request, view, NOW) == "a"


@pytest.mark.parametrize(
    ("annotations", "counts"), [({RELEASED_ANNOTATION: "a"}, True), ({}, False)]
)
def test_pods_count_for_all_pods_where_we_nominated_them_and_for_none_where_the_scheduler_did(
    annotations: dict[str, str],
    counts: bool,  # noqa: FBT001
) -> None:
    state = ClusterState()
    state.set_node(node("a", **ROOM))
    nominated = pod("q", requests={"cpu": "3"}, metadata={"annotations": annotations})
    state.set_pod(structs.replace(nominated, nominated_node_name="a"), seen_at=NOW)
    for priority in (-1, 9):
        request = incoming(requests={"cpu": "2"}, priority=priority)
        placed = SchedulerModel(0).place(request, state.view(), NOW)
        assert placed == ("" if counts else "a")


def test_pods_of_a_template_have_rankings_of_their_own() -> None:
    # The second would go to b, the next of the first ranking, if it had none of its own.
    nodes = [node("a", cpu="16", memory="64Gi", pods="10"), node("b", **ROOM)]
    what_if, model = WhatIf(cluster(nodes)), SchedulerModel(0)
    landed = []
    for i in range(2):
        request = incoming(f"p{i}", requests={"cpu": "1"})
        landed.append(model.place(request, what_if.view, NOW))
        what_if.place(request.pod, what_if.view.rows[landed[-1]])
    assert landed == ["a", "a"]
