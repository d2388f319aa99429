from __future__ import annotations

from engine.policy_lint.samples import samples_for
from engine.view import Sum
from tests.engine.policy.worlds import policy

_SELECTIVE = """
match:
  objectSelector:
    matchLabels: {app: shop}
    matchExpressions:
    - {key: tier, operator: In, values: [web, api]}
    - {key: canary, operator: DoesNotExist}
  namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}
filters: [{name: zone, expression: node.labels.zone == 'a'}]
"""


def test_the_samples_are_the_same_every_time() -> None:
    first, second = (samples_for(policy(_SELECTIVE)) for _ in range(2))
    assert [request.raw for request in first.requests] == [
        request.raw for request in second.requests
    ]
    assert [node and node.labels for node in first.view.nodes] == [
        node and node.labels for node in second.view.nodes
    ]


def test_pods_are_selected_by_any_selector() -> None:
    compiled = policy(_SELECTIVE)
    requests = samples_for(compiled).requests
    assert requests
    assert all(compiled.selects(request) for request in requests)


def test_nodes_have_and_lack_the_labels_that_are_read() -> None:
    view = samples_for(policy(_SELECTIVE)).view
    zones = {None if node is None else node.labels.get("zone") for node in view.nodes}
    assert {None, "a"} < zones


def test_nodes_differ_in_whatever_rules_read() -> None:
    view = samples_for(policy("filters: []")).view
    nodes = [node for node in view.nodes if node is not None]
    assert {node.ready for node in nodes} == {node.unschedulable for node in nodes} == {True, False}
    limits = view.amount(view.sums[Sum.LIMITS], "cpu")
    offered = view.amount(view.allocatable, "cpu")
    assert (limits > 10 * offered).any()  # overcommitted
    assert (limits == 0).any()  # without limits
    usages = [view.usages[row] for row in view.valid.nonzero()[0].tolist()]
    assert None in usages
    assert any(usage is not None for usage in usages)
