"""A reflector at work against the fake API server, and time that passes when a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from engine.model import api
from engine.model.kinds import WATCHED, Kind
from engine.model.time import SECOND, Micros
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.patience import PATIENCE_SECONDS
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.timing import Clock, ReflectorConfig
from webhook.cluster.watch.event_applier import KindApplier
from webhook.cluster.watch.reflector import Reflector
from webhook.cluster.watch.source_status import SourceStatus

STARTED = Micros(1_700_000_000 * SECOND)
PODS = next(kind for kind in WATCHED if kind.name == "pods")
QUOTAS = next(kind for kind in WATCHED if kind.group == "scheduling.sigs.k8s.io")
BRISK = ReflectorConfig(page_size=3, silence_seconds=3_600.0, streamed_list_seconds=3_600.0)
LONG = BRISK.look_again_seconds


@dataclass
class Time:
    """Waits are over at once, but for the long ones between looks for an absent API.

    Attributes:
        waits: seconds asked for.
    """

    waits: list[float] = field(default_factory=list)
    _alarm: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if seconds < LONG:
            await asyncio.sleep(0)
        else:
            await self._alarm.wait()

    def pass_by(self) -> None:
        """End the long waits."""
        self._alarm.set()
        self._alarm = asyncio.Event()

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: STARTED, sleep=self.sleep, jitter=lambda: 0.0)


@dataclass
class Reflecting:
    """What a test of a reflector holds.

    Attributes:
        stored: what the reflector applied, by `namespace/name`.
        prepared_in: threads in which large objects were prepared.
    """

    server: FakeApiServer
    reflector: Reflector
    time: Time
    stored: dict[str, Any]
    prepared_in: list[int]

    @property
    def status(self) -> SourceStatus:
        return self.reflector.status

    async def equal(self) -> None:
        """Wait until it has applied what the server holds."""
        plural = self.reflector.status.name
        await eventually(lambda: self.stored.keys() == keys(self.server, plural))

    async def watching(self) -> None:
        """Wait until a list is complete and a watch is open."""
        await eventually(lambda: self.status.synced and self.server.watches() > 0)

    @property
    def paging(self) -> bool:
        """Whether the last request is for a page that is not the first."""
        requests = self.server.requests
        return bool(requests) and "continue" in requests[-1].query

    def lists(self) -> int:
        """Return how many lists were asked for, streamed or in pages."""
        return sum(
            "sendInitialEvents" in query or ("limit" in query and "continue" not in query)
            for _, _, query in self.server.requests
        )


@asynccontextmanager
async def reflecting(
    folder: Path,
    kind: Kind = PODS,
    *,
    objects: tuple[dict[str, Any], ...] = (),
    prepare: Callable[[FakeApiServer], None] = lambda _: None,
    config: ReflectorConfig = BRISK,
    on_apply: Callable[[], None] = lambda: None,
) -> AsyncIterator[Reflecting]:
    """Run a reflector against a server that holds some objects.

    Args:
        folder: for the kubeconfig.
        kind: that it follows.
        objects: that the server holds.
        prepare: called with the server before the reflector runs.
        config: of the reflector.
        on_apply: called before each object is applied.
    """
    stored: dict[str, Any] = {}

    def apply(one: api.Pod | api.ElasticQuota) -> None:
        on_apply()
        stored[f"{one.metadata.namespace}/{one.metadata.name}"] = one

    def delete(namespace: str, name: str) -> None:
        stored.pop(f"{namespace}/{name}", None)

    prepared_in: list[int] = []

    def prepare_object(wire: api.Pod, _raw: msgspec.Raw) -> Callable[[], None]:
        prepared_in.append(threading.get_ident())
        return partial(apply, wire)

    applier = KindApplier(kind=kind, apply=apply, delete=delete, prepare=prepare_object)
    time = Time()
    async with fake_api_server() as server, connected_to(server, folder) as connection:
        for one in objects:
            server.create(one)
        prepare(server)
        reflector = Reflector(connection, applier, time.clock, config)
        task = asyncio.create_task(reflector.run())
        try:
            yield Reflecting(server, reflector, time, stored, prepared_in)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def connected_to(server: FakeApiServer, folder: Path) -> AsyncIterator[Connection]:
    async with connected(server.kubeconfig(folder), None) as connection:
        yield connection


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so; what makes it so arrives over sockets."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)


def keys(server: FakeApiServer, plural: str) -> set[str]:
    """Return what the server holds and a watch of live pods shows."""
    finished = {"Succeeded", "Failed"}
    return {
        f"{namespace}/{name}"
        for (namespace, name), one in server.objects(plural).items()
        if one.get("status", {}).get("phase") not in finished
    }


def pod(name: str, node: str = "", *, cpu: str = "100m", phase: str = "Pending") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase},
    }


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": "a"}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def quota(name: str, cpu: str, *, group: str = QUOTAS.group) -> dict[str, Any]:
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"max": {"cpu": cpu}},
    }
