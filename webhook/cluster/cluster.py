"""A cluster that reviews are decided on: a recording, or a live one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from engine.model.decision import Advice
from engine.model.kinds import WATCHED, Domain, Kind
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.view import FRESH, ClusterState, ClusterView, Freshness
from webhook.cluster.client.connection import Connection
from webhook.cluster.recorded import Recording
from webhook.cluster.server_version import VersionReader
from webhook.cluster.timing import DEFAULT_CONFIG, Backoff, Clock, ReflectorConfig
from webhook.cluster.watch.event_applier import EventApplier
from webhook.cluster.watch.reflector import ApiGroups, Reflector
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter

_MOST_RELEASED = 64  # at a time, in a millisecond: pods assumed in one burst are due at one moment
_RELEASE_SECONDS = 1.0
_SYNC_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The known state of a cluster, and how up to date it is."""

    state: ClusterState  # the cluster
    # the moment at which ages of measurements count; that of a recording stands still
    now: Callable[[], Micros]
    is_live: bool  # whether pods that were advised will be observed
    # what feeds the state, by name; none for a recording
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    # the ages at which domains are stale
    stale_after: StaleAfter = field(default_factory=StaleAfter)
    flush: Callable[[], None] = lambda: None  # applies events that are buffered

    def view(self) -> ClusterView:
        """Return the cluster as of now."""
        if self.is_live:
            self.state.release_assumed(self.now(), most=_MOST_RELEASED)
        return self.state.view()

    def nodes_version(self) -> int:
        """Return a number that grows whenever a node comes, goes or changes."""
        return self.state.view().latest[Domain.NODES]

    def freshness(self) -> Freshness:
        """Return the ages of the sources, and the domains that are stale."""
        if not self.is_live:
            return FRESH
        return self.stale_after.freshness(self.sources.values(), self.now())

    def last_contact(self) -> Micros:
        """Return the last contact with any source, 0 for never."""
        if not self.is_live:
            return self.now()
        contacts = (source.last_contact for source in self.sources.values())
        return max((moment for moment in contacts if moment is not None), default=Micros(0))

    @property
    def is_synced(self) -> bool:
        """Whether every source is synced, or is one that reviews need not wait for."""
        return all(status.sync_settled for status in self.sources.values())

    async def synced(self) -> None:
        """Wait until `is_synced`."""
        while not self.is_synced:  # noqa: ASYNC110 - a status does not announce its changes
            await asyncio.sleep(_SYNC_POLL_SECONDS)
        self.flush()

    def assume(self, pod: Pod, advice: Advice) -> None:
        """Count a pod that was just advised until it is observed: the next review must see it."""
        self.state.assume(pod, advice, at=self.now())

    def withdraw(self, pod: Pod) -> Advice | None:
        """Stop counting an assumed pod that is reviewed again; return its advice."""
        return self.state.withdraw(pod)

    async def release_assumed(self) -> None:
        """Release pods that were assumed for too long, also between reviews; never returns."""
        while True:
            are_left = self.state.release_assumed(self.now(), most=_MOST_RELEASED)
            await asyncio.sleep(0 if are_left else _RELEASE_SECONDS)


def recorded_cluster(recording: Recording, now: Callable[[], Micros]) -> Cluster:
    """Return a recording as a cluster of its newest moment, or of now if it has none."""
    recorded_at = recording.recorded_at or now()
    return Cluster(state=recording.state, now=lambda: recorded_at, is_live=False)


_FLUSH_SECONDS = 0.25  # a node's usage is reported every minute or so

_log = logging.getLogger(__name__)


class EventSource(Protocol):
    @property
    def status(self) -> SourceStatus: ...

    async def run(self) -> None:
        """Run for ever, through failures of what it reads."""


@asynccontextmanager
async def live_cluster(
    connection: Connection,
    applier: EventApplier,
    clock: Clock,
    *,
    also: Sequence[EventSource] = (),
    kinds: Sequence[Kind] = WATCHED,
    config: ReflectorConfig = DEFAULT_CONFIG,
    stale_after: StaleAfter | None = None,
) -> AsyncIterator[Cluster]:
    """Follow a cluster until the block is left."""
    groups = ApiGroups(connection, config.look_again_seconds)
    reflectors = [
        Reflector(connection, applier.by_kind[kind.group, kind.kind], clock, config, groups)
        for kind in kinds
    ]
    sources: list[EventSource] = [*reflectors, *also]
    version = VersionReader(connection, applier.state, clock)
    tasks = [
        asyncio.create_task(
            _keep_running(source, clock, config, version.tried), name=source.status.name
        )
        for source in sources
    ]
    tasks.append(asyncio.create_task(version.run(), name="version"))
    tasks.append(asyncio.create_task(_keep_flushing(applier), name="reports"))
    try:
        yield Cluster(
            state=applier.state,
            now=clock.now,
            is_live=True,
            sources={source.status.name: source.status for source in sources},
            stale_after=stale_after or StaleAfter(),
            flush=applier.flush_usage,
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_flushing(applier: EventApplier) -> None:
    """Apply buffered reports now and then, and update sums here rather than in the next review."""
    while True:
        await asyncio.sleep(_FLUSH_SECONDS)
        try:
            applier.flush_usage()
            applier.state.view()
        except Exception:  # noqa: BLE001 - a bug must not end it: no further report would count
            _log.exception("reports of usage could not be applied")


async def _keep_running(
    source: EventSource, clock: Clock, config: ReflectorConfig, may_start: asyncio.Event
) -> None:
    """Run a source, again after a bug in it: the others must not end with it."""
    await may_start.wait()
    backoff = Backoff(config.first_retry_seconds, config.longest_retry_seconds, clock.jitter)
    while True:
        try:
            await source.run()
        except Exception as error:  # noqa: BLE001 - a bug may raise anything
            _log.exception("%s: failed, and will be started again", source.status.name)
            source.status.last_error = f"internal error: {error}"
        await clock.sleep(backoff.next())
