"""`quota.rollout: Automatic` on two API servers: who is asked about what, and from when on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.chart import Release, released
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.definitions import defined, definitions_of_others
from tests.e2e.front import Front, fronting
from tests.e2e.loop_thread import entered
from tests.e2e.namespaces import new_names, passing_namespaces
from tests.e2e.part import Part
from tests.e2e.quotas import RESERVATION_SECONDS, elastic_quota, nobodys_pod
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL
from webhook.cluster.client.connection import connected as connected_as
from webhook.controllers.quota_rollout import ApiServers, QuotaCoverage, RolloutConfiguration
from webhook.controllers.quota_rollout.configuration import MOST_NAMES

_NAMESPACE = "rollouts"
_NARROW_WITHIN = 4 * RESERVATION_SECONDS


@dataclass
class Stage:
    """An installation with two API servers.

    Attributes:
        control_plane: with the first of them.
        second: the other one.
        url: of the other one.
        release: the chart's.
        replicas: that answer both.
        control: processes of which one leads.
    """

    control_plane: ControlPlane
    second: Part
    url: str
    release: Release
    replicas: Sequence[Replica]
    control: Sequence[Replica]

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[Cluster, Cluster]]:
        """Yield a client of each API server."""
        async with (
            connected(self.control_plane) as first,
            connected(self.control_plane, url=self.url) as second,
        ):
            yield first, second

    @asynccontextmanager
    async def namespaces(
        self, count: int
    ) -> AsyncIterator[tuple[tuple[Cluster, Cluster], tuple[str, ...]]]:
        """Yield a client of each API server, and the names of new namespaces."""
        async with (
            self.clients() as clients,
            passing_namespaces(clients[0], *new_names(count)) as names,
        ):
            yield clients, names

    async def judged(self) -> int:
        """Return how many pods have been judged by quotas."""
        alive = [replica for replica in self.replicas if replica.running]
        counts = await asyncio.gather(*(replica.reviews("validate") for replica in alive))
        return sum(sum(count.values()) for count in counts)

    async def listed(self, cluster: Cluster) -> set[str] | None:
        """Return the namespaces that are asked about, None for all."""
        name = self.release.name
        configuration = await cluster.get("validatingwebhookconfigurations", name)
        (webhook,) = (
            one for one in configuration["webhooks"] if one["name"] == "quota.stowplan.dev"
        )
        for requirement in webhook["namespaceSelector"]["matchExpressions"]:
            if requirement["operator"] == "In":
                return set(requirement["values"]) - {"stowplan.dev"}
        return None


@asynccontextmanager
async def _staged(control_plane: ControlPlane, folder: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connected(control_plane))
        await stack.enter_async_context(defined(cluster, *definitions_of_others()))
        second, url = await stack.enter_async_context(control_plane.another_api_server())
        await stack.enter_async_context(_known(cluster, [control_plane.url, url]))
        await stack.enter_async_context(passing_namespaces(cluster, _NAMESPACE))
        release = await stack.enter_async_context(released(cluster, control_plane, _NAMESPACE))
        front = await stack.enter_async_context(fronting([]))
        values = values_beside(
            f"https://{LOCAL}:{front.port}",
            "nobody",
            **{
                "quota.rollout": "Automatic",
                "settings": {"quotaReservationSeconds": RESERVATION_SECONDS},
            },
        )
        await release.change(**values)
        replicas = chart_replicas(release, control_plane, folder, count=3, values=values)
        control = chart_control(release, control_plane, folder / "control", values=values, count=2)
        await stack.enter_async_context(running([*replicas, *control]))
        front.targets = [replica.port for replica in replicas]
        stage = Stage(control_plane, second, url, release, replicas, control)
        await _narrow(stage, cluster)
        yield stage


async def _narrow(stage: Stage, cluster: Cluster) -> None:
    """Wait until namespaces with a quota alone are asked about."""

    async def is_narrow() -> bool:
        quotas = await cluster.list_all("elasticquotas.scheduling.x-k8s.io")
        return await stage.listed(cluster) == {one["metadata"]["namespace"] for one in quotas}

    await eventually(is_narrow, "only namespaces with a quota are listed", within=_NARROW_WITHIN)


@asynccontextmanager
async def _known(cluster: Cluster, urls: Sequence[str]) -> AsyncIterator[None]:
    """Have the Service `kubernetes` lead to API servers: by an address that is no loopback one."""
    async with AsyncExitStack() as stack:
        address = _own_address()
        fronts: list[Front] = [
            await stack.enter_async_context(
                fronting([int(url.rpartition(":")[2])], address=address)
            )
            for url in urls
        ]
        ports = [
            {"name": f"https-{number}", "port": front.port} for number, front in enumerate(fronts)
        ]
        await cluster.create(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kubernetes",
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "kubernetes"},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [address]}],
                "ports": ports,
            }
        )
        stack.push_async_callback(cluster.delete, "endpointslices", "kubernetes", "default")
        yield


def _own_address() -> str:
    """Return the address of this machine on its network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.254", 9))
        address: str = probe.getsockname()[0]
        return address


@pytest.fixture(scope="module")
def stage(
    one_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """The installation, with namespaces without a quota left out."""
    one_control_plane.start()
    with entered(_staged(one_control_plane, tmp_path_factory.mktemp("rollout"))) as found:
        yield found


async def test_pods_of_a_namespace_without_a_quota_are_not_asked_about(stage: Stage) -> None:
    async with (
        stage.clients() as clients,
        passing_namespaces(clients[0], *new_names(1)) as (namespace,),
    ):
        before = await stage.judged()
        for number, client in enumerate(clients):
            await client.create(nobodys_pod(namespace, f"pod-{number}"))
        assert await stage.judged() == before


async def test_every_pod_beside_a_new_quota_is_judged_whichever_api_server_creates_it(
    stage: Stage,
) -> None:
    async with (
        stage.clients() as clients,
        passing_namespaces(clients[0], *new_names(20)) as namespaces,
    ):
        before = await stage.judged()

        async def limit_and_create(number: int, namespace: str) -> None:
            await clients[number % 2].create(elastic_quota(namespace, {"cpu": "1000"}))
            await asyncio.gather(
                *(
                    client.create(nobodys_pod(namespace, f"pod-{index}"))
                    for index, client in enumerate(clients)
                )
            )

        await asyncio.gather(
            *(limit_and_create(number, name) for number, name in enumerate(namespaces))
        )
        # The quota by its own webhook, and two pods of each namespace.
        assert await stage.judged() - before == 3 * len(namespaces)


async def test_a_quota_waits_for_an_api_server_that_is_behind(stage: Stage) -> None:
    async with (
        stage.clients() as clients,
        passing_namespaces(clients[0], *new_names(1)) as (namespace,),
    ):
        quota = elastic_quota(namespace, {"cpu": "1000"})
        stage.second.pause()
        try:
            with pytest.raises(CallError) as refused:
                await clients[0].create(quota)
        finally:
            stage.second.resume()
        assert refused.value.message == (
            'admission webhook "rollout.stowplan.dev" denied the request: the quota would not be in'
            " force: not every API server has taken up the webhook configuration; try again"
        )

        async def created() -> Json:
            return await clients[0].create(quota)

        await eventually(created, "the quota is stored once the other API server is back")
        before = await stage.judged()
        await clients[1].create(nobodys_pod(namespace, "pod"))
        assert await stage.judged() == before + 1


async def test_a_new_quota_needs_no_leader_and_a_removed_ones_namespace_leaves_with_the_next(
    stage: Stage,
) -> None:
    async with (
        stage.clients() as clients,
        passing_namespaces(clients[0], *new_names(2)) as (namespace, other),
    ):
        lease = await clients[0].get("leases", stage.release.name, stage.release.namespace)
        (leader,) = (
            replica
            for replica in stage.control
            if f"{lease['spec']['holderIdentity']} leads" in replica.text()
        )
        await clients[0].create(elastic_quota(other, {"cpu": "1000"}))
        await asyncio.to_thread(leader.kill)
        await clients[0].create(elastic_quota(namespace, {"cpu": "1000"}))
        before = await stage.judged()
        for number, client in enumerate(clients):
            await client.create(nobodys_pod(namespace, f"pod-{number}"))
        assert await stage.judged() == before + 2
        await clients[0].delete("elasticquotas.scheduling.x-k8s.io", "team", other)
        assert other in (await stage.listed(clients[0]) or ())
        await _narrow(stage, clients[0])
        assert namespace in (await stage.listed(clients[0]) or ())


async def test_the_longest_list_of_namespaces_is_stored_and_taken_up(stage: Stage) -> None:
    names = frozenset(f"{number:063d}" for number in range(MOST_NAMES - 100))
    account = stage.control_plane.kubeconfig(
        f"system:serviceaccount:{_NAMESPACE}:{stage.release.name}",
        ("system:serviceaccounts", f"system:serviceaccounts:{_NAMESPACE}", "system:authenticated"),
    )
    async with connected_as(account, None) as connection:
        configuration = RolloutConfiguration(connection, stage.release.name)
        coverage = QuotaCoverage(configuration, ApiServers(connection, _NAMESPACE))
        await coverage.cover(names)
        await coverage.close()
    async with stage.clients() as clients:
        assert names <= (await stage.listed(clients[0]) or frozenset())
