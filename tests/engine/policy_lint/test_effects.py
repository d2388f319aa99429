from __future__ import annotations

import pytest

from engine.policy_lint.effects import effect_findings
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


_OF_PODS = "it reads nothing of the node: for a pod it keeps all nodes, or none"
_NODES = "152 nodes of the built-in cluster"
_SAME = (
    "it reads nothing of the node, so all nodes get the same: it has no effect;"
    " read a value of `node`, or drop it"
)


def _warnings(spec: str) -> list[str]:
    compiled = policy(spec)
    return list(map(str, effect_findings(compiled, samples_for(compiled))))


def _of_score(expression: str) -> list[str]:
    return _warnings(f"scores:\n- name: r\n  expression: |-\n    {expression}")


def _of_filter(expression: str) -> list[str]:
    return _warnings(f"filters:\n- name: r\n  expression: |-\n    {expression}")


@pytest.mark.parametrize(
    ("expression", "warning"),
    [
        ("1 / 0", "always fails: division by zero"),
        ("node.usage.cpu / 0.0", "always fails: the expression gave a number that is not finite"),
        ("5", _SAME),
        ("pod.requests.cpu", _SAME),
        ("size(pod.labels)", _SAME),
        (
            "node.allocatable.cpu > 0.0 ? 1 : 0",
            f"it gives all {_NODES} the same, 1: it has no effect",
        ),
    ],
)
def test_a_score_without_effect_is_a_warning(expression: str, warning: str) -> None:
    assert _of_score(expression) == [f"r: {warning}"]


@pytest.mark.parametrize(
    ("expression", "warning"),
    [
        ("true", f"{_OF_PODS}; drop it"),
        (
            "pod.priority > 1000",
            f"{_OF_PODS}; write what chooses pods in `match.matchConditions`",
        ),
        (
            "pod.priority != 12345",
            f"{_OF_PODS}; write what chooses pods in `match.matchConditions`",
        ),
        ("node.podCount >= 0", f"it keeps all {_NODES}, for each pod: it has no effect"),
        ("node.allocatable.cpu < 0.0", f"it rejects all {_NODES}, for each pod"),
        ("1 / 0 > 0", "always fails: division by zero"),
    ],
)
def test_a_filter_without_effect_is_a_warning(expression: str, warning: str) -> None:
    assert _of_filter(expression) == [f"r: {warning}"]


@pytest.mark.parametrize(
    "expression",
    [
        "node.ready",
        "!node.unschedulable",
        "has(node.usage)",
        "node.usage.cpu / node.allocatable.cpu < 0.65",
        "node.requested.memory + pod.requests.memory <= 0.9 * node.allocatable.memory",
        "node.limits.cpu / node.allocatable.cpu < 6.0",
        "node.allocatable.cpu >= 512",
        "node.podCount < 500",
        "'nvidia.com/gpu' in node.allocatable",
        "pod.qosClass == 'Guaranteed' || node.podCount < 10",
        # What texts decide is unknown.
        "node.labels.rack.startsWith('r-17')",
        "timestamp(node.labels.until) > timestamp('2020-01-01T00:00:00Z')",
        "node.name.endsWith('.example.com')",
        "node.labels[?'pool'].orValue('none') == 'none' || pod.namespace == 'shop'",
    ],
)
def test_a_filter_with_an_effect_is_none(expression: str) -> None:
    assert _of_filter(expression) == []


def test_a_broken_variable_is_the_only_warning_of_what_reads_it() -> None:
    spec = """
    variables: [{name: v, expression: 1 / 0}, {name: w, expression: '1'}]
    scores: [{name: r, expression: variables.v + node.podCount}]
    """
    assert _warnings(spec) == ["variable `v`: always fails: division by zero"]


def test_a_policy_without_rules_has_no_effect() -> None:
    assert _warnings("filters: []") == ["it has neither filters nor scores: it has no effect"]


@pytest.mark.parametrize("option", ["preemption: On", "releaseInOrder: true"])
def test_a_policy_that_holds_pods_needs_no_rules(option: str) -> None:
    assert _warnings(f"placement: {{{option}}}") == []


@pytest.mark.parametrize(
    ("condition", "warning"),
    [
        ("1 / 0 > 0", "always fails: division by zero"),
        ("true", "true for all pods: it has no effect"),
        ("pod.requests.cpu >= 0.0", "true for all pods: it has no effect"),
        ("pod.requests.cpu < 0.0", "true for no pod: the policy applies to none"),
    ],
)
def test_a_match_condition_without_effect_is_a_warning(condition: str, warning: str) -> None:
    found = _warnings(
        f"match: {{matchConditions: [{{name: m, expression: '{condition}'}}]}}\n"
        "filters: [{name: r, expression: node.ready}]"
    )
    assert found == [f"match condition `m`: {warning}"]


@pytest.mark.parametrize(
    "condition",
    ["'cpu' in pod.limits", "pod.priority > 0", "'Job' in pod.ownerKinds", "pod.name == 'x'"],
)
def test_a_match_condition_with_an_effect_is_none(condition: str) -> None:
    spec = f'match: {{matchConditions: [{{name: m, expression: "{condition}"}}]}}'
    assert _warnings(f"{spec}\nfilters: [{{name: r, expression: node.ready}}]") == []


def test_a_policy_that_speaks_of_many_names_is_tried_with_some_of_them() -> None:
    names = [f"team-{number}" for number in range(500)]
    kinds = [f"Kind{number}" for number in range(500)]
    compiled = policy(
        "match:\n  matchConditions:\n"
        f'  - {{name: n, expression: "pod.namespace in {names}"}}\n'
        f'  - {{name: o, expression: "pod.ownerKinds.exists(k, k in {kinds})"}}\n'
        f'  - {{name: s, expression: "pod.schedulerName in {[*names, "default-scheduler"]}"}}\n'
        "filters: [{name: r, expression: node.podCount < 50}]"
    )
    samples = samples_for(compiled)
    assert 0 < len(samples.selected) <= 1024
