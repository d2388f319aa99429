"""Usage from `metrics.k8s.io` of a live cluster, as metrics-server or an adapter serves it.

The API has neither pages nor a watch: each read is the whole list. The many pods are therefore read
only on request; without them their part of a node's usage is estimated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import msgspec

from engine.model.kinds import NODE_METRICS, POD_METRICS, Kind
from engine.model.usage import NodeUsage
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.objects import UNREADABLE
from webhook.cluster.usage.poller import AT_A_TIME, PodsOnNodes, UsageSourceError

_NOT_INSTALLED_SECONDS = 60.0
"""Least pause before an API that is not registered is asked for again."""

_NO_HISTORY: Sequence[Sequence[NodeUsage]] = ()

_log = logging.getLogger(__name__)


class _List(msgspec.Struct, gc=False):
    """A list whose items stay undecoded, so that one bad item does not affect others."""

    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(_List).decode


class MetricsApi:
    """The metrics API as a `UsageSource`.

    Attributes:
        skipped: items that could not be read, since the start.
    """

    def __init__(self, connection: Connection, state: ClusterState, *, with_pods: bool) -> None:
        self.skipped = 0
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
