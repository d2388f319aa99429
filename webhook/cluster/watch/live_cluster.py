"""A live cluster: all its sources, kept running, feed one `ClusterState`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from engine.model.kinds import WATCHED, Kind
from webhook.cluster.client.connection import Connection
from webhook.cluster.cluster import Cluster
from webhook.cluster.server_version import VersionReader
from webhook.cluster.timing import DEFAULT_CONFIG, Backoff, Clock, ReflectorConfig
from webhook.cluster.watch.event_applier import EventApplier
from webhook.cluster.watch.reflector import ApiGroups, Reflector
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter

_FLUSH_SECONDS = 0.25  # a node's usage is reported every minute or so

_log = logging.getLogger(__name__)


class EventSource(Protocol):
    """A source of events."""

    @property
    def status(self) -> SourceStatus: ...  # noqa: D102 - how up to date it is

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
