from __future__ import annotations

import pytest

from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.policy import compile_resource
from tests.engine.policy.worlds import policy

_LOOKUPS = " || ".join(f"node.labels[?'l{i}'].orValue('') == pod.name" for i in range(20))


@pytest.mark.parametrize(
    ("spec", "cost"),
    [
        ("{}", 0),
        # A rule is 30; a column is 2, and of 5,000 rows each 512 are one more: 9. Twice 0.8, and
        # 0.15 for each of 2 nodes of the tree: 2.2, rounded up.
        ("filters: [{name: a, expression: node.ready}]", 30 + 2 + 9 + 3),
        # Two columns are compared: 2 + 9, a literal is free, and 4 + 9 for the comparison. Twice
        # 0.8 + 4 x 0.15: 2.8, rounded up.
        ("filters: [{name: a, expression: node.podCount > 3}]", 30 + 11 + 13 + 3),
        ("scores: [{plugin: NodeResourcesFit}]", 30 + 150),
        # One evaluation: 0.8, and 0.15 for each of 3 nodes of the tree: 1.25, rounded up.
        ("variables: [{name: a, expression: 1 + 2}]", 2),
    ],
)
def test_a_policy_costs_what_its_parts_do(spec: str, cost: int) -> None:
    assert policy(spec).cost == cost


def test_values_that_all_nodes_share_count_twice_and_functions_most() -> None:
    # For the key of the column, and for the column: each time 6 us a call.
    plain = policy("filters: [{name: a, expression: \"node.name in ['a', 'b']\"}]").cost
    called = policy("filters: [{name: a, expression: 'node.name in [string(now), string(now)]'}]")
    assert called.cost - plain >= 2 * 2 * 6
    looped = policy("filters: [{name: a, expression: '[1, 2].all(x, string(now) != node.name)'}]")
    assert looped.cost >= 2 * 8 * 6  # turns are not known before


def test_what_is_remembered_of_every_node_counts_as_a_tenth_of_its_evaluations() -> None:
    few = policy("filters: [{name: a, expression: \"node.labels['a'].matches('x')\"}]").cost
    many = policy("filters: [{name: a, expression: \"node.name.matches('x')\"}]").cost
    # 5,000 names and 32 labels, each at least 0.8 + 0.15 x 3: 1.25 us.
    assert many - few > (5_000 - 32) * 1.25 / 10 - 10


def _resource(kind: PolicyKind, count: int) -> PolicyResource:
    namespace = "shop" if kind is PolicyKind.NAMESPACED else ""
    scores = [{"name": f"s{i}", "expression": f"{_LOOKUPS} ? 1 : 0"} for i in range(count)]
    return PolicyResource(kind=kind, namespace=namespace, name="p", spec={"scores": scores})


def test_a_policy_of_a_namespace_that_costs_too_much_is_refused_with_figures() -> None:
    (problem,) = compile_resource(_resource(PolicyKind.NAMESPACED, 61)).problems
    assert problem.field == "spec"
    assert "ms for each pod and 5,000 nodes: more than the 5.00 ms" in problem.message
    assert "stowplan lint" in problem.hint
    assert compile_resource(_resource(PolicyKind.NAMESPACED, 2)).policy is not None
    assert compile_resource(_resource(PolicyKind.CLUSTER, 61)).policy is not None
