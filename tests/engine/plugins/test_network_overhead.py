from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.model.decision import Advice
from engine.plugins.base import PASS, Cycle
from engine.plugins.network_overhead import (
    NetworkOverheadArgs,
    NetworkOverheadFilter,
    NetworkOverheadScore,
)
from engine.view import ClusterState, ClusterView
from tests.engine.measured_cluster import NOW, by_node
from tests.engine.topology_cluster import app_group, cluster, network, node, pod

if TYPE_CHECKING:
    from engine.model.kinds import AuxObject
    from engine.model.pod import Pod

RULE = NetworkOverheadFilter(NetworkOverheadArgs())
SCORER = NetworkOverheadScore(NetworkOverheadArgs())
NODES = (
    node("w1a", region="west", zone="w1"),
    node("w1b", region="west", zone="w1"),
    node("w2", region="west", zone="w2"),
    node("e1", region="east", zone="e1"),
    node("lost"),
)
COSTS = network(
    regions={("west", "east"): 40, ("east", "west"): 30},
    zones={("w1", "w2"): 5, ("w2", "w1"): 6},
)
FRONT = pod(workload="front")


def costs(view: ClusterView) -> dict[str, int]:
    return by_node(view, SCORER.score(Cycle(FRONT, view, NOW)).values)


def rejected(view: ClusterView) -> dict[str, str]:
    codes = by_node(view, RULE.filter(Cycle(FRONT, view, NOW)).codes)
    texts = {
        name: RULE.reasons(code, Cycle(FRONT, view, NOW))
        for name, code in codes.items()
        if code != PASS
    }
    return {name: text.partition(": ")[2] for name, (text,) in texts.items()}


def running(*on: str, workload: str = "cart") -> list[Pod]:
    return [pod(name=f"p{i}", on=name, workload=workload) for i, name in enumerate(on)]


def test_a_node_costs_what_its_way_to_the_other_pod_costs() -> None:
    view = cluster(NODES, [app_group("shop", front={"cart": 5}), COSTS], running("w1a"))
    # The same node, the same zone; from w2 to w1; from east to west; and from nowhere to west.
    assert costs(view) == {"w1a": 0, "w1b": 1, "w2": 6, "e1": 30, "lost": 100}
    assert rejected(view) == {
        "w2": "Satisfied: 0 Violated: 1",
        "e1": "Satisfied: 0 Violated: 1",
        # No cost is known from nowhere: neither satisfied nor violated.
    }


def test_costs_depend_on_the_direction() -> None:
    view = cluster(NODES, [app_group("shop", front={"cart": 5}), COSTS], running("w2"))
    assert costs(view)["w1a"] == 5
    assert "w1a" not in rejected(view)


def test_a_pod_on_a_node_of_no_place_is_too_far_from_all_others() -> None:
    view = cluster(NODES, [app_group("shop", front={"cart": 9999}), COSTS], running("lost"))
    assert costs(view) == {"w1a": 100, "w1b": 100, "w2": 100, "e1": 100, "lost": 0}
    assert rejected(view).keys() == {"w1a", "w1b", "w2", "e1"}


def test_a_node_passes_while_no_more_pods_are_too_far_than_near() -> None:
    groups: list[AuxObject] = [app_group("shop", front={"cart": 0}), COSTS]
    assert rejected(cluster(NODES, groups, running("w1a", "e1"))).keys() == {"w2"}
    three = cluster(NODES, groups, running("w1a", "e1", "e1"))
    assert rejected(three)["w1b"] == "Satisfied: 1 Violated: 2"
    assert costs(three)["w1b"] == 1 + 40 + 40


def test_each_dependency_counts() -> None:
    groups: list[AuxObject] = [app_group("shop", front={"cart": 0, "store": 50}), COSTS]
    pods = [*running("w1a"), pod(name="s", on="e1", workload="store")]
    view = cluster(NODES, groups, pods)
    assert costs(view)["w2"] == 6 + 40
    assert rejected(view) == {}  # w2 is too far from the one only


@pytest.mark.parametrize(
    "extras",
    [[], [COSTS], [app_group("shop", front={"cart": 0})], [app_group("shop", other={}), COSTS]],
)
def test_without_a_group_costs_or_dependencies_all_nodes_are_equal(extras: list[Any]) -> None:
    view = cluster(NODES, extras, running("w1a"))
    assert set(costs(view).values()) == {0}
    assert rejected(view) == {}
    assert SCORER.normalize(SCORER.score(Cycle(FRONT, view, NOW)).values).tolist() == [0] * len(
        NODES
    )


def test_pods_that_wait_or_belong_to_others_count_nothing() -> None:
    groups: list[AuxObject] = [app_group("shop", front={"cart": 0}), COSTS]
    pods = [pod(name="waits", workload="cart"), pod(name="bystander", on="w1a")]
    view = cluster(NODES, groups, pods + running("w1a", workload="store"))
    assert set(costs(view).values()) == {0}


def test_a_pod_that_was_advised_to_go_to_a_node_counts_there() -> None:
    state = ClusterState()
    for one in (*NODES, app_group("shop", front={"cart": 0}), COSTS):
        state.set_node(one) if one in NODES else state.set_extra(one)  # type: ignore[arg-type]
    state.assume(pod(name="new", workload="cart"), Advice(nodes=("w1a",), id="1"), at=NOW)
    assert costs(state.view())["w1b"] == 1


def test_the_cheapest_node_gets_all_points_and_the_dearest_none() -> None:
    assert SCORER.normalize(np.array([1, 6, 30, 100])).tolist() == [100, 95, 71, 0]
    assert SCORER.normalize(np.array([7, 7])).tolist() == [100, 100]
    assert SCORER.normalize(np.array([0, 0])).tolist() == [0, 0]
    assert SCORER.normalize(np.array([], np.int64)).tolist() == []


def test_a_group_is_looked_for_in_the_namespaces_of_the_args() -> None:
    args = NetworkOverheadArgs.model_validate({"namespaces": ["elsewhere"]})
    view = cluster(NODES, [app_group("shop", front={"cart": 5}), COSTS], running("w1a"))
    assert not NetworkOverheadScore(args).score(Cycle(FRONT, view, NOW)).values.any()


def test_args_have_the_upstream_defaults() -> None:
    defaults = NetworkOverheadArgs(
        namespaces=("default",), weights_name="UserDefined", network_topology_name="nt-default"
    )
    assert NetworkOverheadArgs.model_validate({"namespaces": []}) == defaults
    assert NetworkOverheadArgs() == defaults


@pytest.mark.parametrize("args", [{"namespaces": "default"}, {"weights": "x"}, {"weightsName": 1}])
def test_args_are_checked(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NetworkOverheadArgs.model_validate(args)


# The same, said once more pod by pod.

_places = st.tuples(st.sampled_from(["", "w", "e"]), st.sampled_from(["", "1", "2", "w"]))
_cost_maps = st.dictionaries(
    st.tuples(st.sampled_from("we12"), st.sampled_from("we12")), st.integers(0, 120), max_size=8
)


@settings(max_examples=120)
@given(
    st.lists(_places, min_size=1, max_size=4),
    _cost_maps,
    _cost_maps,
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["cart", "store"])), max_size=6),
    st.dictionaries(st.sampled_from(["cart", "store"]), st.integers(0, 100)),
)
def test_nodes_are_judged_as_upstream_judges_them_one_by_one(
    places: list[tuple[str, str]],
    regions: dict[tuple[str, str], int],
    zones: dict[tuple[str, str], int],
    pods: list[tuple[int, str]],
    limits: dict[str, int],
) -> None:
    nodes = [node(f"n{i}", region=one, zone=other) for i, (one, other) in enumerate(places)]
    there = [(on % len(places), workload) for on, workload in pods]
    view = cluster(
        nodes,
        [app_group("shop", front=limits), network(regions, zones)],
        [pod(name=f"p{i}", on=f"n{on}", workload=kind) for i, (on, kind) in enumerate(there)],
    )
    for row, (region, zone) in enumerate(places):
        known = {pair: cost for pair, cost in regions.items() if pair[0] == region}
        known |= {pair: cost for pair, cost in zones.items() if pair[0] == zone}
        satisfied = violated = total = 0
        for on, kind in there:
            if kind not in limits:
                continue
            other_region, other_zone = places[on]
            if on == row:
                satisfied += 1
            elif not other_region and not other_zone:
                violated, total = violated + 1, total + 100
            elif (region, zone) == (other_region, other_zone):
                satisfied, total = satisfied + 1, total + 1
            else:
                is_near = region == other_region
                cost = known.get((zone, other_zone) if is_near else (region, other_region))
                total += 100 if cost is None else cost
                satisfied += cost is not None and cost <= limits[kind]
                violated += cost is not None and cost > limits[kind]
        assert costs(view)[f"n{row}"] == total
        assert (f"n{row}" in rejected(view)) == (violated > satisfied)


def test_a_pod_whose_node_is_unknown_does_not_count() -> None:
    view = cluster(NODES, [app_group("shop", front={"cart": 5}), COSTS], running("gone"))
    assert set(costs(view).values()) == {0}
    assert rejected(view) == {}
