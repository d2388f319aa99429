"""The task of the leader: quotas that nobody announced are covered, and the selection narrowed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import msgspec

from engine.model.elastic_quota import QuotaKey
from engine.quota import Reach, reach_of
from webhook.cluster.client.connection import ApiError, Connection, Server
from webhook.cluster.client.envelopes import Meta
from webhook.cluster.client.lists import list_kind
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.quota_rollout.api_servers import ApiServers, KnownServers
from webhook.controllers.quota_rollout.configuration import (
    ConflictError,
    Narrowing,
    RolloutConfiguration,
    RolloutError,
    Selection,
    StoredSelection,
    covering,
    may_be_narrowed,
    narrowed,
)
from webhook.identity import new_identity


class _Quota(msgspec.Struct, rename="camel"):
    api_version: str
    metadata: Meta


_decode = msgspec.json.Decoder(_Quota).decode


async def stored_reach(connection: Connection) -> Reach:
    """Return the namespaces whose pods may be limited by a quota that is stored.

    Raises:
        ApiError: they cannot be listed.
    """

    def key(raw: msgspec.Raw) -> QuotaKey:
        wire = _decode(raw)
        return wire.metadata.namespace, wire.api_version.partition("/")[0], wire.metadata.name

    # Without a resourceVersion: what etcd has, and no cache of an API server.
    return reach_of(await list_kind(connection, "ElasticQuota", decode=key) or ())


_MOST_SECONDS: Final = 5.0
"""Less than a review has, so that whoever creates a quota reads why it is refused."""

_FIRST_WAIT_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.5
_MOST_AT_A_TIME = 1_000

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Waiter:
    """Somebody who waits until API servers ask about some namespaces."""

    reach: Reach
    covered: asyncio.Future[None]


@dataclass(eq=False)
class QuotaCoverage:
    """Makes API servers ask about namespaces; all that wait are served by one write."""

    configuration: RolloutConfiguration  # the stored selection
    servers: ApiServers  # that must have taken it up
    clock: MonotonicClock = field(default_factory=MonotonicClock)  # of all waits

    def __post_init__(self) -> None:
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
            stored = await self.configuration.read()
            if stored is None:
                return None
            selection = covering(stored.selection, reach)
            if selection == stored.selection and stored.stamp:
                return stored
            try:
                return await self.configuration.write(stored, selection)
            except ConflictError:
                await self.clock.sleep(wait * self.clock.jitter())
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
            known = known or await self.servers.known()
            unproven = [server for server in known.servers if server not in proven]
            answers = await asyncio.gather(
                *(self.servers.has_taken_up(server, stored.stamp) for server in unproven)
            )
            proven.update(
                server for server, is_taken_up in zip(unproven, answers, strict=True) if is_taken_up
            )
            # 3. Those that cannot be asked are given time.
            if len(proven) == len(known.servers):
                if not known.are_all:
                    await self.servers.settle()
                return
            await self.clock.sleep(wait)
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


_ROUND_SECONDS = 2.0
_SURPLUS_SECONDS = 10.0  # the watch shows a quota some moments after its namespace was listed


@dataclass(eq=False)
class QuotaRolloutController:
    """Keeps the selection as narrow as the quotas allow.

    Additions do not depend on it: every replica makes them itself, before a quota is stored. So
    while nobody leads, namespaces stay longer than they must, and no other harm is done.
    """

    configuration: RolloutConfiguration  # the stored selection
    coverage: QuotaCoverage  # through which namespaces are added
    _: KW_ONLY
    known: Callable[[], Reach]  # returns the reach of the quotas that a watch has shown
    # returns that of all quotas that are stored at the moment it is called
    stored: Callable[[], Awaitable[Reach]]
    # longer than any request to an API server lasts, from its review by a webhook to the moment in
    # which its object is stored
    settle_seconds: float
    may_write: Callable[[], bool]  # whether this replica leads at this very moment
    show: Callable[[Reach], None]  # called in each round with the namespaces that are asked about
    clock: MonotonicClock = field(default_factory=MonotonicClock)  # of rounds and announcements

    def __post_init__(self) -> None:
        self._announced: tuple[str, float] | None = None
        self._surplus_since: float | None = None

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._announced = self._surplus_since = None
        try:
            while True:
                try:
                    await self.round()
                except ConflictError:
                    pass  # somebody was faster; what he wrote is read in the next round
                except (ApiError, RolloutError, msgspec.DecodeError) as error:
                    _log.warning("namespaces of quotas not kept: %s", error)
                await self.clock.sleep(_ROUND_SECONDS)
        finally:
            self.show(frozenset())  # the next leader shows them

    async def round(self) -> None:
        """Make the next change that is due.

        Raises:
            ConflictError: the configuration has changed since it was read.
            ApiError: something cannot be read or written.
            RolloutError: the configuration is not one for an automatic roll-out.
        """
        stored = await self.configuration.read()
        known = self.known()
        if stored is None or not self.may_write():
            return
        self.show(stored.selection.names)
        has_surplus = may_be_narrowed(stored.selection, known)
        if not has_surplus or self._surplus_since is None:
            self._surplus_since = self.clock.now()
        # 1. A quota that no replica was asked about, such as while all were away.
        if not stored.selection.covers(known):
            await self.coverage.add(known)
        # 2. Namespaces without a quota: announce that they will leave, and later let them.
        elif has_surplus:
            await self._narrow(stored, self._surplus_since)
        # 3. None of them left.
        elif stored.selection.narrowing is not None:
            await self.configuration.write(stored, Selection(names=stored.selection.names))

    async def _narrow(self, stored: StoredSelection, surplus_since: float) -> None:
        now, selection = self.clock.now(), stored.selection
        if selection.narrowing is None:
            if now - surplus_since < _SURPLUS_SECONDS:
                return
            announcement = Narrowing(id=new_identity())
            announcing = Selection(names=selection.names, narrowing=announcement)
            await self.configuration.write(stored, announcing)
            self._announced = announcement.id, self.clock.now()
        elif self._announced is None or self._announced[0] != selection.narrowing.id:
            # That of an earlier leader, of unknown age: counted from here on.
            self._announced = selection.narrowing.id, now
        elif now - self._announced[1] >= self.settle_seconds:
            # INVARIANT: whoever saw no announcement has stored his quota by now, or never will;
            # whoever saw it has noted his namespace. If one is noted from here on, the write fails.
            reach = await self.stored()
            if self.may_write():
                await self.configuration.write(stored, narrowed(selection, reach))
