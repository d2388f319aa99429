"""Additions to the selection, by every replica: a namespace is asked about before its quota is."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from engine.quota import Reach
from webhook.cluster.client.connection import ApiError, Server
from webhook.controllers.quota_rollout.api_servers import KnownServers
from webhook.controllers.quota_rollout.configuration import (
    ConflictError,
    RolloutError,
    StoredSelection,
)
from webhook.controllers.quota_rollout.selection import Selection, covering
from webhook.quota import MonotonicClock

_MOST_SECONDS: Final = 5.0
"""Less than a review has, so that whoever creates a quota reads why it is refused."""

_FIRST_WAIT_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.5
_MOST_AT_A_TIME = 1_000

_log = logging.getLogger(__name__)


class Configuration(Protocol):
    """The stored selection."""

    async def read(self) -> StoredSelection | None:
        """Return it as it is at this moment."""

    async def write(self, over: StoredSelection, selection: Selection) -> StoredSelection:
        """Store another, unless it has changed meanwhile."""


class Servers(Protocol):
    """The API servers."""

    async def known(self) -> KnownServers:
        """Return those that can be asked."""

    async def has_taken_up(self, server: Server | None, stamp: str) -> bool:
        """Return whether one goes by the version with a stamp."""

    async def settle(self) -> None:
        """Wait for those that cannot be asked."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """Somebody who waits until API servers ask about some namespaces."""

    reach: Reach
    covered: asyncio.Future[None]


class QuotaCoverage:
    """Makes API servers ask about namespaces; all that wait are served by one write.

    Args:
        configuration: the stored selection.
        servers: that must have taken it up.
        clock: of all waits.
    """

    def __init__(
        self, configuration: Configuration, servers: Servers, clock: MonotonicClock | None = None
    ) -> None:
        self._configuration = configuration
        self._servers = servers
        self._clock = clock or MonotonicClock()
        self._waiting: list[_Waiter] = []
        self._worker: asyncio.Task[None] | None = None

    async def cover(self, reach: Reach) -> None:
        """Return once every API server that can be asked asks about these namespaces.

        Those that cannot, such as behind a load balancer, have had time to.

        Raises:
            RolloutError: it is not so, or not known; then a quota must not be stored.
        """
        waiter = _Waiter(reach, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="coverage of new quotas")
        await waiter.covered

    async def add(self, reach: Reach) -> StoredSelection | None:
        """Store a selection with these namespaces; return it, None where nobody is asked.

        Raises:
            ApiError: it cannot be read or written.
            RolloutError: it cannot be kept.
        """
        wait = _FIRST_WAIT_SECONDS
        while True:
            stored = await self._configuration.read()
            if stored is None:
                return None
            selection = covering(stored.selection, reach)
            if selection == stored.selection and stored.stamp:
                return stored
            try:
                return await self._configuration.write(stored, selection)
            except ConflictError:
                await self._clock.sleep(wait * self._clock.jitter())
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    async def close(self) -> None:
        """End; whoever waits gets no answer."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:_MOST_AT_A_TIME]
                del self._waiting[:_MOST_AT_A_TIME]
                await self._answer(batch)
        finally:
            self._worker = None
            _fail(self._waiting, RolloutError("the webhook is ending"))

    async def _answer(self, batch: list[_Waiter]) -> None:
        """Answer a batch, whatever happens."""
        error = RolloutError("the webhook is ending")
        try:
            reach = _joined(batch)
            async with asyncio.timeout(_MOST_SECONDS):
                await self._put_in_force(reach)
        except RolloutError as refusal:
            error = refusal
        except TimeoutError:
            error = RolloutError("not every API server has taken up the webhook configuration")
        except (ApiError, msgspec.DecodeError) as failure:
            error = RolloutError(f"the webhook configuration cannot be kept: {failure}")
        except Exception:  # noqa: BLE001 - a bug of ours must not leave others waiting
            _log.exception("new quotas cannot be put in force")
            error = RolloutError("internal error, see the log")
        else:
            for waiter in batch:
                if not waiter.covered.done():
                    waiter.covered.set_result(None)
        finally:
            _fail(batch, error)

    async def _put_in_force(self, reach: Reach) -> None:
        """Store the selection, and wait until API servers go by it, or by a later one."""
        proven = set[Server | None]()
        known: KnownServers | None = None
        wait = _FIRST_WAIT_SECONDS
        while True:
            # 1. The stamp of the newest version, for the one before may be known no more.
            stored = await self.add(reach)
            if stored is None:
                return
            # 2. INVARIANT: a version that an API server has taken up after the namespaces were
            #    added is followed by none without them. So what is proven stays so.
            known = known or await self._servers.known()
            unproven = [server for server in known.servers if server not in proven]
            answers = await asyncio.gather(
                *(self._servers.has_taken_up(server, stored.stamp) for server in unproven)
            )
            proven.update(
                server for server, is_taken_up in zip(unproven, answers, strict=True) if is_taken_up
            )
            # 3. Those that cannot be asked are given time.
            if len(proven) == len(known.servers):
                if not known.are_all:
                    await self._servers.settle()
                return
            await self._clock.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


def _joined(batch: list[_Waiter]) -> Reach:
    joined = frozenset[str]()
    for waiter in batch:
        if waiter.reach is None:
            return None
        joined |= waiter.reach
    return joined


def _fail(waiters: list[_Waiter], error: RolloutError) -> None:
    for waiter in waiters:
        if not waiter.covered.done():
            waiter.covered.set_exception(error)
