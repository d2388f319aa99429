"""Tenants whose pods come and go at random under quotas that queue, and a record of all of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain

import aiohttp

from engine.model.elastic_quota import RECLAIM_ANNOTATION
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.installed import Installed, leader_of
from tests.e2e.namespaces import create_namespaces, new_names
from tests.e2e.quotas import GROUP, quotas_known
from tests.e2e.recorded_cluster import Event, pod_of
from tests.e2e.workloads import pod

_MOST_WAITING = 12  # of a tenant
_ARRIVAL_SECONDS = 0.25  # of all tenants together, while they are busy
_LEAVING_SECONDS = 1.0
_MOST_QUIET = 3  # tenants at a time: what they want back may be evicted in a minute or two
_OWNERS = 4  # of the pods of a tenant
_OLD = 0.9
"""The part of the pods that look as if they had been bound for long: others are not evicted."""
_AGE = timedelta(minutes=10)
_PATIENCE_SECONDS = 180  # nothing is proven by it: longer than a busy machine takes
_RECORDED = (f"elasticquotas.{GROUP}", "nodes", "pods")


@dataclass(slots=True)
class Tenant:
    """A namespace with a quota of cores, and what is to become of its pods.

    Attributes:
        namespace: its namespace.
        least: cores of `min`.
        most: cores of `max`.
        owners: references to the objects that own its pods.
        created: pods that were accepted.
        refused: pods that were not: while nobody can release pods, they do not wait.
        quiet: set while it creates none, and all that it has soon end.
    """

    namespace: str
    least: int
    most: int
    owners: list[Json] = field(default_factory=list)
    created: int = 0
    refused: int = 0
    quiet: asyncio.Event = field(default_factory=asyncio.Event)

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
        life_seconds: for how long a pod runs on average, unless its tenant becomes quiet before.
        busy_seconds: for how long all tenants create pods between two times in which some are
            quiet; about.
        quiet_seconds: for how long these create none, and all that they have end: others borrow.
        sizes: what pods request of cpu.
        recording: what was watched, in order.
        evicted: set once a pod was evicted.
        kills: of leaders.
    """

    cluster: Cluster
    tenants: Sequence[Tenant]
    chance: random.Random
    life_seconds: float = 8.0
    busy_seconds: float = 10.0
    quiet_seconds: float = 5.0
    sizes: Sequence[str] = ("500m", "1", "1", "2")
    recording: list[Event] = field(default_factory=list)
    evicted: asyncio.Event = field(default_factory=asyncio.Event)
    kills: int = 0

    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[None]:
        """Record until the block is left."""
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
        async with self.cluster.watch(resource) as events:
            begun.set()
            async for event in events:
                self.recording.append(Event(time.time(), event["type"], event["object"]))
                if resource == "pods" and pod_of(event["object"]).was_evicted:
                    self.evicted.set()

    async def come_and_go(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Let the pods of all tenants come and go for some seconds.

        Args:
            seconds: for at least so long.
            until: for longer, until it is set: less happens at a time on a busy machine.
        """
        over = asyncio.Event()
        async with asyncio.timeout(seconds + _PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            for tenant in self.tenants:
                group.create_task(self._come(tenant, over))
            others = [group.create_task(each) for each in (self._go(), self._calm())]
            await asyncio.sleep(seconds)
            if until is not None:
                await until.wait()
            over.set()
            for each in others:
                each.cancel()

    async def _calm(self) -> None:
        """Let a few tenants be quiet for a while, again and again; then all want their min back."""
        most = max(1, min(len(self.tenants) // 3, _MOST_QUIET))
        while True:
            await asyncio.sleep(self.busy_seconds * self.chance.uniform(0.8, 1.2))
            quiet = self.chance.sample(self.tenants, most)
            for tenant in quiet:
                tenant.quiet.set()
            await asyncio.sleep(self.quiet_seconds)
            for tenant in quiet:
                tenant.quiet.clear()

    async def _come(self, tenant: Tenant, over: asyncio.Event) -> None:
        """Create pods unless the tenant is quiet, or has enough that wait."""
        chance = self.chance
        while not over.is_set():
            await asyncio.sleep(chance.expovariate(1 / (_ARRIVAL_SECONDS * len(self.tenants))))
            waiting = await self._waiting(tenant.namespace)
            if len(waiting) < _MOST_WAITING and not tenant.quiet.is_set():
                await self._create(tenant)

    async def _create(self, tenant: Tenant) -> None:
        number = tenant.created + tenant.refused
        cpu = self.chance.choice(self.sizes)
        made = pod(tenant.namespace, f"p-{number:05}", requests={"cpu": cpu})
        made["metadata"]["ownerReferences"] = [self.chance.choice(tenant.owners)]
        try:
            await self.cluster.create(made)
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
        tenants = {tenant.namespace: tenant for tenant in self.tenants}
        leaving: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                for each in await self.cluster.list_all("pods"):
                    uid, tenant = each["metadata"]["uid"], tenants.get(_namespace_of(each))
                    is_running = each["status"].get("phase") == "Running"
                    if tenant is not None and is_running and uid not in leaving:
                        leaving.add(uid)
                        group.create_task(self._live(each["metadata"], tenant))
                await asyncio.sleep(0.5)

    async def _live(self, metadata: Json, tenant: Tenant) -> None:
        """Let a pod run for as long as it lasts, and end it."""
        with suppress(CallError):  # it was evicted meanwhile
            if self.chance.random() < _OLD:
                await self._age(metadata)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.chance.expovariate(1 / self.life_seconds)):
                    await tenant.quiet.wait()
                    await asyncio.sleep(self.chance.expovariate(1 / _LEAVING_SECONDS))
            await self.cluster.delete(
                "pods", metadata["name"], metadata["namespace"], grace_seconds=0
            )

    async def _age(self, metadata: Json) -> None:
        """Let a pod have been bound a while ago: nobody waits for minutes here."""
        since = f"{datetime.now(UTC) - _AGE:%Y-%m-%dT%H:%M:%SZ}"
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [bound]}}
        await self.cluster.patch(
            *("pods", metadata["name"], patch, metadata["namespace"]),
            how="strategic",
            subresource="status",
        )

    async def settle(self) -> None:
        """Wait until no pod that is held has a node: nobody is evicted any more for it then."""

        async def none_is_nominated() -> bool:
            waiting = [await self._waiting(tenant.namespace) for tenant in self.tenants]
            return not any(each["status"].get("nominatedNodeName") for each in chain(*waiting))

        await eventually(none_is_nominated, "no pod is nominated")

    async def drain(self) -> None:
        """Wait until nothing waits any more, while pods that run end."""
        for tenant in self.tenants:
            tenant.quiet.set()
        departures = asyncio.create_task(self._go())

        async def none_waits() -> bool:
            waiting = [await self._waiting(tenant.namespace) for tenant in self.tenants]
            return not any(waiting)

        try:
            await eventually(none_waits, "no pod waits")
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


def _namespace_of(pod: Json) -> str:
    return str(pod["metadata"]["namespace"])


async def tenants_of(
    cluster: Cluster, stowplan: Installed, bounds: Sequence[tuple[int, int]]
) -> list[Tenant]:
    """Create a namespace with a quota for each min and max; all replicas know them."""
    names = await create_namespaces(cluster, *new_names(len(bounds)))
    tenants = [Tenant(name, *bound) for name, bound in zip(names, bounds, strict=True)]
    for tenant in tenants:
        await cluster.create(tenant.quota())
        tenant.owners = [await _owner(cluster, tenant, number) for number in range(_OWNERS)]
    await quotas_known(stowplan.replicas, len(tenants))
    return tenants


async def _owner(cluster: Cluster, tenant: Tenant, number: int) -> Json:
    """Create an object that owns pods, and return a reference to it."""
    metadata = {"namespace": tenant.namespace, "name": f"set-{number}"}
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = await cluster.create({**kind, "metadata": metadata})
    return {**kind, "name": metadata["name"], "uid": made["metadata"]["uid"]}


async def remove(cluster: Cluster, tenants: Sequence[Tenant]) -> None:
    """Delete what tenants have."""
    for tenant in tenants:
        with suppress(CallError, aiohttp.ClientError):
            await cluster.delete_all("pods", tenant.namespace, grace_seconds=0)
        await cluster.delete("namespaces", tenant.namespace)
