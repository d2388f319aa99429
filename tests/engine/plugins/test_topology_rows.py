"""What holds row by row for the rules that read zones, networks and disks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.advice import Advice
from engine.model.disk_io import THROUGHPUT_ANNOTATION, NodeDisks
from engine.model.numa import NodeZones
from engine.plugins import disk_io_aware, network_overhead, node_resource_topology_match
from engine.view import ClusterState
from tests.engine.explainers import described
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.row_properties import (
    Rules,
    check_losers_sway_nobody,
    check_rows_stand_alone,
)
from tests.engine.topology_cluster import GPU, app_group, disks, network, node, pod, zones

if TYPE_CHECKING:
    from engine.model.aux_object import AuxObject
    from engine.model.pod import Pod
    from engine.plugins.base import Plugin

_PLUGINS: list[tuple[Plugin, dict[str, Any]]] = [
    (disk_io_aware.PLUGIN, {}),
    (disk_io_aware.PLUGIN, {"scoreStrategy": "LeastAllocated", "writeCoefficient": 1.5}),
    (network_overhead.PLUGIN, {}),
    (node_resource_topology_match.PLUGIN, {"discardReservedNodes": True}),
    *(
        (node_resource_topology_match.PLUGIN, {"scoringStrategy": {"type": strategy}})
        for strategy in ("BalancedAllocation", "LeastNUMANodes", "MostAllocated")
    ),
]
_every_plugin = pytest.mark.parametrize(
    ("plugin", "args"),
    [pytest.param(*one, id=f"{one[0].args.__name__}-{i}") for i, one in enumerate(_PLUGINS)],
)

_names = st.integers(0, 3).map("n{}".format)
_workloads = st.sampled_from(["", "front", "cart"])
_amounts = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["1", "3", "1500m"]), "memory": st.sampled_from(["1Gi", "300Mi"])},
    optional={GPU: st.sampled_from(["0", "1"])},
)
_annotations = st.sampled_from(
    [{}, {THROUGHPUT_ANNOTATION: '{"rbps":"30","wbps":"20"}'}, {THROUGHPUT_ANNOTATION: "?"}]
)
_incoming = st.builds(
    lambda containers, init, workload, guaranteed, annotations: pod(
        *containers,
        init=init,
        workload=workload,
        is_guaranteed=guaranteed,
        annotations=annotations,
    ),
    st.lists(_amounts, min_size=1, max_size=2),
    st.lists(_amounts, max_size=1),
    _workloads,
    st.booleans(),
    _annotations,
)
_nodes = st.builds(
    lambda name, region, zone: node(name, region=region, zone=zone, **{GPU: "2"}),
    _names,
    st.sampled_from(["", "west", "east"]),
    st.sampled_from(["", "1", "2"]),
)
_extras = st.one_of(
    st.builds(
        lambda name, parts, scope, policy: zones(name, *parts, scope=scope, policy=policy),
        _names,
        st.lists(_amounts, max_size=3),
        st.sampled_from(["pod", "container"]),
        st.sampled_from(["single-numa-node", "none"]),
    ),
    st.builds(
        lambda name, left: disks(name, *left),
        _names,
        st.lists(st.tuples(*[st.sampled_from([0, 40, 100])] * 3), max_size=3),
    ),
    st.builds(lambda most: app_group("shop", front={"cart": most}), st.integers(0, 50)),
    st.builds(
        lambda far, near: network({("west", "east"): far}, {("1", "2"): near}),
        st.integers(0, 50),
        st.integers(0, 50),
    ),
)
_events = st.lists(
    st.one_of(
        st.tuples(st.just("node"), _nodes),
        st.tuples(st.just("gone"), _names),
        st.tuples(st.just("extra"), _extras),
        st.tuples(st.just("no extra"), st.tuples(st.sampled_from([NodeZones, NodeDisks]), _names)),
        st.tuples(
            st.just("pod"),
            st.builds(
                lambda i, on, workload: pod(name=f"p{i}", on=on, workload=workload),
                st.integers(0, 3),
                _names,
                _workloads,
            ),
        ),
        st.tuples(st.just("lost"), st.integers(0, 3).map("default/p{}".format)),
        st.tuples(st.just("advised"), st.tuples(_incoming, _names)),
    ),
    min_size=1,
    max_size=10,
)
_START = (
    app_group("shop", front={"cart": 10}),
    network({("west", "east"): 20}, {("1", "2"): 5}),
    zones("n0", {"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi", GPU: "1"}),
    disks("n1", (100, 50, 50)),
)


def _apply(state: ClusterState, event: tuple[str, Any]) -> None:
    kind, what = event
    match kind:
        case "node":
            state.set_node(what)
        case "gone":
            state.delete_node(what)
        case "extra":
            state.set_extra(what)
        case "no extra":
            state.delete_extra(*what)
        case "pod":
            state.set_pod(what, seen_at=NOW)
        case "lost":
            state.delete_pod(what)
        case _:
            one, name = what
            state.assume(one, Advice(nodes=(name,), id=name), at=NOW)


def _cluster(rules: Rules) -> ClusterState:
    state = ClusterState()
    state.track(rules.profiles)
    for i in range(3):
        state.set_node(node(f"n{i}", region="west", zone=str(i), **{GPU: "2"}))
    for extra in _START:
        state.set_extra(extra)
    return state


@_every_plugin
@settings(max_examples=50)
@given(st.lists(_incoming, min_size=2, max_size=2), _events)
def test_what_is_remembered_is_what_would_be_computed_afresh(
    plugin: Plugin, args: dict[str, Any], pods: list[Pod], events: list[tuple[str, Any]]
) -> None:
    rules = Rules(plugin, args)
    state, fresh = _cluster(rules), _cluster(rules)
    for event in events:
        for one in pods:
            rules.answers(one, state.view())
        _apply(state, event)
        _apply(fresh, event)
    for one in pods:
        forgetful = replace(fresh.view(), caches=None)
        assert rules.answers(one, state.view()) == rules.answers(one, forgetful)


@_every_plugin
@settings(max_examples=50)
@given(_incoming, _events, st.permutations(range(3)), st.integers(0, 3))
def test_the_order_and_the_number_of_rows_do_not_matter(
    plugin: Plugin,
    args: dict[str, Any],
    one: Pod,
    events: list[tuple[str, Any]],
    order: list[int],
    count: int,
) -> None:
    rules = Rules(plugin, args)
    state = _cluster(rules)
    for event in events:
        _apply(state, event)
    check_rows_stand_alone(rules.answers, one, state.view(), order[:count])


@_every_plugin
@settings(max_examples=50)
@given(_incoming, _events, st.sets(st.integers(0, 2), min_size=1))
def test_a_node_that_cannot_win_changes_nothing_and_points_are_on_the_scale(
    plugin: Plugin,
    args: dict[str, Any],
    one: Pod,
    events: list[tuple[str, Any]],
    winners: set[int],
) -> None:
    rules = Rules(plugin, args)
    assert rules.score
    state = _cluster(rules)
    for event in events:
        _apply(state, event)
    check_losers_sway_nobody(rules.score, one, state.view(), sorted(winners))


def _inputs(plugin: Plugin, one: Pod, *told: AuxObject) -> tuple[dict[str, str], dict[str, str]]:
    rules = Rules(plugin, {})
    state = ClusterState()
    state.track(rules.profiles)
    state.set_node(node("n0", region="west"))
    for extra in told:
        state.set_extra(extra)
    state.set_pod(pod(name="peer", on="n0", workload="cart"), seen_at=NOW)
    assert rules.filter
    assert rules.score
    view = state.view()
    return (
        described(rules.filter.inputs(one, view, 0, NOW)),
        described(rules.score.inputs(one, view, 0, NOW)),
    )


def test_zones_explain_themselves_to_pods_that_they_concern() -> None:
    plugin = node_resource_topology_match.PLUGIN
    told = zones("n0", {"cpu": "4", "memory": "8Gi", GPU: "1"}, {"cpu": "1500m"})
    words = {
        "topology manager": "single-numa-node, scope container",
        "asked for": "cpu 2 cores, memory 1 GiB; cpu 1 core",
        "zone 0 has left": "cpu 4 cores, memory 8 GiB",
        "zone 1 has left": "cpu 1.5 cores",
    }
    one = pod({"cpu": "2", "memory": "1Gi"}, {"cpu": "1"}, is_guaranteed=False)
    assert _inputs(plugin, one, told) == (words, {})
    assert _inputs(plugin, pod({}), told) == ({}, {})
    guaranteed = pod({"cpu": "2", "memory": "1Gi"})
    assert _inputs(plugin, guaranteed) == ({"zones": "not known"}, {"zones": "not known"})
    in_all = _inputs(plugin, guaranteed, zones("n0", {}, scope="pod"))[0]
    assert in_all["zone 0 has left"] == "none"


def test_a_network_explains_itself_to_pods_of_an_app_group() -> None:
    plugin, told = network_overhead.PLUGIN, (app_group("shop", front={"cart": 1}), network())
    place = {"region": "west", "zone": "none"}
    assert _inputs(plugin, pod(workload="front"), *told) == (
        place | {"satisfied": "1", "violated": "0"},
        place | {"cost": "0"},
    )
    assert _inputs(plugin, pod(), *told) == ({}, {})


def test_disks_explain_themselves_to_pods_that_use_them() -> None:
    plugin = disk_io_aware.PLUGIN
    asked = {"asked for": "total 3 KiB/s, read 1 KiB/s, write 2 KiB/s"}
    one = pod(annotations={THROUGHPUT_ANNOTATION: '{"rbps":"1Ki","wbps":"2Ki"}'})
    left = {"disk 0": "total 8 KiB/s, read 4 KiB/s, write 5 KiB/s"}
    told = disks("n0", (8192, 4096, 5120))
    assert _inputs(plugin, one, told) == (asked | left, asked | left)
    assert _inputs(plugin, one) == (asked | {"disks": "not known"}, asked | {"disks": "not known"})
    assert _inputs(plugin, pod(), told) == ({}, {})
