"""The process: from its start by a person or a cluster to its end by a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import uvloop

from webhook.background import in_background
from webhook.cluster import Recording, load_recorded, recorded_cluster
from webhook.serving import heap, logs
from webhook.serving.composition import RunningServer, run_server, wall_clock
from webhook.serving.live import live
from webhook.settings import Settings

_GC_THRESHOLDS = (50_000, 20, 50)
"""Reviews leave no cycles, so collecting is for what changes rarely. A collection takes some 10 ms,
however few are new: what is large and young is looked through each time.
"""

_TRIM_EVERY_SECONDS = 10.0

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until told to end by SIGINT or SIGTERM; a second signal ends at once.

    Raises:
        InvalidFileError: a policy, a recorded cluster or a kubeconfig cannot be used.
        SettingsError: a port cannot be listened on.
        TlsError: the certificate cannot be used.
    """
    heap.keep_large_blocks_apart()
    logs.configure(settings.log_level, settings.log_format, sys.stderr)
    recording = _recording(settings) if settings.cluster else None
    _spare_the_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, recording))


def _recording(settings: Settings) -> Recording:
    recording = load_recorded(settings.cluster)
    for problem in recording.problems:
        _log.warning("left out: %s", problem)
    return recording


async def _serve(settings: Settings, recording: Recording | None) -> None:
    end = _told_to_end()
    async with AsyncExitStack() as stack:
        if recording is None:
            known = await stack.enter_async_context(live(settings, wall_clock))
            started = run_server(settings, known.cluster, parts=known.parts)
            synced = known.synced
        else:
            started = run_server(settings, recorded_cluster(recording, wall_clock))
            synced = None
        server = await stack.enter_async_context(started)
        print(server.greeting(), flush=True)  # noqa: T201 - said once, to whoever started us
        if synced is None:
            await server.warm_up()
        else:
            syncing = asyncio.create_task(_settle(synced, server))
            stack.callback(syncing.cancel)
        in_background(stack, _trim_now_and_then())
        await end.wait()
        await server.drain(settings.drain_seconds, delay_seconds=settings.shutdown_delay_seconds)


async def _settle(synced: Callable[[], Awaitable[None]], server: RunningServer) -> None:
    """Wait for the bulk of all data, which stays, and get rid of what brought it."""
    await synced()
    await server.warm_up()
    _spare_the_collector()
    heap.trim()


async def _trim_now_and_then() -> None:
    """Keep from adding up what reviews leave between what stays: 15 MiB in a busy time."""
    while True:
        await asyncio.sleep(_TRIM_EVERY_SECONDS)
        heap.trim()


def _spare_the_collector() -> None:
    """Take what is there to stay out of every later collection of garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _told_to_end() -> asyncio.Event:
    """Return an event for the first SIGINT or SIGTERM; the next one kills."""
    told = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    loop = asyncio.get_running_loop()

    def tell() -> None:
        for one in signals:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        told.set()

    for one in signals:
        loop.add_signal_handler(one, tell)
    return told
