"""Which filters hold whatever the pod, and what a policy that marks nodes says of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.decision import Verdict
from engine.model.node import Node, node_of
from engine.model.node_marks import AVOID_TAINT, mark_label
from engine.model.request import PlacementRequest
from engine.model.usage import NodeUsage
from engine.pipeline import decide
from engine.placement import ADVICE_ANNOTATION, encode
from engine.policy import CompiledPolicy, PolicySet, node_markers
from engine.view import ClusterState, ClusterView, Domain, Freshness
from tests.engine.policy.worlds import GIB, NOW, node, policy, request_of, usage, view_of

LABEL = mark_label("p")
FOR_SOME = "match: {matchConditions: [{name: c, expression: pod.priority > 0}]}"
ROOM = {"cpu": 4000, "memory": 8 * GIB, "pods": 110}
HOT = "{name: hot, expression: '!has(node.usage) || node.usage.cpu < 3.0'}"


def _marked(filters: str, how: str = "MarkedRequired") -> CompiledPolicy:
    return policy(f"filters: [{filters}]\nplacement: {{dynamicFilters: {how}}}\n")


def _nodes() -> tuple[Node | NodeUsage, ...]:
    """Return a hot node, a cool one, one whose report has expired, and one without."""
    return (
        *(node(name, allocatable=ROOM) for name in ("hot", "cool", "expired", "new")),
        usage("hot", cpu=3900, memory=GIB),
        usage("cool", cpu=100, memory=GIB),
        usage("expired", age=600, cpu=3900, memory=GIB),
    )


def _rejected(compiled: CompiledPolicy, view: ClusterView) -> list[str]:
    (marker,) = node_markers(PolicySet([compiled]))
    return marker.rejected_nodes(view, NOW)


@pytest.mark.parametrize(
    ("expression", "is_whatever_the_pod"),
    [
        ("node.podCount < 100", True),
        ("node.usage.cpu < 0.8 * node.allocatable.cpu", True),
        ("node.conditions.all(c, c.type != 'DiskPressure' || c.status == 'False')", True),
        ("node.creationTimestamp < now && node.podCount < variables.most", True),
        ("node.usage.memory + pod.limits.memory < node.allocatable.memory", False),
        ("node.podCount < 100 || pod.priority > 0", False),
        ("node.podCount < variables.its", False),
        ("node.podCount < variables.hidden", False),
        ("node.podCount < size(variables)", False),
        ("node.podCount < size(object.spec.containers)", False),
        ("node.podCount < 9 || namespaceObject.metadata.name == 'a'", False),
        ("node.podCount < 9 || request.dryRun", False),
        ("!('spot' in node.labels)", False),  # of labels alone: a promise, which needs no mark
    ],
)
def test_a_filter_holds_whatever_the_pod_by_what_it_reads(
    expression: str, *, is_whatever_the_pod: bool
) -> None:
    compiled = policy(
        f"""
        variables:
          - {{name: most, expression: '100'}}
          - {{name: its, expression: pod.priority}}
          - {{name: hidden, expression: variables.its + 1}}
        filters: [{{name: f, expression: "{expression}"}}]
        """
    )
    assert (compiled.filters[0].node_filter is not None) is is_whatever_the_pod


@pytest.mark.parametrize(
    ("plugin", "is_whatever_the_pod"),
    [
        ("LoadAware", True),
        ("LimitAware", True),
        ("NodeResourcesFit", False),
        ("DiskIOAware", False),
    ],
)
def test_plugins_declare_what_holds_whatever_the_pod(
    plugin: str, *, is_whatever_the_pod: bool
) -> None:
    compiled = policy(f"filters: [{{plugin: {plugin}}}]")
    assert (compiled.filters[0].node_filter is not None) is is_whatever_the_pod


@pytest.mark.parametrize("filters", [HOT, "{plugin: LoadAware}"])
def test_a_node_is_rejected_by_what_is_measured_and_not_for_want_of_it(filters: str) -> None:
    compiled = policy(f"filters: [{filters}]")
    state = ClusterState()
    state.track_sums(compiled.sum_profiles)
    for each in _nodes():
        state.set_node(each) if isinstance(each, Node) else state.set_usage(each)
    assert _rejected(compiled, state.view()) == ["hot"]


def test_a_node_that_cannot_be_judged_is_not_rejected() -> None:
    compiled = policy("filters: [{name: f, expression: node.usage.cpu < 3.0}]")
    assert _rejected(compiled, view_of(*_nodes())) == ["hot"]


def test_a_node_over_its_ratio_is_rejected_before_any_pod_is_added() -> None:
    compiled = policy(
        "filters: [{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: 100}}}]"
    )
    full, over = view_of(node("full")), view_of(node("over", allocatable={"cpu": -1}))
    assert (_rejected(compiled, full), _rejected(compiled, over)) == ([], ["over"])


def test_a_filter_that_reads_stale_data_rejects_nothing() -> None:
    (marker,) = node_markers(PolicySet([_marked(f"{HOT}, {{name: n, expression: node.ready}}")]))
    view = view_of(*_nodes(), node("unready", ready=False))
    assert marker.rejected_nodes(view, NOW) == ["hot", "unready"]
    stale = Freshness(stale={Domain.METRICS: "usage is 95 s old"})
    assert marker.rejected_nodes(view, NOW, stale) == ["unready"]


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        (f"filters: [{HOT}]", {AVOID_TAINT}),
        (f"filters: [{HOT}]\nplacement: {{dynamicFilters: Marked}}", {AVOID_TAINT, LABEL}),
        (f"filters: [{HOT}]\nplacement: {{dynamicFilters: MarkedRequired}}", {AVOID_TAINT, LABEL}),
        (f"filters: [{HOT}]\nmatch: {{objectSelector: {{matchLabels: {{a: b}}}}}}", set()),
        (
            f"{FOR_SOME}\nfilters: [{HOT}]\nplacement: {{dynamicFilters: Marked}}",
            {LABEL},
        ),
        (f"mode: Audit\nfilters: [{HOT}]\nplacement: {{dynamicFilters: Marked}}", set()),
        ("filters: [{name: f, expression: node.podCount < pod.priority}]", set()),
        ("placement: {dynamicFilters: Marked}", set()),
    ],
)
def test_only_a_policy_for_all_pods_taints_and_only_one_that_says_so_labels(
    spec: str, keys: set[str]
) -> None:
    markers = node_markers(PolicySet([policy(spec)]))
    assert {key for marker in markers for key in marker.keys} == keys


def _placed(
    compiled: CompiledPolicy, request: PlacementRequest, *nodes: Node | NodeUsage
) -> tuple[list[str], list[Any]]:
    """Return the candidates, and the operations of the patch."""
    view = view_of(*nodes)
    decision = decide(request, PolicySet([compiled]), view, NOW)
    assert decision.verdict is not Verdict.DENY
    names = [view.names[row] for row in decision.candidates.tolist()]
    return sorted(names), list(encode(decision, request, view).operations)


def _text(json: object) -> str:
    return msgspec.json.encode(json).decode()


def _node_with(*marks: str, name: str = "marked") -> Node:
    wire = {
        "metadata": {"name": name, "labels": dict.fromkeys(marks, "true")},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }
    return node_of(msgspec.convert(wire, api.Node))


REQUIRED, PREFERRED = (
    f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred")
)


@pytest.mark.parametrize(("how", "affinity"), [("Marked", PREFERRED), ("MarkedRequired", REQUIRED)])
def test_pods_of_a_marked_policy_avoid_its_label_in_a_term_of_constant_size(
    how: str, affinity: str
) -> None:
    request = request_of({"containers": [{"name": "c"}]})
    marked = (_node_with(LABEL, name=f"m{i}") for i in range(50))
    candidates, operations = _placed(_marked(HOT, how), request, *_nodes(), *marked)
    assert candidates == ["cool", "expired", "new"]
    (node_affinity,) = (
        each["value"]["nodeAffinity"] for each in operations if "affinity" in each["path"]
    )
    assert f'{{"key":"{LABEL}","operator":"DoesNotExist"}}' in _text(node_affinity[affinity])
    assert "m1" not in _text(operations)
    assert (REQUIRED in node_affinity) is (how == "MarkedRequired")


def test_a_node_that_is_marked_later_is_worth_no_more_than_the_worst_one_that_is_not() -> None:
    request = request_of({"containers": [{"name": "c"}]})
    _, operations = _placed(_marked(HOT, "Marked"), request, *_nodes())
    (affinity,) = (each["value"] for each in operations if "affinity" in each["path"])
    *ranked, unmarked = affinity["nodeAffinity"][PREFERRED]
    assert unmarked["weight"] >= sum(term["weight"] for term in ranked)
    (advice,) = (
        each["value"][ADVICE_ANNOTATION] for each in operations if "annotations" in each["path"]
    )
    assert f'"terms":{len(ranked) + 1}' in advice  # so that it can be told from the pod's own


def test_the_term_is_written_even_where_no_node_passes() -> None:
    _, operations = _placed(_marked(HOT), request_of({"containers": []}), _node_with(LABEL))
    assert "DoesNotExist" in _text(operations)


def test_a_mark_of_another_policy_keeps_no_pod_away() -> None:
    request = request_of({"containers": []})
    marks = (mark_label("other"), "zone")
    assert _placed(_marked(HOT), request, _node_with(*marks))[0] == ["marked"]


def test_a_policy_none_of_whose_filters_can_be_marked_requires_no_label() -> None:
    compiled = _marked("{name: f, expression: node.podCount < 100 + pod.priority}")
    assert [rule.name for rule in compiled.filters] == ["f"]


def test_a_marked_node_is_told_apart_in_the_reasons() -> None:
    view = view_of(_node_with(LABEL), node("free", allocatable=ROOM))
    decision = decide(request_of({"containers": []}), PolicySet([_marked(HOT)]), view, NOW)
    (summary,) = decision.rejection_summaries
    assert (summary.rule, summary.reason) == (LABEL, "the node is marked by policy p")


def test_our_taint_is_nothing_that_an_expression_sees() -> None:
    compiled = policy("filters: [{name: clean, expression: size(node.taints) == 0}]")
    wire = {
        "metadata": {"name": "a"},
        "spec": {"taints": [{"key": AVOID_TAINT, "effect": "PreferNoSchedule"}]},
    }
    assert _rejected(compiled, view_of(node_of(msgspec.convert(wire, api.Node)))) == []
