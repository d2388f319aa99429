"""A gang goes to one domain that holds all of it, the one with the least room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import GangPlacement, StartingGang, place_all, place_gang
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.gang import GangTopology
from engine.model.node import DeviceClass, Node, node_of
from engine.policy import PolicySet
from engine.view import ClusterState
from tests.engine.batch.worlds import EXAMPLES, BatchWorld, request, worlds
from tests.engine.measured_cluster import NOW
from tests.engine.policy.worlds import Json, policies

RACK = "example.com/rack"
ANYWHERE = PolicySet([])


def _node(name: str, cpu: int, rack: str = "") -> Node:
    labels = {RACK: rack} if rack else {}
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "50"}
    wire = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}
    return node_of(msgspec.convert(wire, api.Node))


def _members(count: int, cpu: str = "8", first: int = 0) -> list[PlacementRequest]:
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    template = {"metadata": {"namespace": "default"}, "spec": spec}
    return [request(template, f"p{first + i}") for i in range(count)]


def _racks(**cores: Sequence[int]) -> list[Node]:
    return [
        _node(f"{rack}-{i}", cpu, rack)
        for rack, each in cores.items()
        for i, cpu in enumerate(each)
    ]


def _placed(
    nodes: Sequence[Node],
    members: Sequence[PlacementRequest],
    *,
    required: bool = True,
    beside: Sequence[str] = (),
    policy_set: PolicySet = ANYWHERE,
) -> GangPlacement:
    view = BatchWorld(policy_set, nodes, [], members).state().view()
    gang = StartingGang(requests=members, topology=GangTopology(RACK, required), beside=beside)
    return place_gang(gang, policy_set, view, NOW)


def test_the_domain_with_the_least_room_that_holds_all_is_taken() -> None:
    # 4 members of 8 cores: 4 places in b (2 nodes of 16), 6 in a, 3 in c.
    nodes = _racks(a=[16, 16, 16], b=[16, 16], c=[24])
    placement = _placed(nodes, _members(4))
    assert placement.domain == "b"
    assert sorted(placement.trial.nodes) == ["b-0", "b-0", "b-1", "b-1"]
    assert placement.message == ""


def test_a_gang_that_needs_one_domain_waits_where_none_holds_it() -> None:
    # 8 members need 64 cores; rack-2 has 48 in nodes that take a member, and 7 in one that does not
    nodes = _racks(rack1=[16, 16], rack2=[24, 24, 7])
    placement = _placed(nodes, _members(8))
    assert placement.trial.nodes == []
    assert placement.trial.failed == 0
    message = "8 members need 64 cpu in one rack, at most 48 free in rack2"
    assert placement.message == placement.trial.message == message


def test_a_gang_that_prefers_one_domain_goes_anywhere_else() -> None:
    nodes = _racks(rack1=[16, 16], rack2=[24, 24])
    placement = _placed(nodes, _members(8), required=False)
    assert len(placement.trial.nodes) == 8
    assert placement.domain == ""
    assert placement.message == "8 members need 64 cpu in one rack, at most 48 free in rack2"


def test_room_that_is_in_pieces_is_no_room() -> None:
    # 3 nodes of 12 cores: 36 for 4 members of 8, but each takes one.
    placement = _placed(_racks(rack1=[12, 12, 12]), _members(4))
    assert placement.message == (
        "4 members fit in no rack: rack1 has free what is needed in all, but not on nodes that "
        "can take it"
    )


def test_what_only_a_trial_shows_is_told_and_the_next_domain_tried() -> None:
    # A node of rack a takes 2 pods by the policy: the trial fails at the third member.
    few = policies(few="filters: [{name: few, expression: node.podCount < 2}]")
    members = _members(3)
    assert _placed(_racks(a=[32], b=[32, 32]), members, policy_set=few).domain == "b"
    placement = _placed(_racks(a=[32]), members, policy_set=few)
    assert placement.message.startswith("3 members fit in no rack; a: 0 of 1 nodes fit; left out")


_GPU = "example.com/gpu"


def _with_gpus(node: Node, gpus: int) -> Node:
    return replace(node, allocatable={**node.allocatable, _GPU: gpus})


def test_devices_may_provide_what_nodes_do_not_offer() -> None:
    # 3 GPUs: a offers 2 as a resource, and its second node may have devices; b offers 2 in all.
    # Devices could hold all of the gang, so what bounds a is its cpu.
    a, b = _racks(a=[16, 16]), _racks(b=[16, 16])
    nodes = [_with_gpus(a[0], 2), a[1], *(_with_gpus(each, 1) for each in b)]
    template = {"cpu": "4", _GPU: "1"}
    spec = {"containers": [{"resources": {"requests": template, "limits": {_GPU: "1"}}}]}
    pod = {"metadata": {"namespace": "default"}, "spec": spec}
    gang = StartingGang(
        requests=[request(pod, f"p{i}") for i in range(3)],
        topology=GangTopology(RACK, required=True),
    )
    state = BatchWorld(ANYWHERE, nodes, [], gang.requests).state()
    without = place_gang(gang, ANYWHERE, state.view(), NOW)
    gpu = "3 members need 3 example.com/gpu in one rack, at most 2 free in a"
    assert (without.domain, without.message) == ("", gpu)
    state.set_extra(DeviceClass(name="gpu", resource=_GPU))
    placement = place_gang(gang, ANYWHERE, state.view(), NOW)
    assert (placement.domain, placement.message) == ("a", "")
    assert len(placement.trial.nodes) == 3


def test_what_keeps_a_gang_of_devices_out_is_what_nodes_lack() -> None:
    state = BatchWorld(ANYWHERE, _racks(a=[8]), [], []).state()
    state.set_extra(DeviceClass(name="gpu", resource=_GPU))
    spec = {"containers": [{"resources": {"requests": {"cpu": "8", _GPU: "1"}}}]}
    pod = {"metadata": {"namespace": "default"}, "spec": spec}
    requests = [request(pod, f"p{i}") for i in range(2)]
    gang = StartingGang(requests=requests, topology=GangTopology(RACK, required=True))
    message = place_gang(gang, ANYWHERE, state.view(), NOW).message
    assert message == "2 members need 16 cpu in one rack, at most 8 free in a"


def test_others_go_where_members_run() -> None:
    nodes = _racks(a=[16, 16], b=[64, 64])
    assert _placed(nodes, _members(2), beside=["b-0", "b-1", "a-0"]).domain == "b"
    assert _placed(nodes, _members(8), beside=["a-0"]).trial.nodes == []


def test_nodes_without_the_label_are_in_no_domain() -> None:
    placement = _placed([_node("n", 64)], _members(1))
    assert placement.message == "no node has a rack by the label that the gang names"
    assert _placed([_node("n", 64), *_racks(a=[8])], _members(1)).trial.nodes == ["a-0"]


def test_without_a_topology_any_nodes_do() -> None:
    members = _members(2)
    state = ClusterState()
    for node in _racks(a=[8], b=[8]):
        state.set_node(node)
    placement = place_gang(StartingGang(requests=members), ANYWHERE, state.view(), NOW)
    assert sorted(placement.trial.nodes) == ["a-0", "b-0"]


@pytest.mark.parametrize("required", [True, False])
def test_members_of_several_templates_share_a_domain(required: bool) -> None:  # noqa: FBT001
    members = [*_members(2), *_members(2, "4", first=2)]
    placement = _placed(_racks(a=[16], b=[24]), members, required=required)
    assert (placement.domain, len(placement.trial.nodes)) == ("b", 4)


def _near(app: str) -> Json:
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_members_that_others_need_near_them_count_before_they_are_placed() -> None:
    # Workers go where the leader is, and no node has one yet.
    containers = [{"resources": {"requests": {"cpu": "8"}}}]
    leader, worker = (
        {"metadata": {"namespace": "default", "labels": {"app": app}}, "spec": spec}
        for app, spec in (
            ("leader", {"containers": containers}),
            ("worker", {"containers": containers, "affinity": _near("leader")}),
        )
    )
    members = [request(leader, "p0"), request(worker, "p1"), request(worker, "p2")]
    placement = _placed(_racks(a=[16], b=[24], c=[32]), members)
    assert (placement.domain, placement.message) == ("b", "")
    assert placement.trial.nodes == ["b-0"] * 3


def test_nodes_that_a_policy_leaves_to_the_first_member_count_for_the_others() -> None:
    # Only the first may open a node.
    rule = "filters: [{name: opened, expression: pod.name == 'p0' || node.podCount > 0}]"
    placement = _placed(_racks(a=[8], b=[24]), _members(3), policy_set=policies(opened=rule))
    assert (placement.domain, placement.trial.nodes) == ("b", ["b-0"] * 3)


def _domains(world: BatchWorld) -> Mapping[str, list[str]]:
    domains: dict[str, list[str]] = {}
    for each in world.objects:
        if isinstance(each, Node) and "zone" in each.labels:
            domains.setdefault(each.labels["zone"], []).append(each.name)
    return domains


@settings(max_examples=EXAMPLES)
@given(worlds(), st.booleans())
def test_a_domain_is_found_exactly_if_a_trial_in_one_succeeds(
    world: BatchWorld,
    required: bool,  # noqa: FBT001
) -> None:
    view, topology = world.state().view(), GangTopology("zone", required)
    gang = StartingGang(requests=world.requests, topology=topology)
    placement = place_gang(gang, world.policies, view, NOW)
    trials = {
        zone: place_all(
            world.requests,
            world.policies,
            view,
            NOW,
            rows=np.array([view.rows[name] for name in names], np.intp),
        )
        for zone, names in _domains(world).items()
    }
    fitting = {zone for zone, trial in trials.items() if trial.failed is None}
    if fitting:
        assert placement.domain in fitting
        assert placement.trial.nodes == trials[placement.domain].nodes
    else:
        assert placement.domain == ""
        assert placement.message
    if required and not fitting:
        assert placement.trial.nodes == []
