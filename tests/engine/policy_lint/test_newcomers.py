"""Policies as newcomers write them: what lint says of each, and that following it is enough."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from engine.policy_lint import policy_warnings
from tests.engine.policy.worlds import policy

_ZONE = "node.labels[?'topology.kubernetes.io/zone'].orValue('')"
_TYPE = "node.labels[?'node.kubernetes.io/instance-type'].orValue('')"
_CPU = "node.usage.cpu / node.allocatable.cpu"


_WORD = re.compile(r"[^\s`']+")


class Mistake(NamedTuple):
    """A spec, a part of the only warning, and what its hint has one replace by what."""

    spec: str
    warning: str
    old: str = ""
    new: str = ""


def _filter(expression: str) -> str:
    return f"filters:\n- name: r\n  expression: |-\n    {expression}"


def _score(expression: str) -> str:
    return f"scores:\n- name: r\n  expression: |-\n    {expression}"


def _match(expression: str) -> str:
    return (
        f"match:\n  matchConditions:\n  - name: m\n    expression: |-\n      {expression}\n"
        "filters: [{name: r, expression: node.podCount < 50}]"
    )


def _two(kind: str, first: str, second: str) -> str:
    lists = {"conditions": "match:\n  matchConditions", "filters": "filters", "scores": "scores"}
    indent = "  " if kind == "conditions" else ""
    spec = f"{lists[kind]}:\n{indent}- name: a\n{indent}  expression: |-\n{indent}    {first}\n"
    spec += f"{indent}- name: b\n{indent}  expression: |-\n{indent}    {second}\n"
    rest = "filters: [{name: r, expression: node.podCount < 50}]"
    return spec + rest if kind == "conditions" else spec


_SYSTEM = "match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}\n"

_NEVER_APPLY = (
    Mistake(_SYSTEM + _filter("node.podCount < 50"), "namespace kube-system is excluded"),
    Mistake(_match("pod.namespace in ['kube-system', 'kube-public']"), "kube-public is excluded"),
    Mistake(_match("pod.namespace.matches('^(kube-system|kube-public)$')"), "is excluded"),
    Mistake(_match("'DaemonSet' in pod.ownerKinds"), "DaemonSet pods are pinned to their node"),
    Mistake(
        _two("conditions", "'DaemonSet' in pod.ownerKinds", "pod.namespace != 'kube-system'"),
        "DaemonSet pods are pinned",
    ),
    Mistake(_match("'Node' in pod.ownerKinds"), "mirror pods belong to their kubelet"),
    Mistake(
        _match("pod.priorityClassName == 'system-node-critical'"),
        "pods of priority class system-node-critical run the cluster",
    ),
    Mistake(
        _filter("pod.namespace != 'kube-system' || node.labels[?'pool'].orValue('') == 'infra'"),
        "only for pods that are not placed: namespace kube-system is excluded",
    ),
    Mistake(
        _filter("'DaemonSet' in pod.ownerKinds ? node.podCount < 50 : true"),
        "only for pods that are not placed: DaemonSet pods",
    ),
    Mistake(
        _two("conditions", "pod.namespace == 'x'", "pod.namespace == 'y'"),
        "no pod meets both this and match condition `a`",
    ),
    Mistake(
        _two("conditions", "pod.priority > 1000", "pod.priority < 100"),
        "no pod meets both this and match condition `a`",
    ),
    Mistake(
        "match:\n  objectSelector: {matchLabels: {app: web}}\n  matchConditions:\n"
        "  - {name: c, expression: \"pod.labels.app == 'api'\"}\n"
        "filters: [{name: r, expression: node.podCount < 50}]",
        "true for no pod: the policy applies to none",
    ),
    Mistake(_match("now.getDayOfWeek() == 7"), "true for no pod"),
    Mistake(_match("now.getMonth() == 12"), "true for no pod"),
    Mistake(_match("now.getHours() > 22 && now.getHours() < 6"), "is never true"),
    Mistake(
        _match("pod.labels[?'kubernetes.io/arch'].orValue('') == 'arm64'"),
        "`kubernetes.io/arch` is a label of nodes, hardly in `pod.labels`",
    ),
    Mistake(
        _match("'karpenter' in pod.notEvictableBy"),
        "is never `karpenter`",
        "karpenter",
        "Karpenter",
    ),
)

_TOGETHER = (
    Mistake(
        _two("filters", f"{_ZONE} == 'eu-west-1a'", f"{_ZONE} == 'eu-west-1b'"),
        "b: no node passes both this filter and `a`",
    ),
    Mistake(
        "variables: [{name: home, expression: \"pod.labels[?'zone'].orValue('a')\"}]\n"
        + _two("filters", f"{_ZONE} == variables.home", f"{_ZONE} != variables.home"),
        "b: no node passes both this filter and `a`",
    ),
    Mistake(
        _two("filters", "node.podCount < 10", "node.podCount > 20"),
        "b: no node passes both this filter and `a`",
    ),
    Mistake(
        _two("filters", f"{_CPU} < 0.8", f"{_CPU} < 0.9"),
        "b: filter `a` rejects all that it rejects",
    ),
    Mistake(
        _two("filters", f"{_ZONE} in ['a', 'b']", f"{_ZONE} == 'a'"),
        "a: filter `b` rejects all that it rejects",
    ),
    Mistake(
        f"filters: [{{name: a, expression: \"{_ZONE} == 'a'\"}}]\n"
        + _score(f"{_ZONE} == 'a' ? 1 : 0"),
        "r: all nodes that the filters leave get the same",
    ),
    Mistake(
        f"filters: [{{name: a, expression: \"{_ZONE} != 'a'\"}}]\n"
        + _score(f"{_ZONE} == 'a' ? 1 : 0"),
        "r: the filters reject all nodes that it prefers",
    ),
    Mistake(
        "filters: [{name: a, expression: node.ready}]\n" + _score("node.ready ? 1 : 0"),
        "that the filters and the scheduler leave get the same",
    ),
    Mistake(
        _two("scores", "-node.podCount", "-node.podCount * 2"),
        "b: it gives each node of the built-in cluster the same points as `a`",
    ),
    Mistake(_two("scores", "-node.podCount", "node.podCount"), "b: it takes back what `a` gives"),
    Mistake(
        _two("scores", "'x' in node.labels ? 100 : 0", "'y' in node.labels ? 1 : 0"),
        "a: its numbers are 100 times those of `b`, and count as much",
        "- name: a\n",
        "- name: a\n  weight: 100\n",
    ),
    Mistake(
        _score(f"-{_CPU} - double(node.podCount)"),
        f"`-{_CPU}` has no say",
    ),
    Mistake(
        "variables: [{name: big, expression: pod.requests.cpu > 4.0}]\n"
        + _filter("pod.requests.cpu > 4.0 || node.podCount < 50"),
        "variable `big`: nothing reads it",
        "pod.requests.cpu > 4.0 ||",
        "variables.big ||",
    ),
)

_RULES = (
    Mistake(_filter("pod.requests.cpu < 4.0"), "reads nothing of the node"),
    Mistake(_score("pod.priority > 0 ? 10 : 1"), "reads nothing of the node"),
    Mistake(_score(_CPU), "it prefers the fullest node", _CPU, f"-({_CPU})"),
    Mistake(
        _score("has(node.usage) ? node.usage.memory / node.allocatable.memory : 0.0"),
        "`hot-0`, with 98 % of its memory in use",
    ),
    Mistake(_score(f"{_CPU} > 0.8 ? 100 : 0"), "it prefers the fullest node"),
    Mistake(_filter(f"!({_CPU} < 0.8)"), "it keeps the fullest nodes alone", " < 0.8", " > 0.8"),
    Mistake(_score("node.limits.cpu / node.allocatable.cpu"), "1250 % of its cpu promised"),
    Mistake(_filter(f"{_CPU} > 0.65"), "it keeps the fullest nodes alone", "> 0.65", "< 0.65"),
    Mistake(
        _filter(f"has(node.usage) && {_CPU} >= 0.8"), "it keeps the fullest nodes alone", ">=", "<="
    ),
    Mistake(
        _filter("now - node.creationTimestamp < duration('600s')"),
        "it keeps only nodes younger than an hour",
        "< duration",
        "> duration",
    ),
    Mistake(
        _filter("!node.ready"), "it keeps only nodes of the built-in cluster that take no pods"
    ),
    Mistake(_filter("node.unschedulable"), "take no pods", "node.unsch", "!node.unsch"),
    Mistake(
        _filter("node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'True')"),
        "take no pods",
        "node.conditions",
        "!node.conditions",
    ),
    Mistake(
        _filter("node.allocatable.memory - node.requested.memory < pod.requests.memory"),
        "take no pods",
    ),
    Mistake(_filter("node.allocatable.cpu > pod.requests.cpu"), "rejects only nodes without room"),
    Mistake("filters: [{plugin: TaintToleration}]", "the scheduler filters by this plugin itself"),
    Mistake(
        _filter("'Job' in pod.ownerKinds && node.labels[?'spot'].orValue('') == 'true'"),
        "of which `'Job' in pod.ownerKinds` is false it rejects all nodes",
        "'Job' in pod.ownerKinds &&",
        "!('Job' in pod.ownerKinds) ||",
    ),
    Mistake(
        _filter("node.labels['pool'] != 'gpu'"),
        "a node without the label `pool` is rejected",
        "node.labels['pool']",
        "node.labels[?'pool'].orValue('')",
    ),
    Mistake(
        _filter("!(node.labels.pool in ['gpu', 'spot'])"),
        "a node without the label `pool` is rejected",
        "node.labels.pool",
        "node.labels[?'pool'].orValue('')",
    ),
    Mistake(
        _score("node.labels['pool'] == 'spot' ? 0 : 1"),
        "a node without the label `pool` gets no points",
        "node.labels['pool']",
        "node.labels[?'pool'].orValue('')",
    ),
    Mistake(_filter("'dedicated' in node.taints"), "`node.taints` has no strings in it"),
    Mistake(
        _filter("int(node.usage.cpu / node.allocatable.cpu) < 1"),
        "is 0 for all that is less than the whole",
        f"int({_CPU})",
        _CPU,
    ),
    Mistake(
        _filter("node.podCount / 110 < 0.9"),
        "is a whole number",
        "node.podCount / 110",
        "double(node.podCount) / 110.0",
    ),
    Mistake(_filter(f"{_CPU} == 0.5"), "usage is hardly ever just that", "==", "<="),
    Mistake(
        _filter("node.usage.cpu + pod.requests.cpu < 0.8"), "is in cores, and this is less than one"
    ),
    Mistake(
        _score("-double(node.labels[?'price'].orValue(''))"),
        "`double('')` fails",
        "orValue('')",
        "orValue('0')",
    ),
)

_TEXTS = (
    Mistake(
        _match("pod.namespace.matches('prod')"),
        "is found anywhere in the string, also in `xprodx`",
        "'prod'",
        "'^prod$'",
    ),
    Mistake(
        _match("pod.namespace.matches('prod|stage')"),
        "anywhere",
        "'prod|stage'",
        "'^(prod|stage)$'",
    ),
    Mistake(_match("pod.namespace.matches('dev-.*')"), "anywhere", "'dev-.*'", "'^dev-.*$'"),
    Mistake(
        _filter("node.name.matches('gpu-*')"), "`*` repeats the sign before", "gpu-*", "^gpu-.*$"
    ),
    Mistake(_match("pod.namespace.matches('/^team-/')"), "no slashes", "/^team-/", "^team-"),
    Mistake(_match("pod.namespace.startsWith('team-*')"), "never has `*`", "team-*", "team-"),
    Mistake(_filter("node.name.startsWith('^gpu')"), "never has `^`", "'^gpu'", "'gpu'"),
    Mistake(_match("pod.namespace == 'Shop'"), "lower-case letters alone", "Shop", "shop"),
    Mistake(_filter(f"{_ZONE} == 'eu-west-1'"), "that is a region", "'eu-west-1'", "'eu-west-1a'"),
    Mistake(
        _filter(f"{_ZONE} == 'europe-west1'"), "is a region", "'europe-west1'", "'europe-west1-b'"
    ),
    Mistake(_filter(f"{_ZONE} in ['EU-WEST-1A']"), "small letters", "EU-WEST-1A", "eu-west-1a"),
    Mistake(
        _filter("node.labels[?'topology.kubernetes.io/region'].orValue('') == 'us-east-1a'"),
        "that is a zone",
        "us-east-1a",
        "us-east-1",
    ),
    Mistake(_filter(f"{_TYPE} == 'm5'"), "a family of machines", "'m5'", "'m5.xlarge'"),
    Mistake(_filter(f"{_TYPE} == 'm5.Large'"), "is hardly `m5.Large`", "m5.Large", "m5.large"),
    Mistake(
        _filter("node.labels[?'kubernetes.io/arch'].orValue('') == 'ARM64'"),
        "is never `ARM64`",
        "ARM64",
        "arm64",
    ),
    Mistake(
        _filter("node.labels[?'kubernetes.io/os'].orValue('') == 'Linux'"),
        "is never `Linux`",
        "Linux",
        "linux",
    ),
    Mistake(
        _filter("node.labels[?'nvidia.com/gpu.present'].orValue('') == 'yes'"),
        "is never `yes`",
        "yes",
        "true",
    ),
    Mistake(
        _filter("node.labels[?'node-role.kubernetes.io/worker'].orValue('') == 'true'"),
        "most clusters set it without a value",
        "node.labels[?'node-role.kubernetes.io/worker'].orValue('') == 'true'",
        "'node-role.kubernetes.io/worker' in node.labels",
    ),
    Mistake(
        _filter("node.annotations[?'topology.kubernetes.io/zone'].orValue('') == 'a'"),
        "is a label of nodes, hardly in `node.annotations`",
        "node.annotations",
        "node.labels",
    ),
    Mistake(
        _filter("node.labels[?'kernel'].orValue('') > '1.9'"),
        "compares letter by letter",
        "node.labels[?'kernel'].orValue('') > '1.9'",
        "semver(node.labels[?'kernel'].orValue('0.0.0'), true).compareTo(semver('1.9.0')) > 0",
    ),
)

_OPTIONS = (
    Mistake(
        "placement: {at: Binding, minGain: 100}\n" + _score("-node.podCount"),
        "`minGain` is all points there are",
        "minGain: 100",
        "minGain: 10",
    ),
    Mistake(
        "placement: {at: Binding, minGain: 10}\n" + _filter("node.podCount < 50"),
        "`minGain` has no effect",
    ),
    Mistake("placement: {whenNoneFits: Deny}\n" + _score("-node.podCount"), "there are no filters"),
    Mistake(
        "placement: {dynamicFilters: Required}\n" + _filter(f"{_ZONE} == 'a'"),
        "`dynamicFilters` has no effect",
    ),
)

MISTAKES = (*_NEVER_APPLY, *_TOGETHER, *_RULES, *_TEXTS, *_OPTIONS)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.spec)
def test_what_will_not_do_what_was_meant_is_named_at_its_place(mistake: Mistake) -> None:
    (warning,) = policy_warnings(policy(mistake.spec))
    assert mistake.warning in str(warning)
    assert warning.place.line > 0
    assert warning.place.column > 0


@pytest.mark.parametrize(
    "mistake", [each for each in MISTAKES if each.old], ids=lambda mistake: mistake.spec
)
def test_a_policy_that_follows_its_hint_gives_no_warning(mistake: Mistake) -> None:
    (warning,) = policy_warnings(policy(mistake.spec))
    written = set(_WORD.findall(mistake.new)) - set(_WORD.findall(mistake.old))
    assert [word for word in written if word not in warning.hint] == []
    assert mistake.old in mistake.spec
    assert policy_warnings(policy(mistake.spec.replace(mistake.old, mistake.new))) == ()


@pytest.mark.parametrize(
    "spec",
    [
        _match("pod.namespace.matches('^kube-')"),  # also `kube-flannel`
        _match("pod.namespace != 'kube-system'"),
        _match("pod.schedulerName in ['default-scheduler', 'volcano']"),
        _match("now.getHours() >= 8 && now.getHours() < 18"),
        _match("now.getDayOfWeek() in [1, 2, 3, 4, 5]"),
        _filter("node.requested.cpu / node.allocatable.cpu < 0.97"),
        _filter("double(node.podCount) / node.allocatable.pods <= 0.8"),
        _filter("now - node.creationTimestamp < duration('720h')"),
        _filter("node.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"),
        _filter("'nvidia.com/gpu' in node.allocatable"),
        _filter("node.podCount == 0"),
        _score("(node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu"),
        _score("-(10 * node.podsOfOwnerInZone + node.podsOfOwner)"),
        _score("node.allocatable.cpu - node.usage.cpu"),
        _two("filters", f"{_CPU} < 0.8", "node.podCount < 50"),
        _two("filters", "node.labels[?'a'].orValue('') == 'x'", f"{_ZONE} == 'a'"),
        _two("scores", "-node.podCount", f"-{_CPU}"),
        _filter("node.name.matches('^gpu-.*')"),
        _filter("node.labels['topology.kubernetes.io/zone'] == 'rack-1'"),
        _filter(f"{_TYPE}.startsWith('m5.')"),
    ],
)
def test_what_does_what_it_says_is_no_warning(spec: str) -> None:
    assert [str(each) for each in policy_warnings(policy(spec))] == []
