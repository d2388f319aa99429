"""Small clusters and decisions to place a pod on them, and what affinity means, told once more.

`matches` and `preference` follow the API's documentation and share nothing with the engine: they
read the patched object as the scheduler will.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from engine.model.decision import Decision, PlacementRequest, Ranking, Verdict
from engine.model.node import Node
from engine.model.policy_resource import PlacementOptions
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome, FilterResult
from engine.model.time import Micros
from engine.model.well_known import HOSTNAME_LABEL
from engine.view import ClusterState, ClusterView
from tests.builders import request_from
from tests.engine.explainers import FixedReasons

GIB = 1 << 30
Json = dict[str, Any]
Labels = Mapping[str, str]


def named(*names: str) -> dict[str, Labels]:
    """Return nodes whose hostname is their name and an `h-` before it."""
    return {name: {HOSTNAME_LABEL: f"h-{name}"} for name in names}


def view_of(nodes: Mapping[str, Labels]) -> ClusterView:
    """Return a view of nodes of 4 cores and 8 GiB in the order given, with a free row amid them."""
    state = ClusterState()
    for index, (name, labels) in enumerate(nodes.items()):
        if index == 1:
            state.set_node(node("gone", {HOSTNAME_LABEL: "h-gone"}))
        state.set_node(node(name, labels))
    state.delete_node("gone")
    return state.view()


def node(name: str, labels: Labels) -> Node:
    return Node(name=name, labels=labels, allocatable={"cpu": 4000, "memory": 8 * GIB})


def request_of(pod: Json | None = None) -> PlacementRequest:
    """Return the request to create a pod, the simplest one by default."""
    wire = {"metadata": {"name": "p"}, "spec": {}} if pod is None else pod
    return request_from(wire)


def with_affinity(node_affinity: Json | None) -> Json:
    return {"metadata": {"name": "p"}, "spec": {"affinity": {"nodeAffinity": node_affinity}}}


def required(*terms: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}


def decided(
    view: ClusterView,
    scores: Mapping[str, int],
    *,
    rejected: Collection[str] = (),
    unfit: Collection[str] = (),
    placement: PlacementOptions | None = None,
) -> Decision:
    """Return the decision to place a pod by `scores` on a node that nothing turns away."""
    out = {*rejected, *unfit}
    ranking = sorted(
        (name for name in scores if name not in out), key=lambda name: (-scores[name], name)
    )
    return Decision(
        pod=request_of().pod,
        verdict=Verdict.PLACE,
        message_or_source="placed",
        policies=("spread-load",),
        placement=placement or PlacementOptions(),
        names=view.names,
        valid=view.valid,
        filters=(_outcome(SCHEDULER, view, unfit), _outcome("spread-load", view, rejected)),
        ranking=Ranking(
            np.array([view.rows[name] for name in ranking], np.intp),
            np.array([scores[name] for name in ranking], np.int64),
        ),
        estimate={},
        decided_at=Micros(0),
        view_version=view.version,
    )


def _outcome(policy: str, view: ClusterView, names: Iterable[str]) -> FilterOutcome:
    rejects = np.zeros(len(view), np.bool_)
    rejects[[view.rows[name] for name in names]] = True
    judged = FilterResult(rejects, rejects.view(np.int8))
    return FilterOutcome(
        policy=policy, rule="r", result=judged, rejects=rejects, explainer=FixedReasons({1: "no"})
    )


def matches(term: Json | None, name: str, labels: Labels) -> bool:
    """Return whether a node selector term, as it stands in JSON, matches a node."""
    expressions = (term or {}).get("matchExpressions") or []
    fields = (term or {}).get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_holds(each, labels.get(each["key"])) for each in expressions) and all(
        _holds(each, name) for each in fields
    )


def admits(pod: Json, name: str, labels: Labels) -> bool:
    """Return whether a pod's required node affinity admits a node."""
    selector = _node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    if selector is None:
        return True
    return any(matches(term, name, labels) for term in selector.get("nodeSelectorTerms") or [])


def preferred(pod: Json) -> list[Json]:
    """Return a pod's preferred terms."""
    return _node_affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution") or []


def preference(terms: Iterable[Json], name: str, labels: Labels) -> int:
    """Return what preferred terms add up to on a node."""
    return sum(term["weight"] for term in terms if matches(term["preference"], name, labels))


def _node_affinity(pod: Json) -> Json:
    spec = pod.get("spec") or {}
    return (spec.get("affinity") or {}).get("nodeAffinity") or {}


def _holds(requirement: Json, value: str | None) -> bool:
    match requirement["operator"]:
        case "In":
            return value in requirement["values"]
        case "NotIn":
            return value not in requirement["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not value.isdecimal() or int(value) >= 1 << 63:
                return False
            (bound,) = map(int, requirement["values"])
            return int(value) > bound if operator == "Gt" else int(value) < bound
        case operator:
            raise AssertionError(operator)
