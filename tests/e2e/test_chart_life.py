"""The life of an installation: installed, off, on, certificates renewed, upgraded, removed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.advice import first_choice, is_untouched
from tests.e2e.chart import CONFIGURATIONS, Release
from tests.e2e.chart_replicas import (
    becomes,
    chart_control,
    chart_replicas,
    one_beside,
    running,
    values_beside,
)
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.reviewer import rule
from tests.e2e.serving import LOCAL, serving
from tests.e2e.workloads import pod

ROOM = 20
CLIENTS = 8


@pytest.fixture
async def limited(cluster: Cluster, namespace: str) -> AsyncIterator[str]:
    """Another one, for an ElasticQuota."""
    async with passing_namespaces(cluster, f"{namespace}-limited") as (name,):
        yield name


class Load:
    """Pods that are created one after the other, and what came of them."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.choices: list[str] = []

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        """Create pods until the block is left; a pod that is refused fails the test."""
        task = asyncio.create_task(self._run())
        try:
            yield
            if task.done():
                await task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            self.choices.append(first_choice(await self._one()))
            await asyncio.sleep(0.05)  # not to race, only to leave the others some processor

    async def _one(self) -> Json:
        made = pod(self._namespace, "")
        del made["metadata"]["name"]
        made["metadata"]["generateName"] = "load-"
        return await self._cluster.create(made, dry_run=True)


async def _reviews(replicas: Sequence[Replica]) -> int:
    return sum([sum((await one.reviews()).values()) for one in replicas])


async def _limit(cluster: Cluster, namespace: str) -> None:
    await cluster.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"max": {"pods": str(ROOM)}},
        }
    )


async def _shopping(cluster: Cluster, namespace: str, client: int) -> list[str]:
    """Create pods until there is no room; return the refusals that were for another reason."""
    others: list[str] = []
    for number in range(ROOM + 1):
        try:
            await cluster.create(pod(namespace, f"pod-{client}-{number}"))
        except CallError as refused:
            if "exceeded quota" not in refused.message:
                others.append(refused.message)
        await asyncio.sleep(0.05)
    return others


@pytest.mark.usefixtures("crds")
async def test_pods_are_created_well_through_the_life_of_an_installation(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    limited: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name, {"pods": "500"})
    async with fronting([]) as front:
        url = f"https://{LOCAL}:{front.port}"
        values = values_beside(url, "node-b")
        # 1. Installed.
        await release.change(**values)
        old = chart_replicas(release, control_plane, tmp_path / "old", count=2, values=values)
        first = chart_control(release, control_plane, tmp_path / "first", values=values, count=2)
        async with running([*old, *first]):
            front.targets = [replica.port for replica in old]
            await becomes(cluster, shop, "node-b")
            await _limit(cluster, limited)

            # 2. Switched off by the one command there is for it, and on again.
            await _switched_off(cluster, release, shop, old)
            await release.change(**values)
            await becomes(cluster, shop, "node-b")

            # 3. Another certificate, while pods are created.
            load = Load(cluster, shop)
            async with load.on():
                await _renewed(cluster, release, old)
            assert set(load.choices) == {"node-b"}

            # 4. Upgraded, while pods are created, some of them up to their quota.
            values = values_beside(url, "node-a", **{"quota.timeoutSeconds": 6})
            new = chart_replicas(release, control_plane, tmp_path / "new", count=2, values=values)
            later = chart_control(release, control_plane, tmp_path / "later", values=values)
            async with running([*new, *later]):
                load = Load(cluster, shop)
                async with load.on():
                    shopping = [_shopping(cluster, limited, client) for client in range(CLIENTS)]
                    shopped = asyncio.gather(*shopping)
                    await release.change(**values)
                    front.targets = [replica.port for replica in new]
                    for replica in [*old, *first]:  # as a rolling update ends them
                        await asyncio.to_thread(replica.stop)
                    assert await shopped == [[]] * CLIENTS
                    await becomes(cluster, shop, "node-a")
                assert set(load.choices) == {"node-a", "node-b"}
                assert len(await cluster.list_all("pods", limited)) == ROOM

                # 5. Removed: whoever is left hangs, and no pod waits for it.
                await release.uninstall("--no-hooks")
                await _asks_nobody(cluster, release, shop, new)


async def _switched_off(
    cluster: Cluster, release: Release, shop: str, replicas: Sequence[Replica]
) -> None:
    for kind in CONFIGURATIONS:
        await cluster.delete(kind, release.name)

    async def is_off() -> bool:
        return is_untouched(await cluster.create(pod(shop, "off"), dry_run=True))

    await eventually(is_off, "pods pass untouched")
    before = await _reviews(replicas)
    await cluster.create(pod(shop, "off"), dry_run=True)
    assert await _reviews(replicas) == before


async def _renewed(cluster: Cluster, release: Release, replicas: Sequence[Replica]) -> None:
    """Lose the certificate, and wait until all replicas serve another one."""
    before = {await replica.certificate() for replica in replicas}
    lost = {"data": {"tls.crt": ""}}
    await cluster.patch("secrets", f"{release.name}-tls", lost, release.namespace)

    async def are_others() -> bool:
        served = {await replica.certificate() for replica in replicas}
        return len(served) == 1 and served.isdisjoint(before)

    await eventually(are_others, "all replicas serve a new certificate")


async def _asks_nobody(
    cluster: Cluster, release: Release, shop: str, replicas: Sequence[Replica]
) -> None:
    for kind in CONFIGURATIONS:
        assert release.name not in {one["metadata"]["name"] for one in await cluster.list_all(kind)}

    async def is_untouched_now() -> bool:
        return is_untouched(await cluster.create(pod(shop, "free"), dry_run=True))

    await eventually(is_untouched_now, "pods pass untouched")
    for replica in replicas:
        replica.pause()
    # Were they asked, each pod would wait for both time-outs: 20 x (1 + 6) s.
    async with asyncio.timeout(60):
        for number in range(20):
            await cluster.create(pod(shop, f"free-{number}"))
    for replica in replicas:
        replica.resume()


async def _inject(request: web.Request) -> web.Response:
    """Add a container to a pod that has one, as a service mesh does."""
    asked = (await request.json())["request"]
    response = {"uid": asked["uid"], "allowed": True}
    if len(asked["object"]["spec"]["containers"]) == 1:
        sidecar = {"name": "sidecar", "image": "sidecar"}
        patch = [{"op": "add", "path": "/spec/containers/-", "value": sidecar}]
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return web.json_response({**review, "response": response})


@asynccontextmanager
async def _injector(
    cluster: Cluster, control_plane: ControlPlane, name: str, namespace: str
) -> AsyncIterator[None]:
    """Change new pods of a namespace after all webhooks whose names come before."""
    app = web.Application()
    app.router.add_post("/", _inject)
    kind, selector = "MutatingWebhookConfiguration", {"kubernetes.io/metadata.name": namespace}
    async with serving(app, control_plane.authority) as port:
        webhook = {
            "name": "injector.example.com",
            "clientConfig": {
                "url": f"https://{LOCAL}:{port}/",
                "caBundle": base64.b64encode(control_plane.authority.pem).decode(),
            },
            "rules": [rule("", ["pods"], "CREATE")],
            "namespaceSelector": {"matchLabels": selector},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        made = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}
        await cluster.create({**made, "metadata": {"name": name}, "webhooks": [webhook]})
        try:

            async def injects() -> bool:
                tried = await cluster.create(pod(namespace, "tried"), dry_run=True)
                return len(tried["spec"]["containers"]) == 2

            await eventually(injects, "containers are injected")
            yield
        finally:
            await cluster.delete(f"{kind.lower()}s", name)


@pytest.mark.usefixtures("crds")
async def test_a_pod_that_another_webhook_changes_is_reviewed_again_and_keeps_its_advice(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    async with one_beside(
        release, control_plane, cluster, tmp_path, namespace=shop, prefers="node-a"
    ) as replica:
        async with _injector(cluster, control_plane, f"z-{release.name}", shop):
            before = await _reviews([replica])
            created = await cluster.create(pod(shop, "meshed"))
            assert await _reviews([replica]) == before + 2
        assert len(created["spec"]["containers"]) == 2
        assert first_choice(created) == "node-a"
        affinity = created["spec"]["affinity"]["nodeAffinity"]
        assert len(affinity["preferredDuringSchedulingIgnoredDuringExecution"]) == 1
