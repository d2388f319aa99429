"""The definitions of both kinds of policies, as the API server takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.policy import compile_resource
from tests.e2e.cluster import CallError, Cluster, Json
from tests.e2e.definitions import DEFINITIONS, defined, definition_of_the_chart

_ROOT: Final = Path(__file__).parents[2]
_CRDS: Final = _ROOT / "charts" / "stowplan" / "files" / "crds"
_SHIPPED: Final = sorted(_ROOT.glob("policies/*/policy.yaml"))

_EXPRESSION: Final = {"name": "x", "expression": "true"}
_RULE_MISTAKES: Final[tuple[Json, ...]] = (
    {**_EXPRESSION, "plugin": "LimitAware"},
    {"expression": "true"},
    {**_EXPRESSION, "args": {}},
    {},
)
_PLACEMENT_MISTAKES: Final[tuple[Json, ...]] = (
    {"at": "Binding", "whenNoneFits": "Deny"},
    {"whenNoneFits": "Wait"},
    {"minGain": 2},
)
_MISTAKES: Final[tuple[Json, ...]] = (
    *({"filters": [rule]} for rule in _RULE_MISTAKES),
    *({"scores": [rule]} for rule in _RULE_MISTAKES),
    {"filters": [{"plugin": "LimitAware", "message": "no"}]},
    *({"placement": placement} for placement in _PLACEMENT_MISTAKES),
)
_TYPE_MISTAKES: Final[tuple[Json, ...]] = (
    {"mode": "audit"},
    {"priority": "high"},
    {"priority": 2**31},
    {"scores": [{"plugin": "LimitAware", "weight": 101}]},
    {"placement": {"dynamicFilters": "Marked"}},
    {"variables": [{"name": "a b", "expression": "1"}]},
    {"variables": [{"name": "a", "expression": "1"}, {"name": "a", "expression": "2"}]},
    {"filters": [_EXPRESSION] * 65},
    {"match": {"objectSelector": {"matchLabels": {"a": 1}}}},
)
_BEYOND_NAMESPACE: Final[tuple[Json, ...]] = (
    {"match": {"namespaceSelector": {}}},
    {"placement": {"preemption": "DryRun"}},
)


@pytest.fixture
async def definitions(cluster: Cluster) -> AsyncIterator[list[str]]:
    """The names of both definitions, installed for this test."""
    names = [f"{kind.plural}.stowplan.dev" for kind in PolicyKind]
    async with defined(cluster, *map(definition_of_the_chart, names)):
        yield names


def _policy(spec: Json, namespace: str = "") -> PolicyResource:
    kind = PolicyKind.NAMESPACED if namespace else PolicyKind.CLUSTER
    return PolicyResource(kind=kind, namespace=namespace, name="web", spec=spec)


async def _refusal(cluster: Cluster, policy: PolicyResource) -> str:
    with pytest.raises(CallError) as refused:
        await cluster.create(policy.manifest, dry_run=True)
    assert refused.value.status == 422
    return refused.value.message


async def test_the_definitions_are_structural(cluster: Cluster, definitions: list[str]) -> None:
    for name in definitions:
        stored = await cluster.get(DEFINITIONS, name)
        conditions = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
        assert conditions["NamesAccepted"] == conditions["Established"] == "True"
        assert "NonStructuralSchema" not in conditions


@pytest.mark.usefixtures("definitions")
async def test_shipped_policies_are_stored_as_they_are_written(cluster: Cluster) -> None:
    for file in _SHIPPED:
        written = yaml.safe_load(file.read_text(encoding="utf-8"))
        stored = await cluster.create(written)
        assert stored["spec"] == written["spec"], file
        assert stored["metadata"]["generation"] == 1
    assert len(await cluster.list_all("placementpolicies")) == len(_SHIPPED)


@pytest.mark.usefixtures("definitions")
async def test_what_holds_between_fields_is_refused_with_our_words(
    cluster: Cluster, namespace: str
) -> None:
    for spec in _MISTAKES:
        policy = _policy(spec)
        (problem, *_) = compile_resource(policy).problems
        assert problem.message in await _refusal(cluster, policy), spec
    for spec in _BEYOND_NAMESPACE:
        policy = _policy(spec, namespace)
        (problem,) = compile_resource(policy).problems
        assert problem.message in await _refusal(cluster, policy), spec


@pytest.mark.usefixtures("definitions")
async def test_wrong_values_are_refused(cluster: Cluster) -> None:
    for spec in _TYPE_MISTAKES:
        assert compile_resource(_policy(spec)).policy is None, spec
        assert "spec" in await _refusal(cluster, _policy(spec))


@pytest.mark.usefixtures("definitions")
async def test_the_status_is_written_apart_and_shown_in_columns(cluster: Cluster) -> None:
    await cluster.create(_policy({"priority": 7}).manifest)
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    status = {"mode": "Enforce", "outcome": {"pods": 3}, "conditions": [condition]}
    patch = {"spec": {"priority": 8}, "status": status}
    await cluster.patch("placementpolicies", "web", patch, subresource="status")
    stored = await cluster.get("placementpolicies", "web")
    assert (stored["spec"], stored["status"]) == ({"priority": 7}, status)
    assert stored["metadata"]["generation"] == 1
