"""What holds for every rule that is asked row by row, whatever it says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import api
from engine.model.node import node_of
from engine.model.pod import pod_of
from engine.plugins import (
    node_affinity,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)
from engine.plugins.base import FAULT, PASS
from engine.view import ClusterState
from engine.view.memo import Memo
from tests.conformance.cluster import NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.model.pod import Pod
    from engine.plugins.base import Plugin
    from engine.view import ClusterView

_Json: TypeAlias = dict[str, Any]
_Answers: TypeAlias = list[object]

_ADDED = {
    "addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["c"]}]}
            ]
        }
    }
}
_SHAPE = {
    "type": "RequestedToCapacityRatio",
    "resources": [{"name": "cpu"}, {"name": "x.com/gpu", "weight": 3}],
    "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 9}]},
}
_PLUGINS: list[tuple[Plugin, _Json]] = [
    (node_affinity.PLUGIN, {}),
    (node_affinity.PLUGIN, _ADDED),
    (node_resources_fit.PLUGIN, {}),
    (node_resources_fit.PLUGIN, {"scoringStrategy": _SHAPE}),
    (node_unschedulable.PLUGIN, {}),
    (taint_toleration.PLUGIN, {}),
]


def _filtering(plugin: Plugin, args: _Json) -> Callable[[Pod, ClusterView], _Answers]:
    assert plugin.filter
    rule = plugin.filter(plugin.args.model_validate(args))

    def answers(pod: Pod, view: ClusterView) -> _Answers:
        judged = rule.filter(pod, view, NOW)
        codes = judged.codes.tolist()
        assert judged.rejects.tolist() == [code != PASS for code in codes]
        assert judged.has_faults is (FAULT in codes)
        return [rule.reasons(code, pod, view) if code > PASS else code for code in codes]

    return answers


def _scoring(plugin: Plugin, args: _Json) -> Callable[[Pod, ClusterView], _Answers]:
    assert plugin.score
    rule = plugin.score(plugin.args.model_validate(args))

    def answers(pod: Pod, view: ClusterView) -> _Answers:
        scores = rule.score(pod, view, NOW)
        return ["fault"] * len(view) if scores.faults is not None else scores.values.tolist()

    return answers


_RULES = [
    pytest.param(build, plugin, args, id=f"{plugin.args.__name__}-{build.__name__}-{i}")
    for i, (plugin, args) in enumerate(_PLUGINS)
    for build, has in ((_filtering, plugin.filter), (_scoring, plugin.score))
    if has
]
_every_rule = pytest.mark.parametrize(("build", "plugin", "args"), _RULES)

_taints = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["gpu", "drain"]),
        "value": st.sampled_from(["", "yes", "ü"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    }
)
_labels = st.dictionaries(st.sampled_from(["zone", "gen"]), st.sampled_from(["a", "c", "3", ""]))
_amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "1500m", "0"]),
        "memory": st.sampled_from(["1Gi", "300Mi"]),
        "x.com/gpu": st.sampled_from(["1", "2"]),
    },
)
_nodes = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["n0", "n1", "n2", "n3"]), "labels": _labels}
        ),
        "spec": st.fixed_dictionaries(
            {"unschedulable": st.booleans(), "taints": st.lists(_taints, max_size=2)}
        ),
        "status": st.fixed_dictionaries(
            {
                "allocatable": st.builds(
                    lambda pods, amounts: {**amounts, "pods": pods}, st.integers(0, 3), _amounts
                )
            }
        ),
    }
)
_containers = st.lists(
    st.fixed_dictionaries({"resources": st.fixed_dictionaries({"requests": _amounts})}), max_size=2
)
_terms = st.builds(
    lambda key, operator, names: {
        "matchExpressions": [
            {"key": key, "operator": operator, "values": ["a"] if "In" in operator else ["1"]}
        ],
        "matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [name]} for name in names
        ],
    },
    st.sampled_from(["zone", "gen"]),
    st.sampled_from(["In", "NotIn", "Gt", "Exists"]),
    st.lists(st.sampled_from(["n1", "n2"]), max_size=1),
)
_affinities = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(_terms, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.integers(0, 100), "preference": _terms}),
            max_size=2,
        ),
    },
)
_pods = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {
                "containers": _containers,
                "nodeSelector": _labels,
                "affinity": st.fixed_dictionaries({"nodeAffinity": _affinities}),
                "tolerations": st.lists(
                    st.fixed_dictionaries(
                        {
                            "key": st.sampled_from(["gpu", ""]),
                            "operator": st.just("Exists"),
                            "effect": st.sampled_from(["", "NoSchedule"]),
                        }
                    ),
                    max_size=1,
                ),
            }
        )
    }
)
_events = st.lists(
    st.tuples(st.just("node"), _nodes)
    | st.tuples(st.just("gone"), st.sampled_from(["n0", "n1", "n2"]))
    | st.tuples(st.just("pod"), st.tuples(st.integers(0, 4), st.integers(0, 3), _containers)),
    min_size=1,
    max_size=8,
)
_START = [
    {
        "metadata": {"name": f"n{i}", "labels": {"zone": "a", "gen": str(i)}},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "x.com/gpu": "2", "pods": "3"}},
    }
    for i in range(3)
]


def _cluster() -> ClusterState:
    state = ClusterState()
    for node in _START:
        _apply(state, ("node", node))
    return state


def _apply(state: ClusterState, event: tuple[str, Any]) -> None:
    kind, what = event
    if kind == "node":
        state.set_node(node_of(msgspec.convert(what, api.Node)))
    elif kind == "gone":
        state.delete_node(what)
    else:
        number, node, containers = what
        wire = {
            "metadata": {"name": f"p{number}"},
            "spec": {"nodeName": f"n{node}", "containers": containers},
        }
        state.set_pod(pod_of(msgspec.convert(wire, api.Pod), namespace="d"), seen_at=NOW)


def _pod(wire: _Json) -> Pod:
    return pod_of(msgspec.convert(wire, api.Pod), namespace="d")


def _by_node(view: ClusterView, answers: _Answers) -> dict[str, object]:
    """Return the answers for what is a node; those for other rows are of no interest."""
    found = zip(view.names, answers, view.valid.tolist(), strict=True)
    return {name: answer for name, answer, valid in found if valid}


@_every_rule
@settings(max_examples=40)
@given(st.lists(_pods, min_size=2, max_size=2), _events)
def test_what_is_remembered_is_what_would_be_computed_afresh(
    build: Callable[..., Callable[[Pod, ClusterView], _Answers]],
    plugin: Plugin,
    args: _Json,
    wires: list[_Json],
    events: list[tuple[str, Any]],
) -> None:
    ask, pods = build(plugin, args), [_pod(wire) for wire in wires]
    state, fresh = _cluster(), _cluster()
    for event in events:
        for pod in pods:
            ask(pod, state.view())
        _apply(state, event)
        _apply(fresh, event)
    for pod in pods:
        remembered = _by_node(state.view(), ask(pod, state.view()))
        forgetful = replace(fresh.view(), memo=Memo(), scratch={})
        assert remembered == _by_node(forgetful, ask(pod, forgetful))


@_every_rule
@settings(max_examples=40)
@given(_pods, _events, st.permutations(range(3)), st.integers(0, 3))
def test_the_order_and_the_number_of_rows_do_not_matter(
    build: Callable[..., Callable[[Pod, ClusterView], _Answers]],
    plugin: Plugin,
    args: _Json,
    wire: _Json,
    events: list[tuple[str, Any]],
    order: list[int],
    count: int,
) -> None:
    ask, pod, state = build(plugin, args), _pod(wire), _cluster()
    for event in events:
        _apply(state, event)
    view = state.view()
    whole = _by_node(view, ask(pod, view))
    part = view.take(np.array(order[:count], np.intp))
    answers = _by_node(part, ask(pod, part))
    assert answers == {name: whole[name] for name in answers}
