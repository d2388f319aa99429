"""Filters that look at the pods of nodes say of random clusters what the scheduler says."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.plugins import PASS, PLUGINS, Cycle, Filter
from engine.view import ClusterState, ClusterView, WhatIf
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.neighbour_worlds import (
    model_of,
    node_model_of,
    random_cluster,
    random_node,
    random_pod,
    random_pod_on,
    state_of,
)
from tests.engine.plugins.scheduler_oracle import FILTERS, Answers, Json, PlainCluster

_NEIGHBOURS = ("NodePorts", "PodTopologySpread", "InterPodAffinity")

every_filter = pytest.mark.parametrize("name", _NEIGHBOURS)
randoms = st.randoms(use_true_random=False)


@every_filter
@settings(max_examples=50)
@given(random=randoms)
def test_a_filter_says_what_the_scheduler_says_after_any_events(name: str, random: Random) -> None:
    cluster = random_cluster(random)
    state, rule = state_of(cluster), _filter(name)
    incoming = [random_pod(random, f"incoming-{i}") for i in range(2)]
    for _ in range(4):
        for pod in incoming:
            assert _answers(rule, pod, state.view()) == FILTERS[name](pod, cluster)
        cluster = _changed(random, cluster, state)


@every_filter
@settings(max_examples=30)
@given(random=randoms)
def test_pods_that_are_thought_to_be_on_nodes_count_like_those_that_are(
    name: str, random: Random
) -> None:
    cluster = random_cluster(random)
    view, rule = state_of(cluster).view(), _filter(name)
    what_if = WhatIf(view)
    pod = random_pod(random)
    for i in range(3):
        other = random_pod(random, f"other-{i}")
        on = random.choice(cluster.nodes)["metadata"]["name"]
        what_if.place(model_of(other), view.rows[on])
        other["spec"]["nodeName"] = on
        cluster = PlainCluster(cluster.nodes, [*cluster.pods, other], cluster.namespaces)
        assert _answers(rule, pod, what_if.view) == FILTERS[name](pod, cluster)
    order = random.sample(range(len(view)), random.randint(0, len(view)))
    part = _answers(rule, pod, what_if.view.take(np.array(order, np.intp)))
    whole = _answers(rule, pod, what_if.view)
    assert part == {view.names[row]: whole[view.names[row]] for row in order}


@every_filter
@settings(max_examples=30)
@given(random=randoms)
def test_a_pod_on_another_node_changes_nothing_unless_the_plugin_says_so(
    name: str, random: Random
) -> None:
    cluster = random_cluster(random)
    view, rule, reads_others = state_of(cluster).view(), _filter(name), PLUGINS[name]
    pod, other, row = random_pod(random), random_pod(random, "other"), random.randrange(len(view))
    what_if = WhatIf(view)
    what_if.place(model_of(other), row)
    model = model_of(pod)
    if any(
        reads_others.reads_other_nodes(Cycle(model, each, NOW)) for each in (view, what_if.view)
    ):
        return
    before, after = _answers(rule, pod, view), _answers(rule, pod, what_if.view)
    assert {node for node in before if before[node] != after[node]} <= {view.names[row]}


def _filter(name: str) -> Filter:
    plugin = PLUGINS[name]
    assert plugin.filter
    return plugin.filter(plugin.args())


def _answers(rule: Filter, pod: Json, view: ClusterView) -> Answers:
    model = model_of(pod)
    result = rule.filter(Cycle(model, view, NOW))
    codes = result.codes.tolist()
    assert [code != PASS for code in codes] == result.rejects.tolist()
    return {
        name: "" if code == PASS else ", ".join(rule.reasons(code, Cycle(model, view, NOW)))
        for name, code, valid in zip(view.names, codes, view.valid, strict=True)
        if valid
    }


def _changed(random: Random, cluster: PlainCluster, state: ClusterState) -> PlainCluster:
    """Return a cluster with an event more, which the state has got."""
    nodes, pods = [*cluster.nodes], [*cluster.pods]
    names = [node["metadata"]["name"] for node in nodes]
    match random.randrange(4):
        case 0:
            pods.append(random_pod_on(random, f"late-{len(pods)}", names))
            state.set_pod(model_of(pods[-1]), seen_at=NOW)
        case 1 if pods:
            gone = pods.pop(random.randrange(len(pods)))["metadata"]
            state.delete_pod(f"{gone['namespace']}/{gone['name']}")
        case 2 if pods:
            at = random.randrange(len(pods))
            changed: Json = json.loads(json.dumps(pods[at]))
            changed["metadata"]["labels"] = {"app": "cart"}
            if random.random() < 0.5:
                changed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            pods[at] = changed
            state.set_pod(model_of(changed), seen_at=NOW)
        case _:
            at = random.randrange(len(nodes))
            nodes[at] = random_node(random, names[at])
            state.set_node(node_model_of(nodes[at]))
    return PlainCluster(nodes, pods, cluster.namespaces)
