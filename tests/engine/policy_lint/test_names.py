"""What lint says where a rule does the opposite of what its name says."""

from __future__ import annotations

import pytest

from engine.policy_lint import policy_warnings
from tests.engine.policy.worlds import policy

_TYPE = "node.labels[?'karpenter.sh/capacity-type'].orValue('')"
_PATCHED = "node.labels[?'example.com/patched'].orValue('')"
_FEW = "filters: [{name: few, expression: node.podCount < 50}]"
_BATCH = "node.taints.{}(t, t.key == 'dedicated' && t.value == 'batch')"


def _filter(name: str, expression: str, more: str = "") -> str:
    return f"filters:\n- name: {name}\n  expression: |-\n    {expression}\n{more}"


def _score(name: str, expression: str) -> str:
    return f"scores:\n- name: {name}\n  expression: |-\n    {expression}"


def _match(name: str, expression: str) -> str:
    return (
        f"match:\n  matchConditions:\n  - name: {name}\n    expression: |-\n"
        f"      {expression}\n{_FEW}"
    )


@pytest.mark.parametrize(
    ("kind", "name", "written", "meant"),
    [
        (
            _filter,
            "no-gpu-nodes",
            "'example.com/gpu' in node.labels",
            "!('example.com/gpu' in node.labels)",
        ),
        (_filter, "avoid-spot", f"{_TYPE} == 'spot'", f"{_TYPE} != 'spot'"),
        (_filter, "spot-only", f"{_TYPE} != 'spot'", f"{_TYPE} == 'spot'"),
        (_filter, "deny-unpatched", f"{_PATCHED} != 'true'", f"{_PATCHED} == 'true'"),
        (
            _filter,
            "only-gpus",
            "!('example.com/gpu' in node.labels)",
            "'example.com/gpu' in node.labels",
        ),
        (
            _filter,
            "keep-off-dedicated",
            _BATCH.format("exists"),
            f"!{_BATCH.format('exists')}",
        ),
        (_filter, "only-dedicated-batch", _BATCH.format("all"), _BATCH.format("exists")),
        (_match, "exclude-batch", "pod.namespace == 'batch'", "pod.namespace != 'batch'"),
        (
            _match,
            "not-payments",
            "pod.namespace in ['payments']",
            "!(pod.namespace in ['payments'])",
        ),
        (_match, "only-jobs", "!('Job' in pod.ownerKinds)", "'Job' in pod.ownerKinds"),
        (_score, "prefer-ssd", "'ssd' in node.labels ? 0 : 1", "'ssd' in node.labels ? 1 : 0"),
        (_score, "avoid-spot", f"{_TYPE} == 'spot' ? 1 : 0", f"{_TYPE} == 'spot' ? 0 : 1"),
        (_score, "spot-first", f"{_TYPE} == 'spot' ? -1 : 0", f"{_TYPE} == 'spot' ? 0 : -1"),
        (_filter, "one-per-node", "node.podsOfOwner <= 1", "node.podsOfOwner < 1"),
        (
            _filter,
            "jobs-on-spot",
            f"'Job' in pod.ownerKinds || {_TYPE} == 'spot'",
            f"!('Job' in pod.ownerKinds) || {_TYPE} == 'spot'",
        ),
        (
            _filter,
            "only-jobs-on-spot",
            f"!('Job' in pod.ownerKinds) || {_TYPE} != 'spot'",
            f"'Job' in pod.ownerKinds || {_TYPE} != 'spot'",
        ),
        (
            _filter,
            "jobs-not-on-spot",
            f"!('Job' in pod.ownerKinds) || {_TYPE} == 'spot'",
            f"!('Job' in pod.ownerKinds) || {_TYPE} != 'spot'",
        ),
        (_match, "weekend", "now.getDayOfWeek() in [5, 6]", "now.getDayOfWeek() in [0, 6]"),
        (_match, "weekdays", "now.getDayOfWeek() < 5", "now.getDayOfWeek() in [1, 2, 3, 4, 5]"),
        (
            _match,
            "at-night",
            "now.getHours() >= 8 && now.getHours() < 20",
            "!(now.getHours() >= 8 && now.getHours() < 20)",
        ),
        (_filter, "at-most-40-pods", "node.podCount <= 40", "node.podCount < 40"),
    ],
)
def test_a_name_that_says_the_opposite_leads_to_what_it_says(
    kind: object, name: str, written: str, meant: str
) -> None:
    assert callable(kind)
    (warning,) = policy_warnings(policy(kind(name, written)))
    assert warning.hint == f"write `{meant}`"
    assert policy_warnings(policy(kind(name, meant))) == ()


def test_a_filter_is_no_preference_and_a_score_no_requirement() -> None:
    test = f"{_TYPE} == 'spot'"
    (warning,) = policy_warnings(policy(_filter("prefer-spot", test)))
    assert warning.hint == f"for a preference write below `scores`: `{test} ? 1 : 0`"
    (warning,) = policy_warnings(policy(_score("only-spot", f"{test} ? 1 : 0")))
    assert warning.hint == "write it below `filters`"


def test_an_error_that_lets_nodes_pass_opens_a_filter_for_certain_nodes() -> None:
    expression = "node.labels['example.com/attested'] == 'true'"
    spec = _filter("only-attested", expression, "  onError: IgnoreRule")
    (warning,) = policy_warnings(policy(spec))
    assert warning.message.startswith("a node without `example.com/attested` passes")
    assert policy_warnings(policy(spec.replace("only-attested", "attested-if-known"))) == ()


_TERMS = (
    "[{matchExpressions: [{key: example.com/trust, operator: In, values: [high]}]},"
    " {matchExpressions: [{key: example.com/eu, operator: Exists}]}]"
)
_AFFINITY = (
    "filters:\n- name: {name}\n  plugin: NodeAffinity\n  args:\n    addedAffinity:\n"
    "      requiredDuringSchedulingIgnoredDuringExecution:\n        nodeSelectorTerms: {terms}\n"
)


def test_terms_of_a_node_affinity_are_alternatives() -> None:
    (warning,) = policy_warnings(policy(_AFFINITY.format(name="trusted-and-in-eu", terms=_TERMS)))
    assert warning.message == "terms are alternatives: a node needs one of them"
    assert warning.place.line > 0
    other = _AFFINITY.format(name="trusted-or-in-eu", terms=_TERMS)
    assert policy_warnings(policy(other)) == ()


@pytest.mark.parametrize(
    "spec",
    [
        _filter("no-gpu-nodes", "!('gpu' in node.labels)"),
        _filter("gpu", "!('gpu' in node.labels)"),
        _filter("no-gpu-for-web", "!('gpu' in node.labels) || pod.namespace == 'ml'"),
        _filter("not-full", f"{_TYPE} == 'spot'"),
        _filter("unknown-types-only", f"{_TYPE} == ''"),
        _filter("dedicated", "node.taints.all(t, t.key == 'dedicated')"),
        _filter("few-pods", "node.podCount <= 40"),
        _filter("two-zones", "node.podsOfOwnerInZone < 10"),
        _score("prefer-on-demand", f"{_TYPE} == 'on-demand' ? 1 : 0"),
        _score("no-spot-if-possible", f"{_TYPE} == 'spot' ? 0 : 1"),
        _match("not-batch", "!('Job' in pod.ownerKinds)"),
        _filter(
            "batch-off-web",
            "!('Job' in pod.ownerKinds) || node.labels[?'pool'].orValue('') != 'web'",
        ),
        _match("batch", "pod.namespace != 'web'"),
    ],
)
def test_a_name_that_says_nothing_else_is_no_warning(spec: str) -> None:
    assert [str(each) for each in policy_warnings(policy(spec))] == []


_SHAPE = (
    "{type: RequestedToCapacityRatio, requestedToCapacityRatio:"
    " {shape: [{utilization: 0, score: %d}, {utilization: 100, score: %d}]}}"
)
_STRATEGY = "scores:\n- name: %s\n  plugin: NodeResourcesFit\n  args:\n    scoringStrategy: %s"


@pytest.mark.parametrize(
    ("name", "written", "hint", "meant"),
    [
        ("bin-pack", _SHAPE % (10, 0), "let the scores of `shape` rise", _SHAPE % (0, 10)),
        ("least-allocated", _SHAPE % (0, 10), "let the scores of `shape` fall", _SHAPE % (10, 0)),
        (
            "spread",
            "{type: MostAllocated}",
            "write `type: LeastAllocated`",
            "{type: LeastAllocated}",
        ),
        ("bin-pack", "{}", "write `type: MostAllocated`", "{type: MostAllocated}"),
    ],
)
def test_a_strategy_that_does_the_opposite_of_its_name_is_named(
    name: str, written: str, hint: str, meant: str
) -> None:
    (warning,) = policy_warnings(policy(_STRATEGY % (name, written)))
    assert warning.hint == hint
    assert policy_warnings(policy(_STRATEGY % (name, meant))) == ()


_SHARE = "-node.{} / node.allocatable.{}"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_score("least-cpu-used", _SHARE.format("usage.memory", "memory")), "it is about `cpu`"),
        (_score("least-requested", _SHARE.format("usage.cpu", "cpu")), "it is about `requested`"),
        (
            _filter("limits-below-4", "node.requested.cpu / node.allocatable.cpu < 4.0"),
            "it is about `limits`",
        ),
        (_filter("few-per-node", "node.podsOfOwnerInZone < 3"), "it is about `podsOfOwner`"),
        (_filter("gpu-free", "node.allocatable[?'a/b'].orValue(0.0) > 0.0"), "free or not"),
        (_filter("max-50-pods", "node.podCount < 30"), "it is 50, yet it compares with `30`"),
        (
            _filter("older-than-30-days", "now - node.creationTimestamp > duration('300h')"),
            "it is 30, yet it compares with",
        ),
        (_score("oldest-first", "int(node.creationTimestamp)"), "it prefers old nodes"),
        (_score("newest-first", "int(now) - int(node.creationTimestamp)"), "it prefers new nodes"),
        (_score("largest-first", "-node.allocatable.cpu"), "it prefers large nodes"),
        (
            _filter("arm-only", "node.labels[?'kubernetes.io/arch'].orValue('') == 'amd64'"),
            "others",
        ),
    ],
)
def test_a_name_that_measures_something_else_is_told(spec: str, message: str) -> None:
    (warning,) = policy_warnings(policy(spec))
    assert message in warning.message
    assert warning.hint


@pytest.mark.parametrize(
    "spec",
    [
        _score("least-cpu-used", _SHARE.format("usage.cpu", "cpu")),
        _score("cpu-and-memory", "-node.usage.cpu / node.allocatable.cpu - 0.1"),
        _filter("below-80-percent", "node.usage.cpu / node.allocatable.cpu < 0.8"),
        _filter("at-least-64-gib", "node.allocatable.memory > 68719476736.0"),
        _filter("older-than-30-days", "now - node.creationTimestamp > duration('720h')"),
        _filter("keep-20-free", "node.requested.cpu / node.allocatable.cpu < 0.8"),
        _filter("m5-large", "node.podCount < 30"),
        _filter("gen10", "node.podCount < 30"),
        _filter("v1.36", "node.podCount < 30"),
        _score("oldest-first", "-int(node.creationTimestamp)"),
        _filter("jobs-anywhere-others-on-spot", f"'Job' in pod.ownerKinds || {_TYPE} == 'spot'"),
        _match("office-hours", "now.getHours() >= 8 && now.getHours() < 20"),
        _match("saturdays", "now.getDayOfWeek() == 6"),
        _match("weekday-nights", "now.getDayOfWeek() in [1, 2, 3, 4, 5] && now.getHours() > 21"),
        _match("weekdays-at-work", "!(now.getDayOfWeek() in [0, 6]) && now.getHours() > 7"),
    ],
)
def test_a_name_that_measures_what_is_read_is_no_warning(spec: str) -> None:
    assert [str(each) for each in policy_warnings(policy(spec))] == []
