"""Asking for the usage of nodes again and again, whatever becomes of the one who is asked."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from engine.errors import StowplanError
from engine.model.time import Micros
from engine.model.usage import NodeUsage
from webhook.cluster.usage.feed import UsageFeed
from webhook.cluster.watch.source_status import SourceStatus

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
