from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.advice import Advice
from engine.model.device_class import DeviceClass
from engine.model.numa import SINGLE_ZONE
from engine.plugins.base import PASS
from engine.plugins.node_resource_topology_match.args import NodeResourceTopologyMatchArgs
from engine.plugins.node_resource_topology_match.numa_zones import container_requests
from engine.plugins.node_resource_topology_match.plugin import (
    NodeResourceTopologyMatchFilter,
    NodeResourceTopologyMatchScore,
)
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, by_node
from tests.engine.topology_cluster import GPU, cluster, node, pod, zones

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.model.numa import NodeZones
    from engine.model.pod import Pod

SMALL = {"cpu": "4", "memory": "8Gi"}


def verdict(one: Pod, told: NodeZones | None, **allocatable: str) -> str:
    """Return why a pod may not go to a node, "" if it may."""
    view = cluster([node("a", **allocatable)], [told] if told else [])
    rule = NodeResourceTopologyMatchFilter(NodeResourceTopologyMatchArgs())
    (code,) = rule.filter(one, view, NOW).codes.tolist()
    return "" if code == PASS else rule.reasons(code, one, view)[0]


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
        rejects = rule.filter(one, view, NOW).rejects.tolist()
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
    codes = rule.filter(small, view, NOW).codes.tolist()
    assert [code and rule.reasons(code, small, view) for code in codes] == [
        ("invalid node topology data",),
        PASS,
    ]
    points = NodeResourceTopologyMatchScore(args).score(small, view, NOW).values
    assert by_node(view, points)["a"] == 0 < by_node(view, points)["b"]


def test_to_a_pod_that_is_not_guaranteed_all_nodes_are_as_good() -> None:
    view = cluster([node("a"), node("b")], [zones("a", SMALL)])
    burstable = pod({"cpu": "1"}, is_guaranteed=False)
    rule = NodeResourceTopologyMatchScore(NodeResourceTopologyMatchArgs())
    assert by_node(view, rule.score(burstable, view, NOW).values) == {"a": 100, "b": 100}


# The filter, said once more node by node.

_texts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "1", "2", "4"]),
        "memory": st.sampled_from(["1Gi", "2Gi"]),
        "hugepages-2Mi": st.sampled_from(["2Mi", "4Mi"]),
        GPU: st.sampled_from(["0", "1", "2"]),
        "ephemeral-storage": st.just("1Gi"),
    },
)
_lists = st.lists(_texts, max_size=3)


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


def _scalar(one: Pod, told: NodeZones, offered: set[str]) -> bool:
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
    st.lists(_texts, min_size=1, max_size=3),
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
    passes = [code == PASS for code in rule.filter(one, view, NOW).codes.tolist()]
    offered = {"cpu", "memory", "ephemeral-storage", *offers}
    asks = any(GPU in each for each in (*containers, *init))
    is_free = one.shape.qos_class == "BestEffort" and not asks
    assert passes == [is_free or _scalar(one, each, offered) for each in every]
