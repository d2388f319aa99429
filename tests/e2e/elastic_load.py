"""Tenants whose pods come and go at random under quotas that queue, and a record of all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp

from engine.model.elastic_quota import RECLAIM_ANNOTATION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.installed import NAME, NAMESPACE, Installed
from tests.e2e.quota_oracle import Event
from tests.e2e.quotas import GROUP, new_namespaces, quotas_known
from tests.e2e.replica import Replica
from tests.e2e.workloads import pod

_MOST_WAITING = 12  # of a tenant
_ARRIVAL_SECONDS = 0.25  # of all tenants together, while they are busy
_LIFE_SECONDS, _LONG_LIFE_SECONDS = 8.0, 900.0
_BUSY_SECONDS = 15.0
_RECORDED = (f"elasticquotas.{GROUP}", "nodes", "pods")


@dataclass(slots=True)
class Tenant:
    """A namespace with a quota of cores, and what is to become of its pods.

    Attributes:
        namespace: its namespace.
        least: cores of `min`.
        most: cores of `max`.
        created: pods that were accepted.
        refused: pods that were not: while nobody can release pods, they do not wait.
    """

    namespace: str
    least: int
    most: int
    created: int = 0
    refused: int = 0

    def quota(self) -> Json:
        """Return its ElasticQuota."""
        return {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {
                "name": "team",
                "namespace": self.namespace,
                "annotations": {RECLAIM_ANNOTATION: "On"},
            },
            "spec": {"min": {"cpu": str(self.least)}, "max": {"cpu": str(self.most)}},
        }


@dataclass(slots=True)
class ElasticLoad:
    """What happens in a run.

    Attributes:
        cluster: as its admin.
        tenants: their pods come and go.
        chance: decides when.
        recording: what was watched, in order.
        kills: of leaders.
        lasting: the part of the pods that run for long: who borrows with them gives nothing back.
    """

    cluster: Cluster
    tenants: Sequence[Tenant]
    chance: random.Random
    recording: list[Event] = field(default_factory=list)
    kills: int = 0
    lasting: float = 0.0
    _began: float = 0.0

    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[None]:
        """Record until the block is left."""
        self._began = asyncio.get_running_loop().time()
        watches = []
        try:
            for resource in _RECORDED:
                begun = asyncio.Event()
                watches.append(asyncio.create_task(self._watch(resource, begun)))
                await begun.wait()
            yield
        finally:
            for watch in watches:
                watch.cancel()
            ended = await asyncio.gather(*watches, return_exceptions=True)
        broken = [error for error in ended if not isinstance(error, asyncio.CancelledError)]
        assert not broken, f"the recording broke off: {broken}"

    async def _watch(self, resource: str, begun: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        async with self.cluster.watch(resource) as events:
            begun.set()
            async for event in events:
                at = loop.time() - self._began
                self.recording.append(Event(at, event["type"], event["object"]))

    async def come_and_go(self, seconds: float) -> None:
        """Let the pods of all tenants come and go for some seconds."""
        async with asyncio.timeout(seconds + 60), asyncio.TaskGroup() as group:
            for tenant in self.tenants:
                group.create_task(self._come(tenant, seconds))
            departures = group.create_task(self._go())
            await asyncio.sleep(seconds)
            departures.cancel()

    async def _come(self, tenant: Tenant, seconds: float) -> None:
        """Create pods in busy times, with quiet ones between: then others borrow."""
        loop, chance = asyncio.get_running_loop(), self.chance
        end, quiet_from = loop.time() + seconds, loop.time() + chance.uniform(5, _BUSY_SECONDS)
        while loop.time() < end:
            await asyncio.sleep(chance.expovariate(1 / (_ARRIVAL_SECONDS * len(self.tenants))))
            if loop.time() > quiet_from:
                await asyncio.sleep(chance.uniform(0, _BUSY_SECONDS))
                quiet_from = loop.time() + chance.uniform(5, _BUSY_SECONDS)
            if len(await self._waiting(tenant.namespace)) < _MOST_WAITING:
                await self._create(tenant)

    async def _create(self, tenant: Tenant) -> None:
        number = tenant.created + tenant.refused
        cpu = self.chance.choice(("500m", "1", "1", "2"))
        try:
            await self.cluster.create(
                pod(tenant.namespace, f"p-{number:05}", requests={"cpu": cpu})
            )
        except CallError as error:
            if error.status < 403:
                raise
            tenant.refused += 1
        else:
            tenant.created += 1

    async def _waiting(self, namespace: str) -> list[Json]:
        pods = await self.cluster.list_all("pods", namespace)
        return [each for each in pods if not each["spec"].get("nodeName")]

    async def _go(self) -> None:
        """End pods that run, each after a random life."""
        leaving: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                for each in await self.cluster.list_all("pods"):
                    uid = each["metadata"]["uid"]
                    if each["status"].get("phase") == "Running" and uid not in leaving:
                        leaving.add(uid)
                        group.create_task(self._end(each["metadata"]))
                await asyncio.sleep(0.5)

    async def _end(self, metadata: Json) -> None:
        mean = _LONG_LIFE_SECONDS if self.chance.random() < self.lasting else _LIFE_SECONDS
        await asyncio.sleep(self.chance.expovariate(1 / mean))
        with suppress(CallError):  # it was evicted meanwhile
            await self.cluster.delete(
                "pods", metadata["name"], metadata["namespace"], grace_seconds=0
            )

    async def drain(self, within: float = 90) -> None:
        """Wait until nothing waits any more, while pods that run end."""
        departures = asyncio.create_task(self._go())

        async def none_waits() -> bool:
            waiting = [await self._waiting(tenant.namespace) for tenant in self.tenants]
            return not any(waiting)

        try:
            await eventually(none_waits, "no pod waits", within=within)
        finally:
            departures.cancel()
            await asyncio.gather(departures, return_exceptions=True)

    async def kill_leaders(self, stowplan: Installed, moments: Sequence[float]) -> None:
        """Kill the leader some seconds from now, each time; start it again 20 s later."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for moment in moments:
            await asyncio.sleep(max(began + moment - loop.time(), 0))
            leader = await leader_of(self.cluster, stowplan)
            leader.kill()
            self.kills += 1
            await asyncio.sleep(20)  # its Lease has run out by then
            await asyncio.to_thread(leader.start)


async def leader_of(cluster: Cluster, stowplan: Installed) -> Replica:
    """Return the replica that holds the Lease, as soon as one does."""

    async def found() -> Replica | None:
        lease = await cluster.get("leases", NAME, NAMESPACE)
        leads = f"{lease['spec']['holderIdentity']} leads"
        running = (replica for replica in stowplan.replicas if replica.running)
        return next((replica for replica in running if leads in replica.text()), None)

    leader = await eventually(found, "a replica leads")
    if leader is None:
        raise AssertionError("`eventually` returns what is true")
    return leader


async def tenants_of(
    cluster: Cluster, stowplan: Installed, bounds: Sequence[tuple[int, int]]
) -> list[Tenant]:
    """Create a namespace with a quota for each min and max; all replicas know them."""
    names = await new_namespaces(cluster, len(bounds))
    tenants = [Tenant(name, *bound) for name, bound in zip(names, bounds, strict=True)]
    for tenant in tenants:
        await cluster.create(tenant.quota())
    await quotas_known(stowplan.replicas, len(tenants))
    return tenants


async def remove(cluster: Cluster, tenants: Sequence[Tenant]) -> None:
    """Delete what tenants have."""
    for tenant in tenants:
        with suppress(CallError, aiohttp.ClientError):
            await cluster.delete_all("pods", tenant.namespace, grace_seconds=0)
        await cluster.delete("namespaces", tenant.namespace)
