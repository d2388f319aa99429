"""The definition of ElasticQuota that the chart brings, as the API server takes it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.cluster import CallError, Cluster, Json
from tests.e2e.definitions import DEFINITIONS, defined, definition_of_the_chart


@pytest.fixture
async def definition(cluster: Cluster) -> AsyncIterator[Json]:
    """The definition, installed for this test."""
    definition = definition_of_the_chart("elasticquotas.scheduling.x-k8s.io")
    async with defined(cluster, definition):
        yield definition


def _quota(namespace: str, **spec: object) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": spec,
    }


async def test_the_definition_is_structural(cluster: Cluster, definition: Json) -> None:
    stored = await cluster.get(DEFINITIONS, definition["metadata"]["name"])
    conditions = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
    assert conditions["NamesAccepted"] == conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions


@pytest.mark.usefixtures("definition")
async def test_amounts_and_bounds_are_checked_where_nobody_else_does(
    cluster: Cluster, namespace: str
) -> None:
    for spec in (
        {"max": {"cpu": "lots"}},
        {"max": {"cpu": "-1"}},
        {"max": {"cpu": -1}},
        {"max": {"cpu": "1"}, "min": {"cpu": "1001m"}},
    ):
        with pytest.raises(CallError) as refused:
            await cluster.create(_quota(namespace, **spec))
        assert refused.value.status == 422
    least = {"cpu": 1, "example.com/fpga": "1e3"}
    most = {"cpu": "1", "memory": "1.5Gi", "pods": 3}
    await cluster.create(_quota(namespace, min=least, max=most))


@pytest.mark.usefixtures("definition")
async def test_the_status_is_written_apart(cluster: Cluster, namespace: str) -> None:
    await cluster.create(_quota(namespace, max={"cpu": "1"}) | {"status": {"used": {"cpu": "9"}}})
    assert "status" not in await cluster.get("elasticquotas", "team", namespace)
    patch = {"status": {"used": {"cpu": "500m", "pods": None}}, "spec": {"max": {"cpu": "2"}}}
    await cluster.patch("elasticquotas", "team", patch, namespace, subresource="status")
    stored = await cluster.get("elasticquotas", "team", namespace)
    assert stored["status"] == {"used": {"cpu": "500m"}}
    assert stored["spec"] == {"max": {"cpu": "1"}}
