"""Replicas of the ledger over one fake API server, and clients that create pods through them."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import QuotaUndecidedError
from engine.model.elastic_quota import RESERVATIONS_ANNOTATION
from engine.quota import Reservations
from engine.quota.reservations import decode
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cluster.reflecting import BRISK, Time, eventually
from webhook.admission import wire
from webhook.admission.handler import Outcome
from webhook.admission.quota import QuotaReviews
from webhook.background import in_background
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query, connected
from webhook.cluster.cluster import live_cluster
from webhook.cluster.timing import MonotonicClock
from webhook.cluster.watch.event_applier import EventApplier
from webhook.quota import (
    DeploymentPods,
    ObservedPods,
    QuotaConfig,
    QuotaLedger,
    observe_cluster,
)
from webhook.quota.store import ApiStore

GROUP = "scheduling.x-k8s.io"
OTHER_GROUP = "scheduling.sigs.k8s.io"
_PODS = "/api/v1/pods"


def quota_name(namespace: str, group: str) -> str:
    """Return what the quota of a namespace is called; Koordinator's is named after it."""
    return "team" if group == GROUP else namespace


def create_quota(
    server: FakeApiServer, namespace: str, *, group: str = GROUP, **limits: str
) -> None:
    """Limit a namespace."""
    server.create(
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": quota_name(namespace, group), "namespace": namespace},
            "spec": {"max": limits},
        }
    )


class GatedConnection:
    """A connection whose watches of pods or quotas deliver nothing while their gate is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.gate, self.quota_gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.quota_gate.set()
        self.get: Any = connection.get
        self.write: Any = connection.write

    @asynccontextmanager
    async def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        opened = self._connection.watch(path, query, read_timeout_seconds=read_timeout_seconds)
        async with opened as lines:
            if path == _PODS:
                yield _gated(lines, self.gate)
            elif path.endswith("/elasticquotas"):
                yield _gated(lines, self.quota_gate)
            else:
                yield lines


async def _no_contact(*_: object, **__: object) -> bytes:
    raise ApiError(NO_CONTACT, "", "it has crashed")


async def _gated(lines: AsyncIterator[bytes], gate: asyncio.Event) -> AsyncIterator[bytes]:
    async for line in lines:
        await gate.wait()
        yield line


@dataclass
class World:
    """An API server, replicas, and a clock that they share."""

    server: FakeApiServer
    folder: Path
    stack: AsyncExitStack
    now: float = 1_000.0
    real_time: bool = False
    call_seconds: float = PATIENCE_SECONDS
    replicas: list[Replica] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    random: random.Random = field(default_factory=lambda: random.Random(5))

    def quota(self, namespace: str = "shop", *, group: str = GROUP, **limits: str) -> None:
        create_quota(self.server, namespace, group=group, **limits)

    async def start(self, count: int = 1) -> None:
        """Start replicas, and wait until they are synced."""
        for _ in range(count):
            connection = await self.stack.enter_async_context(
                connected(self.server.kubeconfig(self.folder), None)
            )
            replica = Replica(self, connection)
            self.stack.push_async_callback(replica.crash)
            await replica.start()
            self.replicas.append(replica)

    async def crash(self, index: int) -> None:
        await self.replicas.pop(index).crash()

    async def all_seen(self) -> None:
        """Wait until every replica has observed the last write."""
        version = max(
            (
                int(pod["metadata"]["resourceVersion"])
                for pod in self.server.objects("pods").values()
            ),
            default=0,
        )
        await self.observed(version)

    async def observed(self, version: int) -> None:
        """Wait until every replica has observed the pods up to a version."""
        replicas = self.replicas
        await eventually(lambda: all(it.observed_version >= version for it in replicas))

    async def create(
        self,
        namespace: str = "shop",
        *,
        cpu: str = "100m",
        stored: bool = True,
        by: Replica | None = None,
    ) -> Outcome:
        """Create a pod as a client does, by the next replica or a given one; return the outcome."""
        number = next(self.numbers)
        pod = pod_named(f"pod-{number}", namespace, cpu)
        outcome = await (by or self.replicas[number % len(self.replicas)]).answer(pod)
        if outcome is Outcome.ADMITTED and stored:
            self.server.create(pod)
        return outcome

    async def creations(
        self, count: int, namespaces: Sequence[str] = ("shop",), *, cpu: str = "100m"
    ) -> list[Outcome]:
        """Create pods in each namespace all at the same time."""
        return await asyncio.gather(
            *(self.create(namespace, cpu=cpu) for _ in range(count) for namespace in namespaces)
        )

    def stored(self, namespace: str = "shop") -> int:
        return sum(of_pod == namespace for of_pod, _ in self.server.objects("pods"))

    def reserved(self, namespace: str = "shop", group: str = GROUP) -> Reservations:
        """Return the reservations on the object."""
        plural = f"elasticquotas.{group}"
        found = self.server.objects(plural)[namespace, quota_name(namespace, group)]
        metadata = found["metadata"]
        text = metadata.get("annotations", {}).get(RESERVATIONS_ANNOTATION, "")
        reservations = decode(text, metadata["uid"])
        assert reservations is not None
        return reservations

    def annotate(self, text: str) -> None:
        """Write the annotation as somebody else would."""
        found = self.server.objects(f"elasticquotas.{GROUP}")["shop", "team"]
        found["metadata"]["annotations"] = {RESERVATIONS_ANNOTATION: text}
        self.server.replace(found)

    def limit(self, **limits: str) -> None:
        """Change the quota."""
        found = self.server.objects(f"elasticquotas.{GROUP}")["shop", "team"]
        found["spec"]["max"] = limits
        self.server.replace(found)

    def writes(self) -> int:
        """Return how many writes of quotas were requested."""
        return sum(request.method == "PATCH" for request in self.server.requests)

    async def pruned(self, *, after: float) -> None:
        """Let time pass, and have each replica prune reservations as the leader would."""
        await self.all_seen()
        for replica in self.replicas:
            await replica.ledger.prune_reservations()
        self.now += after
        for replica in self.replicas:
            await replica.ledger.prune_reservations()


class Replica:
    """One process: what it observes, and its ledger.

    Attributes:
        counted: outcomes of its writes.
        gate: while closed, its watch of pods delivers nothing.
        quota_gate: the same for quotas.
    """

    def __init__(self, world: World, connection: Connection) -> None:
        gated: Any = GatedConnection(connection)
        self.counted: list[str] = []
        self.gate: asyncio.Event = gated.gate
        self.quota_gate: asyncio.Event = gated.quota_gate
        self._stack = AsyncExitStack()
        self._world = world
        self._connection = gated

    async def start(self) -> None:
        """Listen until `crash`."""
        pods, world, clock = ObservedPods(), self._world, Time().clock
        deployments = DeploymentPods()
        applier = EventApplier(now=clock.now, observers=[pods, deployments])
        self._cluster = await self._stack.enter_async_context(
            live_cluster(self._connection, applier, clock, config=BRISK)
        )
        monotonic = MonotonicClock(
            now=time.monotonic if world.real_time else lambda: world.now,
            sleep=asyncio.sleep if world.real_time else lambda _: asyncio.sleep(0),
            jitter=world.random.random,
        )
        self.ledger = QuotaLedger(
            observe_cluster(applier.state, self._cluster.sources, pods, deployments),
            ApiStore(self._connection),
            QuotaConfig(clock=monotonic, call_seconds=world.call_seconds),
            count_write=self.counted.append,
        )
        self._reviews = QuotaReviews(
            ledger=self.ledger,
            view=applier.state.view,
            mode="Enforce",
            excluded_namespaces=["kube-system"],
        )
        self._stack.push_async_callback(self.ledger.close)
        if world.real_time:
            in_background(self._stack, self.ledger.run())
        await self._cluster.synced()

    async def stop(self) -> None:
        """End as at SIGTERM: allowances are given back."""
        await self._stack.aclose()

    async def crash(self) -> None:
        """End at once, whoever waits."""
        self._connection.write = self._connection.get = _no_contact
        await self._stack.aclose()

    @property
    def observed_version(self) -> int:
        """Return the version up to which it has observed all pods."""
        return self._cluster.sources["pods"].version

    def knows(self, quota_version: int) -> bool:
        """Return whether it has observed a version of a quota."""
        quotas = self._cluster.view().namespaces.quotas.values()
        return quota_version in {quota.version for listed in quotas for quota in listed}

    async def answer(self, pod: dict[str, Any], **request: object) -> Outcome:
        """Return the outcome of a review of a pod, also without a verdict."""
        try:
            return (await self._reviews.review(asking(pod, **request))).outcome
        except QuotaUndecidedError:
            return Outcome.UNDECIDED


def asking(pod: dict[str, Any], **request: object) -> wire.AdmissionRequest:
    """Return the request to create a pod, or another one."""
    body = {
        "uid": f"request-{pod['metadata']['uid']}",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": pod["metadata"]["name"],
        "namespace": pod["metadata"]["namespace"],
        "object": pod,
        **request,
    }
    sent = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": body}
    return wire.decode(json.dumps(sent).encode())


def pod_named(name: str, namespace: str = "shop", cpu: str = "100m") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"},
    }


@asynccontextmanager
async def replicas(
    folder: Path,
    count: int = 3,
    *,
    namespaces: Sequence[str] = ("shop",),
    real_time: bool = False,
    **limits: str,
) -> AsyncIterator[World]:
    """Run replicas over namespaces with the same quota each."""
    async with (
        fake_api_server(without=()) as server,
        AsyncExitStack() as stack,
    ):
        world = World(server, folder, stack, real_time=real_time)
        for namespace in namespaces:
            world.quota(namespace, **limits)
        await world.start(count)
        yield world
