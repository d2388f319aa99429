"""Policies as newcomers write them: what lint says of each, and that following it is enough."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

import pytest

from engine import model
from engine.documents import read_documents
from engine.policy.compile import compile_policy
from engine.policy_lint import policy_warnings
from engine.policy_lint.vocabulary import OWN_KEYS
from tests.engine.policy.worlds import policy

_ZONE = "node.labels[?'topology.kubernetes.io/zone'].orValue('')"
_TYPE = "node.labels[?'node.kubernetes.io/instance-type'].orValue('')"
_CPU = "node.usage.cpu / node.allocatable.cpu"
_LOAD = "node.usage.cpu / node.allocatable.cpu"
_REQUESTED = "node.requested.memory / node.allocatable.memory"


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


def _named(name: str, expression: str) -> str:
    return f"scores:\n- name: {name}\n  expression: |-\n    {expression}"


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


def _weighed(weight: int, first: str, other: int, second: str) -> str:
    spec = f"scores:\n- name: a\n  weight: {weight}\n  expression: |-\n    {first}\n"
    return f"{spec}- name: b\n  weight: {other}\n  expression: |-\n    {second}"


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
        _match("pod.priorityClassName.startsWith('system-')"),
        "pods of priority class system-node-critical run the cluster",
    ),
    Mistake(_match("pod.priority >= 2000000000"), "system-node-critical run the cluster"),
    Mistake(_match("pod.ownerKinds == ['DaemonSet']"), "DaemonSet pods are pinned"),
    Mistake(_match("pod.schedulerName == ''"), "true for no pod"),
    Mistake(
        _match("request.userInfo.username == 'alice'"),
        "is hardly `alice`: a controller creates the pods",
        "request.userInfo.username == 'alice'",
        "pod.namespace == 'alice'",
    ),
    Mistake(
        _match("request.userInfo.groups.exists(g, g == 'developers')"),
        "is hardly `developers`: a controller creates the pods",
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
        "pod.namespace == 'x'\n  - name: b\n    expression: |-\n      pod.namespace == 'y'",
        "pod.namespace in ['x', 'y']",
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
    Mistake(
        _match("now.getDayOfWeek() == 6 || now.getDayOfWeek() == 7"),
        "is never 7, but 0 to 6",
        "== 7",
        "== 0",
    ),
    Mistake(_match("now.getMonth() == 12"), "is never 12, but 0 to 11", "== 12", "== 11"),
    Mistake(
        _match("now.getDayOfMonth() == 31"),
        "is never 31, but 0 to 30",
        "now.getDayOfMonth()",
        "now.getDate()",
    ),
    Mistake(_match("now.getDayOfWeek() >= 1 && now.getDayOfWeek() <= 7"), "is never 7, but 0 to 6"),
    Mistake(
        _match("pod.generateName == 'web'"),
        "is hardly `web`: that of a controller ends with `-`",
        "pod.generateName == 'web'",
        "pod.generateName.startsWith('web-')",
    ),
    Mistake(
        _match("pod.ownerKinds.exists(k, k.startsWith('Deploy'))"),
        "is never `Deployment`",
        "k.startsWith('Deploy')",
        "k.startsWith('ReplicaSet')",
    ),
    Mistake(
        "match: {namespaceSelector: {matchLabels: {pod-security.kubernetes.io/enforce: Strict}}}\n"
        + _filter("node.podCount < 50"),
        "is never `Strict`",
        "Strict",
        "restricted",
    ),
    Mistake(_match("now.getFullYear() == 26"), "a year has four digits"),
    Mistake(
        _match("request.namespace == 'a' && namespaceObject.metadata.name == 'b'"), "is never true"
    ),
    Mistake(
        _match("pod.namespace.startsWith('prod-') && pod.namespace.startsWith('stage-')"),
        "is never true",
        "&&",
        "||",
    ),
    Mistake(
        _match("pod.ownerKinds.all(k, k == 'ReplicaSet')"),
        "is also true of a pod that nothing owns",
        "pod.ownerKinds.all(k, k == 'ReplicaSet')",
        "pod.ownerKinds.exists(k, k == 'ReplicaSet')",
    ),
    Mistake(
        _match("pod.labels[?'pod-template-hash'].orValue('') == '7d9f8b6c54'"),
        "is another one after each rollout",
        "pod-template-hash",
        "app",
    ),
    Mistake(
        _match("pod.labels.exists(l, l == 'app=web')"),
        "a key has no `=`",
        "pod.labels.exists(l, l == 'app=web')",
        "pod.labels[?'app'].orValue('') == 'web'",
    ),
    Mistake(
        _match("pod.annotations[?'stowplan.dev/wieght'].orValue('') == '2'"),
        "means nothing to stowplan",
        "wieght",
        "weight",
    ),
    Mistake(
        "match: {objectSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}\n"
        + _filter("node.podCount < 50"),
        "is a label of namespaces, hardly in `objectSelector`",
        "objectSelector",
        "namespaceSelector",
    ),
    Mistake(
        "match: {objectSelector: {matchLabels: {pod-template-hash: 7d9f8b6c54}}}\n"
        + _filter("node.podCount < 50"),
        "is another one after each rollout",
        "pod-template-hash",
        "app",
    ),
    Mistake(
        "match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: Shop}}}\n"
        + _filter("node.podCount < 50"),
        "`Shop` is no namespace",
        "Shop",
        "shop",
    ),
    Mistake(
        "match: {namespaceSelector: {matchLabels: {stowplan.dev/enabled: 'true'}}}\n"
        + _filter("node.podCount < 50"),
        "means nothing to stowplan",
    ),
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
        "- name: a\n  weight: 10\n",
    ),
    Mistake(
        _score(f"-{_CPU} - double(node.podCount)"),
        f"`-{_CPU}` has no say",
    ),
    Mistake(
        _weighed(100, "-node.podCount", 1, f"-{_CPU}"),
        "a: beside its weight of 100, `b` has no say",
        "100",
        "10",
    ),
    Mistake(
        _weighed(70, f"-{_CPU}", 30, "-node.podCount"),
        "a: beside its weight of 70, what pods ask for has no say",
        "70",
        "3",
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
    Mistake(
        _filter("!node.taints.exists(t, t.key == 'node.kubernetes.io/not-ready')"),
        "rejects only nodes with such a taint, which the scheduler leaves out itself",
    ),
    Mistake(
        _filter("node.taints.exists(t, t.key == 'node.kubernetes.io/unschedulable')"),
        "take no pods",
    ),
    Mistake(
        _filter("node.podsOfOwner >= 1"),
        "it rejects all nodes for the first pod of an owner",
        "node.podsOfOwner >= 1",
        "node.podsOfOwner < 1",
    ),
    Mistake(
        _score("node.podsOfOwner"),
        "it prefers nodes with pods of the same owner",
        "node.podsOfOwner",
        "-(node.podsOfOwner)",
    ),
    Mistake(
        _score("node.podsOfOwnerInZone > 0 ? 10 : 0"),
        "it prefers nodes with pods of the same owner",
        "node.podsOfOwnerInZone > 0 ? 10 : 0",
        "-(node.podsOfOwnerInZone > 0 ? 10 : 0)",
    ),
    Mistake(
        _filter("node.usage.cpu < 70"),
        "is in cores, and most nodes have less than 70",
        "node.usage.cpu < 70",
        "node.usage.cpu / node.allocatable.cpu < 0.7",
    ),
    Mistake(
        _filter("90.0 >= node.requested.cpu + pod.requests.cpu"),
        "is in cores, and most nodes have less than 90",
        "90.0 >= node.requested.cpu + pod.requests.cpu",
        "0.9 >= (node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu",
    ),
    Mistake(
        _filter(f"{_ZONE} == 'a' || {_ZONE} == 'b' && node.podCount < 50"),
        f"it is `{_ZONE} == 'a' || ({_ZONE} == 'b' && node.podCount < 50)`",
        f"{_ZONE} == 'a' || {_ZONE} == 'b' && node.podCount < 50",
        f"({_ZONE} == 'a' || {_ZONE} == 'b') && node.podCount < 50",
    ),
    Mistake(
        _match(
            "pod.priority > 0 && pod.namespace.startsWith('a-') || pod.namespace.startsWith('b-')"
        ),
        "`&&` binds more tightly than `||`",
        "pod.priority > 0 && pod.namespace.startsWith('a-') || pod.namespace.startsWith('b-')",
        "pod.priority > 0 && (pod.namespace.startsWith('a-') || pod.namespace.startsWith('b-'))",
    ),
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
    Mistake(
        _filter("node.usage.cpu / node.requested.cpu < 0.8"),
        "is 0 for some nodes",
        "node.usage.cpu / node.requested.cpu < 0.8",
        "node.requested.cpu > 0.0 ? node.usage.cpu / node.requested.cpu < 0.8 : true",
    ),
    Mistake(
        _score("1.0 / double(node.podCount)"),
        "is 0 for some nodes",
        "1.0 / double(node.podCount)",
        "node.podCount > 0 ? 1.0 / double(node.podCount) : 0.0",
    ),
    Mistake(
        _score("100 / node.podCount"),
        "is 0 for some nodes",
        "100 / node.podCount",
        "node.podCount > 0 ? 100 / node.podCount : 0",
    ),
    Mistake(
        _filter("node.usage.cpu / node.allocatable.memory < 0.8"),
        "divides cores by bytes",
        "node.allocatable.memory",
        "node.allocatable.cpu",
    ),
    Mistake(
        _score("-math.greatest(node.usage.cpu, node.usage.memory)"),
        "compares cores with bytes",
        "node.usage.cpu, node.usage.memory",
        "node.usage.cpu / node.allocatable.cpu, node.usage.memory / node.allocatable.memory",
    ),
    Mistake(
        _filter("node.requested.cpu > 0.0 && node.allocatable.cpu / node.requested.cpu < 0.8"),
        "is hardly ever below 1",
        "node.allocatable.cpu / node.requested.cpu",
        "node.requested.cpu / node.allocatable.cpu",
    ),
    Mistake(
        _filter(
            "node.requested.cpu > 0.0 && 80.0 > node.allocatable.cpu / node.requested.cpu * 100.0"
        ),
        "is hardly ever below 1",
        "node.allocatable.cpu / node.requested.cpu",
        "node.requested.cpu / node.allocatable.cpu",
    ),
    Mistake(
        _named("least-requested-memory", _REQUESTED),
        "by its name it prefers empty nodes, yet it prefers the full ones: in the built-in cluster",
        _REQUESTED,
        f"-({_REQUESTED})",
    ),
    Mistake(
        _named("bin-pack", f"1.0 - {_REQUESTED}"),
        "by its name it prefers full nodes, yet it prefers the empty ones: in the built-in cluster",
        f"1.0 - {_REQUESTED}",
        f"-(1.0 - {_REQUESTED})",
    ),
    Mistake(
        _named("fewest-pods", "node.podCount"),
        "by its name it prefers empty nodes, yet it prefers the full ones: in the built-in cluster",
        "node.podCount",
        "-node.podCount",
    ),
    Mistake(
        _named("calm", f"has(node.usage) ? -({_LOAD}) : 0.0"),
        "no other node gets more than `0.0`: those without a report of usage rank first",
        ": 0.0",
        ": -2.0",
    ),
    Mistake(
        _filter("node.allocatable.memory - node.requested.memory > 4.0 * 1024.0 * 1024.0"),
        "4.1943e+06 bytes are next to nothing",
        "4.0 * 1024.0 * 1024.0",
        "4294967296.0",
    ),
    Mistake(_named("SpreadByCpu", "node.requested.cpu / node.allocatable.cpu"), "empty nodes, yet"),
    Mistake(
        _filter("node.usage.memory <= node.allocatable.memory"),
        "usage hardly ever reaches what the node offers",
        "node.usage.memory <= node.allocatable.memory",
        "node.usage.memory <= 0.8 * node.allocatable.memory",
    ),
    Mistake(
        _filter("node.allocatable.cpu * 1000.0 > 16.0"),
        "`node.allocatable.cpu` of nodes is more than that",
    ),
    Mistake(
        _filter("int(now) - int(node.creationTimestamp) > 300000"),
        "counts seconds: 300000 of them are 3.47 days",
        "300000",
        "300",
    ),
    Mistake(
        _filter("node.taints[0].key != 'dedicated'"),
        "is of one element, and fails where there is none",
        "node.taints[0].key != 'dedicated'",
        "node.taints.all(e, e.key != 'dedicated')",
    ),
    Mistake(_filter("node.taints.exists(t, t.key == 'dedicated=gpu')"), "a key has no `=`"),
    Mistake(_filter("node.taints.exists(t, t.key == 'spot:NoSchedule')"), "a key has no `:`"),
    Mistake(_filter("node.taints.exists(t, t.value == 'gpu=true')"), "never has `=`"),
    Mistake(_filter("node.taints.exists(t, t.key == '')"), "is never empty"),
    Mistake(
        _filter("node.conditions.exists(c, c.type == 'OutOfDisk' && c.status == 'False')"),
        "is never `OutOfDisk`",
        "OutOfDisk",
        "DiskPressure",
    ),
    Mistake(
        _filter("node.usage.memory / 1048576.0 < 64.0"),
        "`node.usage.memory` of nodes is more than that",
        "64.0",
        "65536",
    ),
    Mistake(
        _filter("node.limits.cpu < node.allocatable.cpu * 200.0"),
        "is a fraction",
        "200.0",
        "2.0",
    ),
    Mistake(
        "variables: [{name: most, expression: '80.0'}]\n"
        + _filter("node.usage.cpu < variables.most"),
        "most nodes have less than 80",
    ),
    Mistake(
        _filter(
            "now - node.creationTimestamp > duration('1h')"
            " && now - node.creationTimestamp < duration('5m')"
        ),
        "is never true",
    ),
    Mistake(
        _score("'a' in node.labels ? 1 : ('b' in node.labels ? 2 : ('a' in node.labels ? 3 : 4))"),
        "`'a' in node.labels` is asked before",
    ),
    Mistake(
        _filter(
            "!node.conditions.exists(c, c.type == 'DiskPressure'"
            " && c.lastTransitionTime > now - duration('300s'))"
        ),
        "its status tells whether it is so",
        "now - duration('300s'))",
        "now - duration('300s') && c.status == 'True')",
    ),
    Mistake(
        _filter("node.conditions.exists(c, c.reason == 'KubeletNotReady')"),
        "take no pods",
        "node.conditions",
        "!node.conditions",
    ),
    Mistake(
        _filter("node.labels[?'pool'].orValue('') in ['gpu', 'spot', 'gpu']"),
        "`'gpu'` stands there twice",
        "['gpu', 'spot', 'gpu']",
        "['gpu', 'spot']",
    ),
    Mistake(_filter(f"{_CPU} == 0.5"), "usage is hardly ever just that", "==", "<="),
    Mistake(
        _filter("node.usage.cpu + pod.requests.cpu < 0.8"), "is in cores, and this is less than one"
    ),
    Mistake(
        _score("-double(node.labels[?'slots'].orValue(''))"),
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

_CALLS = (
    Mistake(
        _filter("now.getHours('UTC+2') >= 18 || node.podCount < 50"),
        "always fails: unknown time zone `UTC+2`",
        "'UTC+2'",
        "'+02:00'",
    ),
    Mistake(
        _filter("(now - node.creationTimestamp).getMilliseconds() > 600000"),
        "is never 600000, but 0 to 999",
        "(now - node.creationTimestamp).getMilliseconds() > 600000",
        "now - node.creationTimestamp > duration('600s')",
    ),
    Mistake(
        _filter("node.creationTimestamp.getHours() == 24 || node.podCount < 50"),
        "is never 24, but 0 to 23",
        "== 24",
        "== 0",
    ),
    Mistake(
        _filter("bool(node.labels[?'ssd'].orValue(''))"),
        "`bool('')` fails",
        "orValue('')",
        "orValue('false')",
    ),
    Mistake(
        _filter("timestamp(node.labels[?'example.com/until'].orValue('')) > now"),
        "`timestamp('')` fails",
        "orValue('')",
        "orValue('1970-01-01T00:00:00Z')",
    ),
    Mistake(
        _score("1 - node.podCount / int(node.allocatable.pods)"),
        "is a whole number: the rest is cut off",
        "1 - node.podCount / int(node.allocatable.pods)",
        "1.0 - double(node.podCount) / double(node.allocatable.pods)",
    ),
    Mistake(
        _score("(110 - node.podCount) / 110"),
        "is a whole number: the rest is cut off",
        "(110 - node.podCount) / 110",
        "(110.0 - double(node.podCount)) / 110.0",
    ),
    Mistake(
        _filter("string(node.allocatable.memory) >= '68719476736'"),
        "compares letter by letter",
        "string(node.allocatable.memory) >= '68719476736'",
        "node.allocatable.memory >= 68719476736",
    ),
    Mistake(
        _filter("'^gpu-.*'.matches(node.name)"),
        "`node.name` is the pattern here",
        "'^gpu-.*'.matches(node.name)",
        "node.name.matches('^gpu-.*')",
    ),
    Mistake(
        _filter("node.labels[?'pool'].orValue('').lowerAscii() == 'GPU'"),
        "never has `GPU` in it",
        "'GPU'",
        "'gpu'",
    ),
    Mistake(
        _match("pod.labels[?'app'].orValue('').upperAscii() in ['WEB', 'Api']"),
        "never has `Api` in it",
        "'Api'",
        "'API'",
    ),
    Mistake(
        _match("pod.labels[?'app'].orValue('').lowerAscii().startsWith('Web')"),
        "never has `Web` in it",
        "'Web'",
        "'web'",
    ),
)

_WORDS = (
    Mistake(
        _filter("node.labels[?'karpenter.sh/capacitytype'].orValue('') == 'spot'"),
        "is no label that is known",
        "capacitytype",
        "capacity-type",
    ),
    Mistake(
        _match("'scheduling.x-k8s.io/pod-groups' in pod.labels"),
        "is no label that is known",
        "pod-groups",
        "pod-group",
    ),
    Mistake(
        _match("'gang.scheduling.koordinator.sh/names' in pod.annotations"),
        "is no annotation that is known",
        "names",
        "name",
    ),
    Mistake(
        _match("pod.annotations[?'karpenter.sh/do-not-evict'].orValue('') == 'true'"),
        "is an old name",
        "do-not-evict",
        "do-not-disrupt",
    ),
    Mistake(
        "scores:\n- plugin: PodTopologySpread\n  args:\n    defaultingType: List\n"
        "    defaultConstraints:\n    - maxSkew: 1\n      whenUnsatisfiable: ScheduleAnyway\n"
        "      topologyKey: topology.kubernetes.io/zones",
        "is no label that is known",
        "/zones",
        "/zone",
    ),
    Mistake(
        _filter("node.labels[?'beta.kubernetes.io/os'].orValue('') == 'linux'"),
        "is an old name",
        "beta.kubernetes.io/os",
        "kubernetes.io/os",
    ),
    Mistake(
        _filter("node.labels[?'karpenter.sh/provisioner-name'].orValue('') == 'default'"),
        "is an old name",
        "karpenter.sh/provisioner-name",
        "karpenter.sh/nodepool",
    ),
    Mistake(
        _filter("!('nvidia.com/gpus' in node.allocatable)"),
        "is no resource that is known",
        "nvidia.com/gpus",
        "nvidia.com/gpu",
    ),
    Mistake(
        _filter("node.labels[?'karpenter.sh/capacity-type'].orValue('').startsWith('Spot')"),
        "has `Spot`",
        "Spot",
        "spot",
    ),
    Mistake(
        _filter(f"{_TYPE} == 'Standard-D4s-v3'"),
        "is hardly `Standard-D4s-v3`",
        "Standard-D4s-v3",
        "Standard_D4s_v3",
    ),
    Mistake(
        _filter("'node-role.kubernetes.io/Worker' in node.labels"),
        "roles are written in small letters",
        "Worker",
        "worker",
    ),
    Mistake(
        _filter(f"{_ZONE} in ['eu-west-1a,eu-west-1b']"),
        "never has `,`",
        "['eu-west-1a,eu-west-1b']",
        "['eu-west-1a', 'eu-west-1b']",
    ),
    Mistake(
        _filter("node.labels[?'pool'].orValue('') == 'REPLACE_ME'"), "stands for something else"
    ),
    Mistake(_filter("node.labels[?'pool'].orValue('') == '__POOL__'"), "was not rendered"),
)

_ABSENT = (
    Mistake(
        _filter("node.labels['pool'] == null || node.labels['pool'] != 'gpu'"),
        "`node.labels.pool` is never null",
        "node.labels['pool'] == null",
        "!('pool' in node.labels)",
    ),
    Mistake(
        _filter(f"node.usage == null || {_CPU} < 0.5"),
        "`node.usage` is never null",
        "node.usage == null",
        "!has(node.usage)",
    ),
    Mistake(
        _match("object.spec.priorityClassName != null"),
        "`object.spec.priorityClassName` is never null",
        "object.spec.priorityClassName != null",
        "has(object.spec.priorityClassName)",
    ),
    Mistake(
        _match("pod.labels['app'] != null"),
        "`pod.labels.app` is never null",
        "pod.labels['app'] != null",
        "'app' in pod.labels",
    ),
    Mistake(
        _filter(f"!has(node.usage.cpu) || {_CPU} < 0.5"),
        "fails for a node without a report",
        "has(node.usage.cpu)",
        "has(node.usage)",
    ),
    Mistake(
        _match("object.spec.containers.exists(c, c.resources.requests.cpu > 1.0)"),
        "is a text, such as `'500m'`",
        "c.resources.requests.cpu",
        "quantity(c.resources.?requests.cpu.orValue('0')).asApproximateFloat()",
    ),
    Mistake(
        _match("object.spec.containers[0].resources.limits['nvidia.com/gpu'] == 1"),
        "is a text, such as `'500m'`",
        "object.spec.containers[0].resources.limits['nvidia.com/gpu']",
        "quantity(object.spec.containers[0].resources.?limits['nvidia.com/gpu'].orValue('0'))"
        ".asInteger()",
    ),
)

_OPTIONS = (
    Mistake(
        "placement: {at: Binding, minGain: 100}\n" + _score("-node.podCount"),
        "`minGain` is 100 of 100 points",
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

_ARGS = (
    Mistake(
        "scores: [{plugin: LoadAware, args: {usageThresholds: {cpu: 65}}}]",
        "only the filter of `LoadAware` reads `usageThresholds`",
        "scores",
        "filters",
    ),
    Mistake(
        "filters: [{plugin: LoadAware, args: {aggregated: {scoreAggregationType: p95}}}]",
        "only the score of `LoadAware` reads `scoreAggregationType`",
        "filters",
        "scores",
    ),
    Mistake(
        "scores: [{plugin: NodeResourcesFit, args: {ignoredResources: [example.com/a]}}]",
        "only the filter of `NodeResourcesFit` reads `ignoredResources`",
    ),
    Mistake(
        "scores: [{plugin: ResourceLimitAware, args: {defaultLimits: {cpu: 500}}}]",
        "`cpu: 500` are 500 cores",
        "cpu: 500",
        "cpu: 500m",
    ),
    Mistake(
        "scores: [{plugin: ResourceLimitAware, args: {defaultLimits: {memory: 512}}}]",
        "`memory: 512` are bytes",
        "memory: 512",
        "memory: 512Mi",
    ),
    Mistake(
        "mode: Audit\nplacement:\n  preemption: 'On'\n" + _filter("node.podCount < 50"),
        "`preemption` has no effect",
        "mode: Audit\nplacement:\n  preemption: 'On'",
        "mode: Enforce\nplacement:\n  preemption: DryRun",
    ),
    Mistake(
        "placement:\n  preemption: On\n" + _filter("node.podCount < 50"),
        "`kubectl` reads `On` as true",
        "preemption: On",
        'preemption: "On"',
    ),
    Mistake(
        "placement: {at: Binding, minGain: 010}\n" + _score("-node.podCount"),
        "`kubectl` reads `010` as 8, and we as 10",
        "010",
        "10",
    ),
    Mistake(
        "match:\n  objectSelector:\n    matchLabels: {gpu: yes }\n" + _filter("node.podCount < 50"),
        "`kubectl` reads `yes` as true",
        "{gpu: yes }",
        '{gpu: "yes" }',
    ),
)

_CHOICES = (
    Mistake(
        _score("node.podCount < 10 ? 10 : 0 + node.podsOfOwner < 4 ? 5 : 0"),
        "all after `:` belongs to the choice",
        "node.podCount < 10 ? 10 : 0 + node.podsOfOwner < 4 ? 5 : 0",
        "(node.podCount < 10 ? 10 : 0) + (node.podsOfOwner < 4 ? 5 : 0)",
    ),
    Mistake(
        _score("'ssd' in node.labels ? 20 : 0 + 2 * int(node.podCount < 4 ? 1 : 0)"),
        "all after `:` belongs to the choice",
        "'ssd' in node.labels ? 20 : 0 + 2",
        "('ssd' in node.labels ? 20 : 0) + 2",
    ),
    Mistake(
        _score("nodes.map(n, n.usage.cpu).mean() - node.usage.cpu"),
        "fails for all nodes where one has no report",
        "nodes.map(n, n.usage.cpu)",
        "nodes.map(n, has(n.usage), n.usage.cpu)",
    ),
)

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_POOL = "matchExpressions: [{key: pool, operator: In, values: [a]}]"
_PREFERENCE = f"{{{_PREFERRED}: [{{weight: 1, preference: {{{_OF_POOL}}}}}]}}"
_REQUIREMENT = f"{{{_REQUIRED}: {{nodeSelectorTerms: [{{{_OF_POOL}}}]}}}}"

_AMOUNTS = (
    Mistake(
        f"filters: [{{plugin: NodeAffinity, args: {{addedAffinity: {_PREFERENCE}}}}}]",
        f"only the score of `NodeAffinity` reads `{_PREFERRED}`",
        "filters",
        "scores",
    ),
    Mistake(
        f"scores: [{{plugin: NodeAffinity, args: {{addedAffinity: {_REQUIREMENT}}}}}]",
        f"only the filter of `NodeAffinity` reads `{_REQUIRED}`",
        "scores",
        "filters",
    ),
    Mistake(
        "scores:\n- plugin: TargetLoadPacking\n  args:\n    targetUtilization: 1",
        "`targetUtilization` is 1 %",
        "targetUtilization: 1",
        "targetUtilization: 100",
    ),
    Mistake(
        _filter("node.allocatable.cpu - node.requested.cpu >= 500.0"),
        "is in cores, and nodes have fewer left",
        "500.0",
        "0.5",
    ),
    Mistake(
        _filter("node.creationTimestamp - now > duration('168h')"),
        "is below zero: the node came before now",
        "node.creationTimestamp - now",
        "now - node.creationTimestamp",
    ),
    Mistake(
        _filter("int(node.creationTimestamp) - int(now) > 86400"),
        "is below zero",
        "int(node.creationTimestamp) - int(now)",
        "int(now) - int(node.creationTimestamp)",
    ),
    Mistake(
        _filter("node.labels[?'kubernetes.io/arch'].orValue('') == 'arm'"),
        "that is the 32-bit one",
        "'arm'",
        "'arm64'",
    ),
)

_WISHED = "pod.labels[?'zone'].orValue('')"
_WISHES = (
    Mistake(
        _filter(f"{_ZONE} == {_WISHED}"),
        "it rejects all nodes for a pod without what",
        f"{_ZONE} == {_WISHED}",
        f"{_WISHED} == '' || {_ZONE} == {_WISHED}",
    ),
    Mistake(
        f'variables: [{{name: zone, expression: "{_WISHED}"}}]\n'
        + _filter(f"node.podCount < 50 && {_ZONE} == variables.zone"),
        "it rejects all nodes for a pod without what `variables.zone` reads",
        f"{_ZONE} == variables.zone",
        f"(variables.zone == '' || {_ZONE} == variables.zone)",
    ),
    Mistake(
        _filter("node.name.matches('^ip-10.0.1.*')"),
        "in a pattern `.` stands for any sign",
        "'^ip-10.0.1.*'",
        r"'^ip-10\\.0\\.1.*'",
    ),
    Mistake(
        _match("object.spec.containers.exists(c, c.image.matches('^registry.example.com/.*'))"),
        "in a pattern `.` stands for any sign",
        "registry.example.com",
        r"registry\\.example\\.com",
    ),
    Mistake(
        _match("pod.labels[?'app'].orValue('') == '*'"),
        "`pod.labels.app` never has `*`",
        "pod.labels[?'app'].orValue('') == '*'",
        "'app' in pod.labels",
    ),
)

_SHARE = "node.requested.cpu / node.allocatable.cpu"
_SCORES = (
    Mistake(
        _score(f"math.abs({_SHARE} - 0.5)"),
        "it prefers the nodes that are farthest",
        f"math.abs({_SHARE} - 0.5)",
        f"-(math.abs({_SHARE} - 0.5))",
    ),
    Mistake(
        "filters: [{plugin: LoadAware, args: {nodeMetricExpirationSeconds: 180000}}]",
        "`nodeMetricExpirationSeconds` is 180000: 50 hours",
        "180000",
        "180",
    ),
    Mistake(
        "filters: [{plugin: LoadAware, args: {nodeMetricExpirationSeconds: 3}}]",
        "reports come every minute",
        "Seconds: 3",
        "Seconds: 180",
    ),
    Mistake(
        "filters:\n- plugin: LoadAware\n  args:\n    usageThresholds:\n      memory: 100",
        "is all that a node has",
        "memory: 100",
        "memory: 95",
    ),
)

_READY = "node.conditions.exists(c, c.type == 'Ready' && c.status {})"
_TENANT = "namespaceObject.metadata.labels[?'tenant'].orValue('')"
_TENANT_NODES = "node.labels[?'tenant'].orValue('')"
_OFFERS = "node.annotations[?'example.com/offers'].orValue('').split(',')"
_NEEDS = "pod.annotations[?'example.com/needs'].orValue('').split(',')"
_PRICE = "double(node.labels[?'example.com/price'].orValue('0'))"
_TWICE = f"{_ZONE} != 'a'"
_SUM = "10 * node.podsOfOwnerInZone + node.podsOfOwner"
_BOTH = (
    Mistake(
        _two("conditions", "'Job' in pod.ownerKinds", "'ReplicaSet' in pod.ownerKinds"),
        "no pod has owners of all these kinds",
    ),
    Mistake(
        "match: {matchConditions: [{name: job, expression: \"'Job' in pod.ownerKinds\"}]}\n"
        + _filter("node.podsOfOwner < 2"),
        "`node.podsOfOwner` is 0 for pods of a Job",
    ),
    Mistake(_score(_SUM), "it prefers nodes with pods of the same owner", _SUM, f"-({_SUM})"),
    Mistake(
        _two("scores", "50 * ('spot' in node.labels ? 1 : 0)", "-node.podCount"),
        "the factor 50 has no effect",
    ),
    Mistake(
        _match(
            "object.spec.containers.all(c, has(c.resources.requests)"
            " && c.resources.requests.memory <= '8Gi')"
        ),
        "it compares letter by letter",
    ),
    Mistake(
        _match("now.getHours() >= 22 && now.getHours() < 6 && pod.namespace == 'a'"),
        "`now.getHours() >= 22 && now.getHours() < 6` is never true",
        "now.getHours() >= 22 && now.getHours() < 6 &&",
        "(now.getHours() >= 22 || now.getHours() < 6) &&",
    ),
)
_SLIPS = (
    Mistake(
        "placement:\n  releaseInOrder: true\n" + _score("-node.podCount"),
        "advice from its creation is old when it is released",
        "  releaseInOrder: true",
        "  at: Binding\n  releaseInOrder: true",
    ),
    Mistake(
        "scores: [{plugin: ResourceLimitAware, args: {defaultLimits: {memory: 512m}}}]",
        "`memory: 512m` are thousandths of a byte",
        "512m",
        "512Mi",
    ),
    Mistake(_two("filters", _TWICE, _TWICE), "b: it has the same expression as `a`"),
    Mistake(
        _filter(r"!node.name.matches('.*\bgpu\b.*')"),
        "in a text is a control character",
        r"'.*\bgpu\b.*'",
        r"'.*\\bgpu\\b.*'",
    ),
)
_SELECTED = (
    Mistake(
        _score("double(node.labels['example.com/price'])"),
        "it prefers the nodes with the greatest `example.com/price`",
    ),
    Mistake(
        _score(f"-{_PRICE}"),
        "a node without `example.com/price` ranks as one that costs nothing",
        f"-{_PRICE}",
        f"'example.com/price' in node.labels ? -{_PRICE} : -1000000.0",
    ),
    Mistake(
        _score("1 / (node.podCount + 1)"),
        "is a whole number: the rest is cut off",
        "1 / (node.podCount + 1)",
        "1.0 / (double(node.podCount) + 1.0)",
    ),
    Mistake(
        _filter("node.requested.cpu + pod.requests.cpu / node.allocatable.cpu <= 0.8"),
        "adds up different units",
        "node.requested.cpu + pod.requests.cpu / node.allocatable.cpu",
        "(node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu",
    ),
    Mistake(
        _filter(f"sets.contains({_NEEDS}, {_OFFERS})"),
        "a node with more fails",
        f"sets.contains({_NEEDS}, {_OFFERS})",
        f"sets.contains({_OFFERS}, {_NEEDS})",
    ),
    Mistake(
        "match: {namespaceSelector: {matchLabels: {tenant: secure}}}\n"
        + _filter(f"{_TENANT} == 'secure' || {_TENANT_NODES} != 'secure'"),
        "`match` selects only pods for which it is always true",
    ),
    Mistake(
        "match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}}\n"
        + _filter("pod.namespace == 'a' ? false : node.podCount < 50"),
        "for which it is always false",
    ),
)
_TYPES = (
    Mistake(
        _match("pod.labels[?'a'].orValue(false) == 'true'"),
        "the value is of type `string`, its default of type `bool`",
        "orValue(false)",
        "orValue('false')",
    ),
    Mistake(
        _match("pod.annotations[?'a/b'].orValue(0) > 3"),
        "the value is of type `string`, its default of type `int`",
        "pod.annotations[?'a/b'].orValue(0)",
        "double(pod.annotations[?'a/b'].orValue('0'))",
    ),
    Mistake(
        _match("(pod.namespace == 'true') in ['a', 'b']"), "no `bool` is among values of `string`"
    ),
    Mistake(
        "filters:\n- name: r\n  expression: >-\n    node.podCount < 50 // few\n"
        "    && node.labels[?'b'].orValue('') == 'y'",
        "the comment hides `&& ..`",
        ">-",
        "|-",
    ),
    Mistake(
        _match(
            "(object.spec.containers + object.spec.?initContainers.orValue([]))"
            ".exists(c, has(c.securityContext.privileged))"
        ),
        "for a pod without `c.securityContext` it fails",
    ),
)
_UNDONE = (
    Mistake(
        _filter("double(node.podCount) / 12.0 * 12.0 < 50.0"),
        "it is divided by `12.0`, and multiplied by it again",
        "double(node.podCount) / 12.0 * 12.0",
        "double(node.podCount) / (12.0 * 12.0)",
    ),
    Mistake(_score("double('a') + double(node.podCount)"), "always fails: "),
    Mistake(
        "scores:\n- plugin: NodeResourcesAllocatable\n  args:\n    mode: Most\n    resources:\n"
        "    - {name: cpu, weight: 1}\n    - {name: memory, weight: 1}",
        "it counts cpu in millicores and memory in bytes",
        "cpu, weight: 1",
        "cpu, weight: 1048576",
    ),
    Mistake(
        "scores:\n- plugin: LowRiskOverCommitment\n  args:\n    riskLimitWeights:\n      cpu: 30",
        "a weight of 30 in `riskLimitWeights`",
        "cpu: 30",
        "cpu: 0.3",
    ),
)
_IMPLIED = (
    Mistake(
        _score("node.podCount > 10 ? 1 : node.podCount > 50 ? 0 : 2"),
        "`node.podCount > 50` is never true here",
        "node.podCount > 10 ? 1 : node.podCount > 50 ? 0 : 2",
        "node.podCount > 50 ? 0 : node.podCount > 10 ? 1 : 2",
    ),
    Mistake(
        _filter("node.allocatable.memory > 64.0 * 1024.0 * 1024.0"),
        "of nodes is more than that",
        "64.0 * 1024.0 * 1024.0",
        "68719476736.0",
    ),
    Mistake(
        _two("filters", "node.podCount < 50", "node.podCount < 60"),
        "b: filter `a` rejects all that it rejects",
    ),
    Mistake(
        _two("conditions", "pod.namespace != 'b'", "pod.namespace == 'a'"),
        "match condition `a`: it is true wherever match condition `b` is",
    ),
    Mistake(
        _match("now.getHours() >= 22 && now.getHours() <= 6"),
        "is never true",
        "now.getHours() >= 22 && now.getHours() <= 6",
        "now.getHours() >= 22 || now.getHours() <= 6",
    ),
    Mistake(
        _filter(_READY.format("!= 'False'")),
        "`Ready` is `Unknown` on a node of which nothing is heard",
        "c.status != 'False'",
        "c.status == 'True'",
    ),
    Mistake(
        _match("pod.namespace.matches('^team-a|team-b$')"),
        "`^` and `$` belong to the choice beside them alone",
        "'^team-a|team-b$'",
        "'^(team-a|team-b)$'",
    ),
    Mistake(_match("pod.namespace in ['team-a ', 'b']"), "never has ` `", "'team-a '", "'team-a'"),
)

_REQUESTS = (
    Mistake(
        _match("request.kind.kind == 'Deployment'"),
        "`request.kind.kind` is never `Deployment`",
        "request.kind.kind == 'Deployment'",
        "'ReplicaSet' in pod.ownerKinds",
    ),
    Mistake(
        _match("request.resource.resource == 'cronjobs'"),
        "`request.resource.resource` is never `cronjobs`",
        "request.resource.resource == 'cronjobs'",
        "'Job' in pod.ownerKinds",
    ),
    Mistake(_match("object.kind == 'Deployment'"), "`object.kind` is never `Deployment`"),
    Mistake(_match("request.subResource == 'binding'"), "is never `binding`"),
    Mistake(
        _filter("node.labels[?'node-role.kubernetes.io/control-plane'].orValue('') != 'true'"),
        "most clusters set it without a value",
        "node.labels[?'node-role.kubernetes.io/control-plane'].orValue('') != 'true'",
        "!('node-role.kubernetes.io/control-plane' in node.labels)",
    ),
    Mistake(
        _match(
            "object.spec.containers.exists(c,"
            " 'CAP_SYS_ADMIN' in c.?securityContext.?capabilities.?add.orValue([]))"
        ),
        "a capability is never `CAP_SYS_ADMIN`",
        "CAP_SYS_ADMIN",
        "SYS_ADMIN",
    ),
    Mistake(
        _match("object.spec.containers.all(c, c.image.startsWith('registry.example.com'))"),
        "the name of another registry may begin with `registry.example.com`",
        "registry.example.com",
        "registry.example.com/",
    ),
)

MISTAKES = (
    *_NEVER_APPLY,
    *_TOGETHER,
    *_RULES,
    *_ABSENT,
    *_CALLS,
    *_TEXTS,
    *_WORDS,
    *_OPTIONS,
    *_ARGS,
    *_CHOICES,
    *_REQUESTS,
    *_IMPLIED,
    *_UNDONE,
    *_TYPES,
    *_SELECTED,
    *_SLIPS,
    *_BOTH,
    *_SCORES,
    *_WISHES,
    *_AMOUNTS,
)


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


class Followed(NamedTuple):
    """A spec, the hint of its only warning, and the spec of an author who follows it."""

    written: str
    hint: str
    followed: str


_TAINTED = "node.taints.exists(t, t.key == '{}')"
_FULL = "node.allocatable.memory - node.requested.memory < pod.requests.memory"
_KEPT = _filter("node.podCount < 50")
_MORE = "\n- name: more\n  expression: |-\n    {}"


@pytest.mark.parametrize(
    "case",
    [
        Followed(_SYSTEM + _KEPT, "select other pods", _SYSTEM.replace("kube-system", "a") + _KEPT),
        Followed(
            _match("request.userInfo.groups.exists(g, g == 'developers')"),
            "ask for a namespace or a label, as `pod.namespace`",
            _match("pod.namespace == 'development'"),
        ),
        Followed(
            _match("now.getDayOfWeek() >= 1 && now.getDayOfWeek() <= 7"),
            "Sunday is `0`, Saturday `6`",
            _match("now.getDayOfWeek() >= 1 && now.getDayOfWeek() <= 6"),
        ),
        Followed(
            _match("now.getFullYear() == 26"),
            "a year has four digits",
            _match("now.getFullYear() == 2026"),
        ),
        Followed(
            _match("pod.labels[?'kubernetes.io/arch'].orValue('') == 'arm64'"),
            "read `node.labels[?'kubernetes.io/arch'].orValue('')` in a filter or a score",
            _filter("node.labels[?'kubernetes.io/arch'].orValue('') == 'arm64'"),
        ),
        Followed(
            _two("filters", f"{_ZONE} == 'a'", f"{_ZONE} == 'b'"),
            f"write `{_ZONE} in ['a', 'b']`, and drop `a`",
            _filter(f"{_ZONE} in ['a', 'b']"),
        ),
        Followed(
            _two("filters", f"{_CPU} < 0.8", f"{_CPU} < 0.9"),
            "drop one of the two, `b` or `a`",
            _filter(f"{_CPU} < 0.8"),
        ),
        Followed(
            _two("scores", "-node.podCount", "-node.podCount * 2"),
            "drop it, and give `a` `weight: 2`",
            _score("-node.podCount").replace("name: r", "name: a\n  weight: 2"),
        ),
        Followed(
            _two("scores", "-node.podCount", "node.podCount"),
            "drop one of the two",
            _score("-node.podCount"),
        ),
        Followed(
            _score(f"-{_CPU} - double(node.podCount)"),
            "make a score of each",
            _two("scores", f"-{_CPU}", "-node.podCount"),
        ),
        Followed(
            _filter("pod.requests.cpu < 4.0"),
            "write what chooses pods in `match.matchConditions`",
            _match("pod.requests.cpu < 4.0"),
        ),
        Followed(
            _score("pod.priority > 0 ? 10 : 1"),
            "read a value of `node`",
            _score("pod.priority > 0 ? -node.podCount : node.podCount"),
        ),
        Followed(
            _score(f"{_CPU} > 0.8 ? 100 : 0"),
            f"write `-({_CPU} > 0.8 ? 100 : 0)`",
            _score(f"-({_CPU} > 0.8 ? 100 : 0)"),
        ),
        Followed(
            _score("node.limits.cpu / node.allocatable.cpu"),
            "use the plugin `TargetLoadPacking`",
            "scores: [{plugin: TargetLoadPacking}]",
        ),
        Followed(
            _filter(_FULL) + _MORE.format("node.podCount < 50"),
            "drop it: the scheduler sees to that itself",
            _KEPT,
        ),
        Followed(
            _filter("node.allocatable.cpu > pod.requests.cpu") + _MORE.format("'a' in node.labels"),
            "drop it",
            _filter("'a' in node.labels"),
        ),
        Followed(
            "filters:\n- plugin: TaintToleration" + _MORE.format("node.podCount < 50"),
            "drop it",
            _KEPT,
        ),
        Followed(
            _filter("'dedicated' in node.taints"),
            "write `node.taints.exists(e, e.key == 'dedicated')`",
            _filter("node.taints.exists(e, e.key == 'dedicated')"),
        ),
        Followed(
            _named("SpreadByCpu", "node.requested.cpu / node.allocatable.cpu"),
            "or name it for what it does",
            _named("PackByCpu", "node.requested.cpu / node.allocatable.cpu"),
        ),
        Followed(
            _filter("node.allocatable.cpu * 1000.0 > 16.0"),
            "for 16 cores write `16000`",
            _filter("node.allocatable.cpu * 1000.0 > 16000.0"),
        ),
        Followed(
            _filter(_TAINTED.format("dedicated=gpu")),
            "ask for the key `'dedicated'` and for the value `'gpu'`",
            _filter("node.taints.exists(t, t.key == 'dedicated' && t.value == 'gpu')"),
        ),
        Followed(
            _filter(_TAINTED.format("spot:NoSchedule")),
            "ask for the key `'spot'` and for the effect `'NoSchedule'`",
            _filter("node.taints.exists(t, t.key == 'spot' && t.effect == 'NoSchedule')"),
        ),
        Followed(
            "variables: [{name: most, expression: '80.0'}]\n"
            + _filter("node.usage.cpu < variables.most"),
            "divide it by `node.allocatable.cpu`, and compare with a fraction",
            "variables: [{name: most, expression: '0.8'}]\n" + _filter(f"{_CPU} < variables.most"),
        ),
        Followed(
            _filter("node.usage.cpu + pod.requests.cpu < 0.8"),
            "divide it by `node.allocatable.cpu` for a fraction",
            _filter("(node.usage.cpu + pod.requests.cpu) / node.allocatable.cpu < 0.8"),
        ),
        Followed(
            "placement: {at: Binding, minGain: 10}\n" + _KEPT,
            "drop it, or give it `scores`",
            "placement: {at: Binding, minGain: 10}\n" + _KEPT + "\nscores: [{plugin: LoadAware}]",
        ),
        Followed(
            "placement: {whenNoneFits: Deny}\n" + _score("-node.podCount"),
            "drop it, or give it `filters`",
            "placement: {whenNoneFits: Deny}\n" + _KEPT,
        ),
        Followed(
            _filter("node.usage.memory < 4096.0"),
            "for 4096 Mi write `4294967296.0`",
            _filter("node.usage.memory < 4294967296.0"),
        ),
        Followed(
            _filter("node.limits.cpu < 8000.0"),
            "for 8000 millicores write `8`",
            _filter("node.limits.cpu < 8"),
        ),
        Followed(_filter(f"{_CPU} < 65"), "for 65 % write `0.65`", _filter(f"{_CPU} < 0.65")),
        Followed(
            _filter(f"{_CPU} * 100.0 < 0.65"),
            "for 65 % write `65.0`",
            _filter(f"{_CPU} * 100.0 < 65.0"),
        ),
        Followed(
            _score("-node.usage.cpu"),
            "`1.0 - node.usage.cpu / node.allocatable.cpu`",
            _score("1.0 - node.usage.cpu / node.allocatable.cpu"),
        ),
    ],
    ids=lambda case: case.written,
)
def test_a_hint_in_words_is_followed_to_a_policy_without_a_warning(case: Followed) -> None:
    (warning,) = policy_warnings(policy(case.written))
    assert case.hint in warning.hint
    assert [str(each) for each in policy_warnings(policy(case.followed))] == []


def test_a_field_of_the_spec_as_an_annotation_is_named() -> None:
    head = b"apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\nmetadata:\n  name: p\n"
    text = (
        head + b"  annotations: {stowplan.dev/mode: Audit}\nspec: {scores: [{plugin: LoadAware}]}"
    )
    (document,) = read_documents(text, "p.yaml")
    compiled, _ = compile_policy(document)
    assert compiled is not None
    (warning,) = policy_warnings(compiled)
    assert str(warning).endswith("no policy is read by its annotations; write `spec.mode`")
    assert warning.place.line == 5


def test_a_policy_for_a_namespace_that_asks_for_another_one_names_its_own() -> None:
    text = (
        b"apiVersion: stowplan.dev/v1alpha1\nkind: NamespacedPlacementPolicy\n"
        b"metadata: {name: p, namespace: data}\nspec:\n  match:\n    matchConditions:\n"
        b"    - {name: ours, expression: pod.namespace == 'shop'}\n"
        b"  filters: [{plugin: LoadAware}]\n"
    )
    (document,) = read_documents(text, "p.yaml")
    compiled, _ = compile_policy(document)
    assert compiled is not None
    (warning,) = policy_warnings(compiled)
    assert warning.message == (
        "true for no pod of namespace `data`, where the policy is: it applies to none"
    )


def test_our_own_keys_are_those_that_are_read_and_written() -> None:
    modules = (import_module(f"engine.model.{each.name}") for each in iter_modules(model.__path__))
    texts = {text for module in modules for text in vars(module).values() if isinstance(text, str)}
    names = {text.removeprefix("stowplan.dev/") for text in texts if "stowplan.dev/" in text[:13]}
    annotations = {name for name in names if re.fullmatch("[a-z-]+", name)}
    assert annotations - {"hold"} <= OWN_KEYS  # a gate is no annotation


_NAMES_OF_FULL_NODES = ("bin-pack", "least-free", "fullest", "avoid-empty", "keep-free", "memory")
_NAMES_OF_EMPTY_NODES = ("LeastAllocated", "spread", "most-free", "avoid-full", "requested-memory")


@pytest.mark.parametrize(
    "spec",
    [
        _match("pod.namespace.matches('^kube-')"),  # also `kube-flannel`
        _match("pod.namespace != 'kube-system'"),
        _match("pod.schedulerName in ['default-scheduler', 'volcano']"),
        _match("now.getHours() >= 8 && now.getHours() < 18"),
        _match("now.getDayOfWeek() in [1, 2, 3, 4, 5]"),
        _filter("node.requested.cpu / node.allocatable.cpu < 0.97"),
        _filter(f"has(node.usage) && has(node.usage.cpu) && {_CPU} < 0.7"),
        _filter(f"has(node.usage) && node.usage != null && {_CPU} < 0.7"),
        _filter("now.getHours('Europe/Berlin') >= 18 || node.podCount < 100"),
        _filter("now.getHours('UTC') >= 18 || now.getHours('-03:30') < 4 || node.podCount < 100"),
        _filter("(now - node.creationTimestamp).getHours() > 48"),
        _filter("(now - node.creationTimestamp).getSeconds() > 600"),
        _filter("bool(node.labels[?'ssd'].orValue('0'))"),
        _score("100 - node.podCount * 100 / 110"),
        _score("-(100 * node.podCount / int(node.allocatable.pods))"),
        _filter("node.podCount / 10 < 5"),
        _match("'team-a'.matches(pod.annotations[?'example.com/teams'].orValue('.*'))"),
        _filter("node.labels[?'pool'].orValue('').lowerAscii() in ['gpu', 'ml-2']"),
        _match("'kueue.x-k8s.io/priority-class' in pod.labels"),
        _match("'policy.k8s.io/mode' in pod.annotations"),
        _match("'gang.scheduling.koordinator.sh/min-available' in pod.annotations"),
        _match("pod.labels[?'quota.scheduling.koordinator.sh/name'].orValue('') == 'team'"),
        _match("oldObject == null && pod.priority > 0"),
        _match("object.spec.containers.exists(c, c.resources.?limits.cpu.orValue('0') != '0')"),
        _filter("node.requested.cpu == 0.0 || node.allocatable.cpu / node.requested.cpu > 1.25"),
        _filter(
            "node.requested.cpu > 0.0"
            " && (node.allocatable.cpu - node.requested.cpu) / node.requested.cpu < 0.5"
        ),
        _filter("node.limits.cpu > 0.0 && node.allocatable.cpu / node.limits.cpu > 0.5"),
        *(_named(name, _REQUESTED) for name in _NAMES_OF_FULL_NODES),
        *(_named(name, f"-({_REQUESTED})") for name in _NAMES_OF_EMPTY_NODES),
        _filter("double(node.podCount) / node.allocatable.pods <= 0.8"),
        _filter("now - node.creationTimestamp < duration('720h')"),
        _filter("node.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"),
        _filter("'nvidia.com/gpu' in node.allocatable"),
        _filter("node.podCount == 0"),
        _score("(node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu"),
        _score("-(10 * node.podsOfOwnerInZone + node.podsOfOwner)"),
        _score(f"double(node.podsOfOwner) - {_CPU}"),
        _filter("node.podsOfOwner < 3"),
        _filter("node.podsOfOwner < 10"),
        _filter("!node.taints.exists(t, t.key == 'node.kubernetes.io/out-of-service')"),
        _filter("node.usage.cpu < 64.0"),
        _filter("node.allocatable.cpu >= 80.0"),
        _match("request.userInfo.username == 'system:serviceaccount:argo:workflow-controller'"),
        _match("pod.priorityClassName.startsWith('batch-')"),
        "match: {namespaceSelector: {matchLabels: {tenant: secure}}}\n"
        + _filter(f"{_TENANT_NODES} == 'secure'"),
        _filter("node.podCount in [1.0, 2.0] || node.podCount > 5"),
        _filter("node.allocatable[?'nvidia.com/gpu'].orValue(0) > 0.0"),
        'filters:\n- {name: r, expression: "node.podCount < 50 // as in http://x?a=b"}',
        _match("pod.namespace.matches('^team-a$|^team-b$')"),
        _match("pod.namespace.matches('^(team-a|team-b)-x$')"),
        _weighed(7, f"-0.5 * {_SHARE}", 3, "-0.2 * double(node.podCount)"),
        _two("scores", f"-{_SHARE}", "-1.5 * double(node.podCount)"),
        _filter("node.labels[?'tenant'].orValue('') == pod.labels[?'tenant'].orValue('')"),
        _filter(f"{_WISHED} == '' || {_ZONE} == {_WISHED}"),
        _match("pod.namespace.matches('^team-[a-z]+.*$')"),
        _filter("node.name.matches('^gke-.*.pool.*$')"),
        _match("!('break-glass' in request.userInfo.groups)"),
        _match("request.userInfo.username != 'admin'"),
        _match("object.spec.containers.exists(c, c.image.startsWith('nginx'))"),
        _match("object.spec.containers.exists(c, c.image.startsWith('registry.example.com/a'))"),
        _match("object.spec.containers.exists(c, c.name == 'istio-proxy')"),
        _match("pod.priority >= 1000000"),
        _match("pod.namespace == 'a' || (pod.namespace == 'b' && pod.priority > 0)"),
        _match("(pod.namespace == 'a' && pod.priority > 0) || pod.namespace == 'b'"),
        _match("pod.ownerKinds == ['Job', 'Workflow']"),
        _weighed(30, f"-{_CPU}", 3, "-node.podCount"),
        _weighed(100, "'spot' in node.labels ? 1 : 0", 1, f"-{_CPU}"),
        _score("node.allocatable.cpu - node.usage.cpu"),
        _two("filters", f"{_CPU} < 0.8", "node.podCount < 50"),
        _two("filters", "node.labels[?'a'].orValue('') == 'x'", f"{_ZONE} == 'a'"),
        _two("scores", "-node.podCount", f"-{_CPU}"),
        _filter("node.name.matches('^gpu-.*')"),
        _filter("node.usage.cpu / math.greatest(node.requested.cpu, 0.1) < 0.8"),
        _filter("node.podCount == 0 || node.usage.cpu / double(node.podCount) < 0.1"),
        _filter("node.allocatable.memory / node.allocatable.cpu > 4294967296.0"),
        _filter("node.usage.cpu + pod.requests.cpu < node.allocatable.cpu"),
        _filter("node.allocatable.cpu - node.usage.cpu > 0.05"),
        _filter(f"{_CPU} > 0.0"),
        _filter("(node.usage.memory + pod.requests.memory) / node.allocatable.memory <= 0.9"),
        _filter("node.allocatable.memory - node.usage.memory > 134217728.0"),
        _filter("(node.allocatable.memory - node.usage.memory) / 1048576.0 > 200.0"),
        _filter("node.limits.memory < node.allocatable.memory * 4.0"),
        _filter(f"{_TYPE} == 'Standard_D4s_v3'"),
        _score("'a' in node.labels ? 1 : ('b' in node.labels ? 2 : 3)"),
        _filter("int(now) - int(node.creationTimestamp) > 2592000"),
        _score("'a' in node.labels ? 10 : 'b' in node.labels ? 5 : 0"),
        "placement: {schedulerScores: Off}\nscores: ["
        + ", ".join(
            f"{{plugin: {name}}}"
            for name in ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity")
        )
        + "]",
        _score("'a' in node.labels ? 10 : (0 + node.podCount < 4 ? 5 : 0)"),
        _score("nodes.filter(n, has(n.usage)).map(n, n.usage.cpu).mean() - node.usage.cpu"),
        "filters: [&f {plugin: NodeResourcesFit, args: {ignoredResources: [a/b]}}]\nscores: [*f]",
        _filter("node.taints.all(t, t.key == 'spot')"),
        _filter("node.allocatable[?'nvidia.com/mig-1g.5gb'].orValue(0.0) > 0.0"),
        _filter("node.allocatable[?'nvidia.com/gpu.shared'].orValue(0.0) > 0.0"),
        _filter("node.allocatable[?'nvidia.com/gpumem'].orValue(0.0) > 0.0"),
        _filter("node.labels[?'topology.kubernetes.io/zone'].orValue('').endsWith('Rack-A')"),
        _match("pod.namespace.startsWith('prod') && pod.namespace.startsWith('prod-eu')"),
        _match("pod.namespace.startsWith('prod-') && pod.namespace != 'prod-eu'"),
        _match("pod.ownerKinds.all(k, k != 'Job')"),
        _match("pod.annotations[?'stowplan.dev/wait'].orValue('') == ''"),
        _match("now.getDate() == 31 && now.getHours() in [0, 23]"),
        _match("now.getHours() >= 22 || 24 > now.getHours() && now.getDayOfWeek() < 3"),
        _match("now.getHours() >= 22 && now.getHours() < 24"),
        _match("pod.ownerKinds.exists(k, k.startsWith('Rep'))"),
        _match("pod.ownerKinds.exists(k, k.endsWith('Workflow'))"),
        _match("pod.generateName == 'web-'"),
        _match("pod.requests[?'nvidia.com/gpu'].orValue(0.0) > 0.0"),
        "match: {matchConditions: [{name: m, expression: \"'nvidia.com/gpu' in pod.requests\"}]}\n"
        + _filter("node.podCount > 3"),
        _filter("node.labels['topology.kubernetes.io/zone'] == 'rack-1'"),
        _filter(f"{_TYPE}.startsWith('m5.')"),
    ],
)
def test_what_does_what_it_says_is_no_warning(spec: str) -> None:
    assert [str(each) for each in policy_warnings(policy(spec))] == []


def test_factors_of_scores_are_no_weights() -> None:
    spec = _two(
        "scores", "-0.6 * node.requested.cpu / node.allocatable.cpu", "-0.2 * node.podCount"
    )
    spec = spec.replace("node.podCount", "double(node.podCount)")
    first, second = (str(each) for each in policy_warnings(policy(spec)))
    assert first.startswith("a: the factor 0.6 has no effect")
    assert first.endswith("drop it, and write `weight: 3`")
    assert second.endswith("drop it, and write `weight: 1`")
