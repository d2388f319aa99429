"""What people write by mistake in an expression, and the hint that each is to get."""

from __future__ import annotations

import re

import pytest

from engine.cel import BOOL, CelProblemsError, compile_program
from engine.policy.environment import ExpressionScope, environment

_ENVIRONMENT = environment(ExpressionScope.RULES, {"wantsGpu": BOOL})

_CODE = re.compile(r"`(.*?)`")
_WORD = re.compile(r"[A-Za-z][\w-]*")
_HINTS = {
    # keys of maps that are no names
    "node.labels.my-label == 'a'": "write `node.labels['my-label']`",
    "node.labels.my-very-long-label != ''": "write `node.labels['my-very-long-label']`",
    "node.labels.gpu-a100 == 'a' && node.ready": "write `node.labels['gpu-a100']`",
    "node.labels.generation-2 == 'a'": "write `node.labels['generation-2']`",
    "node.labels.topology.kubernetes.io/zone == 'a'": (
        "write `node.labels['topology.kubernetes.io/zone']`"
    ),
    "node.labels.node.kubernetes.io/instance-type in ['a']": (
        "write `node.labels['node.kubernetes.io/instance-type']`"
    ),
    "node.labels.example.com == 'a'": "write `node.labels['example.com']`",
    "pod.requests.nvidia.com/gpu > 0.0": "write `pod.requests['nvidia.com/gpu']`",
    "node.allocatable.ephemeral-storage > 1.0": "write `node.allocatable['ephemeral-storage']`",
    "object.metadata.labels.my-app == 'a'": "write `object.metadata.labels['my-app']`",
    "has(node.labels.my-label)": "write `'my-label' in node.labels`",
    "has(pod.requests.nvidia.com/gpu)": "write `'nvidia.com/gpu' in pod.requests`",
    "has(node.labels['x'])": "write `'x' in node.labels`",
    "node.labels.has('x')": "write `'x' in node.labels`",
    "node.labels.contains('x')": "write `'x' in node.labels`",
    "pod.ownerKinds.contains('Job')": "write `'Job' in pod.ownerKinds`",
    # amounts, times and shares
    "node.usage.memory < 4096Mi": "write `quantity('4096Mi').asApproximateFloat()`",
    "node.usage.memory < 4Gi": "write `quantity('4Gi').asApproximateFloat()`",
    "node.usage.memory > 1.5Gi && node.ready": "write `quantity('1.5Gi').asApproximateFloat()`",
    "math.greatest(node.usage.cpu, 4000m)": (
        "write `quantity('4000m').asApproximateFloat()` or `duration('4000m')`"
    ),
    "duration('1h') > 90s": "write `duration('90s')`",
    "duration('1h') > 30d": "write `duration('720h')`",
    "duration('90 seconds') > duration('1m')": "write `duration('90s')`",
    "quantity('4GB').isGreaterThan(quantity('4Gi'))": "write `quantity('4G')`",
    "quantity('10kb').isGreaterThan(quantity('1'))": "write `quantity('10k')`",
    "semver('v1.2').isLessThan(semver('2.0.0'))": "write `semver('1.2.0')`",
    "timestamp('2026-01-01 10:30') > now": "write `timestamp('2026-01-01T10:30:00Z')`",
    "timestamp('2026-01-01') > now": "write `timestamp('2026-01-01T00:00:00Z')`",
    "node.usage.memory < quantity('4Gi')": "write `.asApproximateFloat()` after the quantity",
    "node.usage.cpu / node.allocatable.cpu < 65%": "there are no percentages: write `0.65`",
    "65 % > node.usage.cpu": "there are no percentages: write `0.65`",
    "(7.5%) > node.usage.cpu": "there are no percentages: write `0.075`",
    "node.usage.cpu * 2 > 1.0": (
        "write the number with a decimal point, or convert it with `double(..)`"
    ),
    "node.labels.gen > 3": (
        "a string is no number: drop the quotes, or convert it with `double(..)`"
    ),
    # functions of other languages
    "max(node.usage.cpu, 1.0)": ("write `math.greatest(a, b)`; the largest of a list is `x.max()`"),
    "min(1, 2)": "write `math.least(a, b)`; the smallest of a list is `x.min()`",
    "math.max(node.usage.cpu, 1.0)": "write `math.greatest(a, b)`",
    "Math.max(node.usage.cpu, 1.0)": "write `math.greatest(a, b)`",
    "math.min(1, 2)": "write `math.least(a, b)`",
    "math.ab(1)": "did you mean `math.abs`?",
    "abs(node.usage.cpu)": "write `math.abs(x)`",
    "len(node.taints) > 0": "write `x.size()`",
    "node.taints.length > 0": "write `x.size()`",
    "node.taints.size > 0": "write `x.size()`",
    "node.name.toLowerCase() == ''": "write `x.lowerAscii()`",
    "node.name.startswith('a')": "did you mean `startsWith`?",
    "now() > node.creationTimestamp": "write `now`",
    # operators and constants of other languages
    "node.ready and node.unschedulable": "write `&&`",
    "node.ready AND node.unschedulable": "write `&&`",
    "node.ready or node.unschedulable": "write `||`",
    "not node.ready": "write `!`",
    "not(node.ready)": "write `!`",
    "node.name not in ['a']": "write `!(x in y)`",
    "node.name =~ 'a.*'": "write `x.matches('..')`",
    "node.name !~ 'a.*'": "write `!x.matches('..')`",
    "node.name = 'a'": "write `==` to compare",
    "node.name === 'a'": "write `==` to compare",
    "node.name <> 'a'": "write `!=`",
    "node.name in ('a','b')": "a list is written `['a', 'b']`",
    "node.name in ('a')": "write `node.name in ['a']`",
    "node.ready == True": "write `true`",
    "node.labels.x == None": "write `null`",
    "if node.ready then 1 else 2": "write `test ? a : b`",
    # names of Kubernetes
    "wantsGpu && node.ready": "write `variables.wantsGpu`",
    "variables.wantsGp": "did you mean `wantsGpu`?",
    "allocatable.cpu > 1.0": "write `node.allocatable`",
    "node.status.allocatable.cpu > 1.0": (
        "write `node.allocatable` or `node.conditions`, without `status`"
    ),
    "node.metadata.labels.x == ''": (
        "write `node.name`, `node.labels`, `node.annotations`, without `metadata`"
    ),
    "node.spec.taints.size() > 0": ("write `node.taints` or `node.unschedulable`, without `spec`"),
    "node.age < duration('1h')": "write `now - node.creationTimestamp`",
    "pod.spec.containers.size() > 1": ("write `object.spec`: `object` is the pod as it was sent"),
    "pod.metadata.labels.app == ''": (
        "write `pod.labels`, or `object.metadata`: the pod as it was sent"
    ),
    "namespace.labels.tier == 'prod'": (
        "its name is `pod.namespace`, its labels are `namespaceObject.metadata.labels`"
    ),
    "namespaceObject.labels.tier == 'prod'": "write `namespaceObject.metadata.labels`",
    "node.lables.x == ''": "did you mean `labels`?",
}


@pytest.mark.parametrize(("mistake", "hint"), _HINTS.items())
def test_a_mistake_gets_one_message_with_its_hint(mistake: str, hint: str) -> None:
    with pytest.raises(CelProblemsError) as caught:
        compile_program(mistake, _ENVIRONMENT)
    assert [problem.hint for problem in caught.value.problems] == [hint]


@pytest.mark.parametrize("mistake", ["node.statu", "node.xyz", "pod.zzz == ''"])
def test_a_name_unlike_any_other_gets_no_hint(mistake: str) -> None:
    with pytest.raises(CelProblemsError) as caught:
        compile_program(mistake, _ENVIRONMENT)
    assert [problem.hint for problem in caught.value.problems] == [""]


@pytest.mark.parametrize(
    "expression",
    [
        "node.usage.cpu-node.requested.cpu > 0.0",
        "node.usage.cpu/node.allocatable.cpu < 0.5",
        "node.podCount-2 > 1",
        "node.podCount %3 == 1",
    ],
)
def test_arithmetic_without_blanks_is_no_mistake(expression: str) -> None:
    compile_program(expression, _ENVIRONMENT)


def test_a_wrong_name_in_arithmetic_is_still_named() -> None:
    with pytest.raises(CelProblemsError) as caught:
        compile_program("node.podCount-x > 1", _ENVIRONMENT)
    assert [problem.message for problem in caught.value.problems] == ["unknown name `x`"]


_FOLLOWED = {
    "node.labels.my-label == 'a'": "node.labels['my-label'] == 'a'",
    "node.labels.generation-2 == 'a'": "node.labels['generation-2'] == 'a'",
    "node.labels.topology.kubernetes.io/zone == 'a'": (
        "node.labels['topology.kubernetes.io/zone'] == 'a'"
    ),
    "node.labels.example.com == 'a'": "node.labels['example.com'] == 'a'",
    "pod.requests.nvidia.com/gpu > 0.0": "pod.requests['nvidia.com/gpu'] > 0.0",
    "object.metadata.labels.my-app == 'a'": "object.metadata.labels['my-app'] == 'a'",
    "has(node.labels.my-label)": "'my-label' in node.labels",
    "has(pod.requests.nvidia.com/gpu)": "'nvidia.com/gpu' in pod.requests",
    "has(node.labels['x'])": "'x' in node.labels",
    "node.labels.contains('x')": "'x' in node.labels",
    "pod.ownerKinds.contains('Job')": "'Job' in pod.ownerKinds",
    "node.usage.memory < 4096Mi": "node.usage.memory < quantity('4096Mi').asApproximateFloat()",
    "math.greatest(node.usage.cpu, 4000m)": (
        "math.greatest(node.usage.cpu, quantity('4000m').asApproximateFloat())"
    ),
    "duration('1h') > 90s": "duration('1h') > duration('90s')",
    "duration('1h') > 30d": "duration('1h') > duration('720h')",
    "duration('90 seconds') > duration('1m')": "duration('90s') > duration('1m')",
    "quantity('4GB').isGreaterThan(quantity('4Gi'))": (
        "quantity('4G').isGreaterThan(quantity('4Gi'))"
    ),
    "quantity('10kb').isGreaterThan(quantity('1'))": "quantity('10k').isGreaterThan(quantity('1'))",
    "semver('v1.2').isLessThan(semver('2.0.0'))": "semver('1.2.0').isLessThan(semver('2.0.0'))",
    "timestamp('2026-01-01 10:30') > now": "timestamp('2026-01-01T10:30:00Z') > now",
    "timestamp('2026-01-01') > now": "timestamp('2026-01-01T00:00:00Z') > now",
    "node.usage.memory < quantity('4Gi')": (
        "node.usage.memory < quantity('4Gi').asApproximateFloat()"
    ),
    "node.usage.cpu / node.allocatable.cpu < 65%": "node.usage.cpu / node.allocatable.cpu < 0.65",
    "node.usage.cpu * 2 > 1.0": "node.usage.cpu * 2.0 > 1.0",
    "node.labels.gen > 3": "double(node.labels.gen) > 3",
    "max(node.usage.cpu, 1.0)": "math.greatest(node.usage.cpu, 1.0)",
    "min(1, 2)": "math.least(1, 2)",
    "math.max(node.usage.cpu, 1.0)": "math.greatest(node.usage.cpu, 1.0)",
    "math.min(1, 2)": "math.least(1, 2)",
    "math.ab(1)": "math.abs(1)",
    "abs(node.usage.cpu)": "math.abs(node.usage.cpu)",
    "len(node.taints) > 0": "node.taints.size() > 0",
    "node.name.toLowerCase() == ''": "node.name.lowerAscii() == ''",
    "node.name.startswith('a')": "node.name.startsWith('a')",
    "now() > node.creationTimestamp": "now > node.creationTimestamp",
    "node.ready and node.unschedulable": "node.ready && node.unschedulable",
    "node.ready or node.unschedulable": "node.ready || node.unschedulable",
    "not node.ready": "!node.ready",
    "node.name not in ['a']": "!(node.name in ['a'])",
    "node.name =~ 'a.*'": "node.name.matches('a.*')",
    "node.name !~ 'a.*'": "!node.name.matches('a.*')",
    "node.name = 'a'": "node.name == 'a'",
    "node.name <> 'a'": "node.name != 'a'",
    "node.name in ('a','b')": "node.name in ['a', 'b']",
    "node.ready == True": "node.ready == true",
    "if node.ready then 1 else 2": "node.ready ? 1 : 2",
    "wantsGpu && node.ready": "variables.wantsGpu && node.ready",
    "variables.wantsGp": "variables.wantsGpu",
    "allocatable.cpu > 1.0": "node.allocatable.cpu > 1.0",
    "node.status.allocatable.cpu > 1.0": "node.allocatable.cpu > 1.0",
    "node.metadata.labels.x == ''": "node.labels.x == ''",
    "node.spec.taints.size() > 0": "node.taints.size() > 0",
    "node.age < duration('1h')": "now - node.creationTimestamp < duration('1h')",
    "pod.spec.containers.size() > 1": "object.spec.containers.size() > 1",
    "pod.metadata.labels.app == ''": "pod.labels.app == ''",
    "namespace.labels.tier == 'prod'": "namespaceObject.metadata.labels.tier == 'prod'",
    "namespaceObject.labels.tier == 'prod'": "namespaceObject.metadata.labels.tier == 'prod'",
    "node.lables.x == ''": "node.labels.x == ''",
}
"""Mistakes with what is written once their hint is followed."""


@pytest.mark.parametrize(("mistake", "followed"), _FOLLOWED.items())
def test_a_hint_that_is_followed_leads_to_an_expression_that_compiles(
    mistake: str, followed: str
) -> None:
    hinted = {word for code in _CODE.findall(_HINTS[mistake]) for word in _WORD.findall(code)}
    new = set(_WORD.findall(followed)) - set(_WORD.findall(mistake))
    assert new <= hinted
    compile_program(followed, _ENVIRONMENT)
