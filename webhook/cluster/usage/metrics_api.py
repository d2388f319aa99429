"""Usage from `metrics.k8s.io` of a live cluster, as metrics-server or an adapter serves it.

The API has neither pages nor a watch: each look is the whole list. Pods, of which there are many,
are therefore read only where asked for; without them their part of a node's usage is estimated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol, TypeVar

import msgspec

from engine.model.usage import NodeUsage
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError
from webhook.cluster.decode_errors import UNREADABLE
from webhook.cluster.usage.feed import AT_A_TIME
from webhook.cluster.usage.metrics_server import (
    NodeMetrics,
    PodMetrics,
    PodsOnNodes,
    node_reading,
    pod_reading,
)
from webhook.cluster.usage.poller import UsageSourceError

NODES_PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS_PATH = "/apis/metrics.k8s.io/v1beta1/pods"

_ABSENT = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
"""No such API, or one that is registered while nothing serves it."""

_NO_PAST: Sequence[Sequence[NodeUsage]] = ()

_log = logging.getLogger(__name__)
_T = TypeVar("_T", bound=msgspec.Struct)


class _List(msgspec.Struct, gc=False):
    """A list whose items stay undecoded, so that one cannot spoil another."""

    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(_List).decode


class Reads(Protocol):
    """The part of a connection that is needed here."""

    async def get(self, path: str, query: Sequence[tuple[str, str]] = ()) -> bytes:
        """Return the body of an answer; raises `ApiError`."""


class MetricsApi:
    """The API as a `UsageSource`.

    Attributes:
        skipped: items that could not be read, since the start.

    Args:
        connection: to the API server.
        state: says which node a pod is on.
        with_pods: whether to read the usage of each pod too.
    """

    def __init__(self, connection: Reads, state: ClusterState, *, with_pods: bool) -> None:
        self.skipped = 0
        self._connection = connection
        self._state = state
        self._with_pods = with_pods

    async def read(self) -> list[NodeUsage]:
        """Return the usage of all nodes; one whose figures cannot be read is left out.

        Raises:
            UsageSourceError: the API is absent or fails.
        """
        nodes: list[NodeUsage] = []
        await self._each(NODES_PATH, NodeMetrics, lambda wire: nodes.append(node_reading(wire)))
        if not self._with_pods:
            return [replace(node, pods_measured=False) for node in nodes]
        pods = PodsOnNodes(self._state)
        await self._each(
            PODS_PATH, PodMetrics, lambda wire: pods.add(pod_reading(wire, namespace=""))
        )
        return [pods.joined(node) for node in nodes]

    async def backfill(self) -> AsyncIterator[Sequence[NodeUsage]]:
        """Yield nothing: the API knows no past."""
        for look in _NO_PAST:
            yield look

    async def _each(self, path: str, kind: type[_T], take: Callable[[_T], None]) -> None:
        """Hand on each item of a list, with pauses for others to run."""
        try:
            body = await self._connection.get(path)
            items = _decode_list(body).items or []
        except ApiError as error:
            raise UsageSourceError(
                f"{path}: {error}",
                is_absent=error.status in _ABSENT,
                retry_after_seconds=error.retry_after_seconds or 0,
            ) from error
        except UNREADABLE as error:
            raise UsageSourceError(f"{path}: the answer is not a list of metrics") from error
        decode = msgspec.json.Decoder(kind).decode
        for number, raw in enumerate(items, 1):
            try:
                take(decode(raw))
            except UNREADABLE as error:
                self.skipped += 1
                _log.debug("%s: an item is left out: %s", path, error)
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
