from __future__ import annotations

from typing import Any

import pytest

from engine.model.rule_outcomes import FilterResult
from engine.plugins.base import FAULT, PASS, Cycle
from engine.plugins.pod_topology_spread import (
    PLUGIN,
    PodTopologySpreadFilter,
)
from engine.view import ClusterView
from tests.conformance.cluster import NOW, cluster_of
from tests.conformance.cluster import incoming as incoming_of
from tests.engine.explainers import described

SHOP = {"matchLabels": {"app": "shop"}}
FILTER = PodTopologySpreadFilter()
SKEWED = "node(s) didn't match pod topology spread constraints"
UNLABELLED = "node(s) didn't match pod topology spread constraints (missing required label)"


def _node(name: str, zone: str = "", *taints: dict[str, str]) -> dict[str, Any]:
    labels = {"host": name, **({"zone": zone} if zone else {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)}}


def _pod(name: str, on: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": labels or {"app": "shop"}}
    return {"metadata": metadata, "spec": {"nodeName": on}}


def _view(nodes: list[dict[str, Any]], *on: str) -> ClusterView:
    """Return the view of some nodes, with a pod of the shop for each name of a node."""
    pods = [_pod(f"p{i}", name) for i, name in enumerate(on)]
    return cluster_of({"nodes": nodes, "pods": pods})


def _constraint(**more: object) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": SHOP,
        **more,
    }


def _incoming(*constraints: dict[str, Any], labels: Any = None, **spec: object) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    metadata = {"labels": {"app": "shop"} if labels is None else labels}
    spec = {"topologySpreadConstraints": list(constraints), **spec}
    return {"pod": {"metadata": metadata, "spec": spec}}


def _reasons(asked: dict[str, Any], view: ClusterView) -> dict[str, str]:
    pod = incoming_of(asked)
    codes = FILTER.filter(Cycle(pod, view, NOW)).codes.tolist()
    texts = [
        "" if code == PASS else ", ".join(FILTER.reasons(code, Cycle(pod, view, NOW)))
        for code in codes
    ]
    return dict(zip(view.names, texts, strict=True))


THREE = [_node("a", "west"), _node("b", "east"), _node("c", "east"), _node("x")]


def test_a_node_is_rejected_where_its_domain_would_have_too_many_pods_more_than_the_fewest() -> (
    None
):
    # West has 1 pod, east 3; with this one west 2, of at most 1 + 1, and east 4.
    view = _view(THREE, "a", "b", "b", "c", "x")
    asked = _incoming(_constraint())
    assert _reasons(asked, view) == {"a": "", "b": SKEWED, "c": SKEWED, "x": UNLABELLED}
    assert _reasons(_incoming(_constraint(maxSkew=3)), view) == {
        "a": "",
        "b": "",  # 4, of at most 1 + 3
        "c": "",
        "x": UNLABELLED,
    }


def test_a_pod_that_is_not_selected_by_itself_adds_none() -> None:
    # East stays at 2, of at most 1 + 1.
    view = _view(THREE, "a", "b", "c")
    assert _reasons(_incoming(_constraint()), view)["b"] == SKEWED
    assert _reasons(_incoming(_constraint(), labels={"app": "cart"}), view)["b"] == ""


def test_the_first_constraint_that_a_node_breaks_is_the_reason() -> None:
    nodes = [_node("a", "west"), _node("b", "east"), _node("x")]
    for node, rack in zip(nodes, ("1", "2", "2"), strict=True):
        node["metadata"]["labels"]["rack"] = rack
    racks = _constraint(topologyKey="rack")
    # In rack 2 is one pod that counts; those on x do not, for it is in no zone.
    view = _view(nodes, "b", "x", "x")
    assert _reasons(_incoming(racks, _constraint()), view) == {"a": "", "b": SKEWED, "x": SKEWED}
    assert _reasons(_incoming(_constraint(), racks), view)["x"] == UNLABELLED
    assert _reasons(_incoming({**racks, "maxSkew": 2}), view)["x"] == SKEWED  # 4 of at most 0 + 2
    two = _incoming({**racks, "maxSkew": 2}, _constraint(maxSkew=2))
    assert _reasons(two, view) == {"a": "", "b": "", "x": UNLABELLED}


def test_too_few_domains_count_as_if_one_more_were_empty() -> None:
    # Two domains with 1 pod each, so 2 of at most 1 + 1; were there three, 2 of at most 0 + 1.
    view = _view(THREE, "a", "b")
    assert _reasons(_incoming(_constraint(minDomains=2)), view)["a"] == ""
    assert _reasons(_incoming(_constraint(minDomains=3)), view)["a"] == SKEWED


@pytest.mark.parametrize(("policy", "reason"), [(None, ""), ("Honor", ""), ("Ignore", SKEWED)])
def test_nodes_that_the_pod_does_not_want_count_if_affinity_is_ignored(
    policy: str | None, reason: str
) -> None:
    # East has 1: with west, which has none, 2 of at most 0 + 1, without 2 of at most 1 + 1.
    view = _view(THREE, "b")
    constraint = _constraint(**({"nodeAffinityPolicy": policy} if policy else {}))
    asked = _incoming(constraint, nodeSelector={"zone": "east"})
    assert _reasons(asked, view)["b"] == reason
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    asked = _incoming(constraint, affinity={"nodeAffinity": required})
    assert _reasons(asked, view)["b"] == reason


@pytest.mark.parametrize(("policy", "reason"), [(None, SKEWED), ("Ignore", SKEWED), ("Honor", "")])
def test_nodes_with_taints_that_keep_the_pod_away_count_unless_taints_are_honoured(
    policy: str | None, reason: str
) -> None:
    tainted = _node("a", "west", {"key": "gpu", "effect": "NoSchedule"})
    view = _view([tainted, _node("b", "east")], "b")
    constraint = _constraint(**({"nodeTaintsPolicy": policy} if policy else {}))
    assert _reasons(_incoming(constraint), view)["b"] == reason
    tolerant = [{"key": "gpu", "operator": "Exists"}]
    assert _reasons(_incoming(constraint, tolerations=tolerant), view)["b"] == SKEWED


def test_only_pods_with_the_values_of_the_label_keys_count() -> None:
    pods = [_pod("p1", "a", app="shop", version="1"), _pod("p2", "b", app="shop", version="2")]
    view = cluster_of({"nodes": THREE, "pods": pods})
    constraint = _constraint(matchLabelKeys=["version", "absent"])
    # Of version 2 west has none and east one.
    asked = _incoming(constraint, labels={"app": "shop", "version": "2"})
    assert _reasons(asked, view) == {"a": "", "b": SKEWED, "c": SKEWED, "x": UNLABELLED}


def test_pods_that_are_leaving_do_not_count() -> None:
    leaving = _pod("p1", "b")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    view = cluster_of({"nodes": THREE, "pods": [leaving]})
    assert _reasons(_incoming(_constraint()), view)["b"] == ""


@pytest.mark.parametrize("selector", [None, {}])
def test_without_a_selector_no_pod_on_a_node_counts(selector: object) -> None:
    view = _view(THREE, "b", "b")
    asked = _incoming(_constraint(labelSelector=selector))
    assert _reasons(asked, view) == {"a": "", "b": "", "c": "", "x": UNLABELLED}


def test_constraints_that_only_prefer_reject_nothing() -> None:
    view = _view(THREE, "b", "b")
    asked = _incoming(_constraint(whenUnsatisfiable="ScheduleAnyway"))
    assert set(_reasons(asked, view).values()) == {""}
    assert not PLUGIN.reads_other_nodes(Cycle(incoming_of(asked), view, NOW))
    assert PLUGIN.reads_other_nodes(Cycle(incoming_of(_incoming(_constraint())), view, NOW))


def _faulty(asked: dict[str, Any]) -> tuple[FilterResult, str]:
    view, pod = _view(THREE), incoming_of(asked)
    return FILTER.filter(Cycle(pod, view, NOW)), FILTER.fault(Cycle(pod, view, NOW), 0)


def test_what_cannot_be_judged_is_a_fault_everywhere() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    result, message = _faulty(_incoming(_constraint(labelSelector=wrong)))
    assert result.has_faults
    assert set(result.codes.tolist()) == {FAULT}
    assert message.startswith("topologySpreadConstraints[0].labelSelector.matchExpressions[0]")
    # Each counts for itself, and once more for its requirement.
    many = [_constraint(topologyKey=f"key-{i}") for i in range(33)]
    result, message = _faulty(_incoming(*many))
    assert result.has_faults
    assert message == "topology spread has more than 64 constraints and requirements"
    assert not _faulty(_incoming(*many[:32]))[0].has_faults


def test_numbers_beyond_any_reason_are_compared_as_they_are() -> None:
    view = _view(THREE, "b")
    reasons = _reasons(_incoming(_constraint(maxSkew=2**63 - 1, minDomains=2**63 - 1)), view)
    assert reasons["b"] == ""
    assert _reasons(_incoming(_constraint(maxSkew=-(2**63))), view)["a"] == SKEWED


def test_an_explanation_has_the_pods_of_the_domain_and_the_fewest_of_one() -> None:
    view = _view(THREE, "a", "b", "b")
    pod = incoming_of(_incoming(_constraint()))
    assert described(FILTER.inputs(Cycle(pod, view, NOW), view.rows["b"])) == {
        "pods in zone=east": "3 of 2, 1 of it this pod",
        "fewest in a domain": "1",
    }
    absent = described(FILTER.inputs(Cycle(pod, view, NOW), view.rows["x"]))
    assert absent == {"label zone": "absent"}
