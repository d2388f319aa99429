"""The manifests of the chart on a real API server: it accepts them all."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.chart import (
    ELASTIC_QUOTAS,
    POD_GROUPS,
    VALUE_SETS,
    of_kind,
    rendered,
)
from tests.e2e.cluster import CallError, Cluster, Json
from tests.e2e.definitions import defined, undefine
from tests.e2e.workloads import pod

_OF_OTHERS = {
    "cert-manager.io": {"Certificate": "certificates", "Issuer": "issuers"},
    "monitoring.coreos.com": {
        "ServiceMonitor": "servicemonitors",
        "PrometheusRule": "prometheusrules",
    },
}


def _definition(group: str, kind: str, plural: str) -> Json:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


@pytest.fixture
async def operators(cluster: Cluster) -> AsyncIterator[None]:
    """The kinds of cert-manager and of the Prometheus operator, of any content."""
    definitions = [
        _definition(group, kind, plural)
        for group, kinds in _OF_OTHERS.items()
        for kind, plural in kinds.items()
    ]
    async with defined(cluster, *definitions):
        yield


@pytest.mark.usefixtures("operators")
async def test_every_manifest_is_accepted(cluster: Cluster, namespace: str) -> None:
    await undefine(cluster, {ELASTIC_QUOTAS, POD_GROUPS})
    for values in VALUE_SETS:
        # Of a name of its own: roles of the usual one stay behind other tests.
        manifests = rendered(values, namespace=namespace, release=f"stowplan-{namespace}")
        await _create_accounts(cluster, manifests)
        for manifest in manifests:
            if manifest["kind"] == "ServiceAccount":
                continue
            try:
                await cluster.create(manifest, dry_run=True)
            except CallError as refused:
                name = f"{manifest['kind']} {manifest['metadata']['name']}"
                pytest.fail(f"{values.stem}: {name}: {refused}")


async def test_its_pods_are_allowed_where_pods_are_restricted_most(
    cluster: Cluster, namespace: str
) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.patch("namespaces", namespace, {"metadata": {"labels": label}})
    manifests = rendered(namespace=namespace, values={"hold.enabled": True})
    await _create_accounts(cluster, manifests)
    specs = [
        of_kind(manifests, "Deployment")["spec"]["template"]["spec"],
        of_kind(manifests, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        *(one["spec"]["template"]["spec"] for one in manifests if one["kind"] == "Job"),
        next(one for one in manifests if one["kind"] == "Pod")["spec"],
    ]
    for spec in specs:
        await cluster.create({**pod(namespace, "tried"), "spec": spec}, dry_run=True)


async def _create_accounts(cluster: Cluster, manifests: list[Json]) -> None:
    """Create the accounts of pods for real: without them a pod is refused."""
    there = {
        one["metadata"]["name"]
        for manifest in manifests
        if manifest["kind"] == "ServiceAccount"
        for one in await cluster.list_all("serviceaccounts", manifest["metadata"]["namespace"])
    }
    for one in manifests:
        if one["kind"] == "ServiceAccount" and one["metadata"]["name"] not in there:
            await cluster.create(one)
