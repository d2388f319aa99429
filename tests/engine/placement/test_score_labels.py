"""Scores of labels as preferred terms: by the labels that the score itself reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.well_known import HOSTNAME_LABEL
from engine.pipeline import decide
from engine.policy import PolicySet
from tests.engine.placement.cluster import Json, Labels, request_of
from tests.engine.placement.test_affinity import placed, required_labels_view_of
from tests.engine.policy.worlds import NOW, policy

SPOT, TYPE = "cloud.google.com/gke-spot", "node.kubernetes.io/instance-type"
IS_SPOT = f"node.labels[?'{SPOT}'].orValue('') == 'true'"
NODES: dict[str, Labels] = {
    "spot1": {TYPE: "c6i", SPOT: "true"},
    "spot2": {TYPE: "c6i", SPOT: "true"},
    "plain": {TYPE: "m6i"},
    "other": {TYPE: "r6i", SPOT: "false"},
}


def scoring(*scores: str, **placement: object) -> PolicySet:
    rules = [f"{{name: s{i}, expression: {text!r}}}" for i, text in enumerate(scores)]
    return PolicySet([policy(f"{{scores: [{', '.join(rules)}], placement: {placement!r}}}")])


def preferences(rules: PolicySet, nodes: dict[str, Labels] | None = None) -> list[Json]:
    """Return the requirements of the preferred terms of a pod."""
    pod, *_ = placed(rules, view=required_labels_view_of(nodes or NODES))
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    return [each for term in terms for each in term["preference"]["matchExpressions"]]


def test_the_label_that_a_score_reads_comes_before_one_that_describes_the_same_nodes() -> None:
    # Today c6i are exactly the spot nodes; an on-demand c6i may come in a minute.
    rules = scoring(f"node.labels[?'{SPOT}'].orValue('') == 'true' ? 2 : node.name == 'x' ? 1 : 0")
    assert preferences(rules) == [{"key": SPOT, "operator": "In", "values": ["true"]}]


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (f"{IS_SPOT} ? 1 : 0", {"key": SPOT, "operator": "In", "values": ["true"]}),
        (f"{IS_SPOT} ? 0 : 1", {"key": SPOT, "operator": "NotIn", "values": ["true"]}),
        (f"{IS_SPOT} ? -1.5 : 0", {"key": SPOT, "operator": "NotIn", "values": ["true"]}),
        (
            f"node.labels[?'{SPOT}'].orValue('') in ['true', 'soon'] ? 10 : 5",
            {"key": SPOT, "operator": "In", "values": ["soon", "true"]},
        ),
        (f"'{SPOT}' in node.labels ? 1 : 0", {"key": SPOT, "operator": "Exists"}),
        (f"'{SPOT}' in node.labels ? 0 : 1", {"key": SPOT, "operator": "DoesNotExist"}),
        (
            f"node.labels['{SPOT}'] == pod.labels[?'spot'].orValue('true') ? 1 : 0",
            {"key": SPOT, "operator": "In", "values": ["true"]},
        ),
    ],
)
def test_a_choice_by_labels_is_written_as_it_is_meant_for_nodes_to_come(
    score: str, expected: Json
) -> None:
    assert preferences(scoring(score)) == [expected]


def test_a_choice_by_several_labels_is_one_term() -> None:
    score = f"{IS_SPOT} && node.labels[?'{TYPE}'].orValue('') == 'c6i' ? 1 : 0"
    assert preferences(scoring(score)) == [
        {"key": SPOT, "operator": "In", "values": ["true"]},
        {"key": TYPE, "operator": "In", "values": ["c6i"]},
    ]


def test_a_node_that_a_policy_rejects_is_not_preferred_with_the_others() -> None:
    nodes: dict[str, Labels] = {
        name: {**labels, HOSTNAME_LABEL: name} for name, labels in NODES.items()
    }
    rules = PolicySet(
        [
            policy(
                f"{{filters: [{{name: cold, expression: \"node.name != 'spot1'\"}}],"
                f' scores: [{{name: s, expression: "{IS_SPOT} ? 1 : 0"}}]}}'
            )
        ]
    )
    # `SPOT In [true]` would prefer spot1, too.
    assert preferences(rules, nodes) == [
        {"key": HOSTNAME_LABEL, "operator": "In", "values": ["spot2"]}
    ]


def test_a_pod_without_candidates_prefers_nothing_and_keeps_what_is_promised() -> None:
    rules = PolicySet(
        [
            policy(
                f"{{filters: [{{name: f, expression: \"'gpu' in node.labels\"}}],"
                f' scores: [{{name: s, expression: "{IS_SPOT} ? 1 : 0"}}]}}'
            )
        ]
    )
    pod, *_ = placed(rules, view=required_labels_view_of(NODES))
    (affinity,) = pod["spec"]["affinity"]["nodeAffinity"]
    assert affinity == "requiredDuringSchedulingIgnoredDuringExecution"


def test_a_policy_without_group_labels_gets_hostnames_alone() -> None:
    nodes: dict[str, Labels] = {
        name: {**labels, HOSTNAME_LABEL: name} for name, labels in NODES.items()
    }
    rules = scoring(f"{IS_SPOT} ? 1 : 0", groupLabels=[])
    assert preferences(rules, nodes)[0]["key"] == HOSTNAME_LABEL


def matches(requirement: Json, labels: Labels) -> bool:
    """Return whether labels meet a requirement, by the documentation of the API."""
    value, values = labels.get(requirement["key"]), requirement.get("values", ())
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[requirement["operator"]]


VALUES = st.sampled_from(["true", "false", "", None])
TESTS = st.sampled_from(
    [
        IS_SPOT,
        f"'{SPOT}' in node.labels",
        f"node.labels[?'{SPOT}'].orValue('x') in ['true', '']",
    ]
)


@settings(max_examples=30)
@given(TESTS, st.sampled_from(["1 : 0", "0 : 1", "-2 : 7.5"]), st.data())
def test_a_term_of_a_choice_holds_for_the_nodes_that_a_decision_would_prefer_later(
    test: str, numbers: str, data: st.DataObject
) -> None:
    def labels(value: str | None) -> Labels:
        return {} if value is None else {SPOT: value}

    def drawn() -> dict[str, Labels]:
        values = data.draw(st.lists(VALUES, min_size=2, max_size=5))
        return {
            f"n{i}": {**labels(value), HOSTNAME_LABEL: f"n{i}"} for i, value in enumerate(values)
        }

    rules, today, later = scoring(f"{test} ? {numbers}"), drawn(), drawn()
    decision = decide(request_of(), rules, required_labels_view_of(today), NOW)
    if decision.scored[0].reason:
        return  # no label tells nodes apart today
    terms = preferences(rules, today)
    view = required_labels_view_of(later)
    then = decide(request_of(), rules, view, NOW)
    if then.scored[0].reason:
        return
    best = {
        view.names[row] for row, total in zip(then.candidates, then.totals, strict=True) if total
    }
    assert {name for name, own in later.items() if all(matches(one, own) for one in terms)} == best
