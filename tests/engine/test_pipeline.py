"""What `decide` makes of policies that are each tested elsewhere: order, composition, verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from engine.model import api
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.policy_resource import DynamicFilters
from engine.model.rule_outcomes import SCHEDULER
from engine.model.usage import NodeUsage
from engine.pipeline import Scope, decide
from engine.policy import PolicySet
from engine.view import ClusterState
from tests.engine.measured_cluster import pod
from tests.engine.policy.worlds import GIB, NOW, node, policies, request_of, usage

EVERYTHING = policies(p="filters: [{name: all, expression: 'true'}]")
SIZES = {"small": "1", "medium": "2", "large": "4"}


def _node(name: str, **more: Any) -> Node:  # noqa: ANN401 - the fields of a node
    """Return a node of 8 cores and 32 GiB."""
    return node(name, **{"allocatable": {"cpu": 8000, "memory": 32 * GIB, "pods": 110}, **more})


def _sized(*names: str) -> list[Node]:
    """Return nodes that are labelled with their size."""
    return [_node(name, labels={"size": SIZES[name]}) for name in names]


def _state(policy_set: PolicySet, *objects: Node | Pod | NodeUsage) -> ClusterState:
    state = ClusterState()
    state.track_sums(policy_set.sum_profiles)
    for one in objects:
        if isinstance(one, Node):
            state.set_node(one)
        elif isinstance(one, Pod):
            state.set_pod(one, seen_at=NOW)
        else:
            state.set_usage(one)
    return state


def _decided(
    policy_set: PolicySet,
    *objects: Node | Pod | NodeUsage,
    request: PlacementRequest | None = None,
    scope: Scope | None = None,
) -> Decision:
    view = _state(policy_set, *objects).view()
    return decide(request or request_of(uid="1"), policy_set, view, NOW, scope=scope or Scope())


def _totals(decision: Decision) -> dict[str, int]:
    """Return the candidates with their totals, best first."""
    names = [decision.names[row] for row in decision.candidates.tolist()]
    return dict(zip(names, decision.totals.tolist(), strict=True))


def _left_out(decision: Decision) -> list[tuple[str, str, str, int]]:
    return [(out.policy, out.rule, out.reason, out.nodes) for out in decision.rejection_summaries]


def _raw(decision: Decision, rule: str) -> Mapping[str, float]:
    (score,) = (score for score in decision.scores if score.rule == rule)
    return dict(zip(_totals(decision), score.raw.tolist(), strict=True))


# Which pods, and which policies.


@pytest.mark.parametrize(
    ("pod_of", "reason"),
    [
        (lambda one: replace(one, node_name="a"), "the pod is bound to node a already"),
        (lambda one: replace(one, owner_kinds=("DaemonSet",)), "DaemonSet pods are pinned"),
        (lambda one: replace(one, annotations={"kubernetes.io/config.mirror": "x"}), "mirror"),
        (
            lambda one: replace(one, priority_class_name="system-node-critical"),
            "pods of priority class system-node-critical run the cluster",
        ),
        (lambda one: replace(one, namespace="kube-system"), "namespace kube-system is excluded"),
        (lambda one: replace(one, scheduler_name="volcano"), "scheduler volcano is not one we"),
    ],
)
def test_a_pod_that_is_not_ours_is_left_alone(pod_of: Any, reason: str) -> None:  # noqa: ANN401 - a function
    asked = request_of()
    request = PlacementRequest(pod=pod_of(asked.pod), raw=asked.raw)
    decision = _decided(EVERYTHING, _node("a"), request=request)
    assert decision.verdict is Verdict.ABSTAIN
    assert reason in decision.message
    assert not decision.filters


def test_pods_outside_the_scope_are_skipped() -> None:
    ours = Scope(scheduler_names=("volcano", "default-scheduler"), excluded_namespaces=("shop",))
    elsewhere = request_of({"schedulerName": "volcano"}, namespace="kube-system")
    assert _decided(EVERYTHING, _node("a"), request=elsewhere, scope=ours).verdict is Verdict.PLACE
    assert "shop is excluded" in _decided(EVERYTHING, _node("a"), scope=ours).message


def test_nothing_is_decided_where_no_policy_speaks_of_the_pod() -> None:
    elsewhere = policies(p="match: {objectSelector: {matchLabels: {app: db}}}")
    decision = _decided(elsewhere, _node("a"))
    assert (decision.verdict, decision.message) == (Verdict.ABSTAIN, "no policy matches")
    assert decision.audit is None


def test_a_condition_that_fails_is_reported_though_nothing_is_decided() -> None:
    broken = policies(
        p="match: {matchConditions: [{name: c, expression: object.spec.nope == 1}]}",
    )
    decision = _decided(broken, _node("a"))
    assert decision.message == "no policy matches"
    (error,) = decision.errors
    assert error.startswith("p: match condition `c`: ")


def test_a_policy_in_audit_mode_is_reported_and_changes_nothing() -> None:
    spec = "filters: [{name: big, expression: int(node.labels.size) > 1}]"
    nodes = _sized("small", "large")
    alone = _decided(policies(e=spec), *nodes)
    beside = _decided(policies(e=spec, a=f"mode: Audit\n{spec.replace('> 1', '> 9')}"), *nodes)
    assert _totals(beside) == _totals(alone) == {"large": 0}
    assert beside.policies == ("e",)
    assert beside.audit is not None
    assert beside.audit.policies == ("a",)
    assert beside.audit.verdict is Verdict.ABSTAIN
    assert beside.audit.candidates.size == 0


def test_only_policies_in_audit_mode_decide_nothing() -> None:
    decision = _decided(policies(a="mode: Audit"), _node("a"))
    assert decision.message == "no policy in Enforce mode matches"
    assert decision.verdict is Verdict.ABSTAIN
    assert decision.audit is not None
    assert decision.audit.verdict is Verdict.PLACE


# Filters and scores.


def test_the_filters_of_all_policies_apply() -> None:
    both = policies(
        p="filters: [{name: big, expression: int(node.labels.size) > 1}]",
        q="filters: [{name: not-too-big, expression: int(node.labels.size) < 4}]",
    )
    decision = _decided(both, *_sized("small", "medium", "large"))
    assert list(_totals(decision)) == ["medium"]
    assert decision.policies == ("p", "q")


def test_scores_add_up_by_weight() -> None:
    both = policies(
        p="scores: [{name: big, expression: int(node.labels.size), weight: 3}]",
        q="scores: [{name: small, expression: -int(node.labels.size)}]",
    )
    decision = _decided(both, *_sized("small", "medium", "large"))
    # big: 1, 2, 4 -> 0, 33, 100; small the other way round: 100, 67 (66.7), 0.
    # large 3 * 100 + 0; medium 3 * 33 + 67; small 0 + 100.
    assert _totals(decision) == {"large": 300, "medium": 166, "small": 100}
    assert [score.normalized.tolist() for score in decision.scores] == [[100, 33, 0], [0, 67, 100]]


def test_without_scores_all_candidates_are_equal() -> None:
    assert set(_totals(_decided(EVERYTHING, _node("a"), _node("b"))).values()) == {0}


def test_the_placement_is_that_of_the_highest_priority_and_then_of_the_first_name() -> None:
    spec = "priority: {}\nplacement: {{dynamicFilters: {}}}"
    low_first = policies(a=spec.format(1, "Preferred"), b=spec.format(2, "Required"))
    decision = _decided(low_first, _node("a"))
    assert decision.policies == ("b", "a")
    assert decision.placement.dynamic_filters is DynamicFilters.REQUIRED
    equal = policies(b=spec.format(1, "Preferred"), a=spec.format(1, "Required"))
    assert _decided(equal, _node("a")).placement.dynamic_filters is DynamicFilters.REQUIRED


def test_nodes_that_the_scheduler_rejects_are_removed_before_any_policy_filters() -> None:
    spec = """
    filters: [{name: no, expression: node.name == 'best' || node.name == 'free'}]
    scores: [{name: most, expression: node.allocatable.cpu}]
    """
    decision = _decided(
        policies(p=spec),
        _node("best"),
        _node("free", allocatable={"cpu": 4000, "memory": 8 * GIB, "pods": 110}),
        _node("cordoned", unschedulable=True),
        _node("full", allocatable={"cpu": 64_000, "memory": 8 * GIB, "pods": 0}),
        _node("refused"),
        request=request_of({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}),
    )
    # The 64 cores of `full` would make 8 and 4 cores 6 and 0 points.
    assert _totals(decision) == {"best": 100, "free": 0}
    assert _left_out(decision) == [
        (SCHEDULER, "NodeUnschedulable", "node(s) were unschedulable", 1),
        (SCHEDULER, "NodeResourcesFit", "Too many pods", 1),
        ("p", "no", "failed expression: node.name == 'best' || node.name == 'free'", 1),
    ]
    assert decision.first_rejections == (1, 0, 0, 1, 1)


def test_a_node_is_counted_for_the_first_rule_that_stops_it() -> None:
    spec = "filters: [{name: x, expression: 'false'}, {name: y, expression: 'false', message: m}]"
    decision = _decided(policies(p=spec), _node("a"), _node("b", unschedulable=True))
    assert decision.first_rejections == (1, 0, 0, 0, 1, 0)
    assert [(outcome.rejects & decision.valid).sum() for outcome in decision.filters] == [
        1,
        0,
        0,
        0,
        2,
        2,
    ]


def test_rows_that_are_no_node_take_no_part() -> None:
    bound = pod("b", on="unknown-node")
    decision = _decided(EVERYTHING, _node("a"), bound, usage("silent-node", cpu=1))
    assert len(decision.names) == 3
    assert (sum(decision.first_rejections), list(_totals(decision))) == (0, ["a"])


# What follows.


@pytest.mark.parametrize(("when", "verdict"), [("Deny", Verdict.DENY), ("Allow", Verdict.ABSTAIN)])
def test_a_pod_that_policies_leave_no_node_for_may_be_denied(when: str, verdict: Verdict) -> None:
    spec = f"""
    filters: [{{name: gone, expression: 'false', message: not today}}]
    placement: {{whenNoneFits: {when}}}
    """
    decision = _decided(policies(p=spec), _node("a"), _node("b", unschedulable=True))
    assert decision.verdict is verdict
    assert decision.message == (
        "0 of 2 nodes fit; left out: 1 NodeUnschedulable (node(s) were unschedulable), "
        "1 gone (not today)"
    )


def test_a_pod_is_not_denied_where_the_scheduler_has_no_node_for_it_anyway() -> None:
    # Pending is the right state: the autoscaler may add a node.
    denying = policies(
        p="placement: {whenNoneFits: Deny}\nfilters: [{name: x, expression: 'true'}]"
    )
    assert _decided(denying, _node("a", unschedulable=True)).verdict is Verdict.ABSTAIN
    nowhere = _decided(denying)
    assert (nowhere.verdict, nowhere.message) == (Verdict.ABSTAIN, "no node is known")


def test_ties_are_spread_over_pods_and_always_the_same_for_one() -> None:
    nodes = [_node(f"n{i}") for i in range(20)]
    view = _state(EVERYTHING, *nodes).view()

    def first(uid: str) -> str:
        decision = decide(request_of(uid=uid), EVERYTHING, view, NOW)
        return decision.names[int(decision.candidates[0])]

    firsts = Counter(first(str(i)) for i in range(400))
    # 20 on average; that one of 20 gets 0, or more than 50, has a chance of one in millions.
    assert len(firsts) == 20
    assert max(firsts.values()) < 50
    assert first("7") == first("7")


def test_an_order_with_ties_is_that_of_the_totals_all_the_same() -> None:
    spec = "scores: [{name: s, expression: int(node.labels.n), weight: 100}]"
    nodes = [_node(f"n{i}", labels={"n": str(i % 7)}) for i in range(100)]
    decision = _decided(policies(p=spec, q=spec, r=spec), *nodes)
    assert all(better >= worse for better, worse in pairwise(decision.totals.tolist()))
    assert sorted(_totals(decision)) == sorted(one.name for one in nodes)
    n_of = [int(name[1:]) % 7 for name in _totals(decision)]
    assert n_of == sorted(n_of, reverse=True)


def test_the_estimate_is_that_of_the_first_policy_that_has_one() -> None:
    load = "priority: {}\nfilters: [{{plugin: LoadAware, args: {{estimatedScalingFactors: {}}}}}]"
    three = policies(
        a="priority: 3",
        b=load.format(2, "{cpu: 50}"),
        c=load.format(1, "{cpu: 100}"),
    )
    limits = {"containers": [{"resources": {"limits": {"cpu": "2", "memory": "1000"}}}]}
    estimate = _decided(three, _node("a"), request=request_of(limits)).estimate
    assert estimate == {"cpu": 1000, "memory": 700}  # 50 % of 2 cores, 70 % by default
    assert _decided(EVERYTHING, _node("a")).estimate == {}


def test_a_decision_records_its_view_and_moment() -> None:
    state = _state(EVERYTHING, _node("a"))
    decision = decide(request_of(), EVERYTHING, state.view(), NOW)
    assert (decision.decided_at, decision.view_version) == (NOW, state.view().version)


# What cannot be evaluated.


def test_a_node_that_cannot_be_evaluated_is_rejected_or_not_by_on_error() -> None:
    spec = "filters: [{{name: idle, expression: node.usage.cpu < 1.0{}}}]"
    objects = (_node("seen"), usage("seen", cpu=500), _node("unseen"))
    strict = _decided(policies(p=spec.format("")), *objects)
    assert list(_totals(strict)) == ["seen"]
    lenient = _decided(policies(p=spec.format(", onError: IgnoreRule")), *objects)
    assert set(_totals(lenient)) == {"seen", "unseen"}
    for decision in (strict, lenient):
        (error,) = decision.errors
        assert error.startswith("p: idle could not be evaluated for 1 node: ")


def test_errors_come_in_the_order_of_policies_those_of_the_scheduler_first() -> None:
    spec = "priority: {}\nscores: [{{name: s, expression: node.usage.cpu}}]"
    # More labels than NodeAffinity looks at, in terms of which one would match.
    terms = [
        {"matchExpressions": [{"key": f"k{i}", "operator": "DoesNotExist"}]} for i in range(65)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = request_of({"affinity": {"nodeAffinity": required}})
    two = policies(a=spec.format(1), b=spec.format(2))
    assert [
        error.partition(" could")[0] for error in _decided(two, _node("n"), request=affinity).errors
    ] == ["NodeAffinity"]
    assert [error.partition(" could")[0] for error in _decided(two, _node("n")).errors] == [
        "b: s",
        "a: s",
    ]


# Two examples worked by hand.


def test_a_node_with_less_oversubscribed_limits_wins_as_the_proposal_has_it() -> None:
    """KEP-217: by requests node1 would be chosen, by limits it is node2."""
    eight = {"cpu": 8000, "memory": 32 * GIB, "pods": 110}

    def running(name: str, on: str, request: str, limit: str) -> Pod:
        return pod(name, on, requests={"cpu": request}, limits={"cpu": limit})

    decision = _decided(
        policies(
            p="scores: [{plugin: ResourceLimitAware, args: {resources: [{name: cpu, weight: 1}]}}]"
        ),
        _node("node1", allocatable=eight),
        _node("node2", allocatable=eight),
        running("pod1", "node1", "2", "6"),
        running("pod2", "node1", "2", "4"),
        running("pod3", "node2", "3", "3"),
        running("pod4", "node2", "2", "2"),
        request=request_of(
            {"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}]}
        ),
    )
    # node1: 8 - (6 + 4 + 4) = -6 of 8 cores, -75 %; node2: 8 - (3 + 2 + 4) = -1, -12.5 -> -12 %.
    assert _raw(decision, "ResourceLimitAware") == {"node2": -12, "node1": -75}
    # Stretched over 0..100: (-12 + 75) * 100 / (-12 + 75) = 100, and 0.
    assert _totals(decision) == {"node2": 100, "node1": 0}
    assert decision.message == "2 of 2 nodes fit, best node2"


def test_a_hot_node_is_left_out_and_the_cooler_of_the_others_is_best() -> None:
    load = "{plugin: LoadAware, args: {usageThresholds: {cpu: 65, memory: 95}}}"
    decision = _decided(
        policies(p=f"filters: [{load}]\nscores: [{load}]"),
        *(_node(name) for name in ("hot", "warm", "cool")),
        usage("hot", cpu=5000, memory=8 * GIB),
        usage("warm", cpu=3000, memory=8 * GIB),
        usage("cool", cpu=2000, memory=8 * GIB),
        request=request_of(
            {"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}
        ),
    )
    # The pod is expected to use 85 % of a core and 70 % of a GiB.
    # hot: (5000 + 850) / 8000 = 73 %, over 65; warm: 3850 / 8000 = 48 %; cool: 36 %.
    assert _left_out(decision) == [("p", "LoadAware", "node(s) cpu usage exceed threshold", 1)]
    # Free of memory (32 - 8 - 0.7) / 32 = 72.8 -> 72 % on each; of cpu (8000 - 2850) / 8000 =
    # 64.4 -> 64 % on cool, 4150 / 8000 = 51.9 -> 51 % on warm; (72 + 64) / 2 = 68, 123 / 2 -> 61.
    assert _totals(decision) == {"cool": 68, "warm": 61}
    assert decision.estimate == {"cpu": 850, "memory": round(0.7 * GIB)}


def test_a_decision_does_not_change_until_its_reasons_are_read() -> None:
    spec = "filters: [{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: 100}}}]"
    policy_set = policies(p=spec)
    tainted = _node("t", taints=(api.Taint(key="k", value="v", effect="NoSchedule"),))
    full = pod("x", "b", limits={"cpu": "8"})
    state = _state(policy_set, _node("a"), _node("b"), tainted, full)
    limited = request_of({"containers": [{"resources": {"limits": {"cpu": "1"}}}]})
    decision = decide(limited, policy_set, state.view(), NOW)
    state.delete_pod(full.key)
    state.delete_node("a")
    state.set_node(_node("t"))
    state.set_node(_node("c"))
    assert set(_totals(decide(limited, policy_set, state.view(), NOW))) == {"b", "c", "t"}
    assert list(_totals(decision)) == ["a"]
    assert _left_out(decision) == [
        (SCHEDULER, "TaintToleration", "node(s) had untolerated taint {k: v}", 1),
        ("p", "LimitAware", "Insufficient cpu limit", 1),
    ]
    assert np.count_nonzero(decision.valid) == 3
