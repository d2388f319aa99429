from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from engine.model.decision import PlacementRequest, RuleTimes
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome, ScoreOutcome
from engine.plugins import FAULT
from engine.policy import SCHEDULER_FILTERS, CompiledPolicy, RuleContext
from engine.policy.expressions import ScoreExpression
from engine.view import ClusterView, Domain, Freshness
from tests.engine.policy.worlds import GIB, NOW, node, policy, request_of, usage, view_of


def _filtered(
    spec: str, view: ClusterView, request: PlacementRequest | None = None
) -> tuple[FilterOutcome, RuleContext]:
    compiled = policy(spec)
    context = compiled.context(request or request_of(), view, NOW)
    return compiled.filters[0].outcome(context), context


def _scored(
    spec: str, view: ClusterView, *names: str, request: PlacementRequest | None = None
) -> tuple[ScoreOutcome, RuleContext]:
    compiled = policy(spec)
    context = compiled.context(request or request_of(), view, NOW)
    rows = np.array([view.rows[name] for name in names], np.intp)
    return compiled.scores[0].outcome(context, rows), context


def _rejected(outcome: FilterOutcome, view: ClusterView) -> set[str]:
    return {view.names[row] for row in np.flatnonzero(outcome.rejects & view.valid).tolist()}


def _expression(expression: str, more: str = "") -> str:
    return f"filters: [{{name: rule, expression: {expression!r}{more}}}]"


def _score(expression: str, more: str = "") -> str:
    return f"scores: [{{name: rule, expression: {expression!r}{more}}}]"


# Filters.


def test_an_expression_turns_away_the_nodes_it_is_false_for_with_its_message() -> None:
    view = view_of(node("a", labels={"pool": "x"}), node("b"))
    outcome, context = _filtered(
        _expression("'pool' in node.labels", ", message: only in a pool"), view
    )
    assert _rejected(outcome, view) == {"b"}
    assert outcome.reason(view.rows["b"]) == "only in a pool"
    assert (outcome.policy, outcome.rule, outcome.faults) == ("p", "rule", 0)
    assert context.errors == []


def test_without_a_message_the_reason_is_the_expression_on_one_line() -> None:
    spec = "filters:\n- name: rule\n  expression: |\n    node.ready\n      && node.podCount < 0\n"
    outcome, _ = _filtered(spec, view_of(node("a")))
    assert outcome.reason(0) == "failed expression: node.ready && node.podCount < 0"


def test_a_node_that_cannot_be_judged_is_turned_away_by_default() -> None:
    view = view_of(node("a"), usage("a", cpu=1000), node("b"))
    outcome, context = _filtered(_expression("node.usage.cpu < 2.0"), view)
    assert _rejected(outcome, view) == {"b"}
    assert outcome.faults == 1
    assert outcome.codes[view.rows["b"]] == FAULT
    reason = outcome.reason(view.rows["b"])
    assert "usage" in reason
    (error,) = context.errors
    assert error == f"p: rule could not be evaluated for 1 node: {reason}"


def test_a_node_that_cannot_be_judged_passes_a_rule_that_is_ignored_on_error() -> None:
    view = view_of(node("a"), node("b"))
    outcome, context = _filtered(_expression("node.usage.cpu < 2.0", ", onError: IgnoreRule"), view)
    assert _rejected(outcome, view) == set()
    assert outcome.faults == 2
    assert len(context.errors) == 1


def test_an_expression_that_gives_no_bool_could_not_be_evaluated() -> None:
    outcome, _ = _filtered(_expression("object.spec"), view_of(node("a")))
    assert outcome.faults == 1
    assert outcome.reason(0) == "the expression gave a `map`, not a `bool`"


def test_free_rows_are_not_judged() -> None:
    view = view_of(node("a"))
    assert len(view) == 2
    outcome, _ = _filtered(_expression("node.usage.cpu < 2.0"), view)
    assert outcome.faults == 1
    assert _rejected(outcome, view) == {"a"}


def test_an_expression_may_speak_of_pod_and_node_together() -> None:
    spec = {"containers": [{"resources": {"requests": {"memory": "3Gi"}}}]}
    view = view_of(node("a"), usage("a", memory=4 * GIB), node("b"), usage("b", memory=6 * GIB))
    outcome, _ = _filtered(
        _expression("node.usage.memory + pod.requests.memory <= node.allocatable.memory"),
        view,
        request_of(spec),
    )
    assert _rejected(outcome, view) == {"b"}  # 6 + 3 is more than 8 GiB


def test_an_expression_over_the_pod_alone_is_the_same_for_every_node() -> None:
    view = view_of(node("a"), node("b"))
    outcome, _ = _filtered(_expression("pod.namespace == 'elsewhere'"), view)
    assert _rejected(outcome, view) == {"a", "b"}


@pytest.mark.parametrize(
    ("expression", "dynamic"),
    [
        ("node.labels.zone == 'a'", False),
        ("pod.name == '' && 'x' in node.labels", False),
        ("pod.name == ''", False),
        ("node.name == 'a'", True),
        ("node.usage.cpu < 1.0", True),
        ("node.taints.size() == 0", True),
        ("node['labels'].size() == 0", False),
        ("[node].size() == 1", True),
    ],
)
def test_only_filters_over_labels_alone_are_static(expression: str, *, dynamic: bool) -> None:
    assert policy(_expression(expression)).filters[0].dynamic is dynamic


def test_plugins_over_changing_state_are_dynamic() -> None:
    filters = policy(
        "filters: [{plugin: LoadAware}, {plugin: LimitAware}, {plugin: NodeAffinity}]"
    ).filters
    assert [rule.dynamic for rule in filters] == [True, True, False]


def test_a_plugin_gives_its_own_reasons() -> None:
    ratios = "args: {defaultLimitToAllocatableRatio: {cpu: 100%}}"
    outcome, _ = _filtered(
        f"filters: [{{plugin: LimitAware, {ratios}}}]",
        view_of(node("a")),
        request_of({"containers": [{"resources": {"limits": {"cpu": "5"}}}]}),
    )
    assert outcome.rule == "LimitAware"
    assert outcome.reason(0) == "Insufficient cpu limit"


# Scores.


def test_scores_are_spread_over_the_candidates_alone() -> None:
    view = view_of(
        *(node(name, labels={"n": str(n)}) for name, n in zip("abcd", (1, 2, 5, 999), strict=True))
    )
    outcome, _ = _scored(_score("int(node.labels.n)", ", weight: 7"), view, "c", "a", "b")
    assert outcome.raw.tolist() == [5.0, 1.0, 2.0]
    assert outcome.normalized.tolist() == [100, 0, 25]  # (2 - 1) / (5 - 1)
    assert (outcome.weight, outcome.reason, outcome.faults) == (7, "", 0)


def test_a_candidate_that_cannot_be_scored_gets_0_by_default() -> None:
    view = view_of(node("a"), usage("a", cpu=1), node("b"), usage("b", cpu=3), node("c"))
    outcome, context = _scored(_score("-node.usage.cpu"), view, "a", "b", "c")
    assert outcome.normalized.tolist() == [100, 0, 0]
    assert (outcome.faults, outcome.reason) == (1, "")
    assert len(context.errors) == 1


def test_a_score_may_be_left_out_when_a_candidate_cannot_be_scored() -> None:
    view = view_of(node("a"), usage("a", cpu=1), node("b"), usage("b", cpu=3), node("c"))
    spec = _score("-node.usage.cpu", ", onError: IgnoreRule")
    outcome, _ = _scored(spec, view, "a", "b", "c")
    assert outcome.normalized.tolist() == [0, 0, 0]
    assert outcome.faults == 1
    assert "usage" in outcome.reason
    untouched, _ = _scored(spec, view, "a", "b")
    assert untouched.normalized.tolist() == [100, 0]


def test_a_score_that_cannot_be_evaluated_anywhere_abstains_with_the_reason() -> None:
    outcome, _ = _scored(_score("node.usage.cpu"), view_of(node("a"), node("b")), "a", "b")
    assert outcome.normalized.tolist() == [0, 0]
    assert outcome.faults == 2
    assert "usage" in outcome.reason


def test_a_score_equal_for_all_candidates_gives_its_reason() -> None:
    outcome, _ = _scored(_score("1"), view_of(node("a"), node("b")), "a", "b")
    assert outcome.normalized.tolist() == [0, 0]
    assert (outcome.faults, outcome.reason) == (0, "it gives no candidate any points")


@pytest.mark.parametrize("expression", ["0.0 / 0.0", "1.0 / 0.0", "object.spec"])
def test_a_score_must_be_a_finite_number(expression: str) -> None:
    outcome, _ = _scored(_score(expression), view_of(node("a")), "a")
    assert outcome.faults == 1
    assert outcome.reason.startswith("the expression gave a ")


def test_what_is_not_finite_does_not_sway_the_others() -> None:
    view = view_of(
        *(node(name, labels={"n": str(n)}) for name, n in zip("abc", (0, 1, 2), strict=True))
    )
    outcome, _ = _scored(_score("1.0 / double(node.labels.n)"), view, "a", "b", "c")
    assert outcome.raw.tolist() == [0, 1, 0.5]  # of `a` it is infinite
    assert outcome.normalized.tolist() == [0, 100, 0]
    assert outcome.faults == 1


def test_without_candidates_there_is_nothing_to_score() -> None:
    view = view_of(node("a"))
    for spec in (_score("node.podCount"), "scores: [{plugin: LimitAware}]"):
        outcome, context = _scored(spec, view)
        assert outcome.normalized.tolist() == []
        assert context.errors == []


_FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(_FINITE, min_size=1, max_size=8))
def test_points_keep_the_order_within_0_and_100(raw: list[float]) -> None:
    compiled: CompiledPolicy = policy(_score("1"))
    evaluator = compiled.scores[0].evaluator
    assert isinstance(evaluator, ScoreExpression)
    normalized = evaluator.normalize(np.array(raw))
    assert normalized is not None
    points = normalized.tolist()
    assert all(0 <= point <= 100 for point in points)
    pairs = sorted(zip(raw, points, strict=True))
    assert all(one[1] <= other[1] for one, other in pairwise(pairs))
    if max(raw) / 2 > min(raw) / 2:
        assert (min(points), max(points)) == (0, 100)


@given(st.permutations(range(5)))
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    nodes = [node(f"n{i}", labels={"n": str(i * i)}) for i in range(5)]
    view = view_of(*(nodes[i] for i in order))
    outcome, _ = _scored(_score("int(node.labels.n)"), view, *(f"n{i}" for i in range(5)))
    assert outcome.normalized.tolist() == [0, 6, 25, 56, 100]
    filtered, _ = _filtered(_expression("int(node.labels.n) > 3"), view)
    assert _rejected(filtered, view) == {"n0", "n1"}


def test_each_filter_of_the_scheduler_turns_away_what_it_would() -> None:
    view = view_of(
        node("cordoned", unschedulable=True),
        node("tainted", taints=(api.Taint(key="gpu", effect="NoSchedule"),)),
        node("elsewhere", labels={"zone": "b"}),
        node("small", labels={"zone": "a"}, allocatable={"cpu": 100, "pods": 10}),
        node("good", labels={"zone": "a"}, allocatable={"cpu": 4000, "pods": 10}),
    )
    request = request_of(
        {
            "nodeSelector": {"zone": "a"},
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        }
    )
    context = RuleContext(request, view, NOW)
    rejected: dict[str, set[str]] = {}
    for rule in SCHEDULER_FILTERS:
        outcome = rule.outcome(context)
        assert outcome.policy == SCHEDULER
        rejected[rule.name] = {
            view.names[row] for row in np.flatnonzero(outcome.rejects & view.valid).tolist()
        }
    assert "cordoned" in rejected["NodeUnschedulable"]
    assert rejected["TaintToleration"] == {"tainted"}
    assert rejected["NodeAffinity"] == {"cordoned", "tainted", "elsewhere"}
    assert "small" in rejected["NodeResourcesFit"]
    assert not any("good" in names for names in rejected.values())


def test_free_resources_and_the_pods_around_change_by_themselves() -> None:
    dynamic = [rule.name for rule in SCHEDULER_FILTERS if rule.dynamic]
    assert dynamic == ["NodePorts", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"]


# The time that they take.


def test_the_time_of_rules_is_noted_unless_they_abstain() -> None:
    times, view = RuleTimes(count(0, 5).__next__), view_of(node("a"))
    request = replace(request_of(), rule_times=times)
    spec = (
        "filters: [{name: ready, expression: node.ready},"
        " {name: idle, expression: node.usage.cpu < 1.0}]\n"
        "scores: [{name: few, expression: -node.podCount}]"
    )
    compiled, stale = policy(spec), Freshness(stale={Domain.METRICS: "usage is 95 s old"})
    context = compiled.context(request, view, NOW, stale)
    for rule in compiled.filters:
        rule.outcome(context)
    compiled.scores[0].outcome(context, np.array([0]))
    assert list(times) == [("p", "ready", 5, 1), ("p", "few", 5, 1)]
