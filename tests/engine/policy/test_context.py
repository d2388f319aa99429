from __future__ import annotations

import numpy as np
import pytest

from engine.model.decision import PlacementRequest
from engine.model.rule_outcomes import FilterOutcome
from engine.policy import RuleContext
from engine.view import ClusterView
from tests.engine.policy.worlds import NOW, node, policy, request_of, view_of


def _filtered(
    spec: str, view: ClusterView, request: PlacementRequest | None = None
) -> tuple[FilterOutcome, RuleContext]:
    compiled = policy(spec)
    context = compiled.context(request or request_of(), view, NOW)
    return compiled.filters[0].outcome(context), context


def test_variables_build_on_each_other_and_are_read_by_rules() -> None:
    spec = """
    variables:
    - {name: cores, expression: pod.requests.cpu}
    - {name: twice, expression: variables.cores * 2.0}
    filters:
    - {name: rule, expression: node.allocatable.cpu > variables.twice}
    """
    view = view_of(node("a"))
    pod = {"containers": [{"resources": {"requests": {"cpu": "1900m"}}}]}
    assert not _filtered(spec, view, request_of(pod))[0].rejects[view.rows["a"]]
    pod = {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}
    assert _filtered(spec, view, request_of(pod))[0].rejects[view.rows["a"]]


def test_a_variable_that_fails_is_absent_and_reported_once() -> None:
    spec = """
    variables: [{name: bad, expression: object.spec.none}]
    filters: [{name: rule, expression: '!has(variables.bad) && node.ready'}]
    """
    compiled = policy(spec)
    view = view_of(node("a"), node("b"))
    context = compiled.context(request_of(), view, NOW)
    for _ in range(2):
        assert not compiled.filters[0].outcome(context).rejects[view.rows["a"]]
    (error,) = context.errors
    assert error.startswith("p: variable `bad`: ")


def test_a_variable_that_nothing_reads_is_not_computed() -> None:
    spec = """
    variables: [{name: bad, expression: object.spec.none}]
    filters: [{name: rule, expression: node.ready}]
    """
    _, context = _filtered(spec, view_of(node("a")))
    assert context.errors == []


def test_variables_can_be_read_as_a_whole() -> None:
    spec = """
    variables: [{name: a, expression: '1'}, {name: b, expression: '2'}]
    filters: [{name: rule, expression: variables.size() == 2}]
    """
    view = view_of(node("a"))
    assert not _filtered(spec, view)[0].rejects[view.rows["a"]]


def test_what_a_pod_costs_is_bounded_over_all_nodes() -> None:
    view = view_of(*(node(f"n{i}") for i in range(30)))
    containers = [{"name": str(i)} for i in range(100)]
    loops = "object.spec.containers.all(a, object.spec.containers.all(b, a.name != node.name))"
    spec = f"filters: [{{name: rule, expression: {loops!r}}}]"
    outcome, _ = _filtered(spec, view, request_of({"containers": containers}))
    # 10,100 iterations a node: 24 nodes would fit in 250,000, but 30 do not.
    assert outcome.faults == 30
    assert "iterations" in outcome.reason(0)
    outcome, _ = _filtered(spec, view, request_of({"containers": containers[:50]}))
    assert outcome.faults == 0


@pytest.mark.parametrize(("missing", "faults"), [(0, 0), (1, 600)])
def test_operations_on_columns_are_charged_by_their_rows(missing: int, faults: int) -> None:
    view = view_of(*(node(f"n{i}") for i in range(600)))
    (rule,) = policy("filters: [{name: rule, expression: node.podCount * 2 < 9}]").filters
    # Three columns with an operand, two of them with two: 2 + 4 + 4; and of each 600 // 512 = 1.
    steps = 2 + 4 + 4 + 3 * (len(view) // 512)
    context = RuleContext(request_of(), view, NOW, column_steps=steps - missing)
    assert rule.outcome(context).faults == faults


def test_rows_become_a_mask_whatever_the_rows_before() -> None:
    context = RuleContext(request_of(), view_of(*map(node, "abc")), NOW)
    for rows in ([0, 2], [1], []):
        mask = context.mask_of(np.array(rows, np.intp))
        assert np.flatnonzero(mask).tolist() == rows
