"""What a real API server asks about by the webhook configurations of the chart."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest

from tests.e2e.chart import VALUE_SETS, rendered
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.namespaces import labelled
from tests.e2e.nodes import Nodes
from tests.e2e.reviewer import Reviewer
from tests.e2e.workloads import daemon_set, pod

_PROBE = "rollout-probe.stowplan.dev"
_REVIEWED = {
    ("", "pods", "CREATE"),
    ("", "pods", "UPDATE"),
    ("", "pods/resize", "UPDATE"),
    ("", "pods/status", "UPDATE"),
    ("", "pods/binding", "CREATE"),
    ("", "bindings", "CREATE"),
    ("scheduling.x-k8s.io", "elasticquotas", "CREATE"),
    ("scheduling.x-k8s.io", "elasticquotas", "UPDATE"),
    ("scheduling.sigs.k8s.io", "elasticquotas", "CREATE"),
    ("scheduling.sigs.k8s.io", "elasticquotas", "UPDATE"),
    ("scheduling.sigs.k8s.io", "elasticquotas", "DELETE"),
    ("stowplan.dev", "placementpolicies", "CREATE"),
    ("stowplan.dev", "placementpolicies", "UPDATE"),
    ("stowplan.dev", "namespacedplacementpolicies", "CREATE"),
    ("stowplan.dev", "namespacedplacementpolicies", "UPDATE"),
}


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_nothing_is_asked_about_that_a_cluster_needs_to_start(values: Path) -> None:
    for configuration in rendered(values):
        if "WebhookConfiguration" not in configuration["kind"]:
            continue
        for webhook in configuration["webhooks"]:
            if webhook["name"] == _PROBE:  # only what we create as a dry run
                assert webhook["objectSelector"] == {
                    "matchLabels": {"stowplan.dev/rollout-stamp": "none"}
                }
                assert webhook["namespaceSelector"] == {
                    "matchLabels": {"kubernetes.io/metadata.name": "stowplan-system"}
                }
                continue
            for rule in webhook["rules"]:
                assert rule["scope"] == (
                    "Cluster" if "placementpolicies" in rule["resources"] else "Namespaced"
                )
                for group in rule["apiGroups"]:
                    reviewed = product([group], rule["resources"], rule["operations"])
                    assert set(reviewed) <= _REVIEWED
            if configuration["kind"].startswith("Mutating"):
                (resources,) = (rule["resources"] for rule in webhook["rules"])
                assert resources in (["pods"], ["elasticquotas"], ["pods/binding", "bindings"])


def test_while_it_is_away_a_pod_waits_for_three_seconds_and_is_created() -> None:
    of_pods = [
        webhook
        for one in rendered()
        if "WebhookConfiguration" in one["kind"]
        for webhook in one["webhooks"]
        if webhook["rules"][0]["resources"] == ["pods"]
    ]
    assert sum(webhook["timeoutSeconds"] for webhook in of_pods) == 3
    assert {webhook["failurePolicy"] for webhook in of_pods} == {"Ignore"}


@asynccontextmanager
async def _configured(
    cluster: Cluster, reviewer: Reviewer, namespace: str, values: Json | None = None
) -> AsyncIterator[None]:
    """Have the API server ask the reviewer, by the chart's own configurations."""
    manifests = rendered(
        namespace=f"{namespace}-system",
        release=namespace,
        values={
            "webhook.url": reviewer.url,
            "webhook.caBundle": reviewer.ca_bundle,
            "certificates": {"mode": "ExistingSecret", "secretName": "none"},
            **(values or {}),
        },
    )
    made = [one for one in manifests if "WebhookConfiguration" in one["kind"]]
    for configuration in made:
        await cluster.create(configuration)

    async def reached() -> bool:
        await cluster.create(pod("default", "stowplan-probe"), dry_run=True)
        return {"/mutate", "/validate"} <= {path for path, _ in reviewer.reviews}

    try:
        await eventually(reached, "the API server asks")
        yield
    finally:
        for configuration in made:
            name = configuration["metadata"]["name"]
            await cluster.delete(f"{configuration['kind'].lower()}s", name)


def _reviewed(reviewer: Reviewer, path: str, namespace: str) -> set[str]:
    return {
        request["name"] for request in reviewer.requests(path) if request["namespace"] == namespace
    }


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
async def test_pods_are_asked_about_but_for_those_that_are_to_be_left_alone(
    cluster: Cluster, nodes: Nodes, namespace: str, reviewer: Reviewer, policy: str
) -> None:
    await nodes.add("node-a")
    critical = pod(namespace, "critical")
    critical["spec"]["priorityClassName"] = "system-cluster-critical"
    opted_out = pod(namespace, "opted-out")
    opted_out["metadata"]["labels"] = {"stowplan.dev/placement": "disabled"}
    bound = pod(namespace, "bound")
    bound["spec"]["nodeName"] = "node-a"
    claims_a_daemonset = pod(namespace, "claims-a-daemonset")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "1"}
    claims_a_daemonset["metadata"]["ownerReferences"] = [owner]
    mirror = pod(namespace, "mirror")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    mirror["spec"]["nodeName"] = "node-a"
    values = {"placement.failurePolicy": policy}
    async with _configured(cluster, reviewer, namespace, values):
        for one in (pod(namespace, "plain"), critical, opted_out, bound):
            await cluster.create(one)
        await cluster.create(claims_a_daemonset, dry_run=True)
        await cluster.create(mirror, dry_run=True)
        await cluster.create(pod("kube-system", "of-the-system"), dry_run=True)
        await cluster.create(daemon_set(namespace, "agent"))

        async def agents() -> list[Json]:
            return await cluster.list_all("pods", namespace, labelSelector="app=agent")

        (agent,) = await eventually(agents, "the pod of the DaemonSet")

    everybody = {"plain", "critical", "opted-out", "bound", "claims-a-daemonset", "mirror"}
    # Where no creation fails by us, most that are left alone are left alone by the webhook itself.
    may_be_placed = {"plain"} if policy == "Fail" else everybody - {"opted-out"}
    assert _reviewed(reviewer, "/mutate", namespace) == may_be_placed
    # Nobody gets around quota by what they write into a pod, or by who creates it for them.
    assert _reviewed(reviewer, "/validate", namespace) == everybody | {agent["metadata"]["name"]}
    assert not _reviewed(reviewer, "/mutate", "kube-system")
    assert not _reviewed(reviewer, "/validate", "kube-system")


@pytest.mark.usefixtures("crds")
async def test_quotas_are_asked_about_when_their_bounds_change_and_pods_when_they_grow(
    cluster: Cluster, nodes: Nodes, namespace: str, reviewer: Reviewer
) -> None:
    await nodes.add("node-a")
    quota: Json = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": namespace, "name": "team"},
        "spec": {"max": {"cpu": "4"}},
    }
    async with _configured(cluster, reviewer, namespace):
        await cluster.create(quota)
        quotas = "elasticquotas.scheduling.x-k8s.io"
        noted = {"metadata": {"annotations": {"stowplan.dev/reservations": "{}"}}}
        await cluster.patch(quotas, "team", noted, namespace)
        await cluster.patch(quotas, "team", {"spec": {"max": {"cpu": "8"}}}, namespace)
        await cluster.create(pod(namespace, "grows", requests={"cpu": "1"}))

        async def runs() -> bool:
            status = (await cluster.get("pods", "grows", namespace))["status"]
            return bool(status["phase"] == "Running")

        await eventually(runs, "the pod runs")
        more = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}
        await cluster.patch(
            "pods", "grows", {"spec": more}, namespace, how="strategic", subresource="resize"
        )
    reviewed = [one for one in reviewer.requests("/validate") if one["namespace"] == namespace]
    changed = [one for one in reviewed if one["operation"] == "UPDATE"]
    assert all(one["object"]["spec"] != one["oldObject"]["spec"] for one in changed)
    # An update is reviewed again if the API server's cache did not hold the newest version yet.
    kinds = [
        (one["resource"]["resource"], one.get("subResource", ""), one["operation"])
        for one in reviewed
    ]
    assert [kind for kind, _ in itertools.groupby(kinds)] == [
        ("elasticquotas", "", "CREATE"),
        ("elasticquotas", "", "UPDATE"),
        ("pods", "", "CREATE"),
        ("pods", "resize", "UPDATE"),
    ]


async def test_a_rollout_begins_with_the_namespaces_that_are_labelled(
    cluster: Cluster, namespace: str, reviewer: Reviewer
) -> None:
    values = {"placement.rollout": "Labelled", "quota.rollout": "All"}
    async with (
        labelled(cluster, "default", {"stowplan.dev/placement": "enabled"}),
        _configured(cluster, reviewer, namespace, values),
    ):
        await cluster.create(pod(namespace, "before"), dry_run=True)
        labels = {"stowplan.dev/placement": "enabled", "stowplan.dev/quota": "disabled"}
        await cluster.patch("namespaces", namespace, {"metadata": {"labels": labels}})

        async def is_reviewed() -> bool:
            await cluster.create(pod(namespace, "after"), dry_run=True)
            return "after" in _reviewed(reviewer, "/mutate", namespace)

        await eventually(is_reviewed, "the label counts")
        reviewer.reviews.clear()
        await cluster.create(pod(namespace, "later"), dry_run=True)
    assert _reviewed(reviewer, "/mutate", namespace) == {"later"}
    assert not _reviewed(reviewer, "/validate", namespace)
