from __future__ import annotations

import math
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.cel import CelError, Timestamp, compile_program
from engine.cel.vector import Strategy
from engine.model import api
from engine.model.decision import PlacementRequest, RuleTimes
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome, RuleInput, ScoreOutcome, Unit
from engine.model.time import SECOND, Micros
from engine.plugins import FAULT, PASS
from engine.policy import SCHEDULER_FILTERS, CompiledPolicy, RuleContext
from engine.policy.environment import NODE_FIELDS, ExpressionScope, environment, node_value
from engine.policy.rules import (
    FALSE,
    FilterExpression,
    NodeExpression,
    ScoreExpression,
    checked_bool,
    checked_number,
    field_input,
)
from engine.view import LOAD_DOMAINS, ClusterState, ClusterView, Domain, Freshness
from tests.engine.policy.events import EVENTS, apply
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


NODE = {
    "node": {
        "name": "a",
        "ready": True,
        "labels": {"zone": "z1", "rack": "r1"},
        "usage": {"cpu": 5.2, "memory": 8.0 * 2**30, "x.com/gpu": 2.0},
        "annotations": {"long": "x" * 1000},
    }
}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("node.usage.cpu", "5.2 cores"),
        ("node.usage.memory", "8 GiB"),
        ("node.ready", "true"),
        ("node.name", '"a"'),
        ("node.labels.zone", '"z1"'),
        ("node.labels.gone", "absent"),
        ("node.name.deeper", "absent"),
        ("node.labels", '{"zone": "z1"}'),
        ("node.annotations", "none of its 1 key is named"),
    ],
)
def test_a_field_is_told_as_people_write_it(path: str, words: str) -> None:
    field = field_input(tuple(path.split(".")), NODE, "'zone' in node.labels")
    assert field.name == path
    assert field.describe() == words


def test_a_field_is_never_told_at_length() -> None:
    assert len(field_input(("node", "annotations", "long"), NODE, "").describe()) < 80


def test_an_amount_of_what_a_vendor_counts_is_a_number() -> None:
    gpus = field_input(("node", "usage", "x.com/gpu"), NODE, "")
    assert gpus == RuleInput("node.usage.x.com/gpu", 2, Unit.COUNT)
    assert gpus.describe() == "2"


def test_an_amount_is_in_base_units() -> None:
    cpu = field_input(("node", "usage", "cpu"), NODE, "")
    assert cpu == RuleInput("node.usage.cpu", 5200, Unit.MILLICORES)


def test_times_are_told_as_dates() -> None:
    at = Timestamp(0)
    node = {"node": {"creationTimestamp": at, "conditions": [{"lastTransitionTime": at}]}}
    told = field_input(("node", "creationTimestamp"), node, "").describe()
    assert told == "1970-01-01T00:00:00Z"
    told = field_input(("node", "conditions"), node, "").describe()
    assert told == '[{"lastTransitionTime": "1970-01-01T00:00:00Z"}]'


_RULES = environment(ExpressionScope.RULES)
_CONDITIONS = [
    "node.usage.cpu / node.allocatable.cpu < 0.65",
    "has(node.usage) && node.usage.memory < 2500.0",
    "!has(node.usage) || node.usage.cpu + pod.requests.cpu <= node.allocatable.cpu",
    "node.requested['nvidia.com/gpu'] < node.allocatable['nvidia.com/gpu']",
    "'nvidia.com/gpu' in node.allocatable",
    "node.labels.zone == pod.labels.zone",
    "node.labels[?'zone'].orValue('none') in ['x', 'none']",
    "node.taints.all(t, pod.tolerations.exists(p, p.key == t.key))",
    "node.ready && !node.unschedulable && node.podCount < 2",
    "node.annotations.note.startsWith('x') || node.name == 'a'",
    "node.labels == pod.labels",
    "pod.labels.zone == 'x'",
    "size(node) == 12",
    "now - node.creationTimestamp < duration('10m')",
    "!has(node.creationTimestamp) || node.creationTimestamp + duration('5m') <= now",
    "(now - node.creationTimestamp).getMinutes() > 5",
    "node.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
    "!node.conditions.exists(c, c.type.endsWith('Pressure') && c.status != 'False')",
    "node.conditions.all(c, c.status == 'True' && now - c.lastTransitionTime > duration('5m'))",
    "node.conditions.exists_one(c, c.reason == 'KubeletReady')",
    "node.conditions.exists(c, pod.labels.zone == 'x' && has(c.lastTransitionTime))",
    "node.conditions.exists(c, c.type == 'Ready' && node.labels.zone == 'x' && node.podCount > 0)",
    "node.conditions.filter(c, c.status == 'True').size() > 1",
]
_NUMBERS = [
    "node.allocatable.memory - node.requested.memory",
    "node.podCount",
    "'zone' in node.labels ? 1 : 0.5",
    "-node.usage.cpu / node.allocatable.cpu",
    "node.labels.zone == pod.labels.zone ? node.podCount * 2 : 0",
    "size(node.taints)",
    "int(node.name)",
    "double((now - node.creationTimestamp).getSeconds())",
    "int(node.creationTimestamp) - int(now)",
    "now - node.creationTimestamp < duration('1m') ? 0.0 : node.allocatable.cpu",
]


def _condition(source: str) -> NodeExpression:
    return FilterExpression(compile_program(source, _RULES))


def _number(source: str) -> NodeExpression:
    return ScoreExpression(compile_program(source, _RULES))


_EXPRESSIONS = [*map(_condition, _CONDITIONS), *map(_number, _NUMBERS)]


def _by_rows(expression: NodeExpression, context: RuleContext) -> dict[str, float | None]:
    """Return the value for each node, one evaluation each; None where it fails."""
    view, now = context.view, context.now
    values: dict[str, float | None] = {}
    for row in np.flatnonzero(view.valid).tolist():
        node = node_value(NODE_FIELDS, view, row, now)
        activation = {**context.activation(expression.program), "node": node}
        try:
            value = expression.program.evaluate(activation)
            values[view.names[row]] = float(expression.check(value))
        except CelError:
            values[view.names[row]] = None
    return values


def _all_at_once(expression: NodeExpression, context: RuleContext) -> dict[str, float | None]:
    view = context.view
    column = expression.column(context, view.valid)
    values: dict[str, float | None] = {}
    for row in np.flatnonzero(view.valid).tolist():
        value = column[row].item()
        if isinstance(expression, FilterExpression):
            values[view.names[row]] = {PASS: 1.0, FALSE: 0.0, FAULT: None}[int(value)]
        else:
            values[view.names[row]] = value if math.isfinite(value) else None
    return values


@settings(max_examples=40)
@given(
    before=EVENTS,
    after=EVENTS,
    later=st.integers(0, 300),
    zone=st.sampled_from([None, "x", "y"]),
)
def test_all_nodes_at_once_give_what_each_gives_alone(
    before: list[Any], after: list[Any], later: int, zone: str | None
) -> None:
    request = request_of(labels={"zone": zone} if zone else {})
    state = ClusterState()
    for events, now in ((before, NOW), (after, Micros(NOW + later * SECOND))):
        for event in events:
            apply(state, event)
        context = RuleContext(request, state.view(), now)
        for expression in _EXPRESSIONS:
            source = expression.program.source
            assert _all_at_once(expression, context) == _by_rows(expression, context), source


@pytest.mark.parametrize("source", [*_CONDITIONS[13:19], *_NUMBERS[7:]])
def test_ages_and_conditions_are_computed_by_columns(source: str) -> None:
    expression = _number(source) if source in _NUMBERS else _condition(source)
    assert Strategy.ROWS not in {part.strategy for part in expression.plan.parts}


def test_a_column_that_depends_on_the_moment_lasts_as_long_as_the_moment() -> None:
    expression = _condition("now - node.creationTimestamp < duration('10m')")
    view = view_of(node("a", created=Micros(NOW - 595 * SECOND)))

    def column(now: int) -> NDArray[Any]:
        return expression.column(RuleContext(request_of(), view, Micros(now)), view.valid)

    assert column(NOW) is column(NOW + 9 * SECOND)
    young, old = column(NOW), column(NOW + 10 * SECOND)
    row = view.rows["a"]
    assert (young[row], old[row]) == (PASS, FALSE)  # 595 s and 605 s


@pytest.mark.parametrize(
    "source",
    [
        "has(object.spec.affinity.nodeAffinity) || node.allocatable.cpu > 9.0",
        "has(object.spec.affinity.nodeAffinity) && node.allocatable.cpu > 9.0",
        "object.spec.?affinity.?nodeAffinity.hasValue() || node.allocatable.cpu > 9.0",
        "object.spec.extra == 1 && node.allocatable.cpu < 9.0",
    ],
)
def test_pods_that_differ_in_what_is_read_share_nothing(source: str) -> None:
    expression, view = _condition(source), view_of(node("a", allocatable={"cpu": 4000}), node("b"))
    specs: list[Any] = [
        *({}, {"affinity": None}, {"affinity": {}}, {"affinity": {"nodeAffinity": {}}}),
        *({"extra": one} for one in (0, 1, 1.0, True, "1", None)),
    ]
    for spec in (*specs, *specs):
        context = RuleContext(request_of(spec), view, NOW)
        assert _all_at_once(expression, context) == _by_rows(expression, context), spec


def test_pods_that_are_alike_in_what_is_made_of_them_share_a_column() -> None:
    expression = _number("pod.requests.cpu >= 2.0 ? node.allocatable.cpu : 0.0")
    view = view_of(node("a"))

    def column(cpu: str) -> object:
        pod = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
        return expression.column(RuleContext(request_of(pod), view, NOW), view.valid)

    assert column("3") is column("4")
    assert column("1") is not column("3")


def test_a_fault_is_explained_by_its_row() -> None:
    view = view_of(node("a"), usage("a", memory=1), node("b"))
    expression = _condition("node.usage.cpu < 1.0")
    context = RuleContext(request_of(), view, NOW)
    assert "cpu" in expression.fault(context, view.rows["a"])
    assert "usage" in expression.fault(context, view.rows["b"])


@pytest.mark.parametrize(
    ("source", "alone"),
    [
        ("node.labels.zone == 'a' && 'x' in node.labels", True),
        ("pod.name == ''", True),
        ("node['labels'].size() == 0", True),
        ("node.labels.zone == node.name", False),
        ("size(node) == 1", False),
    ],
)
def test_it_is_known_which_expressions_read_labels_alone(source: str, *, alone: bool) -> None:
    assert _condition(source).reads_labels_alone is alone


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("pod.labels.zone == 'x'", []),
        ("node.labels.zone == 'x' && node.ready", [Domain.NODES]),
        ("node.podCount < 3", [Domain.PODS]),
        ("node.limits.cpu < 3.0", [Domain.NODES, Domain.PODS]),
        ("has(node.usage)", [Domain.METRICS]),
        ("node.usage.cpu < node.allocatable.cpu", [Domain.NODES, Domain.METRICS]),
        ("node.podCount < 3 || node.usage.cpu < 1.0", [Domain.PODS, Domain.METRICS]),
        ("node == node", list(LOAD_DOMAINS)),
    ],
)
def test_it_is_known_what_of_the_cluster_an_expression_rests_on(
    source: str, reads: list[Domain]
) -> None:
    assert list(_condition(source).reads) == reads


def test_a_bool_is_nothing_but_a_bool() -> None:
    assert checked_bool(True) is True  # noqa: FBT003 - a value
    for value in (1, "true", None, [True]):
        with pytest.raises(CelError, match="not a `bool`"):
            checked_bool(value)


def test_a_number_is_finite_and_no_bool() -> None:
    assert checked_number(3) == 3.0
    for value in (math.nan, math.inf, 10**400):
        with pytest.raises(CelError, match="not finite"):
            checked_number(value)
    for other in (True, "1", None):
        with pytest.raises(CelError, match="not a number"):
            checked_number(other)


def test_names_and_labels_of_many_nodes_are_matched_in_one_go() -> None:
    nodes = [node(f"n{i}", labels={"host": f"h{i}"} if i % 7 else {}) for i in range(300)]
    context = RuleContext(request_of(), view_of(*nodes), NOW)
    for source in ("node.labels.host.matches('^h1')", "node.name.matches('[02468]$')"):
        expression = _condition(source)
        assert _all_at_once(expression, context) == _by_rows(expression, context)


def test_a_spread_that_no_double_holds_is_halved() -> None:
    # -1.7e308 .. 1.7e308 is wider than any double; 0 is half way, 50 points.
    expression = ScoreExpression(compile_program("double(node.podCount)", _RULES))
    points = expression.normalize(np.array([-1.7e308, 0.0, 1.7e308]))
    assert points is not None
    assert points.tolist() == [0, 50, 100]
