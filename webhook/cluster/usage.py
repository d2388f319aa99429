"""Measured usage of nodes and pods: polled from `metrics.k8s.io` or Prometheus, with its history.

Never here: NodeMetrics of Koordinator, which are watched like any other kind.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import ssl
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import msgspec

from engine.errors import StowplanError
from engine.model.kinds import NODE_METRICS, POD_METRICS, Kind
from engine.model.quantity import CPU, MEMORY
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage, PodReading, PodUsage, PodUsages
from engine.view import USAGE_RESOURCES, USAGE_WINDOW_SECONDS, ClusterState, UsageHistory
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.objects import UNREADABLE
from webhook.cluster.watch.source_status import SourceStatus


def join_readings(
    nodes: Iterable[NodeUsage], pods: Iterable[PodReading], state: ClusterState
) -> Iterator[NodeUsage]:
    """Yield the usage of nodes with that of the pods which the state knows on them.

    Without any reading of a pod, usage of pods was not measured.
    """
    readings = list(pods)
    on_nodes = PodsOnNodes(state)
    for reading in readings:
        on_nodes.add(reading)
    for node in nodes:
        yield on_nodes.join(node) if readings else replace(node, pods_measured=False)


class PodsOnNodes:
    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_node: dict[str, dict[str, PodUsage]] = {}

    def add(self, reading: PodReading) -> None:
        """Add a reading; its pod counts as production by its own class, as the API has no other."""
        place = self._state.placement(reading.key)
        if place is not None and reading.usage:
            node_name, shape = place
            usage = PodUsage(reading.usage, shape.is_prod)
            self._by_node.setdefault(node_name, {})[reading.key] = usage

    def join(self, node: NodeUsage) -> NodeUsage:
        return replace(node, pods=PodUsages(self._by_node.get(node.node_name, {})))


AT_A_TIME = 50
"""Nodes, or a few times as many pods, handled between two pauses for reviews: some 5 ms."""

_SPREAD = 0.1  # of a pause, on top of it: replicas must not ask in step
_log = logging.getLogger(__name__)


class UsageSourceError(StowplanError):
    """A source of usage gave no usable answer."""

    def __init__(
        self, message: str, *, is_absent: bool = False, retry_after_seconds: float = 0
    ) -> None:
        super().__init__(message)
        self.is_absent = is_absent  # whether nothing serves it, rather than that it fails
        # the least pause before it is asked again, 0 if any will do
        self.retry_after_seconds = retry_after_seconds


class UsageSource(Protocol):
    skipped: int  # readings that could not be read, since the start

    async def read(self) -> Sequence[NodeUsage]:
        """Return the usage of all nodes as of now."""

    def backfill(self) -> AsyncIterator[Sequence[NodeUsage]]:
        """Yield the usage of all nodes at past moments, oldest first, if the source has it."""


class UsageFeed:
    """Puts readings with their history into a `ClusterState`, except where Koordinator measures."""

    def __init__(
        self,
        state: ClusterState,
        history: UsageHistory,
        *,
        by_koordinator: Callable[[str], bool],
    ) -> None:
        self._state = state
        self._history = history
        self._by_koordinator = by_koordinator

    def __len__(self) -> int:
        """Return how many nodes have usage by this feed."""
        return len(self._history)

    async def apply(self, readings: Sequence[NodeUsage]) -> int:
        """Apply the readings of all nodes; return how many were new.

        A node that is not among them keeps its usage, which grows old, while it is in the cluster:
        perhaps only its agent is gone.
        """
        new = 0
        for start in range(0, len(readings), AT_A_TIME):
            new += self._apply(readings[start : start + AT_A_TIME])
            await asyncio.sleep(0)
        self._drop_gone({reading.node_name for reading in readings})
        return new

    def remember(self, readings: Iterable[NodeUsage]) -> None:
        """Add past readings, oldest first, to the history alone."""
        for reading in readings:
            self._is_new(reading)

    def _apply(self, readings: Iterable[NodeUsage]) -> int:
        new = [reading for reading in readings if self._is_new(reading)]
        summaries = self._history.summaries([reading.node_name for reading in new])
        for reading, summary in zip(new, summaries, strict=True):
            self._state.set_usage(
                replace(
                    reading,
                    aggregated=summary.aggregated,
                    average=summary.average,
                    deviation=summary.deviation,
                )
            )
        # Sums over the pods of each node are updated here, a few nodes at a time: otherwise the
        # next review would wait for all of them.
        self._state.view()
        return len(new)

    def _is_new(self, reading: NodeUsage) -> bool:
        """Add a reading to the history if it is complete and newer than the last one."""
        if self._by_koordinator(reading.node_name):
            self._history.forget(reading.node_name)
            return False
        usage, at = reading.usage or {}, reading.update_time
        if (
            at is None
            or not reading.node_name
            or any(name not in usage for name in USAGE_RESOURCES)
        ):
            return False
        return self._history.add(reading.node_name, at, usage)

    def _drop_gone(self, listed: set[str]) -> None:
        for name in [name for name in self._history if name not in listed]:
            if self._by_koordinator(name):
                self._history.forget(name)
            elif not self._state.has_node(name):
                self._history.forget(name)
                self._state.delete_usage(name)


@dataclass(eq=False)
class UsagePoller:
    source: UsageSource
    feed: UsageFeed
    status: SourceStatus  # how up to date the source is
    _: KW_ONLY
    every_seconds: float
    now: Callable[[], Micros]
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._has_backfilled = False

    async def run(self) -> None:
        while True:
            seconds = await self._poll()
            await self.sleep(seconds * random.uniform(1, 1 + _SPREAD))  # noqa: S311 - no secret

    async def _poll(self) -> float:
        """Poll once; return the seconds until the next time."""
        try:
            if not self._has_backfilled:
                async for readings in self.source.backfill():
                    self.feed.remember(readings)
                self._has_backfilled = True
            readings = await self.source.read()
            new = await self.feed.apply(readings)
        except UsageSourceError as error:
            self._note(str(error))
            self.status.present = not error.is_absent
            return max(self.every_seconds, error.retry_after_seconds)
        except Exception as error:  # noqa: BLE001 - no error may end the polling
            _log.exception("usage could not be applied")
            self.status.last_error = str(error) or type(error).__name__
            return self.every_seconds
        self._note("")
        self.status.present = self.status.synced = True
        self.status.last_contact = self.now()
        self.status.events += new
        self.status.objects = len(self.feed)
        self.status.skipped = self.source.skipped
        return self.every_seconds

    def _note(self, message: str) -> None:
        """Log the beginning and the end of a failure."""
        if message != self.status.last_error:
            if message:
                _log.warning("no usage from %s: %s", self.status.name, message)
            else:
                _log.info("usage from %s is back", self.status.name)
            self.status.last_error = message


_NOT_INSTALLED_SECONDS = 60.0
"""Least pause before an API that is not registered is asked for again."""

_NO_HISTORY: Sequence[Sequence[NodeUsage]] = ()


class _List(msgspec.Struct, gc=False):
    """A list whose items stay undecoded, so that one bad item does not affect others."""

    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(_List).decode


class MetricsApi:
    """The metrics API as a `UsageSource`."""

    def __init__(self, connection: Connection, state: ClusterState, *, with_pods: bool) -> None:
        self.skipped = 0  # items that could not be read, since the start
        self._connection = connection
        self._state = state
        self._with_pods = with_pods

    async def read(self) -> list[NodeUsage]:
        """Return the usage of all nodes; a node with unreadable figures is left out."""
        nodes: list[NodeUsage] = []
        await self._each(NODE_METRICS, nodes.append)
        if not self._with_pods:
            return [replace(node, pods_measured=False) for node in nodes]
        pods = PodsOnNodes(self._state)
        await self._each(POD_METRICS, pods.add)
        return [pods.join(node) for node in nodes]

    async def backfill(self) -> AsyncIterator[Sequence[NodeUsage]]:
        """Yield nothing: the API has no history."""
        for readings in _NO_HISTORY:
            yield readings

    async def _each(self, kind: Kind, receive: Callable[[Any], None]) -> None:
        """Pass on each reading in a list, with pauses in which other tasks run."""
        path = kind.path
        try:
            body = await self._connection.get(path)
            items = _decode_list(body).items or []
        except ApiError as error:
            raise _source_error(path, error) from error
        except UNREADABLE as error:
            raise UsageSourceError(f"{path}: the answer is not a list of metrics") from error
        decode = msgspec.json.Decoder(kind.wire).decode
        for number, raw in enumerate(items, 1):
            try:
                receive(kind.decode(decode(raw)))
            except UNREADABLE as error:
                self.skipped += 1
                _log.debug("%s: an item is left out: %s", path, error)
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)


def _source_error(path: str, error: ApiError) -> UsageSourceError:
    """Return what a refusal means: the API is not registered, nothing serves it, or it fails.

    What is registered and not served may be so for good or for a moment, as while metrics-server
    starts, so it is asked again as usual.
    """
    is_installed = error.status != HTTPStatus.NOT_FOUND
    is_served = is_installed and error.status != HTTPStatus.SERVICE_UNAVAILABLE
    pause = error.retry_after_seconds or 0
    return UsageSourceError(
        f"{path}: {error}",
        is_absent=not is_served,
        retry_after_seconds=pause if is_installed else max(pause, _NOT_INSTALLED_SECONDS),
    )


# The kubelet's own cgroup figures of the whole node, which metrics-server reads too. The label
# `node` is what prometheus-operator gives the targets of a kubelet's service; `max`, not `sum`,
# because two jobs may scrape the same kubelet. Two minutes hold four scrapes of 30 s.
DEFAULT_CPU_QUERY: Final = 'max by (node) (rate(container_cpu_usage_seconds_total{id="/"}[2m]))'
DEFAULT_MEMORY_QUERY: Final = 'max by (node) (container_memory_working_set_bytes{id="/"})'

_PAST_STEP_SECONDS: Final = 60
_MILLICORES: Final = 1000  # in a core


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    url: str  # such as `http://prometheus:9090`
    cpu_query: str = DEFAULT_CPU_QUERY  # PromQL for the cores that each node uses
    memory_query: str = DEFAULT_MEMORY_QUERY  # PromQL for the bytes that each node uses
    node_label: str = "node"  # label in their results with the name of the node
    # the range of the queries, such as the `[2m]` of a rate: a pod bound within it is not measured
    # in full yet
    window_seconds: int = 120
    timeout_seconds: float = 10.0  # time a query may take
    token_file: Path | None = None  # file of a bearer token; read again for each query
    # file of certificate authorities, in PEM; None for those of the system
    ca_file: Path | None = None


_GREATEST_VALUE = 2.0**53  # of cores or bytes; millicores still fit 64 bits
_LATEST_SECOND = 2.0**38  # some 8,700 years; microseconds still fit 64 bits


class _Data(msgspec.Struct, frozen=True, gc=False):
    result: msgspec.Raw = msgspec.Raw()


class _Answer(msgspec.Struct, gc=False):
    status: str = ""
    data: _Data = _Data()
    error: str = ""


class _Sample(msgspec.Struct, gc=False):
    """One series: its labels, and the second and text of its value."""

    metric: dict[str, str]
    value: tuple[float, str]


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_vector = msgspec.json.Decoder(list[_Sample]).decode


class Prometheus:
    """Prometheus as a `UsageSource`."""

    def __init__(
        self,
        settings: PrometheusSettings,
        session: aiohttp.ClientSession,
        *,
        now: Callable[[], Micros],
    ) -> None:
        self.skipped = 0  # series without a usable value or the name of a node, since the start
        self._settings = settings
        self._session = session
        self._now = now
        self._url = f"{settings.url.rstrip('/')}/api/v1/query"

    async def read(self) -> list[NodeUsage]:
        """Return the usage of the nodes in both results."""
        nodes = await self._read_at({})
        if not nodes:
            label = self._settings.node_label
            raise UsageSourceError(f"no node is in both results by the label `{label}`")
        return nodes

    async def backfill(self) -> AsyncIterator[list[NodeUsage]]:
        """Yield the usage of nodes minute by minute, over the longest window.

        Instant queries at past moments are used, not one over a range: its answer would hold all
        nodes and all minutes at once.
        """
        now = self._now() // SECOND
        for ago in range(max(USAGE_WINDOW_SECONDS), 0, -_PAST_STEP_SECONDS):
            yield await self._read_at({"time": str(now - ago)})

    async def _read_at(self, when: Mapping[str, str]) -> list[NodeUsage]:
        settings = self._settings
        cpu, memory = await asyncio.gather(
            self._query(settings.cpu_query, when), self._query(settings.memory_query, when)
        )
        return [
            NodeUsage(
                node_name=name,
                update_time=at,
                report_interval_seconds=settings.window_seconds,
                usage={CPU: round(cores * _MILLICORES), MEMORY: round(memory[name][1])},
                pods_measured=False,
            )
            for name, (at, cores) in cpu.items()
            if name in memory
        ]

    async def _query(self, query: str, when: Mapping[str, str]) -> dict[str, tuple[Micros, float]]:
        """Return the moment and the value of each node that has one."""
        form = {"query": query, **when}
        try:
            headers = self._headers()
            async with self._session.post(self._url, data=form, headers=headers) as response:
                body = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UsageSourceError(f"{self._url}: {str(error) or 'no answer in time'}") from error
        try:
            answer = _decode_answer(body)
            if status != HTTPStatus.OK or answer.status != "success":
                raise UsageSourceError(f"{self._url}: `{query}`: {answer.error or status}")
            samples = _decode_vector(answer.data.result)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = (
                f"answer {status}" if status != HTTPStatus.OK else "its result is not a vector"
            )
            raise UsageSourceError(f"{self._url}: `{query}`: {problem}") from error
        return dict(self._values(samples))

    def _values(self, samples: Iterable[_Sample]) -> Iterator[tuple[str, tuple[Micros, float]]]:
        for sample in samples:
            name = sample.metric.get(self._settings.node_label)
            second, value = sample.value[0], _number(sample.value[1])
            # Not so for a NaN.
            is_plausible = 0 <= value < _GREATEST_VALUE and 0 <= second < _LATEST_SECOND
            if name is not None and is_plausible:
                yield name, (Micros(round(second * SECOND)), value)
            else:
                self.skipped += 1

    def _headers(self) -> dict[str, str]:
        file = self._settings.token_file
        return {"Authorization": f"Bearer {file.read_text().strip()}"} if file else {}


@asynccontextmanager
async def prometheus(
    settings: PrometheusSettings, *, now: Callable[[], Micros]
) -> AsyncIterator[Prometheus]:
    """Yield Prometheus as a source; its connections are closed at the end."""
    tls = ssl.create_default_context(cafile=settings.ca_file)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        timeout=aiohttp.ClientTimeout(total=settings.timeout_seconds),
    ) as session:
        yield Prometheus(settings, session, now=now)


def _number(text: str) -> float:
    """Return a value in the form of Prometheus, NaN for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan
