from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.cel import CelError, Timestamp, compile_program
from engine.cel.vector import Strategy
from engine.model.rule_outcomes import RuleInput, Unit
from engine.model.time import SECOND, Micros
from engine.plugins import FAULT, PASS
from engine.policy import RuleContext
from engine.policy.environment import NODE_FIELDS, ExpressionScope, environment, node_value
from engine.policy.expressions import (
    FALSE,
    FilterExpression,
    NodeExpression,
    ScoreExpression,
    checked_bool,
    checked_number,
    field_input,
)
from engine.view import LOAD_DOMAINS, ClusterState, Domain
from tests.engine.policy.events import EVENTS, apply
from tests.engine.policy.worlds import NOW, node, request_of, usage, view_of

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
