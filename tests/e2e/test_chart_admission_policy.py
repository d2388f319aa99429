"""What the account of the webhook may write: its own parts of objects, and nothing beside them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest

from engine.model.elastic_quota import (
    FIGURE_ANNOTATIONS,
    RESERVATIONS_ANNOTATION,
    WEIGHT_ANNOTATION,
)
from tests.e2e.chart import CONFIGURATIONS, Release
from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane

_QUOTAS = ("elasticquotas.scheduling.x-k8s.io", "elasticquotas.scheduling.sigs.k8s.io")
_RESERVED = {"metadata": {"annotations": {RESERVATIONS_ANNOTATION: "{}"}}}


@pytest.fixture
async def replica(control_plane: ControlPlane, release: Release) -> AsyncIterator[Cluster]:
    """The cluster as a replica, maybe a compromised one, may change it."""
    user = f"system:serviceaccount:{release.namespace}:{release.name}-control"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{release.namespace}"]
    groups.append("system:authenticated")
    async with connected(control_plane, control_plane.authority.issue(user, groups=groups)) as seen:
        yield seen


async def _refusal(
    replica: Cluster, kind: str, name: str, patch: object, namespace: str | None = None, **how: str
) -> str:
    """Return why a change is refused; empty if it is not."""
    try:
        await replica.patch(kind, name, patch, namespace, **how)  # type: ignore[arg-type]
    except CallError as refused:
        return refused.message
    return ""


@pytest.mark.parametrize("kind", CONFIGURATIONS)
async def test_of_its_webhook_configurations_it_changes_the_bundle_alone(
    cluster: Cluster, control_plane: ControlPlane, release: Release, replica: Cluster, kind: str
) -> None:
    bundle = base64.b64encode(control_plane.authority.pem).decode()
    webhook, tried = "/webhooks/0", {"how": "json", "dryRun": "All"}
    never = {"name": "never", "expression": "false"}
    other = {"name": "something-is-said-of-new-pods", "expression": "request.userInfo.uid != ''"}
    forbidden: list[Json] = [
        {"op": "replace", "path": f"{webhook}/failurePolicy", "value": "Fail"},
        {"op": "replace", "path": f"{webhook}/timeoutSeconds", "value": 30},
        {"op": "replace", "path": f"{webhook}/namespaceSelector", "value": {}},
        {"op": "replace", "path": f"{webhook}/rules/0/resources", "value": ["*"]},
        {"op": "add", "path": f"{webhook}/objectSelector", "value": {"matchLabels": {"a": "b"}}},
        {"op": "add", "path": f"{webhook}/matchConditions", "value": [never]},
        {"op": "add", "path": f"{webhook}/matchConditions", "value": [other]},
        {"op": "replace", "path": f"{webhook}/clientConfig/service/name", "value": "evil"},
        {"op": "remove", "path": webhook},
        {"op": "add", "path": "/metadata/labels/evil", "value": "yes"},
        {"op": "add", "path": "/metadata/annotations/evil", "value": "yes"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["evil.example/stays"]},
    ]

    async def is_in_force() -> bool:
        refusal = await _refusal(replica, kind, release.name, forbidden[:1], **tried)
        return "changes no webhook but for its caBundle" in refusal

    await eventually(is_in_force, "the policy is in force")
    for change in forbidden:
        refusal = await _refusal(replica, kind, release.name, [change], **tried)
        assert "stowplan changes no" in refusal, change
    webhooks = (await cluster.get(kind, release.name))["webhooks"]
    trust = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index in range(len(webhooks))
    ]
    assert await _refusal(replica, kind, release.name, trust, how="json") == ""
    changed = (await cluster.get(kind, release.name))["webhooks"]
    assert {one["clientConfig"]["caBundle"] for one in changed} == {bundle}
    # Others are not concerned.
    await cluster.patch(kind, release.name, forbidden[1:2], how="json")


async def test_of_selectors_it_changes_its_own_list_and_the_stamp_where_it_keeps_them(
    cluster: Cluster, release: Release, replica: Cluster
) -> None:
    await release.change(quota={"mode": "Enforce", "rollout": "Automatic"})
    kind, tried = CONFIGURATIONS[1], {"how": "json", "dryRun": "All"}
    webhooks = (await cluster.get(kind, release.name))["webhooks"]
    places = {one["name"]: f"/webhooks/{index}" for index, one in enumerate(webhooks)}
    selector = f"{places['quota.stowplan.dev']}/namespaceSelector"
    last = f"{selector}/matchExpressions/-"
    stamp = f"{places['rollout-probe.stowplan.dev']}/objectSelector"
    listed = {"key": "kubernetes.io/metadata.name", "operator": "In"}
    announcement = "/metadata/annotations/stowplan.dev~1quota-rollout"
    forbidden: list[Json] = [
        {"op": "replace", "path": f"{selector}/matchExpressions", "value": []},
        {"op": "add", "path": last, "value": {**listed, "values": ["shop"]}},
        {"op": "add", "path": last, "value": {"key": "a", "operator": "Exists"}},
        {"op": "add", "path": f"{selector}/matchLabels", "value": {"a": "b"}},
        {"op": "remove", "path": f"{places['quota.stowplan.dev']}/matchConditions"},
        {
            "op": "replace",
            "path": f"{places['rollout.stowplan.dev']}/namespaceSelector",
            "value": {},
        },
        {"op": "replace", "path": stamp, "value": {}},
        {"op": "replace", "path": stamp, "value": {"matchLabels": {"a": "b"}}},
        {"op": "add", "path": "/metadata/annotations/evil", "value": "yes"},
        {"op": "add", "path": "/metadata/labels/evil", "value": "yes"},
    ]
    allowed = [
        {"op": "add", "path": last, "value": {**listed, "values": ["stowplan.dev", "shop"]}},
        {
            "op": "replace",
            "path": stamp,
            "value": {"matchLabels": {"stowplan.dev/rollout-stamp": "2"}},
        },
        {"op": "add", "path": announcement, "value": "{}"},
    ]

    async def is_in_force() -> bool:
        refusals = [
            await _refusal(replica, kind, release.name, patch, **tried)
            for patch in (forbidden[:1], allowed)
        ]
        return "stowplan changes no" in refusals[0] and not refusals[1]

    await eventually(is_in_force, "the policy is in force")
    for change in forbidden:
        refusal = await _refusal(replica, kind, release.name, [change], **tried)
        assert "stowplan changes no" in refusal, change
    others = await _refusal(replica, kind, "of-others", allowed, **tried)
    assert "cannot patch" in others


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("kind", _QUOTAS)
async def test_of_a_quota_it_changes_its_reservations_figures_and_the_status_alone(
    cluster: Cluster, replica: Cluster, shop: str, kind: str
) -> None:
    await cluster.create(
        {
            "apiVersion": f"{kind.partition('.')[2]}/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "namespace": shop, "annotations": {"owner": "ann"}},
            "spec": {"max": {"cpu": "4"}},
        }
    )
    forbidden: list[Json] = [
        {"spec": {"max": {"cpu": "400"}}},
        {"spec": None},
        {"metadata": {"labels": {"evil": "yes"}}},
        {"metadata": {"annotations": {"owner": "bob"}}},
        {"metadata": {"annotations": {"owner": None}}},
        {"metadata": {"annotations": {"evil": "yes"}}},
        {"metadata": {"annotations": {WEIGHT_ANNOTATION: "1000"}}},
        {"metadata": {"finalizers": ["evil.example/stays"]}},
    ]

    async def is_in_force() -> bool:
        refusal = await _refusal(replica, kind, "team", forbidden[0], shop, dryRun="All")
        return "stowplan changes no" in refusal

    await eventually(is_in_force, "the policy is in force")
    for change in forbidden:
        assert "stowplan changes no" in await _refusal(replica, kind, "team", change, shop), change
    assert await _refusal(replica, kind, "team", _RESERVED, shop) == ""
    figures = dict.fromkeys(FIGURE_ANNOTATIONS, "1")
    assert await _refusal(replica, kind, "team", {"metadata": {"annotations": figures}}, shop) == ""
    used = {"status": {"used": {"cpu": "1"}}}
    assert await _refusal(replica, kind, "team", used, shop, subresource="status") == ""
    quota = await cluster.get(kind, "team", shop)
    assert quota["spec"] == {"max": {"cpu": "4"}}
    assert quota["status"]["used"] == {"cpu": "1"}
    assert quota["metadata"]["annotations"] == {
        "owner": "ann",
        RESERVATIONS_ANNOTATION: "{}",
        **figures,
    }


async def test_it_creates_no_secret_but_that_with_its_certificate(
    release: Release, replica: Cluster
) -> None:
    def secret(name: str, **more: object) -> Json:
        metadata = {"name": name, "namespace": release.namespace}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **more}

    token = secret("token", type="kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = {
        "kubernetes.io/service-account.name": f"{release.name}-uninstall"
    }

    async def refused(wanted: Json) -> bool:
        try:
            await replica.create(wanted, dry_run=True)
        except CallError as error:
            return "creates no Secret but the one" in error.message
        return False

    await eventually(lambda: refused(secret("other")), "the policy is in force")
    assert await refused(token)
    assert await refused(secret(f"{release.name}-tls", type="example.com/other"))
    assert not await refused(secret(f"{release.name}-tls", type="Opaque"))
