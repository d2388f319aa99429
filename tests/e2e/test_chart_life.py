"""The life of an installation: installed, off, on, certificates renewed, upgraded, removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.advice import first_choice, is_untouched
from tests.e2e.chart import CONFIGURATIONS, Release, of_kind, released, rendered
from tests.e2e.chart_replicas import chart_replicas
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import Front, fronting
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import create_namespace, pod

ROOM = 20
CLIENTS = 8
_STOWPLAN = Path(sys.executable).with_name("stowplan")


@pytest.fixture
async def release(
    cluster: Cluster, control_plane: ControlPlane, namespace: str
) -> AsyncIterator[Release]:
    """The chart as it comes; nothing of it is there after the test."""
    async with released(cluster, control_plane, namespace) as found:
        yield found


@pytest.fixture
async def shop(cluster: Cluster, namespace: str) -> AsyncIterator[str]:
    """A namespace beside that of the installation; it goes with its pods."""
    async with _namespace(cluster, f"{namespace}-shop") as name:
        yield name


@pytest.fixture
async def limited(cluster: Cluster, namespace: str) -> AsyncIterator[str]:
    """Another one, for an ElasticQuota."""
    async with _namespace(cluster, f"{namespace}-limited") as name:
        yield name


@asynccontextmanager
async def _namespace(cluster: Cluster, name: str) -> AsyncIterator[str]:
    await create_namespace(cluster, name)
    yield name

    async def empty() -> bool:
        await cluster.delete_all("pods", name, grace_seconds=0)
        return not await cluster.list_all("pods", name)

    await eventually(empty, f"namespace {name} is empty")
    await cluster.delete("namespaces", name)


def _values(url: str, prefers: str, **more: object) -> dict[str, object]:
    """Return values for replicas that run beside the cluster, not in it."""
    score = {"name": "chosen", "expression": f"node.name == '{prefers}' ? 100 : 0"}
    policy = {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "chosen"},
        "spec": {"scores": [score]},
    }
    return {
        "replicas": 0,
        "webhook.url": url,
        "certificates.extraNames": [LOCAL],
        "policies.shipped": [],
        "policies.inline": {"chosen": policy},
        "shutdown.drainSeconds": 10,
        # Strict: whatever is admitted, somebody has counted.
        "quota.failurePolicy": "Fail",
        "quota.timeoutSeconds": 5,
        **more,
    }


@asynccontextmanager
async def _running(replicas: Sequence[Replica]) -> AsyncIterator[None]:
    """Run replicas until the block is left; those that were ended within stay so."""
    try:
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in replicas))
        yield
    except BaseException:
        for replica in replicas:
            print(f"--- {replica.name}\n{replica.tail()}")  # pytest shows it with the failure
        raise
    finally:
        for replica in replicas:
            replica.resume()
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in replicas))


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


async def _choice(cluster: Cluster, namespace: str) -> str:
    """Return the node that a new pod is advised to take; empty while it is refused."""
    try:
        return first_choice(await cluster.create(pod(namespace, "tried"), dry_run=True))
    except CallError:
        return ""


async def _becomes(cluster: Cluster, namespace: str, node: str) -> None:
    async def chosen() -> bool:
        return await _choice(cluster, namespace) == node

    await eventually(chosen, f"pods are advised to take {node}")


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
        values = _values(url, "node-b")
        # 1. Installed.
        await release.change(**values)
        old = chart_replicas(release, control_plane, tmp_path / "old", count=2, values=values)
        async with _running(old):
            front.targets = [replica.port for replica in old]
            await _becomes(cluster, shop, "node-b")
            await _limit(cluster, limited)

            # 2. Switched off by the one command there is for it, and on again.
            await _switched_off(cluster, release, shop, old)
            await release.change(**values)
            await _becomes(cluster, shop, "node-b")

            # 3. Another certificate, while pods are created.
            load = Load(cluster, shop)
            async with load.on():
                await _renewed(cluster, release, old)
            assert set(load.choices) == {"node-b"}

            # 4. Upgraded, while pods are created, some of them up to their quota.
            values = _values(url, "node-a", **{"quota.timeoutSeconds": 6})
            new = chart_replicas(release, control_plane, tmp_path / "new", count=2, values=values)
            load = Load(cluster, shop)
            async with load.on(), _running(new):
                shopping = [
                    asyncio.create_task(_shopping(cluster, limited, client))
                    for client in range(CLIENTS)
                ]
                await release.change(**values)
                front.targets = [replica.port for replica in new]
                for replica in old:  # as a rolling update ends them
                    await asyncio.to_thread(replica.stop)
                assert await asyncio.gather(*shopping) == [[]] * CLIENTS
                await _becomes(cluster, shop, "node-a")
                assert len(await cluster.list_all("pods", limited)) == ROOM

                # 5. Removed: whoever is left hangs, and no pod waits for it.
                await release.uninstall("--no-hooks")
                await _asks_nobody(cluster, release, shop, new, front)
            assert set(load.choices) <= {"node-a", "node-b", ""}


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
    cluster: Cluster, release: Release, shop: str, replicas: Sequence[Replica], front: Front
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
    assert front.targets


# The doctor


async def _examined(
    control_plane: ControlPlane, release: Release, shop: str
) -> tuple[int | None, dict[str, list[Json]]]:
    """Run `stowplan doctor`; return its exit status, and what it found by check."""
    process = await asyncio.create_subprocess_exec(
        *(_STOWPLAN, "doctor", "--json", "--kubeconfig", control_plane.kubeconfig()),
        *("--namespace", release.namespace, "--release", release.name, "--pod-namespace", shop),
        stdout=PIPE,
    )
    said, _ = await process.communicate()
    found: dict[str, list[Json]] = {}
    for finding in json.loads(said):
        found.setdefault(finding["check"], []).append(finding)
    return process.returncode, found


def _bad(found: dict[str, list[Json]]) -> list[str]:
    findings = [one for each in found.values() for one in each]
    return [one["message"] for one in findings if one["level"] in ("warning", "problem")]


@pytest.mark.usefixtures("crds")
async def test_the_doctor_finds_a_whole_installation_well_and_a_broken_one_ill(
    cluster: Cluster,
    control_plane: ControlPlane,
    metrics_api: MetricsServer,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):  # one alone is not preferred to any other
        await nodes.add(name)
        metrics_api.nodes[name] = {"cpu": "1", "memory": "1Gi"}
    async with fronting([]) as front:
        values = _values(f"https://{LOCAL}:{front.port}", "node-a")
        await release.change(**values)
        (replica,) = chart_replicas(
            release, control_plane, tmp_path / "one", count=1, values=values
        )
        async with _running([replica]):
            front.targets = [replica.port]
            await _becomes(cluster, shop, "node-a")
            status, found = await _examined(control_plane, release, shop)
            assert (status, _bad(found)) == (0, [])
            assert found["admission"][0]["message"].startswith("a pod comes back with advice")

            nobody = [{"op": "remove", "path": "/rules/0"}]
            await cluster.patch("clusterroles", release.name, nobody, how="json")
            for kind in CONFIGURATIONS:
                await cluster.delete(kind, release.name)
            status, found = await _examined(control_plane, release, shop)
            assert status == 2
            assert "there is no MutatingWebhookConfiguration" in _bad(found)[0]
            account = f"system:serviceaccount:{release.namespace}:{release.name}"
            assert f"{account} may not list nodes" in _bad(found)


@pytest.mark.usefixtures("crds")
async def test_the_doctor_asks_replicas_by_the_api_server(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    address = _address()
    if not address:
        pytest.skip("the API server reaches no pod on a loopback address, and there is no other")
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    async with fronting([]) as front:
        values = _values(f"https://{LOCAL}:{front.port}", "node-a")
        await release.change(**values)
        replicas = chart_replicas(
            release,
            control_plane,
            tmp_path / "two",
            count=2,
            values=values,
            host="0.0.0.0",  # noqa: S104 - a pod has an address of its own
        )
        async with _running(replicas):
            front.targets = [replica.port for replica in replicas]
            await _becomes(cluster, shop, "node-a")
            for replica in replicas:
                await _pod_of(cluster, release, values, replica, address)
            _, found = await _examined(control_plane, release, shop)
            ready = [one["message"] for one in found["replicas"] if one["level"] == "ok"]
            assert ready == [
                *(f"{replica.name} is ready and knows 2 nodes" for replica in replicas),
                "all replicas go by the same policies, 1 in number",
            ]
            assert [one["level"] for one in found["admission"]] == ["ok", "ok"]


def _address() -> str:
    """Return an address of this machine that is not its own loopback; empty for none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        found: str = probe.getsockname()[0]
        return "" if found.startswith("127.") else found


async def _pod_of(
    cluster: Cluster, release: Release, values: dict[str, object], replica: Replica, address: str
) -> None:
    """Create the pod of a replica, as if the replica ran in it."""
    manifests = rendered(namespace=release.namespace, release=release.name, values=values)
    template = of_kind(manifests, "Deployment")["spec"]["template"]
    made = {
        **pod(release.namespace, replica.name),
        "spec": {**template["spec"], "nodeName": "node-a"},
    }
    made["metadata"]["labels"] = template["metadata"]["labels"]
    made["spec"]["containers"][0]["ports"] = [{"name": "webhook", "containerPort": replica.port}]
    await cluster.create(made)

    async def runs() -> bool:
        found = await cluster.get("pods", replica.name, release.namespace)
        return bool(found["status"]["phase"] == "Running")

    await eventually(runs, f"{replica.name} runs")
    status = {"podIP": address, "podIPs": [{"ip": address}]}
    await cluster.patch(
        "pods", replica.name, {"status": status}, release.namespace, subresource="status"
    )
