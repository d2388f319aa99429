"""Polling of the usage of nodes, through failures of its source, and its history."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from engine.errors import StowplanError
from engine.model.time import Micros
from engine.model.usage import NodeUsage, PodReading, PodUsage, PodUsages
from engine.view import USAGE_RESOURCES, ClusterState, UsageHistory
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
    """Readings of pods by node."""

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
        """Return the usage of a node with that of its pods."""
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
    """A source of the usage of nodes."""

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


class UsagePoller:
    """Polls a source of usage, for ever."""

    def __init__(
        self,
        source: UsageSource,
        feed: UsageFeed,
        status: SourceStatus,  # how up to date the source is
        *,
        every_seconds: float,
        now: Callable[[], Micros],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.status = status
        self._source = source
        self._feed = feed
        self._every_seconds = every_seconds
        self._now = now
        self._sleep = sleep
        self._has_backfilled = False

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            seconds = await self._poll()
            await self._sleep(seconds * random.uniform(1, 1 + _SPREAD))  # noqa: S311 - no secret

    async def _poll(self) -> float:
        """Poll once; return the seconds until the next time."""
        try:
            if not self._has_backfilled:
                async for readings in self._source.backfill():
                    self._feed.remember(readings)
                self._has_backfilled = True
            readings = await self._source.read()
            new = await self._feed.apply(readings)
        except UsageSourceError as error:
            self._note(str(error))
            self.status.present = not error.is_absent
            return max(self._every_seconds, error.retry_after_seconds)
        except Exception as error:  # noqa: BLE001 - no error may end the polling
            _log.exception("usage could not be applied")
            self.status.last_error = str(error) or type(error).__name__
            return self._every_seconds
        self._note("")
        self.status.present = self.status.synced = True
        self.status.last_contact = self._now()
        self.status.events += new
        self.status.objects = len(self._feed)
        self.status.skipped = self._source.skipped
        return self._every_seconds

    def _note(self, message: str) -> None:
        """Log the beginning and the end of a failure."""
        if message != self.status.last_error:
            if message:
                _log.warning("no usage from %s: %s", self.status.name, message)
            else:
                _log.info("usage from %s is back", self.status.name)
            self.status.last_error = message
