"""The chart installed by Helm: changed, switched off and on, tested and removed."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.accounts import may
from tests.e2e.chart import (
    CONFIGURATIONS,
    ELASTIC_QUOTAS,
    POD_GROUPS,
    Release,
    rendered,
)
from tests.e2e.chart_pods import run_container, started_pod
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.definitions import DEFINITIONS, undefine
from tests.e2e.nodes import Nodes, finish
from tests.e2e.serving import LOCAL, serving
from tests.e2e.workloads import daemon_set, is_running, pod


async def _names(cluster: Cluster, resource: str, namespace: str | None = None) -> set[str]:
    return {one["metadata"]["name"] for one in await cluster.list_all(resource, namespace)}


async def test_an_upgrade_leaves_whom_the_api_server_trusts_as_it_is(
    cluster: Cluster, control_plane: ControlPlane, release: Release
) -> None:
    authority = base64.b64encode(control_plane.authority.pem).decode()
    trust = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": authority}]
    for kind in CONFIGURATIONS:
        await cluster.patch(kind, release.name, trust, how="json")
    await release.change(placement={"timeoutSeconds": 3}, quota={"timeoutSeconds": 3})
    for kind in CONFIGURATIONS:
        webhook = (await cluster.get(kind, release.name))["webhooks"][0]
        assert webhook["timeoutSeconds"] == 3
        assert webhook["clientConfig"]["caBundle"] == authority


async def test_it_is_switched_off_and_on(cluster: Cluster, release: Release) -> None:
    for kind in CONFIGURATIONS:  # what the notes say to do at once
        await cluster.delete(kind, release.name)
    await release.change(enabled=False)
    for kind in CONFIGURATIONS:
        assert release.name not in await _names(cluster, kind)
    assert release.name in await _names(cluster, "deployments", release.namespace)

    await release.change(enabled=True)
    for kind in CONFIGURATIONS:
        assert release.name in await _names(cluster, kind)
        await cluster.delete(kind, release.name)
    await release.change(enabled=True)
    for kind in CONFIGURATIONS:  # nothing else has changed, and still they are back
        assert release.name in await _names(cluster, kind)


async def test_a_cold_start_waits_for_nobody_and_the_off_switch_frees_the_rest(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, release: Release
) -> None:
    # Nobody listens there, and what is asked about is refused: what succeeds was not asked about.
    away = {
        "url": "https://127.0.0.1:1",
        "caBundle": base64.b64encode(control_plane.authority.pem).decode(),
    }
    strict = {"failurePolicy": "Fail"}
    files = {"mode": "ExistingSecret", "secretName": "none"}
    await release.change(webhook=away, placement=strict, quota=strict, certificates=files)

    async def is_in_force() -> bool:
        try:
            await cluster.create(pod("default", "blocked"), dry_run=True)
        except CallError as refused:
            return "failed calling webhook" in refused.message
        return False

    await eventually(is_in_force, "pods are refused")
    clients = (control_plane.controllers, control_plane.scheduler)
    for part in (*clients, control_plane.api_server, control_plane.etcd):
        await asyncio.to_thread(part.kill)
    await asyncio.to_thread(control_plane.start)
    await nodes.add("node-a")
    for namespace in ("kube-system", release.namespace):
        await cluster.create(pod(namespace, "needed"))
        await eventually(partial(is_running, cluster, namespace, "needed"), "it runs")
        await cluster.delete("pods", "needed", namespace, grace_seconds=0)
    await cluster.create(daemon_set("kube-system", "network"))

    async def network_runs() -> bool:
        pods = await cluster.list_all("pods", "kube-system", labelSelector="app=network")
        return bool(pods) and all(one["status"]["phase"] == "Running" for one in pods)

    await eventually(network_runs, "the pods of the DaemonSet run")
    await cluster.delete("daemonsets", "network", "kube-system")

    for kind in CONFIGURATIONS:
        await cluster.delete(kind, release.name)

    async def is_free() -> Json:
        return await cluster.create(pod("default", "free"), dry_run=True)

    await eventually(is_free, "pods are created again")


@pytest.mark.parametrize(
    ("kind", "name"), [("elasticQuota", ELASTIC_QUOTAS), ("podGroup", POD_GROUPS)]
)
async def test_a_kind_is_defined_where_it_is_not_and_stays(
    cluster: Cluster, release: Release, kind: str, name: str
) -> None:
    wanted = {kind: {"install": "IfAbsent"}}
    await undefine(cluster, {name})
    try:
        await release.change(crds=wanted)
        await release.change(crds=wanted)  # ours: it is kept up to date
        assert name in await _names(cluster, DEFINITIONS)
        await release.change()
        await release.uninstall("--no-hooks")
        assert name in await _names(cluster, DEFINITIONS)
    finally:
        await undefine(cluster, {name})


@pytest.mark.usefixtures("crds")
async def test_a_definition_of_somebody_else_is_left_alone(
    cluster: Cluster, release: Release
) -> None:
    before = (await cluster.get(DEFINITIONS, ELASTIC_QUOTAS))["metadata"]["generation"]
    await release.change(crds={"elasticQuota": {"install": "IfAbsent"}})
    metadata = (await cluster.get(DEFINITIONS, ELASTIC_QUOTAS))["metadata"]
    assert metadata["generation"] == before
    assert "meta.helm.sh/release-name" not in metadata.get("annotations", {})


async def test_uninstalling_removes_the_webhooks_first_and_leaves_nothing_that_is_asked(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, release: Release, tmp_path: Path
) -> None:
    await nodes.add("node-a")
    uninstalling = asyncio.create_task(release.uninstall())
    hook = f"{release.name}-uninstall"

    hook_pod = await started_pod(cluster, release.namespace, hook)
    name = hook_pod["metadata"]["name"]
    # Helm waits for the hook: all else is still there.
    assert release.name in await _names(cluster, "deployments", release.namespace)
    script = hook_pod["spec"]["containers"][0]
    code, said = await run_container(cluster, control_plane, release, hook, script, tmp_path)
    assert code == 0, said
    for kind in CONFIGURATIONS:
        assert release.name not in await _names(cluster, kind)
    code, said = await run_container(cluster, control_plane, release, hook, script, tmp_path)
    assert code == 0, said  # done already is done
    assert release.name in await _names(cluster, "deployments", release.namespace)

    await finish(cluster, release.namespace, name)
    await uninstalling
    for kind in (*CONFIGURATIONS, "clusterroles", "clusterrolebindings"):
        assert not {one for one in await _names(cluster, kind) if one.startswith(release.name)}
    for kind in ("deployments", "services", "serviceaccounts", "roles", "configmaps"):
        left = await _names(cluster, kind, release.namespace)
        assert not {one for one in left if one.startswith(release.name)}


@pytest.mark.parametrize("advises", [True, False])
async def test_the_test_of_an_installation_passes_with_advice_alone(
    cluster: Cluster,
    control_plane: ControlPlane,
    release: Release,
    tmp_path: Path,
    *,
    advises: bool,
) -> None:
    webhook = _Webhook(advises=advises)
    app = web.Application()
    app.router.add_post("/{path:.*}", webhook.answer)
    bundle = base64.b64encode(control_plane.authority.pem).decode()
    name = f"{release.name}-test"
    advising = {"placement.mode": "Enforce", "binding.enabled": False}
    manifests = rendered(namespace=release.namespace, release=release.name, values=advising)
    hooks = {one["kind"]: one for one in manifests if one["metadata"]["name"] == name}
    async with serving(app, control_plane.authority) as port:
        await release.change(
            certificates={"mode": "ExistingSecret", "secretName": "none"},
            webhook={"url": f"https://{LOCAL}:{port}", "caBundle": bundle},
        )

        async def asked() -> bool:
            await cluster.create(pod("default", "probe"), dry_run=True)
            return webhook.is_asked

        await eventually(asked, "the API server asks")
        for kind in ("ServiceAccount", "Role", "RoleBinding"):
            await cluster.create(hooks[kind])
        account = f"system:serviceaccount:{release.namespace}:{name}"
        creates = {"verb": "create", "resource": "pods", "namespace": "default"}
        await eventually(lambda: may(cluster, account, creates), "the role counts")
        script = hooks["Pod"]["spec"]["containers"][0]
        code, said = await run_container(cluster, control_plane, release, name, script, tmp_path)
        for kind in ("rolebindings", "roles"):
            await cluster.delete(kind, name, "default")
        for kind in CONFIGURATIONS:
            await cluster.delete(kind, release.name)
    assert (code, "comes back without advice" in said) == (0 if advises else 1, not advises), said


@dataclass(slots=True)
class _Webhook:
    """Allows everything, with or without advice.

    Attributes:
        advises: whether with advice.
        is_asked: whether it was asked for advice.
    """

    advises: bool
    is_asked: bool = False

    async def answer(self, request: web.Request) -> web.Response:
        self.is_asked |= request.path == "/mutate"
        response = {"uid": (await request.json())["request"]["uid"], "allowed": True}
        if self.advises and request.path == "/mutate":
            advice = {"stowplan.dev/reason": "2 of 4 nodes fit"}
            patch = [{"op": "add", "path": "/metadata/annotations", "value": advice}]
            encoded = base64.b64encode(json.dumps(patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**review, "response": response})
