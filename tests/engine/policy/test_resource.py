from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from engine.model import api
from engine.model.policy_resource import PolicyKind, PolicyResource, policy_resource_of
from engine.pipeline import Scope, decide
from engine.policy import PolicySet, compile_resource, load_policies
from engine.policy_tests.cases import read_cases

SHIPPED = sorted(Path(__file__).parents[3].glob("policies/*/policy.yaml"))


def _resource(spec: Any, namespace: str = "") -> PolicyResource:  # noqa: ANN401 - any JSON
    kind = PolicyKind.NAMESPACED if namespace else PolicyKind.CLUSTER
    return PolicyResource(kind=kind, namespace=namespace, name="web", spec=spec)


def _report(resource: PolicyResource) -> str:
    compiled = compile_resource(resource)
    assert compiled.policy is None
    return "\n".join(map(str, compiled.problems))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.parent.name)
def test_a_policy_is_the_same_in_a_file_and_as_a_resource(file: Path) -> None:
    (from_file,) = load_policies([file])
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    stored = {
        **written,
        "metadata": {**written["metadata"], "uid": "u1", "generation": 3, "resourceVersion": "7"},
        "status": {"conditions": []},
    }
    wire = msgspec.json.decode(msgspec.json.encode(stored), type=api.PlacementPolicy)
    resource = policy_resource_of(wire)
    assert (resource.uid, resource.generation, resource.version) == ("u1", 3, 7)
    compiled = compile_resource(resource)
    assert compiled.problems == ()
    assert compiled.policy is not None
    assert compiled.policy.digest == from_file.digest
    assert compiled.policy.name == from_file.name


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.parent.name)
def test_a_policy_decides_the_same_in_a_file_and_as_a_resource(file: Path) -> None:
    (from_file,) = load_policies([file])
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    stored = json.loads(json.dumps(written, sort_keys=True))  # as an API server keeps it
    compiled = compile_resource(replace(_resource(stored["spec"]), name=from_file.name)).policy
    assert compiled is not None
    cases, _ = read_cases(file.with_name("cases.yaml"), now_is_read=False)
    assert cases
    for case in cases:
        case.state.track_sums(from_file.sum_profiles)
        assert compiled.sum_profiles == from_file.sum_profiles
        of_file, of_resource = (
            decide(case.request, PolicySet([policy]), case.state.view(), case.now, scope=Scope())
            for policy in (from_file, compiled)
        )
        assert of_resource.verdict is of_file.verdict
        assert of_resource.policies == of_file.policies
        assert of_resource.ranking.order.tolist() == of_file.ranking.order.tolist()
        assert of_resource.totals.tolist() == of_file.totals.tolist()
        assert of_resource.first_rejections == of_file.first_rejections
        assert of_resource.errors == of_file.errors


def test_every_mistake_has_line_caret_field_and_hint() -> None:
    spec = {
        "mode": "audit",
        "filters": [{"name": "x", "expression": "node.labels.a == 'b' &&\nnod.name != ''"}],
    }
    assert _report(_resource(spec)) == (
        "placementpolicies/web:9:7: spec.filters[0].expression: unknown name `nod`\n"
        " |       nod.name != ''\n"
        " | ......^\n"
        "hint: did you mean `node`?\n"
        "placementpolicies/web:11:9: spec.mode: `audit` is not `Enforce` or `Audit`\n"
        " |   mode: audit\n"
        " | ........^\n"
        "hint: did you mean `Audit`?"
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "missing key `spec`"),
        ("text", "spec: expected a mapping"),
        ({"filters": {}}, "spec.filters: expected a list"),
        ({"filters": [{"plugin": "LimitAware", "args": {"a": [[]]}}]}, "args.a: unknown key"),
    ],
)
def test_whatever_a_spec_is_its_mistake_is_told(spec: Any, problem: str) -> None:  # noqa: ANN401
    assert problem in _report(_resource(spec))


def test_a_spec_that_nests_without_end_is_a_mistake() -> None:
    args: dict[str, Any] = {}
    for _ in range(2_000):
        args = {"a": args}
    spec = {"filters": [{"plugin": "LimitAware", "args": args}]}
    assert _report(_resource(spec)) == "placementpolicies/web: nested deeper than 64 levels"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"match": {"namespaceSelector": {}}},
            "spec.match.namespaceSelector: it applies to pods of its own namespace alone",
        ),
        (
            {"placement": {"at": "Binding", "preemption": "DryRun"}},
            "spec.placement.preemption: it may not evict pods",
        ),
    ],
)
def test_a_policy_for_a_namespace_reaches_no_other(spec: dict[str, Any], problem: str) -> None:
    assert problem in _report(_resource(spec, namespace="shop"))
    assert compile_resource(_resource(spec)).policy is not None


def test_a_policy_for_a_namespace_is_known_with_it() -> None:
    compiled = compile_resource(_resource({"priority": 5}, namespace="shop"))
    assert compiled.policy is not None
    assert (compiled.policy.name, compiled.policy.namespace) == ("shop/web", "shop")


def test_a_policy_of_one_namespace_may_not_slow_down_the_pods_of_others() -> None:
    slow = "node.taints.exists(t, t.key == pod.labels['a'] + node.name)"
    spec = {"filters": [{"name": "mine", "expression": slow}]}
    assert compile_resource(_resource(spec)).policy is not None
    report = _report(_resource(spec, namespace="shop"))
    place = "namespacedplacementpolicies/shop/web:8:17: spec.filters[0].expression: "
    assert report.startswith(f"{place}`{slow}` takes some ")
    assert "too long for a policy of one namespace" in report


def test_a_spec_is_bounded() -> None:
    labels = {f"label-{number}": "x" * 60 for number in range(1_000)}
    spec = {"match": {"objectSelector": {"matchLabels": labels}}}
    assert _report(_resource(spec)) == (
        "placementpolicies/web: spec: the spec is larger than 65536 bytes"
    )
