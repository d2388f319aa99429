from __future__ import annotations

import pytest

from engine.model.label_condition import Exactness
from engine.policy.label_analysis import LabelSummary
from tests.engine.policy.worlds import policy

_VARIABLES = """
variables:
- {name: zones, expression: "pod.annotations[?'zones'].orValue('').split(',')"}
- {name: yes, expression: "'yes' in pod.labels"}
"""


def summary(expression: str, on_error: str = "RejectNode") -> LabelSummary:
    rule = f'filters: [{{name: f, expression: "{expression}", onError: {on_error}}}]'
    (found,) = policy(f"{_VARIABLES}\n{rule}").filters
    return found.labels.summary


@pytest.mark.parametrize(
    ("expression", "exactness"),
    [
        ("!('gpu' in node.labels)", Exactness.EXACT),
        ("variables.yes || !('gpu' in node.labels)", Exactness.EXACT),
        ("node.labels.zone in variables.zones", Exactness.EXACT),
        ("variables.zones.exists(z, node.labels.zone == z)", Exactness.EXACT),
        ("variables.yes ? node.labels.a == pod.name : int(node.labels.b) > 3", Exactness.EXACT),
        ("cel.bind(z, pod.name, !(node.labels.a != z))", Exactness.EXACT),
        ("variables.yes", Exactness.EXACT),
        ("'a' in node.labels && node.usage.cpu < pod.requests.cpu", Exactness.PARTIAL),
        ("variables.yes ? node.labels.a.startsWith(pod.name) : true", Exactness.PARTIAL),
        ("node.labels.a == pod.name || node.usage.cpu < 0.5", Exactness.NONE),
        ("variables.yes || node.usage.cpu < 0.5", Exactness.NONE),
        ("variables.yes && node.name == pod.name", Exactness.NONE),
    ],
)
def test_how_much_labels_carry_is_known_before_there_is_a_pod(
    expression: str, exactness: Exactness
) -> None:
    assert summary(expression).exactness is exactness


def test_numbers_cannot_be_carried_where_failures_pass() -> None:
    expression = "int(node.labels.gen) > pod.priority"
    assert summary(expression).exactness is Exactness.EXACT
    assert summary(expression, "IgnoreRule").exactness is Exactness.NONE


def test_a_summary_has_a_few_words() -> None:
    assert summary("'a' in node.labels").summary == "labels"
    assert summary("'a' in node.labels && node.ready").summary == "labels in part"
    assert summary("node.ready").summary == "advice only"
    (reason,) = summary("node.ready && variables.yes").reasons
    assert reason == "`node.ready` asks for more than labels"


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels['kubernetes.io/hostname'] != 'n1'",
        "node.labels['kubernetes.io/hostname'] in variables.zones",
    ],
)
def test_a_requirement_on_hostnames_is_known(expression: str) -> None:
    assert summary(expression).keys == {"kubernetes.io/hostname"}


def test_a_filter_that_no_node_can_pass_is_known() -> None:
    assert summary("node.labels.zone == 'not a value!'").unsatisfiable
    assert not summary("node.labels.zone == 'a'").unsatisfiable


def test_a_plugin_says_nothing_of_labels() -> None:
    (rule,) = policy("filters: [{plugin: LimitAware}]").filters
    assert rule.labels.summary.exactness is Exactness.NONE
    assert rule.labels.summary.reasons == {"it is a plugin"}
