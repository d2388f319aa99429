"""A live cluster: every source of it, kept running, in one `ClusterState`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from engine.view import ClusterView
from webhook.cluster.client.backoff import Backoff
from webhook.cluster.client.connection import Connection
from webhook.cluster.watch.event_applier import READERS, EventApplier
from webhook.cluster.watch.reflector import Reflector, Sink
from webhook.cluster.watch.source_status import SourceStatus
from webhook.cluster.watch.timing import USUAL, Clock, ReflectorConfig
from webhook.cluster.watch.watched_kinds import WATCHED, Watched

_LOOK_AGAIN_SECONDS = 0.02
_GATHER_SECONDS = 0.25
"""For how long reports of usage are gathered. They are of a minute or so each."""

_log = logging.getLogger(__name__)


class Source(Protocol):
    """Something that tells of a cluster as long as it runs.

    Attributes:
        status: how well it hears.
    """

    @property
    def status(self) -> SourceStatus: ...  # noqa: D102 - see above

    async def run(self) -> None:
        """Run for ever, through failures of what it listens to."""


class LiveCluster:
    """What is known of a cluster right now.

    Attributes:
        state: the cluster.
        sources: how well each source hears, by its name.
    """

    def __init__(self, intake: EventApplier, sources: Iterable[Source]) -> None:
        """Take what the sources write into, and them."""
        self.state = intake.state
        self._intake = intake
        self.sources: Mapping[str, SourceStatus] = {
            source.status.name: source.status for source in sources
        }

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""
        return self.state.view()

    @property
    def is_synced(self) -> bool:
        """Whether each required source was heard in full, and waiting for others makes no sense."""
        return all(status.sync_settled for status in self.sources.values())

    async def synced(self) -> None:
        """Wait until `is_synced`."""
        while not self.is_synced:  # noqa: ASYNC110 - a status tells nobody when it changes
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        self._intake.flush_usage()


@asynccontextmanager
async def live_cluster(
    connection: Connection,
    intake: EventApplier,
    clock: Clock,
    *,
    also: Sequence[Source] = (),
    pace: ReflectorConfig = USUAL,
) -> AsyncIterator[LiveCluster]:
    """Listen to a cluster until the block is left.

    Args:
        connection: to its API server.
        intake: where objects go; made with the same clock.
        clock: what time is.
        also: more sources, as of usage, that write into the same intake.
        pace: how long to wait for what.
    """
    reflectors = [
        Reflector(connection, watched, _sink(intake, watched), clock, pace) for watched in WATCHED
    ]
    sources = [*reflectors, *also]
    tasks = [
        asyncio.create_task(_keep_running(source, clock, pace), name=source.status.name)
        for source in sources
    ]
    tasks.append(asyncio.create_task(_keep_up(intake), name="reports"))
    try:
        yield LiveCluster(intake, sources)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_up(intake: EventApplier) -> None:
    """Take up reports now and then, and bring sums up to date here, not in the next review."""
    while True:
        await asyncio.sleep(_GATHER_SECONDS)
        try:
            intake.flush_usage()
            intake.state.view()
        except Exception:  # noqa: BLE001 - a mistake of ours must not end it: no report would count
            _log.exception("reports of usage could not be taken up")


def _sink(intake: EventApplier, watched: Watched) -> Sink:
    reader = READERS[watched.group, watched.kind]
    if reader.forget is None:
        raise AssertionError("what is watched can be forgotten")
    return Sink(
        wire=reader.wire,
        take=partial(reader.take, intake),
        forget=partial(reader.forget, intake),
        key=partial(reader.key, intake) if reader.key else str,
    )


async def _keep_running(source: Source, clock: Clock, pace: ReflectorConfig) -> None:
    """Run a source, again after a mistake of ours in it: the others must not end with it."""
    backoff = Backoff(pace.first_retry_seconds, pace.longest_retry_seconds, clock.jitter)
    while True:
        try:
            await source.run()
        except Exception as error:  # noqa: BLE001 - a mistake of ours may raise anything
            _log.exception("%s: failed, and will be started again", source.status.name)
            source.status.last_error = f"internal error: {error}"
        await clock.sleep(backoff.next())
