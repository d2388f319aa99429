from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.model import api
from engine.model.node import Node, node_of
from engine.model.pod import HostPort, Pod, parse_affinity_terms
from engine.model.selectors import LabelSelector, parse_label_selector
from engine.view import (
    ClusterState,
    ClusterView,
    IntColumn,
    PodQuery,
    WhatIf,
    integer_label_column,
    label_column,
    namespaces_matching,
    pods_matching,
    pods_using,
    repelling_pods,
    taint_column,
)
from tests.engine.measured_cluster import NOW, by_node, pod

_TAINT = api.Taint(key="dedicated", value="x", effect="NoSchedule")


def _state() -> ClusterState:
    state = ClusterState()
    state.set_node(Node(name="n0", labels={"zone": "a", "rack": ""}, allocatable={}))
    state.set_node(Node(name="n1", labels={"zone": "b"}, taints=(_TAINT,), allocatable={}))
    return state


def test_a_label_that_is_empty_is_not_missing() -> None:
    rack = label_column(_state().view(), "rack")
    assert [rack.values[code] for code in rack.codes] == ["", None]


def test_each_label_is_a_column_of_its_own() -> None:
    view = _state().view()
    zone, rack = label_column(view, "zone"), label_column(view, "rack")
    assert zone.isin(["b"]).tolist() == [False, True]
    assert rack.isin(["b"]).tolist() == [False, False]


def test_numbers_are_read_from_labels_that_spell_one() -> None:
    state = _state()
    for i, text in enumerate(["07", "-3", "7.5", "9" * 30]):
        state.set_node(Node(name=f"m{i}", labels={"gen": text}, allocatable={}))
    number, present = integer_label_column(state.view(), "gen")
    assert number.tolist() == [0, 0, 7, -3, 0, 0]
    assert present.tolist() == [False, False, True, True, False, False]


def test_all_taints_of_a_node_are_one_value() -> None:
    taints = taint_column(_state().view())
    assert [taints.values[code] for code in taints.codes] == [(), (_TAINT,)]


def test_a_row_that_is_no_node_any_more_has_neither_labels_nor_taints() -> None:
    state = _state()
    label_column(state.view(), "zone")
    state.delete_node("n1")
    view = state.view()
    assert label_column(view, "zone").present.tolist() == [True, False]
    assert taint_column(view).present.tolist() == [True, False]


NAMESPACES = ("blue", "green", "red")
_LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(("1", "2", "3")))
_EXPRESSIONS = st.builds(
    lambda key, operator, values: {
        "key": key,
        "operator": operator,
        "values": values if operator in {"In", "NotIn"} else None,
    },
    st.sampled_from("abcd"),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
    st.lists(st.sampled_from("1234"), min_size=1, max_size=3),
)
_SELECTORS = st.builds(
    lambda labels, expressions: {"matchLabels": labels, "matchExpressions": expressions},
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("123"), max_size=1),
    st.lists(_EXPRESSIONS, max_size=2),
)
_NAMESPACE_SETS = st.sets(st.sampled_from(NAMESPACES)).map(frozenset)
_TERMS = st.builds(
    lambda **term: {key: value for key, value in term.items() if value is not None},
    labelSelector=_SELECTORS | st.none(),
    namespaces=st.none() | _NAMESPACE_SETS.map(sorted),
    namespaceSelector=st.sampled_from((None, {}, {"matchLabels": {"tier": "gold"}})),
    topologyKey=st.sampled_from(("zone", "host", "no-label-of-a-node")),
)
_PORTS = st.builds(
    HostPort,
    st.sampled_from(("0.0.0.0", "10.0.0.1", "10.0.0.2")),  # noqa: S104
    st.sampled_from(("TCP", "UDP")),
    st.integers(80, 82),
)


def _selector(wire: dict[str, Any]) -> LabelSelector:
    selector, mistakes = parse_label_selector(
        api.LabelSelector(
            match_labels=wire.get("matchLabels"),
            match_expressions=[
                api.SelectorRequirement(**each) for each in wire.get("matchExpressions", ())
            ],
        )
    )
    assert not mistakes
    return selector


def _wire_port(port: HostPort) -> dict[str, Any]:
    return {"hostIP": port.ip, "protocol": port.protocol, "hostPort": port.port}


@st.composite
def _pods(draw: st.DrawFn) -> Pod:
    metadata: dict[str, Any] = {"namespace": draw(st.sampled_from(NAMESPACES))}
    metadata["labels"] = draw(_LABELS)
    if draw(st.booleans()):
        metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": draw(st.lists(_TERMS, max_size=2))}
    ports = [_wire_port(port) for port in draw(st.lists(_PORTS, max_size=1))]
    return pod(
        draw(st.sampled_from("pqrstu")),
        draw(st.sampled_from(("", "n0", "n1", "n2", "not-a-node"))),
        metadata=metadata,
        affinity={"podAntiAffinity": anti},
        containers=[{"ports": ports}],
    )


_EVENTS = st.lists(st.tuples(_pods(), st.sampled_from(("set", "set", "delete"))), max_size=25)


def _cluster_state() -> ClusterState:
    state = ClusterState()
    for number in range(3):
        name = f"n{number}"
        labels = {"zone": f"z{number // 2}", "host": name}
        wire = api.Node(metadata=api.ObjectMeta(name=name, labels=labels))
        state.set_node(node_of(wire))
    for number, name in enumerate(NAMESPACES):
        state.set_namespace(name, {"tier": "gold" if number else "lead"})
    return state


def _counts(view: ClusterView, pods: list[Pod], count: Callable[[Pod], int]) -> dict[str, int]:
    counts = dict.fromkeys(view.names, 0)
    for each in pods:
        if each.node_name and each.node_name in counts:  # a free row has no name
            counts[each.node_name] += count(each)
    return counts


class _Questions(NamedTuple):
    """What is asked of a view: of these namespaces, selectors, ports, and for this pod."""

    namespaces: frozenset[str] | None
    selectors: list[LabelSelector]
    ports: tuple[HostPort, ...]
    incoming: Pod

    def matches(self, each: Pod) -> bool:
        return (self.namespaces is None or each.namespace in self.namespaces) and all(
            selector.matches(each.labels) for selector in self.selectors
        )

    def is_repelled_by(self, each: Pod, key: str, labels: Mapping[str, str]) -> bool:
        terms = parse_affinity_terms(each.pod_anti_affinity, each.namespace)
        pod_labels = self.incoming.labels
        return any(
            term.topology_key == key and term.matches(self.incoming.namespace, pod_labels, labels)
            for term in terms
        )


def _check(view: ClusterView, pods: list[Pod], asked: _Questions) -> None:
    queries = tuple(PodQuery(asked.namespaces, selector) for selector in asked.selectors)
    found = pods_matching(view, queries, terminating=True)
    assert by_node(view, found) == _counts(view, pods, asked.matches)
    found = pods_matching(view, queries, terminating=False)
    stay = [each for each in pods if not each.deleting]
    assert by_node(view, found) == _counts(view, stay, asked.matches)
    conflicting = _counts(
        view,
        pods,
        lambda each: any(
            taken.conflicts_with(port) for taken in each.host_ports for port in asked.ports
        ),
    )
    assert by_node(view, pods_using(view, asked.ports)) == conflicting
    labels = view.namespaces.labels[asked.incoming.namespace]
    repelling: dict[str, IntColumn] = dict(repelling_pods(view, asked.incoming))
    for key in ("zone", "host"):
        is_repelled = partial(asked.is_repelled_by, key=key, labels=labels)
        found = repelling.pop(key, np.zeros(len(view), np.int64))
        assert by_node(view, found) == _counts(view, pods, is_repelled)
    assert not repelling


_QUESTIONS = st.builds(
    _Questions,
    st.none() | _NAMESPACE_SETS,
    st.lists(_SELECTORS.map(_selector), min_size=1, max_size=2),
    st.lists(_PORTS, max_size=2).map(tuple),
    _pods(),
)


@given(_EVENTS, _QUESTIONS, st.integers(0, 25))
def test_pods_are_counted_as_if_they_were_looked_at_one_by_one(
    events: list[tuple[Pod, str]], asked: _Questions, asked_at: int
) -> None:
    state, known = _cluster_state(), dict[str, Pod]()
    held, then = state.view(), list[Pod]()
    for number, (each, kind) in enumerate(events):
        if kind == "set":
            state.set_pod(each, seen_at=NOW)
            known[each.key] = each
        else:
            state.delete_pod(each.key)
            known.pop(each.key, None)
        if number == asked_at:
            held, then = state.view(), list(known.values())
            _check(held, then, asked)
    _check(state.view(), list(known.values()), asked)
    _check(held, then, asked)


@given(_EVENTS, _QUESTIONS)
def test_pods_of_a_what_if_are_counted_as_if_they_were_looked_at_one_by_one(
    events: list[tuple[Pod, str]], asked: _Questions
) -> None:
    state, known = _cluster_state(), dict[str, Pod]()
    for each, _ in events:
        state.set_pod(each, seen_at=NOW)
        known[each.key] = each
    what_if, pods = WhatIf(state.view()), list(known.values())
    removed = [each for each in pods if each.node_name in what_if.view.rows][:2]
    entries = [(each.key, entry) for each in removed if (entry := state.entry(each.key))]
    what_if.remove(entries)
    _check(what_if.view, [each for each in pods if each not in removed], asked)
    what_if.restore(entries)
    what_if.place(asked.incoming, 0)
    placed = replace(asked.incoming, node_name=what_if.view.names[0])
    _check(what_if.view, [*pods, placed], asked)
    _check(what_if.take(np.array([0, 2])).view, [*pods, placed], asked)
    _check(state.view(), pods, asked)


def test_namespaces_are_found_by_labels_as_they_now_are() -> None:
    state = _cluster_state()
    gold = _selector({"matchLabels": {"tier": "gold"}})
    assert namespaces_matching(state.view(), gold) == {"green", "red"}
    before = state.view()
    state.set_namespace("blue", {"tier": "gold"})
    state.delete_namespace("red")
    assert namespaces_matching(state.view(), gold) == {"green", "blue"}
    assert namespaces_matching(before, gold) == {"green", "red"}


def test_traits_of_pods_that_are_gone_are_forgotten_and_the_others_keep_theirs() -> None:
    state = _cluster_state()
    stays = pod("stays", "n1", metadata={"labels": {"app": "web"}})
    state.set_pod(stays, seen_at=NOW)
    web = (PodQuery(None, _selector({"matchLabels": {"app": "web"}})),)
    first, longest = state.view(), 0
    for number in range(5_000):
        passes = pod("passes", "n0", metadata={"labels": {"job": str(number)}})
        state.set_pod(passes, seen_at=NOW)
        if number % 500 == 0:
            view = state.view()
            assert by_node(view, pods_matching(view, web, terminating=True)) == {
                "n0": 0,
                "n1": 1,
                "n2": 0,
            }
        longest = max(longest, len(state.view().trait_book))
    assert longest < 1_100
    job = (PodQuery(None, _selector({"matchLabels": {"job": "4999"}})),)
    assert pods_matching(state.view(), job, terminating=True).tolist() == [1, 0, 0]
    assert pods_matching(first, job, terminating=True).tolist() == [0, 0, 0]


def test_a_pod_with_very_many_labels_is_not_counted() -> None:
    state = _cluster_state()
    labels = {f"label-{number}": "x" * 60 for number in range(200)}
    state.set_pod(pod("huge", "n0", metadata={"labels": labels}), seen_at=NOW)
    view = state.view()
    assert pods_matching(view, (PodQuery(None, LabelSelector()),), terminating=True).sum() == 0
    assert len(view.traits[0]) == 4
    state.delete_pod("default/huge")
    assert not state.view().traits[0]
