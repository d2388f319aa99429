"""Usage of nodes by queries to Prometheus, or to a server with the same API.

Source of the answers: Prometheus, HTTP API, instant queries (`/api/v1/query`).
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from engine.model.quantity import CPU, MEMORY
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.view import USAGE_WINDOW_SECONDS
from webhook.cluster.usage.poller import UsageSourceError

# The kubelet's own cgroup figures of the whole node, which metrics-server reads too. The label
# `node` is what prometheus-operator gives the targets of a kubelet's service; `max`, not `sum`,
# because two jobs may scrape the same kubelet. Two minutes hold four scrapes of 30 s.
DEFAULT_CPU_QUERY: Final = 'max by (node) (rate(container_cpu_usage_seconds_total{id="/"}[2m]))'
DEFAULT_MEMORY_QUERY: Final = 'max by (node) (container_memory_working_set_bytes{id="/"})'

_PAST_STEP_SECONDS: Final = 60
_MILLICORES: Final = 1000  # in a core


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """Address and queries of Prometheus."""

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
    """Prometheus as a `UsageSource`.

    Attributes:
        skipped: series without a usable value or the name of a node, since the start.
    """

    def __init__(
        self,
        settings: PrometheusSettings,
        session: aiohttp.ClientSession,
        *,
        now: Callable[[], Micros],
    ) -> None:
        self.skipped = 0
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
