"""Asking for the usage of nodes again and again, whatever becomes of the one who is asked."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from engine.errors import StowplanError
from engine.model.time import Micros
from engine.model.usage import NodeUsage
from engine.view import USAGE_RESOURCES, ClusterState, UsageHistory
from webhook.cluster.watch.source_status import SourceStatus

AT_A_TIME = 50
"""Nodes, or a few times as many pods, worked on before reviews get their turn: some 5 ms."""

ABSENT_SECONDS = 60.0
"""How long a source that is not there is left in peace."""

_SPREAD = 0.1  # of a pause, on top of it: replicas shall not ask in step
_log = logging.getLogger(__name__)


class UsageSourceError(StowplanError):
    """A source of usage that gave no answer that can be used.

    Attributes:
        is_absent: whether nothing serves it, rather than fails to.
        retry_after_seconds: how long it wants to be left in peace, 0 if it did not say.
    """

    def __init__(
        self, message: str, *, is_absent: bool = False, retry_after_seconds: float = 0
    ) -> None:
        super().__init__(message)
        self.is_absent = is_absent
        self.retry_after_seconds = retry_after_seconds


class UsageSource(Protocol):
    """Who knows the usage of nodes.

    Attributes:
        skipped: readings that could not be read, since the start.
    """

    skipped: int

    async def read(self) -> Sequence[NodeUsage]:
        """Return the usage of all nodes as of now.

        Raises:
            UsageSourceError: there is no answer.
        """

    def backfill(self) -> AsyncIterator[Sequence[NodeUsage]]:
        """Yield the usage of all nodes at moments of the past, oldest first, if it is kept.

        Raises:
            UsageSourceError: there is no answer.
        """


class UsageFeed:
    """Takes what a source reads of nodes; whatever Koordinator measures is left to it.

    Args:
        state: told the usage of nodes.
        history: of the readings, empty at the start.
        by_koordinator: whether a NodeMetric that was filled tells the usage of a node.
    """

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

    async def take(self, readings: Sequence[NodeUsage]) -> int:
        """Take one look at all nodes; says how many readings were new.

        A node that is not among them keeps its usage, which grows old, for as long as it is in the
        cluster: its agent may be all that is gone.
        """
        new = 0
        for start in range(0, len(readings), AT_A_TIME):
            new += self._take(readings[start : start + AT_A_TIME])
            await asyncio.sleep(0)
        self._drop_gone({reading.node_name for reading in readings})
        return new

    def remember(self, readings: Iterable[NodeUsage]) -> None:
        """Take a look at the past, oldest first: it adds to the history alone."""
        for reading in readings:
            self._is_new(reading)

    def _take(self, readings: Iterable[NodeUsage]) -> int:
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
        # Sums over the pods of each node are brought up to date here, a few nodes at a time; left
        # to the next review, all of them at once would be its delay.
        self._state.view()
        return len(new)

    def _is_new(self, reading: NodeUsage) -> bool:
        """Add a reading to the history, if it is complete and newer than what is there."""
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
    """Feeds what a source knows, for ever.

    Attributes:
        status: how it goes.

    Args:
        source: who is asked.
        feed: told the answers.
        status: of this source; changed in place.
        every_seconds: time between two looks.
        now: the wall clock.
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        source: UsageSource,
        feed: UsageFeed,
        status: SourceStatus,
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
        self._knows_past = False

    async def run(self) -> None:
        """Look again and again; runs until cancelled."""
        while True:
            seconds = await self._look()
            await self._sleep(seconds * random.uniform(1, 1 + _SPREAD))  # noqa: S311 - no secret

    async def _look(self) -> float:
        """Look once; return the seconds until the next time."""
        try:
            if not self._knows_past:
                async for readings in self._source.backfill():
                    self._feed.remember(readings)
                self._knows_past = True
            readings = await self._source.read()
            new = await self._feed.take(readings)
        except UsageSourceError as error:
            self._note(str(error))
            self.status.present = not error.is_absent
            pause = ABSENT_SECONDS if error.is_absent else self._every_seconds
            return max(pause, error.retry_after_seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is, usage must go on being read
            _log.exception("usage could not be taken up")
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
        """Log a change of fortune, once."""
        if message != self.status.last_error:
            if message:
                _log.warning("no usage from %s: %s", self.status.name, message)
            else:
                _log.info("usage from %s is back", self.status.name)
            self.status.last_error = message
