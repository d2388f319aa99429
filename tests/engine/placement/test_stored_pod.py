"""Decisions are made on the pod that will be stored: its patched form is decided alike."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine.model import api
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.node import Node
from engine.model.well_known import HOSTNAME_LABEL
from engine.pipeline import decide
from engine.placement import ANNOTATIONS, as_submitted, encode
from engine.policy import PolicySet
from engine.view import ClusterState, ClusterView
from tests.builders import pod_from, request_from
from tests.engine.placement.cluster import (
    Json,
    decided,
    named,
    preferred,
    request_of,
    view_of,
    with_affinity,
)
from tests.engine.policy.worlds import NOW, policy

VIEW = view_of(named("good", "bad"))
DECISION = decided(VIEW, {"good": 9, "bad": 1})
OWN_TERM = {
    "weight": 1,
    "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
}


@pytest.mark.parametrize(
    "own",
    [
        {"metadata": {"name": "p", "annotations": {"team": "a"}}, "spec": {"priority": 3}},
        with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]}),
    ],
)
def test_advice_node_and_status_are_taken_off_a_pod_again(own: Json) -> None:
    advised: Json = jsonpatch.apply_patch(
        own, list(encode(DECISION, request_of(own), VIEW).operations)
    )
    assert len(preferred(advised)) > len(preferred(own))
    bound = {
        **advised,
        "spec": {**advised["spec"], "nodeName": "good"},
        "status": {"phase": "Running"},
    }
    again = msgspec.json.decode(as_submitted(msgspec.json.encode(bound)))
    assert "nodeName" not in again["spec"]
    assert again["status"] == {}
    own_terms = [OWN_TERM] if own["spec"].get("affinity") else []
    assert preferred(again) == own_terms
    assert not set(ANNOTATIONS) & again["metadata"]["annotations"].keys()
    assert again["metadata"]["annotations"] == (own["metadata"].get("annotations") or {})


def test_a_pod_that_was_never_advised_keeps_its_preferences() -> None:
    own = with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]})
    assert preferred(msgspec.json.decode(as_submitted(msgspec.json.encode(own)))) == [OWN_TERM]


def test_an_invented_number_of_terms_only_takes_the_own_terms_of_its_pod() -> None:
    own = with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]})
    own["metadata"] = {"annotations": {"stowplan.dev/advice": '{"terms":99}'}}
    assert preferred(msgspec.json.decode(as_submitted(msgspec.json.encode(own)))) == []


ZONE = "zone"
_ROOM = {"cpu": 4000, "memory": 1 << 33, "pods": 110}

FILTERS = st.sampled_from(
    [
        "node.labels[?'zone'].orValue('') != 'b'",
        "node.labels[?'zone'].orValue('') in ['a', 'c']",
        "!('gpu' in node.labels)",
        "pod.labels[?'app'].orValue('') == 'web' ? 'zone' in node.labels : true",
        "node.labels[?'zone'].orValue('') == 'a' || node.labels[?'gpu'].orValue('') == 'y'",
        # Nothing of labels, so nothing is promised.
        "node.name != 'n1'",
        "!(node.name in ['n0', 'n3'])",
    ]
)
POLICIES = st.fixed_dictionaries(
    {
        "filters": st.lists(FILTERS, min_size=1, max_size=2),
        "dynamicFilters": st.sampled_from(["Preferred", "Required"]),
        "whenNoneFits": st.sampled_from(["Allow", "Deny"]),
        "maxNodes": st.sampled_from([1, 64]),
    }
)
NODES = st.lists(
    st.fixed_dictionaries(
        {
            "zone": st.sampled_from(["a", "b", "c", None]),
            "gpu": st.sampled_from(["y", None, None]),
            "spot": st.sampled_from(["y", None, None]),
        }
    ),
    min_size=4,
    max_size=7,
)
CONSTRAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "maxSkew": st.sampled_from([1, 1, 2]),
            "topologyKey": st.sampled_from([ZONE, ZONE, ZONE, HOSTNAME_LABEL]),
            "whenUnsatisfiable": st.sampled_from(
                ["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]
            ),
            "labelSelector": st.just({"matchLabels": {"app": "web"}}),
        },
        optional={
            "minDomains": st.sampled_from([2, 3]),
            "nodeAffinityPolicy": st.sampled_from(["Honor", "Honor", "Ignore"]),
        },
    ),
    max_size=2,
)
TERM = st.sampled_from(
    [
        {"key": "gpu", "operator": "DoesNotExist"},
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
    ]
)
AFFINITIES: st.SearchStrategy[list[Json]] = st.one_of(st.just([]), st.lists(TERM, max_size=2))
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SOFT = api.Taint(key="spot", value="y", effect="PreferNoSchedule")


def stored_pod_view_of(nodes: list[dict[str, str | None]], pods_on: list[int]) -> ClusterView:
    state = ClusterState()
    for i, labels in enumerate(nodes):
        own = {key: value for key, value in labels.items() if value is not None}
        named = {**own, HOSTNAME_LABEL: f"h{i}"}
        taints = (_SOFT,) if "spot" in own else ()
        state.set_node(Node(name=f"n{i}", labels=named, allocatable=_ROOM, taints=taints))
    for i, at in enumerate(pods_on):
        bound = {
            "metadata": {"name": f"p{i}", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"nodeName": f"n{at}"},
        }
        state.set_pod(pod_from(bound), seen_at=NOW)
    return state.view()


def policies(drawn: dict[str, Any]) -> PolicySet:
    filters = drawn.pop("filters")
    rules = [{"name": f"f{i}", "expression": source} for i, source in enumerate(filters)]
    scores = [{"name": "zone", "expression": "'zone' in node.labels ? 1 : 0"}]
    return PolicySet([policy(json.dumps({"filters": rules, "scores": scores, "placement": drawn}))])


def stored_pod_decided(
    pod: Json, rules: PolicySet, view: ClusterView
) -> tuple[Decision, PlacementRequest]:
    request = request_from(pod)
    return decide(request, rules, view, NOW), request


def told(decision: Decision) -> tuple[Verdict, list[str], list[int]]:
    """Return the verdict, and the ranking."""
    rows = decision.best(len(decision.candidates)).tolist()
    return decision.verdict, [decision.names[row] for row in rows], sorted(decision.totals.tolist())


@settings(max_examples=60)
@given(NODES, st.data(), POLICIES, CONSTRAINTS, AFFINITIES, AFFINITIES)
def test_the_patched_pod_is_decided_as_the_pod_was(
    nodes: list[dict[str, str | None]],
    data: st.DataObject,
    drawn: dict[str, Any],
    constraints: list[Json],
    required: list[Json],
    preferred: list[Json],
) -> None:
    view = stored_pod_view_of(
        nodes, data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=2, max_size=8))
    )
    rules = policies(drawn)
    own = [{"weight": 7, "preference": {"matchExpressions": [term]}} for term in preferred]
    affinity: Json = {_PREFERRED: own}
    if required:
        terms = [{"matchExpressions": [term]} for term in required]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    pod: Json = {
        "metadata": {
            "name": "new",
            "namespace": "shop",
            "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "u"}],
        },
        "spec": {
            "containers": [{"name": "c"}],
            "topologySpreadConstraints": constraints,
            "affinity": {"nodeAffinity": affinity},
        },
    }
    first, request = stored_pod_decided(pod, rules, view)
    event(str(first.verdict))
    event(f"scored by {len(first.scored)}")
    patch = encode(first, request, view)
    patched = jsonpatch.apply_patch(pod, list(patch.operations))
    # The terms that the patch adds say the ranking itself, and are no wish of the pod.
    patched["spec"]["affinity"]["nodeAffinity"][_PREFERRED] = own
    again, _ = stored_pod_decided(patched, rules, view)
    assert told(again) == told(first)
