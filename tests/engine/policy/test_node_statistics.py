"""Statistics over nodes: what they mean, how they are refused, and that columns agree with it."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cel import CelError, CelProblemsError
from engine.documents.places import read_documents
from engine.model.pod import Pod
from engine.plugins import PLUGINS
from engine.plugins.base import Cycle
from engine.policy import RuleContext
from engine.policy.compile import SCORE, compile_expression, compile_policy
from engine.policy.environment import ExpressionScope
from engine.policy.node_statistics import nodes_value
from engine.policy.rules import ScoreExpression
from engine.view import ClusterView, Domain, WhatIf
from tests.engine.measured_cluster import cluster, pod
from tests.engine.measured_cluster import node as sized
from tests.engine.policy.worlds import GIB, NOW, node, policy, request_of, usage, view_of
from tests.searching import examples

SHARE = "nodes.map(n, n.requested.cpu / n.allocatable.cpu)"
EXAMPLE = Path(__file__).parents[3] / "policies" / "even-requests" / "policy.yaml"


def _score(source: str) -> ScoreExpression:
    return ScoreExpression(compile_expression(source, ExpressionScope.SCORES, {}, SCORE))


def _values(source: str, view: ClusterView, **spec: object) -> dict[str, float]:
    expression = _score(source)
    context = RuleContext(request_of(dict(spec)), view, NOW)
    column = expression.column(context, view.valid)
    return {view.names[row]: column[row].item() for row in np.flatnonzero(view.valid).tolist()}


def _problems(source: str, scope: ExpressionScope = ExpressionScope.SCORES) -> list[str]:
    with pytest.raises(CelProblemsError) as error:
        compile_expression(source, scope, {}, SCORE)
    return [problem.message for problem in error.value.problems]


THREE = [node("a", labels={"pool": "web"}), node("b", labels={"pool": "web"}), node("c")]


def test_a_statistic_is_of_all_nodes_and_the_same_for_each() -> None:
    nodes = [sized(name, cpu="10") for name in "abc"]
    pods = [pod("1", "a", requests={"cpu": "2"}), pod("2", "b", requests={"cpu": "6"})]
    view = cluster(nodes, pods)
    # Of 0.2, 0.6 and 0: their mean, and the root of (0.0044 + 0.1111 + 0.0711) / 3.
    assert _values(f"{SHARE}.mean()", view) == pytest.approx(dict.fromkeys("abc", 0.8 / 3))
    deviation = statistics.pstdev([0.2, 0.6, 0.0])
    assert _values(f"{SHARE}.stddev()", view) == pytest.approx(dict.fromkeys("abc", deviation))
    distance = _values(f"node.requested.cpu / node.allocatable.cpu - {SHARE}.mean()", view)
    assert distance == pytest.approx({"a": 0.2 - 0.8 / 3, "b": 0.6 - 0.8 / 3, "c": -0.8 / 3})


def test_nodes_are_those_that_the_rules_of_the_pod_on_labels_allow() -> None:
    view = view_of(*THREE, usage("a", cpu=1000), usage("b", cpu=3000), usage("c", cpu=5000))
    source = "nodes.map(n, n.usage.cpu).mean()"
    assert set(_values(source, view).values()) == {3.0}
    assert set(_values(source, view, nodeSelector={"pool": "web"}).values()) == {2.0}


def test_nodes_may_be_left_out() -> None:
    view = view_of(*THREE, usage("a", cpu=1000), usage("b", cpu=3000))
    assert all(map(math.isnan, _values("nodes.map(n, n.usage.cpu).mean()", view).values()))
    known = "nodes.filter(n, has(n.usage)).map(n, n.usage.cpu).mean()"
    assert set(_values(known, view).values()) == {2.0}
    pooled = "nodes.filter(n, has(n.usage)).filter(m, m.name == 'b').map(n, n.usage.cpu).mean()"
    assert set(_values(pooled, view).values()) == {3.0}
    busy = "nodes.filter(n, has(n.usage)).filter(n, n.usage.cpu > 1.0).map(n, n.usage.cpu).mean()"
    assert set(_values(busy, view).values()) == {3.0}
    short = "nodes.map(n, has(n.usage), n.usage.cpu).mean()"
    assert _values(short, view) == _values(known, view)
    none = "nodes.filter(n, n.name == 'z').map(n, 1.0).mean()"
    assert all(map(math.isnan, _values(none, view).values()))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nodes.map(n, n.usage.cpu).mean()", "node `b`: no such key: `usage`"),
        ("nodes.map(n, n.usage.cpu > 0.0, 1.0).stddev()", "node `b`: no such key: `usage`"),
        (
            "nodes.filter(n, n.name != 'b').filter(n, n.usage.cpu > 0.0).map(n, 1.0).mean()",
            "node `c`: no such key: `usage`",
        ),
        (
            "nodes.map(n, n.name == 'c' ? 1e308 * 10.0 : 1.0).mean()",
            "node `c`: numbers that are not finite have no mean",
        ),
        ("nodes.filter(n, n.name == 'z').map(n, 1.0).mean()", "an empty list has no mean"),
        ("nodes.map(n, 1e308).mean()", "the numbers are too large for a mean"),
        (
            "has(node.usage) ? nodes.map(n, n.usage.cpu).mean() : 0.0",
            "node `b`: no such key: `usage`",
        ),
        ("nodes.map(n, 1.0).mean() + double(node.labels.rack)", "no such key: `rack`"),
        (
            "node.labels.rack == '1' ? nodes.map(n, n.usage.cpu).mean() : 0.0",
            "no such key: `rack`",
        ),
    ],
)
def test_the_first_node_at_fault_is_named(source: str, reason: str) -> None:
    view = view_of(*THREE, usage("a", cpu=1000))
    expression = _score(source)
    context = RuleContext(request_of(), view, NOW)
    assert math.isnan(expression.column(context, view.valid)[view.rows["a"]])
    assert expression.fault(context, view.rows["a"]) == reason


def test_why_a_statistic_has_no_value_is_told_without_a_look_at_each_node() -> None:
    nodes = [node(f"n{i}") for i in range(100)]
    view = view_of(*nodes, *(usage(f"n{i}", cpu=1000) for i in range(99)))
    expression = _score("nodes.map(n, n.usage.cpu).mean()")
    context = RuleContext(request_of(), view, NOW, iterations=20)
    assert np.isnan(expression.column(context, view.valid)).all()
    assert expression.fault(context, 0) == "node `n99`: no such key: `usage`"


def test_another_view_has_statistics_of_its_own() -> None:
    before = view_of(*THREE)
    after = view_of(*THREE, *(usage(name, cpu=1000) for name in "abc"))
    expression = _score("nodes.map(n, n.usage.cpu).mean()")
    context = RuleContext(request_of(), before, NOW)
    assert np.isnan(expression.column(context, before.valid)[before.valid]).all()
    there = context.on(after)
    assert (expression.column(there, after.valid)[after.valid] == 1.0).all()


def test_a_part_of_the_nodes_has_the_statistics_of_all() -> None:
    view = view_of(*THREE, usage("a", cpu=1000), usage("b", cpu=3000), usage("c", cpu=5000))
    part = view.take(np.array([view.rows["c"]]))
    assert _values("nodes.map(n, n.usage.cpu).mean()", part) == {"c": 3.0}


def test_a_pod_that_is_placed_changes_the_statistics_of_all_nodes() -> None:
    view = cluster([sized("a", cpu="10"), sized("b", cpu="10")])
    what_if = WhatIf(view)
    what_if.place(pod(requests={"cpu": "4"}), view.rows["a"])
    assert set(_values(f"{SHARE}.mean()", what_if.view).values()) == {0.2}
    expression = _score(f"{SHARE}.mean() - node.allocatable.cpu")
    assert expression.reads_other_nodes(RuleContext(request_of(), view, NOW))
    assert set(expression.reads) == {Domain.NODES, Domain.PODS}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nodes.size()", "`nodes` is read only by `nodes.map(n, ..).mean()` and `.stddev()`"),
        (f"{SHARE}.sum()", "`nodes` is read only by `nodes.map(n, ..).mean()` and `.stddev()`"),
        (
            "nodes.map(n, n.podCount - node.podCount).mean()",
            "a loop over `nodes` reads the request and the node that it is at, and no `node`",
        ),
        (
            "nodes.map(n, nodes.map(m, m.podCount).mean()).mean()",
            "a loop over `nodes` reads the request and the node that it is at, and no `nodes`",
        ),
        (
            "pod.ownerKinds.map(k, nodes.map(n, n.name == k ? 1 : 0).mean()).sum()",
            "a loop over `nodes` reads the request and the node that it is at, and no `k`",
        ),
        ("nodes.map(n, n.request.cpu).mean()", "`node` has no field `request`"),
        ("nodes.map(n, n.requested.cpuu).mean()", "`node.requested` cannot have a resource `cpuu`"),
        ("nodes.map(n, n.name).mean()", "only numbers have a mean, no `string`"),
    ],
)
def test_what_is_no_statistic_is_refused_at_load(source: str, message: str) -> None:
    assert _problems(source) == [message]


def test_only_scores_know_nodes() -> None:
    assert _problems(f"{SHARE}.mean()", ExpressionScope.RULES) == ["unknown name `nodes`"]


def test_a_statistic_is_computed_by_columns_and_costs_what_it_says() -> None:
    with_it = policy(f"scores: [{{name: s, expression: '{SHARE}.mean() - node.allocatable.cpu'}}]")
    without = policy("scores: [{name: s, expression: '1.0 - node.allocatable.cpu'}]")
    assert without.cost + 300 < with_it.cost < without.cost + 600
    assert not with_it.slow_parts


def test_a_statistic_is_told_with_a_decision() -> None:
    view = view_of(*THREE, usage("a", cpu=1000), usage("b", cpu=3000), usage("c", cpu=5000))
    expression = _score("nodes.map(n, n.usage.cpu).mean() - node.usage.cpu")
    context = RuleContext(request_of(), view, NOW)
    expression.column(context, view.valid)
    told = expression.inputs(context, view.rows["a"])
    described = [f"{each.name} {each.describe()}" for each in told]
    assert described == ["node.usage.cpu 1 core", "nodes.map(n, n.usage.cpu).mean() 3"]


def test_a_statistic_that_costs_too_much_is_told_as_an_error() -> None:
    view = view_of(*THREE)
    source = "nodes.map(n, n.podCount).mean()"
    expression = _score(source)
    context = RuleContext(request_of(), view, NOW, column_steps=0)
    assert np.isnan(expression.column(context, view.valid)).all()
    assert "longer" in expression.fault(context, 0)
    (told,) = expression.inputs(context, 0)
    assert (told.name, told.describe()) == (source, "an error")


_PODS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9_000), st.integers(0, 16)), max_size=8
)
_SOURCES = [
    f"{SHARE}.mean()",
    f"{SHARE}.stddev() - node.requested.cpu",
    "nodes.filter(n, n.podCount > 0).map(n, n.requested.memory + pod.requests.memory).stddev()",
    "nodes.map(n, n.podCount).mean() > 1.0 ? node.podCount : 0",
    "nodes.map(n, n.labels[?'pool'].orValue('') == 'web' ? 1u : 2u).mean()",
    "nodes.map(n, n.labels.pool == 'web', n.podCount).mean()",
    "nodes.map(n, n.taints.all(t, t.key == 'x') ? 1.0 / n.allocatable.cpu : 0.0).stddev()",
    "math.round(nodes.map(n, n.requested.cpu).mean())",
    "nodes.map(n, now - n.creationTimestamp > duration('1h') ? 1 : 0).mean()",
    "node.name == 'n1' || nodes.map(n, n.usage.cpu).mean() > 0.0 ? 1 : 2",
]
_NAMED_NODE = re.compile(r"^node `n\d`: ")
_EXPRESSIONS = [*map(_score, _SOURCES)]


@settings(max_examples=examples(60))
@given(pods=_PODS, cores=st.lists(st.integers(1, 64), min_size=1, max_size=5), pool=st.booleans())
def test_columns_give_what_the_list_of_nodes_gives(
    pods: list[tuple[int, int, int]],
    cores: list[int],
    pool: bool,  # noqa: FBT001
) -> None:
    nodes = [
        node(f"n{i}", labels={"pool": "web"} if i else {}, allocatable={"cpu": 1000 * cpu})
        for i, cpu in enumerate(cores)
    ]
    view = cluster(nodes, [_running(i, *each) for i, each in enumerate(pods)])
    spec = {"nodeSelector": {"pool": "web"}} if pool else {}
    context = RuleContext(request_of(spec), view, NOW)
    for expression in _EXPRESSIONS:
        column = expression.column(context, view.valid)
        program = expression.program
        shared = {**context.activation(program), **nodes_value(program, context)}
        for row in np.flatnonzero(view.valid).tolist():
            here = context.table.row(row, expression.references)
            expected = _outcome(expression, {**shared, **here})
            if isinstance(expected, str):
                assert not math.isfinite(column[row]), (program.source, expected)
                found = expression.fault(context, row)
                assert _NAMED_NODE.sub("", found) == expected, program.source
            else:
                assert column[row] == expected, program.source


def _outcome(expression: ScoreExpression, activation: Mapping[str, object]) -> float | str:
    """Return the value for one node, or why there is none."""
    try:
        return expression.check(expression.program.evaluate(activation))
    except CelError as error:
        return str(error)


def _running(number: int, on: int, cpu: int, memory: int) -> Pod:
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Gi"}
    return pod(f"p{number}", f"n{on}", requests=requests)


@settings(max_examples=examples(60))
@given(
    pods=_PODS,
    sizes=st.lists(st.tuples(st.integers(1, 64), st.integers(1, 256)), min_size=1, max_size=5),
    own=st.tuples(st.integers(1, 8_000), st.integers(1, 64)),
)
def test_the_example_is_the_strategy_balanced(
    pods: list[tuple[int, int, int]], sizes: list[tuple[int, int]], own: tuple[int, int]
) -> None:
    nodes = [
        node(f"n{i}", allocatable={"cpu": 1000 * cpu, "memory": memory * GIB, "pods": 99})
        for i, (cpu, memory) in enumerate(sizes)
    ]
    view = cluster(nodes, [_running(i, *each) for i, each in enumerate(pods)])
    incoming = pod(requests={"cpu": f"{own[0]}m", "memory": f"{own[1]}Gi"})
    containers = [{"resources": {"requests": {"cpu": f"{own[0]}m", "memory": f"{own[1]}Gi"}}}]
    context = RuleContext(request_of({"containers": containers}), view, NOW)
    (document,) = read_documents(EXAMPLE.read_bytes(), "policy.yaml")
    compiled, problems = compile_policy(document)
    assert compiled is not None, problems
    plugin = PLUGINS["NodeResourcesFit"]
    assert plugin.score is not None
    for at, (resource, rule) in enumerate(zip(("cpu", "memory"), compiled.scores, strict=True)):
        strategy = {"type": "Balanced", "resources": [{"name": resource}]}
        args = plugin.args.model_validate({"scoringStrategy": strategy})
        points = plugin.score(args).score(Cycle(incoming, view, NOW)).values
        raw = rule.raw(context, view.valid)
        assert raw is not None
        # The plugin's unit: what the pod takes of the smallest node is worth 50 points.
        smallest = min(each[at] for each in sizes) * (1000 if at == 0 else 1)
        expected = np.clip(50 + 50 * raw * smallest / own[at], 0, 100)
        assert np.abs(expected - points)[view.valid].max() <= 1, resource
