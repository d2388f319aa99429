"""What samples lack: clusters may have it, so lint says nothing of it."""

from __future__ import annotations

import pytest

from engine.policy import PolicySet
from engine.policy_lint import joint_warnings, policy_warnings
from tests.engine.policy.worlds import policy

_POOL = "node.labels[?'pool'].orValue('')"
_CPU = "node.usage.cpu / node.allocatable.cpu"
_MANY = [f"m{number}.large" for number in range(70)]


def _match(expression: str) -> str:
    return (
        f"match:\n  matchConditions:\n  - name: m\n    expression: |-\n      {expression}\n"
        "filters: [{name: r, expression: node.podCount < 50}]"
    )


def _filters(*expressions: str) -> str:
    return "filters:\n" + _rules("f", expressions)


def _scores(*expressions: str) -> str:
    return "scores:\n" + _rules("s", expressions)


def _rules(prefix: str, expressions: tuple[str, ...]) -> str:
    return "".join(
        f"- name: {prefix}{number}\n  expression: |-\n    {expression}\n"
        for number, expression in enumerate(expressions)
    )


_MOMENTS = (
    _match("now.getMinutes() < 30"),
    _match("now.getMinutes() == 15"),
    _match("now.getSeconds() < 30"),
    _match("now.getMonth() == 11 && now.getDayOfMonth() == 24"),
    _match("now.getMonth() == 10 && now.getDayOfWeek() == 5 && now.getHours() == 9"),
    _match("now.getDayOfYear() == 250"),
    _match("now.getFullYear() == 2030"),
    _match("now < timestamp('2027-03-01T00:00:00Z')"),
    _match("now >= timestamp('2027-03-01T00:00:00Z')"),
    _match("now.getHours() == 9 && 'nvidia.com/gpu' in pod.requests"),
    _filters("now.getHours() < 6 || node.podCount < 100"),
    _filters(f"!(now.getDayOfWeek() in [0, 6]) || {_CPU} < 0.5"),
    _filters("now < timestamp('2027-03-01T00:00:00Z') || node.podCount < 100"),
    _filters("now - node.creationTimestamp < duration('87600h')"),
    _filters("pod.namespace != 'kube-system' && now.getHours() < 6 || node.podCount < 100"),
    _scores(f"now.getHours() >= 8 ? 1.0 - {_CPU} : 0.0"),
    _scores(f"now.getHours() >= 8 ? -{_CPU} : {_CPU}"),
    "variables: [{name: hour, expression: \"now.getHours('Europe/Berlin')\"}]\n"
    + _filters("variables.hour < 6 || node.podCount < 100"),
)

_RESOURCES = (
    _match("'example.com/fpga' in pod.requests"),
    _match("'hugepages-2Mi' in pod.requests"),
    _match("pod.requests.exists(name, name.startsWith('example.com/'))"),
    _match("pod.requests.exists(name, name == 'example.com/fpga')"),
    _filters("'example.com/fpga' in node.allocatable"),
    _filters("node.allocatable['example.com/fpga'] > 0.0"),
    _filters("'amd.com/gpu' in pod.requests || !('amd.com/gpu' in node.allocatable)"),
    "variables: [{name: cards, expression: \"pod.requests[?'example.com/fpga'].orValue(0.0)\"}]\n"
    + _filters("variables.cards <= 0.0 || node.podCount < 20"),
    _filters(
        f"{_POOL} == ('example.com/fpga' in pod.requests ? 'fpga' : 'plain')", f"{_POOL} != 'plain'"
    ),
)

_NUMBERS = (
    _match("pod.priority == 12345"),
    _match("pod.requests.cpu == 0.25"),
    _match("pod.requests.cpu > 100.0"),
    _match("'nvidia.com/gpu' in pod.requests && pod.requests['nvidia.com/gpu'] - 16.0 >= 0.0"),
    _filters("pod.priority != 500 || node.podCount < 20"),
    _filters("pod.priority != 500 || node.podCount < 20", "node.podCount < 90"),
    _filters("pod.requests.cpu < 100.0 || node.allocatable.cpu >= 128.0"),
    _filters("pod.requests.memory <= 2.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0 || node.ready"),
    _filters("node.podCount >= 2000"),
    _scores("pod.priority == 500 ? node.podCount : 0"),
    _scores("-node.podCount", "pod.priority == 500 ? node.podCount : -node.podCount"),
    _filters("pod.priority == 500 ? node.podCount < 20 : !node.ready"),
    "variables: [{name: vast, expression: pod.requests.cpu > 100.0}]\n"
    + _scores(f"variables.vast ? -{_CPU} : {_CPU}"),
    _filters(f"{_POOL} == (pod.requests.cpu > 100.0 ? 'big' : 'plain')", f"{_POOL} != 'plain'"),
)

_TEXTS = (
    _match("pod.labels[?'app'].orValue('x') == 'x'"),
    _match("pod.schedulerName == 'volcano'"),
    _filters("pod.schedulerName == 'volcano' ? node.podCount < 50 : true"),
    "match:\n  matchConditions:\n"
    "  - {name: m, expression: \"pod.labels[?'tier'].orValue('') == 'web'\"}\n"
    + _filters(f"node.labels['node.kubernetes.io/instance-type'] in {_MANY}"),
    _filters(
        "node.labels[?'rack'].orValue('') == pod.labels[?'wanted'].orValue('')",
        "node.labels[?'rack'].orValue('') in ['za', 'zb']",
        f"node.labels[?'node.kubernetes.io/instance-type'].orValue('') in {_MANY}",
    ),
    _filters(
        f"{_POOL} == pod.nodeSelector[?'pool'].orValue('general')",
        f"{_POOL} != 'general'",
    ),
    _filters(
        f"object.spec.?hostNetwork.orValue(false) ? {_POOL} == 'edge' : {_POOL} == 'plain'",
        f"{_POOL} in ['edge', 'spot']",
    ),
    _filters(f"{_POOL} == pod.nodeSelector[?'pool'].orValue('general')")
    + _scores(f"{_POOL} == 'spot' ? 1 : 0"),
    _filters(f"{_POOL} != 'gpu' || has(object.spec.runtimeClassName)")
    + _scores(f"{_POOL} == 'gpu' ? 1 : 0"),
)


@pytest.mark.parametrize("spec", [*_MOMENTS, *_RESOURCES, *_NUMBERS, *_TEXTS])
def test_what_samples_lack_is_not_judged(spec: str) -> None:
    assert [str(each) for each in policy_warnings(policy(spec))] == []


def test_filters_of_two_policies_are_compared_only_where_samples_vary_what_decides() -> None:
    general = policy(_filters(f"{_POOL} == 'general'"), "a")
    other = policy(_filters(f"{_POOL} != 'general'"), "b")
    of_pod = policy(_filters(f"{_POOL} == pod.nodeSelector[?'pool'].orValue('general')"), "a")
    assert joint_warnings(PolicySet((general, other)))
    assert joint_warnings(PolicySet((of_pod, other))) == ()
