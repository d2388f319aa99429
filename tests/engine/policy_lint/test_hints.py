"""A hint that is followed leads to a policy that lints clean and does what was meant."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import pytest

from engine.errors import InvalidFileError
from engine.model import api
from engine.model.node import NodeCondition
from engine.model.time import SECOND, Micros
from engine.policy import CompiledPolicy
from engine.policy_lint import policy_warnings
from engine.view import ClusterView
from tests.engine.policy.worlds import NOW, node, policy, request_of, usage, view_of

_LOAD = "node.usage.cpu / node.allocatable.cpu"
_ZONE = "topology.kubernetes.io/zone"
_ARM: dict[str, str] = {"kubernetes.io/arch": "arm64", "gen": "10", "pool": "a", _ZONE: "z1"}
_AMD: dict[str, str] = {"kubernetes.io/arch": "amd64", "gen": "9", "pool": "b", _ZONE: "z2"}


def _world() -> ClusterView:
    """Return nodes `arm`, which is full and tainted, and `amd`, which has no fault."""
    pressure = NodeCondition("DiskPressure", "True", "", None)
    calm = NodeCondition("DiskPressure", "False", "", None)
    hot, cool = (usage(name, cpu=cpu) for name, cpu in (("arm", 3900), ("amd", 400)))
    down, up = (NodeCondition("Ready", status, "", None) for status in ("False", "True"))
    taint = api.Taint(key="a", effect="NoSchedule")
    arm = node("arm", labels=_ARM, conditions=(pressure, down), taints=(taint,), ready=False)
    amd = node("amd", labels=_AMD, conditions=(calm, up))
    young, old = Micros(NOW - 60 * SECOND), Micros(NOW - 864_000 * SECOND)
    return view_of(replace(arm, created=young), replace(amd, created=old), hot, cool)


class Mended(NamedTuple):
    """A filter as it was written, and as its hint says, with the nodes that pass then."""

    written: str
    hint: str
    followed: str
    passing: tuple[str, ...]
    generate_name: str = ""


_CASES = (
    Mended(
        "!node.conditions.exists(c, c.type == 'DiskPressure' && c.status == true)",
        "`'True'`",
        "!node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'True')",
        ("amd",),
    ),
    Mended(
        "!node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'true')",
        "`'True'`",
        "!node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'True')",
        ("amd",),
    ),
    Mended(
        "!node.conditions.exists(c, c.type == 'DiskPresure' && c.status == 'True')",
        "`'DiskPressure'`",
        "!node.conditions.exists(c, c.type == 'DiskPressure' && c.status == 'True')",
        ("amd",),
    ),
    Mended(
        "!node.taints.exists(t, t.effect == 'noschedule')",
        "`'NoSchedule'`",
        "!node.taints.exists(t, t.effect == 'NoSchedule')",
        ("amd",),
    ),
    # `arm` has pressure and is not ready, `amd` has no fault: a status of any type tells neither.
    Mended(
        "node.conditions.all(c, c.status == 'False')",
        "`node.conditions.all(c, c.type == 'Ready' || c.status == 'False')`",
        "node.conditions.all(c, c.type == 'Ready' || c.status == 'False')",
        ("amd",),
    ),
    Mended(
        "!node.conditions.exists(c, c.status != 'False')",
        "`node.conditions.exists(c, c.type != 'Ready' && c.status != 'False')`",
        "!node.conditions.exists(c, c.type != 'Ready' && c.status != 'False')",
        ("amd",),
    ),
    Mended(
        "node.conditions.all(c, c.status == 'True')",
        "`node.conditions.all(c, c.type != 'Ready' || c.status == 'True')`",
        "node.conditions.all(c, c.type != 'Ready' || c.status == 'True')",
        ("amd",),
    ),
    Mended(
        "!node.conditions.exists(c, c.status == 'False')",
        "`node.conditions.exists(c, c.type == 'Ready' && c.status == 'False')`",
        "!node.conditions.exists(c, c.type == 'Ready' && c.status == 'False')",
        ("amd",),
    ),
    Mended("node.ready == 'True'", "`node.ready`", "node.ready", ("amd",)),
    Mended(
        "node.ready == 'false' || node.labels.pool == 'b'",
        "`!node.ready`",
        "!node.ready || node.labels.pool == 'b'",
        ("amd", "arm"),
    ),
    Mended(
        "node.labels.pool == 'b' || 'c'",
        "`node.labels.pool in ['b', 'c']`",
        "node.labels.pool in ['b', 'c']",
        ("amd",),
    ),
    Mended(
        "node.labels[?'pool'].orValue('') != 'b' && 'c'",
        "`!(node.labels[?'pool'].orValue('') in ['b', 'c'])`",
        "!(node.labels[?'pool'].orValue('') in ['b', 'c'])",
        ("arm",),
    ),
    Mended(
        "node.labels[?'pool'].orValue('') != 'a' || node.labels[?'pool'].orValue('') != 'c'",
        "`!(node.labels[?'pool'].orValue('') in ['a', 'c'])`",
        "!(node.labels[?'pool'].orValue('') in ['a', 'c'])",
        ("amd",),
    ),
    Mended(
        "node.labels.pool == 'a' && node.labels.pool == 'c'",
        "`node.labels.pool in ['a', 'c']`",
        "node.labels.pool in ['a', 'c']",
        ("arm",),
    ),
    Mended(
        "node.labels[pool] == 'a'", "`node.labels['pool']`", "node.labels['pool'] == 'a'", ("arm",)
    ),
    Mended(
        "node.labels[?'pool'] == 'a'",
        "`node.labels[?'pool'].orValue('') == 'a'`",
        "node.labels[?'pool'].orValue('') == 'a'",
        ("arm",),
    ),
    Mended(
        "node.labels[?'topology.kubernetes.io/zones'].orValue('') == 'z1'",
        f"`{_ZONE}`",
        f"node.labels[?'{_ZONE}'].orValue('') == 'z1'",
        ("arm",),
    ),
    Mended(
        "node.labels[?'kubernetes.io/arch'].orValue('') == 'x86_64'",
        "`'amd64'`",
        "node.labels[?'kubernetes.io/arch'].orValue('') == 'amd64'",
        ("amd",),
    ),
    Mended(
        "node.labels[?'gen'].orValue('') > '9'",
        "`int(node.labels[?'gen'].orValue('0')) > 9`",
        "int(node.labels[?'gen'].orValue('0')) > 9",
        ("arm",),
    ),
    Mended(
        "node.labels['version'] > '1.9'",
        "`semver(node.labels['version'], true).compareTo(semver('1.9.0')) > 0`",
        "semver(node.labels['version'], true).compareTo(semver('1.9.0')) > 0",
        (),
    ),
    # A pod that says nothing of a zone may go anywhere.
    Mended(
        f"pod.labels['zone'] == node.labels['{_ZONE}']",
        f"`!('zone' in pod.labels) || pod.labels['zone'] == node.labels['{_ZONE}']`",
        f"!('zone' in pod.labels) || pod.labels['zone'] == node.labels['{_ZONE}']",
        ("amd", "arm"),
    ),
    # One that does not select arm64 stays off it.
    Mended(
        "pod.nodeSelector['kubernetes.io/arch'] == 'arm64' || node.labels['pool'] == 'b'",
        "`pod.nodeSelector[?'kubernetes.io/arch'].orValue('')`",
        "pod.nodeSelector[?'kubernetes.io/arch'].orValue('') == 'arm64' || "
        "node.labels['pool'] == 'b'",
        ("amd",),
    ),
    Mended(
        "pod.limits.cpu < node.allocatable.cpu",
        "`!('cpu' in pod.limits) || pod.limits.cpu < node.allocatable.cpu`",
        "!('cpu' in pod.limits) || pod.limits.cpu < node.allocatable.cpu",
        ("amd", "arm"),
    ),
    Mended(
        "object.spec.tolerations.exists(t, t.key == 'a') || node.labels.pool == 'b'",
        "`object.spec.?tolerations.orValue([])`",
        "object.spec.?tolerations.orValue([]).exists(t, t.key == 'a') || node.labels.pool == 'b'",
        ("amd",),
    ),
    Mended(
        "object.spec.containers.exists(c, c.resources.limits.cpu == '1') || "
        "node.labels.pool == 'b'",
        "`c.resources.?limits.cpu.orValue('0')`",
        "object.spec.containers.exists(c, c.resources.?limits.cpu.orValue('0') == '1') || "
        "node.labels.pool == 'b'",
        ("amd",),
    ),
    Mended(
        "pod.name.startsWith('web-') || node.labels.pool == 'b'",
        "`pod.generateName.startsWith('web-')`",
        "pod.generateName.startsWith('web-') || node.labels.pool == 'b'",
        ("amd", "arm"),
        "web-7d4b9c-",
    ),
    Mended(
        "pod.ownerKinds == 'Job' || node.labels.pool == 'b'",
        "`'Job' in pod.ownerKinds`",
        "'Job' in pod.ownerKinds || node.labels.pool == 'b'",
        ("amd",),
    ),
    Mended(
        "'Deployment' in pod.ownerKinds || node.labels.pool == 'b'",
        "`'ReplicaSet'`",
        "'ReplicaSet' in pod.ownerKinds || node.labels.pool == 'b'",
        ("amd",),
    ),
    Mended(
        "now - node.creationTimestamp > duration('30d') || node.labels.pool == 'b'",
        "`duration('720h')`",
        "now - node.creationTimestamp > duration('720h') || node.labels.pool == 'b'",
        ("amd",),
    ),
    Mended(
        f"{_LOAD} > 0.65",
        f"`{_LOAD} < 0.65`",
        f"{_LOAD} < 0.65",
        ("amd",),
    ),
    Mended(
        "now - node.creationTimestamp < duration('600s')",
        "`now - node.creationTimestamp > duration('600s')`",
        "now - node.creationTimestamp > duration('600s')",
        ("amd",),
    ),
    Mended("!node.ready", "`node.ready`", "node.ready", ("amd",)),
    Mended(
        "node.usage.cpu < 70",
        "`node.usage.cpu / node.allocatable.cpu < 0.7`",
        "node.usage.cpu / node.allocatable.cpu < 0.7",
        ("amd",),
    ),
    Mended(
        "node.taints[0].key != 'a'",
        "`node.taints.all(e, e.key != 'a')`",
        "node.taints.all(e, e.key != 'a')",
        ("amd",),
    ),
    Mended(
        f"node.labels.pool == 'a' || node.labels.pool == 'b' && {_LOAD} < 0.65",
        f"`(node.labels.pool == 'a' || node.labels.pool == 'b') && {_LOAD} < 0.65`",
        f"(node.labels.pool == 'a' || node.labels.pool == 'b') && {_LOAD} < 0.65",
        ("amd",),
    ),
    Mended(
        "node.usage.cpu / node.requested.cpu < 0.8",
        "`node.requested.cpu > 0.0 ? node.usage.cpu / node.requested.cpu < 0.8 : true`",
        "node.requested.cpu > 0.0 ? node.usage.cpu / node.requested.cpu < 0.8 : true",
        ("amd", "arm"),
    ),
    Mended(
        "node.labels['pool'] != 'a'",
        "`node.labels[?'pool'].orValue('')`",
        "node.labels[?'pool'].orValue('') != 'a'",
        ("amd",),
    ),
    Mended(
        "node.labels.pool.matches('b')",
        "`node.labels.pool.matches('^b$')`",
        "node.labels.pool.matches('^b$')",
        ("amd",),
    ),
    Mended(
        "'Job' in pod.ownerKinds && node.labels.pool == 'b'",
        "`!('Job' in pod.ownerKinds) || node.labels.pool == 'b'`",
        "!('Job' in pod.ownerKinds) || node.labels.pool == 'b'",
        ("amd", "arm"),
    ),
    Mended(
        "'a' in node.taints || node.labels.pool == 'c'",
        "`node.taints.exists(e, e.key == 'a')`",
        "node.taints.exists(e, e.key == 'a') || node.labels.pool == 'c'",
        ("arm",),
    ),
    Mended("node.labels.pool == \u2018a\u2019", "`'a'`", "node.labels.pool == 'a'", ("arm",)),
    Mended("node.labels.gpu == true", "`'true'`", "node.labels.gpu == 'true'", ()),
    Mended(
        "node.usage.memory < 4096.0 || node.labels.pool == 'b'",
        "`4294967296.0`",
        "node.usage.memory < 4294967296.0 || node.labels.pool == 'b'",
        ("amd",),
    ),
)


@pytest.mark.parametrize(
    ("written", "followed", "best"),
    [
        (_LOAD, f"-({_LOAD})", "amd"),
        (
            "node.labels['pool'] == 'a' ? 0 : 1",
            "node.labels[?'pool'].orValue('') == 'a' ? 0 : 1",
            "amd",
        ),
        (
            "double(node.labels[?'gen'].orValue(''))",
            "double(node.labels[?'gen'].orValue('0'))",
            "arm",
        ),
    ],
)
def test_a_hint_for_a_score_leads_to_the_best_node(written: str, followed: str, best: str) -> None:
    def scored(expression: str) -> CompiledPolicy:
        return policy(f"scores:\n- name: r\n  expression: |-\n    {expression}")

    (warning,) = policy_warnings(scored(written))
    code = re.search(r"`(.*?)`", warning.hint)
    assert code is not None
    assert code[1] in followed
    compiled, view = scored(followed), _world()
    assert policy_warnings(compiled) == ()
    (rows,) = view.valid.nonzero()
    points = compiled.scores[0].outcome(compiled.context(request_of(), view, NOW), rows).normalized
    assert view.names[rows[points.argmax()]] == best


@pytest.mark.parametrize(
    ("written", "followed"),
    [
        (f"has(node.usage) ? {_LOAD} : 0.0", f"has(node.usage) ? -({_LOAD}) : -2.0"),
        (f"!has(node.usage) ? 0.0 : {_LOAD}", f"!has(node.usage) ? -2.0 : -({_LOAD})"),
        (
            f"has(node.usage) ? 100.0 * {_LOAD} : 0.0",
            f"has(node.usage) ? -(100.0 * {_LOAD}) : -102.0",
        ),
        (
            f"has(node.usage) ? int(100.0 * {_LOAD}) : 0",
            f"has(node.usage) ? -int(100.0 * {_LOAD}) : -102",
        ),
        (
            "node.?usage.cpu.orValue(0.0) / node.allocatable.cpu",
            "has(node.usage) ? -(node.?usage.cpu.orValue(0.0) / node.allocatable.cpu) : -2.0",
        ),
    ],
)
def test_a_score_turned_around_does_not_prefer_nodes_without_a_report(
    written: str, followed: str
) -> None:
    def scored(expression: str) -> CompiledPolicy:
        return policy(f"scores:\n- name: r\n  expression: |-\n    {expression}")

    (warning,) = policy_warnings(scored(written))
    assert f"`{followed}`" in warning.hint
    compiled = scored(followed)
    assert policy_warnings(compiled) == ()
    view = view_of(
        *map(node, ("none", "hot", "cool", "over")),
        *(usage(name, cpu=cpu) for name, cpu in (("hot", 3900), ("cool", 400), ("over", 4060))),
    )
    (rows,) = view.valid.nonzero()
    points = compiled.scores[0].outcome(compiled.context(request_of(), view, NOW), rows).normalized
    ranked = rows[points.argsort()[::-1]]
    assert [view.names[row] for row in ranked] == ["cool", "hot", "over", "none"]


def _filter(expression: str) -> str:
    return f"filters:\n- name: r\n  expression: |-\n    {expression}"


def _hints(expression: str) -> list[str]:
    try:
        return [found.hint for found in policy_warnings(policy(_filter(expression)))]
    except InvalidFileError as error:
        return [found.hint for found in error.problems]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.written)
def test_a_hint_that_is_followed_leads_to_what_was_meant(case: Mended) -> None:
    (hint,) = _hints(case.written)
    assert case.hint in hint
    code = re.search(r"`(.*?)`(?=$|[:,; ])", case.hint)
    assert code is not None
    assert code[1] in case.followed
    compiled, view = policy(_filter(case.followed)), _world()
    assert policy_warnings(compiled) == ()
    containers = {"containers": [{"name": "c", "resources": {}}]}
    request = request_of(containers, generateName=case.generate_name)
    (rule,) = compiled.filters
    rejects = rule.rejects(compiled.context(request, view, NOW))
    passing = view.valid & ~rejects
    assert tuple(sorted(view.names[row] for row in passing.nonzero()[0])) == case.passing


def _condition(expression: str) -> str:
    return (
        f"match:\n  matchConditions:\n  - name: c\n    expression: |-\n      {expression}\n"
        "filters: [{name: r, expression: node.ready}]"
    )


@pytest.mark.parametrize(
    ("written", "hint", "followed", "spec", "meets"),
    [
        (
            "!object.spec.hostNetwork",
            "`object.spec.?hostNetwork.orValue(false)`",
            "!object.spec.?hostNetwork.orValue(false)",
            {},
            True,
        ),
        (
            "object.spec.nodeSelector == {}",
            "`object.spec.?nodeSelector.orValue({})`",
            "object.spec.?nodeSelector.orValue({}) == {}",
            {},
            True,
        ),
        (
            "object.spec.containers[0].resources.requests.cpu == '1'",
            "`object.spec.containers[0].resources.?requests.cpu.orValue('0')`",
            "object.spec.containers[0].resources.?requests.cpu.orValue('0') == '1'",
            {},
            False,
        ),
        (
            "object.metadata.ownerReferences[0].kind == 'Job'",
            "`'Job' in pod.ownerKinds`",
            "'Job' in pod.ownerKinds",
            {},
            False,
        ),
        (
            "object.spec.restartPolicy == 'always'",
            "`'Always'`",
            "object.spec.restartPolicy == 'Always'",
            {"restartPolicy": "Always"},
            True,
        ),
        (
            "object.spec.?priorityclassname.orValue('') == 'high'",
            "`priorityClassName`",
            "object.spec.?priorityClassName.orValue('') == 'high'",
            {"priorityClassName": "high"},
            True,
        ),
        (
            "pod.name == 'web-7d9f8b6c54-x2x5q'",
            "`pod.generateName.startsWith('web-')`",
            "pod.generateName.startsWith('web-')",
            {},
            True,
        ),
        (
            "pod.namespace != 'shop' || pod.namespace != 'web'",
            "`!(pod.namespace in ['shop', 'web'])`",
            "!(pod.namespace in ['shop', 'web'])",
            {},
            False,
        ),
    ],
)
def test_a_hint_for_a_match_condition_leads_to_the_pods_that_were_meant(
    written: str, hint: str, followed: str, spec: dict[str, str], *, meets: bool
) -> None:
    (warning,) = policy_warnings(policy(_condition(written)))
    assert hint in warning.hint
    compiled = policy(_condition(followed))
    assert policy_warnings(compiled) == ()
    request = request_of(
        {"containers": [{"name": "c", "resources": {}}], **spec}, generateName="web-7d9f8b6c54-"
    )
    errors: list[str] = []
    assert (compiled.meets(request, NOW, errors), errors) == (meets, [])
