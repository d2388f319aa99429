"""What holds for decisions on any cluster."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.pipeline import decide
from engine.report import DecisionExcerpt, DecisionReport, decision_report, excerpt_of
from engine.view import ClusterState
from tests.engine.measured_cluster import pod
from tests.engine.policy.worlds import GIB, NOW, Json, node, policies, request_of, usage

POLICIES = policies(
    limits="""
    filters: [{plugin: LimitAware, args: &limits {defaultLimitToAllocatableRatio: {cpu: 150%}}}]
    scores: [{plugin: LimitAware, args: *limits}]
    """,
    load="""
    priority: 1
    filters: [{plugin: LoadAware, args: {usageThresholds: {cpu: 70}}}]
    scores: [{plugin: LoadAware, weight: 2}]
    """,
    words="""
    variables:
    - {name: zone, expression: "object.metadata.?labels.?zone.orValue('')"}
    - {name: told, expression: object.metadata.labels.zone}
    filters:
    - {name: small, expression: node.allocatable.cpu < 4.0 || pod.requests.cpu > 0.0}
    - {name: zone, expression: "variables.zone == '' || node.labels.zone == variables.zone"}
    scores:
    - {name: busy, expression: node.usage.cpu / node.allocatable.cpu, onError: IgnoreRule}
    - {name: few, expression: -node.podCount}
    - {name: large, expression: "variables.told == 'a' ? node.allocatable.cpu : 0.0"}
    - {name: room, expression: node.allocatable.cpu - pod.requests.cpu}
    """,
    audited="""
    mode: Audit
    filters: [{name: small, expression: node.requested.cpu < 2.0}]
    """,
)
TAINT = api.Taint(key="dedicated", value="x", effect="NoSchedule")
Event = Node | Pod | NodeUsage | str
"""What happened last to an object; a text is the key of a pod that is gone, or a node's name."""


def _names(letter: str) -> st.SearchStrategy[str]:
    return st.integers(0, 4).map(lambda i: f"{letter}{i}")


_cpu = st.sampled_from(["0", "500m", "1", "3"])
_amounts = st.fixed_dictionaries({}, optional={"cpu": _cpu, "memory": st.sampled_from(["1Gi"])})
nodes = st.builds(
    lambda name, cores, labels, cordoned, taints: node(
        name,
        allocatable={"cpu": cores * 1000, "memory": 8 * GIB, "pods": 3},
        labels=labels,
        unschedulable=cordoned,
        taints=taints,
    ),
    _names("n"),
    st.integers(1, 4),
    st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab")}),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([(), (), (TAINT,)]),
)
pods = st.builds(
    lambda name, on, limits, requests: pod(name, on, limits=limits, requests=requests),
    _names("p"),
    _names("n"),
    _amounts,
    _amounts,
)
reports = st.builds(
    lambda name, cpu, age: usage(name, cpu=cpu, memory=GIB, age=age),
    _names("n"),
    st.integers(0, 4000),
    st.sampled_from([10, 100, 1000]),
)
gone = st.builds(lambda name: f"default/{name}", _names("p")) | _names("n")
events = nodes | pods | reports | gone

_START: list[Event] = [
    *(node(f"n{i}", allocatable={"cpu": 2000, "memory": 8 * GIB, "pods": 3}) for i in range(4)),
    node("n4", taints=(TAINT,)),
    *(pod(f"p{i}", f"n{i}", limits={"cpu": "1"}) for i in range(4)),
    *(usage(f"n{i}", cpu=300 * i, memory=GIB) for i in range(5)),
]
lives = st.lists(events, max_size=25) | st.lists(events, max_size=8).map(_START.__add__)


def _request(requests: Json, limits: Json, zone: str | None) -> PlacementRequest:
    containers = [{"resources": {"requests": requests, "limits": limits}}]
    labels: Json = {} if zone is None else {"labels": {"zone": zone}}
    return request_of({"containers": containers}, name="incoming", uid="1", **labels)


# Reports are believed for 180 s, so some of 10 and 100 s are too old at one moment alone.
moments = st.sampled_from([NOW, Micros(NOW + 100 * SECOND), Micros(NOW + 200 * SECOND)])
requests = st.builds(_request, _amounts, _amounts, st.sampled_from([None, None, "a", "b"]))


def _apply(state: ClusterState, event: Event) -> None:
    if isinstance(event, Node):
        state.set_node(event)
    elif isinstance(event, Pod):
        state.set_pod(event, seen_at=NOW)
    elif isinstance(event, NodeUsage):
        state.set_usage(event)
    elif "/" in event:
        state.delete_pod(event)
    else:
        state.delete_node(event)
        state.delete_usage(event)


def _state(life: Iterable[Event]) -> ClusterState:
    state = ClusterState()
    state.track_sums(POLICIES.sum_profiles)
    for event in life:
        _apply(state, event)
    return state


def _told(request: PlacementRequest, state: ClusterState, now: Micros = NOW) -> DecisionReport:
    """Return the report of a decision, but for the version of the view."""
    report = decision_report(decide(request, POLICIES, state.view(), now))
    assert report.audit is not None
    audit = replace(report.audit, view_version=0)
    return replace(report, view_version=0, audit=audit)


def _last(life: Sequence[Event]) -> list[Event]:
    """Return the last event of each object, where that did not end it."""
    last: dict[tuple[str, str], Event] = {}
    for event in life:
        if isinstance(event, str):
            for kind in ("Pod",) if "/" in event else ("Node", "NodeUsage"):
                last.pop((kind, event), None)
        elif isinstance(event, Pod):
            last["Pod", event.key] = event
        elif isinstance(event, NodeUsage):
            last["NodeUsage", event.node_name] = event
        else:
            last["Node", event.name] = event
    return list(last.values())


@settings(max_examples=150)
@given(lives, requests, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    life: list[Event],
    request: PlacementRequest,
    random: Any,  # noqa: ANN401 - a Random
) -> None:
    objects = _last(life)
    told = _told(request, _state(objects))
    random.shuffle(objects)
    assert _told(request, _state(["n0", node("gone"), *objects, "gone"])) == told


@settings(max_examples=150)
@given(lives, requests, st.lists(requests), st.data())
def test_what_was_decided_before_does_not_matter(
    life: list[Event],
    request: PlacementRequest,
    others: list[PlacementRequest],
    data: st.DataObject,
) -> None:
    asked_along_the_way = _state([])
    now_and_then = st.none() | st.sampled_from([request, *others])
    for event in life:
        _apply(asked_along_the_way, event)
        asked = data.draw(now_and_then)
        if asked is not None:
            _told(asked, asked_along_the_way, data.draw(moments))
    now = data.draw(moments)
    told = _told(request, asked_along_the_way, now)
    assert _told(request, asked_along_the_way, now) == told
    assert _told(request, _state(life), now) == told


@pytest.mark.parametrize(
    "loser",
    [
        # Cordoned, without room, and turned away by a policy; the best of all by every score.
        node("x", unschedulable=True, allocatable={"cpu": 900_000, "memory": GIB << 9, "pods": 9}),
        node("x", allocatable={"cpu": 900_000, "memory": GIB << 9, "pods": 0}),
        node("x", labels={"zone": "c"}, allocatable={"cpu": 900_000, "memory": GIB, "pods": 9}),
    ],
    ids=["cordoned", "full", "elsewhere"],
)
@settings(max_examples=50)
@given(lives, requests)
def test_a_node_that_cannot_win_changes_nothing_among_the_others(
    loser: Node, life: list[Event], request: PlacementRequest
) -> None:
    zoned = PlacementRequest(
        pod=replace(request.pod, labels={"zone": "a"}),
        raw=request.raw.replace(b'"metadata":{', b'"metadata":{"labels":{"zone":"a"},', 1),
    )
    before = _told(zoned, _state(life))
    after = _told(zoned, _state([*life, usage("x", cpu=1), loser]))
    assert after.ranking == before.ranking
    assert after.nodes == before.nodes + 1
    assert "x" in after.rejected
    assert after.rejected == {"x": after.rejected["x"], **before.rejected}


@settings(max_examples=100)
@given(lives, requests)
def test_every_node_is_a_candidate_or_counted_as_stopped_once(
    life: list[Event], request: PlacementRequest
) -> None:
    decision = decide(request, POLICIES, _state(life).view(), NOW)
    assert sum(decision.first_rejections) + decision.candidates.size == decision.valid.sum()
    by_rule = {
        (outcome.policy, outcome.rule): stopped
        for outcome, stopped in zip(decision.filters, decision.first_rejections, strict=True)
        if stopped
    }
    told: dict[tuple[str, str], int] = {}
    for out in decision.rejection_summaries:
        told[out.policy, out.rule] = told.get((out.policy, out.rule), 0) + out.nodes
    assert told == by_rule
    rejected = decision_report(decision).rejected
    assert len(rejected) == sum(decision.first_rejections)


@settings(max_examples=50)
@given(lives, st.lists(events, max_size=5), requests)
def test_what_happens_later_does_not_change_a_decision(
    life: list[Event], later: list[Event], request: PlacementRequest
) -> None:
    state = _state(life)
    decision, again = (decide(request, POLICIES, state.view(), NOW) for _ in range(2))
    report = decision_report(decision)
    for event in later:
        _apply(state, event)
    assert decision_report(again) == report


@settings(max_examples=50)
@given(lives, st.lists(events, max_size=5), requests, st.sampled_from([None, 0, 2]))
def test_a_report_made_later_of_an_excerpt_is_the_one_made_at_once(
    life: list[Event], later: list[Event], request: PlacementRequest, most_nodes: int | None
) -> None:
    state = _state(life)
    decision = decide(request, POLICIES, state.view(), NOW)
    report = decision_report(decision, most_nodes=most_nodes)
    text = msgspec.json.encode(excerpt_of(decision, most_nodes))
    for event in later:
        _apply(state, event)
    assert msgspec.json.decode(text, type=DecisionExcerpt).report() == report


@given(lives, requests)
def test_an_excerpt_keeps_no_view_alive(life: list[Event], request: PlacementRequest) -> None:
    state = _state(life)
    view = weakref.ref(state.view())
    excerpt = excerpt_of(decide(request, POLICIES, state.view(), NOW))
    state.set_namespace("elsewhere", {})  # the state lets go of it
    assert view() is None
    assert excerpt.view_version < state.version
