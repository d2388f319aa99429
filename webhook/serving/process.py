"""The process: start, event loop, memory and signals."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import Final

import uvloop

from webhook.background import in_background
from webhook.cluster import RecordedPods, Recording, load_recorded
from webhook.serving import logs
from webhook.serving.composition import run_server
from webhook.serving.connections import raise_descriptor_limit
from webhook.serving.garbage import freeze_objects, freezing_survivors
from webhook.serving.server import RunningServer
from webhook.serving.services import Role
from webhook.serving.watchdog import Watchdog, end_process
from webhook.settings import Settings

SWITCH_SECONDS: Final = 20e-6
"""How long a thread with a large pod may hold the interpreter while the event loop waits for it.

A decision gives the interpreter away in each of some hundred calls into numpy, and waits as often.
"""

_TRIM_EVERY_SECONDS: Final = 10.0
_M_MMAP_THRESHOLD: Final = -3  # of `mallopt`, see malloc.h
_LARGE_BYTES: Final = 256 * 1024  # what uvloop takes for each TLS connection

_libc: Final = ctypes.CDLL(None)
_log = logging.getLogger(__name__)


def serve(settings: Settings, role: Role) -> None:
    """Run a process in a role until SIGINT or SIGTERM; a second signal ends at once.

    Raises:
        InvalidFileError: a policy, a recorded cluster or a kubeconfig cannot be used.
        NoKubeconfigError: there is no kubeconfig.
        SettingsError: a port cannot be listened on.
        TlsError: the certificate cannot be used.
    """
    map_large_blocks()
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    logs.configure(settings.log_level, settings.log_format, sys.stderr)
    pods = RecordedPods() if settings.dashboard_port is not None else None
    recording = _recording(settings, pods) if settings.cluster else None
    freeze_objects()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, recording, role, pods))


def map_large_blocks() -> None:
    """Let glibc map each large block by itself, so that it is returned as soon as it is freed.

    By default glibc does so only until the first of them is freed. From then on they come out of
    the heap, where what is allocated between the lists of a start, or between the buffers of many
    connections, keeps all of it from being returned: 10 MiB at a start, 40 MiB after a burst. With
    another C library nothing happens.
    """
    with suppress(AttributeError):
        _libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def trim_heap() -> None:
    """Let glibc return unused pages; takes some 2 ms after a busy time, else less."""
    with suppress(AttributeError):
        _libc.malloc_trim(0)


def _recording(settings: Settings, pods: RecordedPods | None) -> Recording:
    recording = load_recorded(settings.cluster, observers=() if pods is None else (pods,))
    for problem in recording.problems:
        _log.warning("left out: %s", problem)
    return recording


async def _serve(
    settings: Settings, recording: Recording | None, role: Role, pods: RecordedPods | None
) -> None:
    terminated = _termination()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            run_server(settings, recording, role=role, recorded_pods=pods)
        )
        print(server.greeting(), flush=True)  # noqa: T201 - for the person who started it
        server.health.preparing = server.cluster.is_live
        in_background(stack, _settle(server))
        in_background(stack, _trim_periodically())
        in_background(stack, Watchdog(end_process).watch())
        await terminated.wait()
        await server.drain(settings.drain_seconds, delay_seconds=settings.shutdown_delay_seconds)


async def _settle(server: RunningServer) -> None:
    """Wait for the bulk of all data, which stays, and free what was used to load it.

    Then reviews may come: before, each would wait for the longest of these steps.
    """
    try:
        with freezing_survivors():
            await server.cluster.synced()
            await server.warm_up()
        freeze_objects()
        trim_heap()
    finally:
        server.health.preparing = False


async def _trim_periodically() -> None:
    """Return pages that reviews leave free between live objects: 15 MiB in a busy time."""
    while True:
        await asyncio.sleep(_TRIM_EVERY_SECONDS)
        trim_heap()


def _termination() -> asyncio.Event:
    """Event of the first SIGINT or SIGTERM; the next one kills the process."""
    terminated = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    loop = asyncio.get_running_loop()

    def terminate() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        terminated.set()

    for number in signals:
        loop.add_signal_handler(number, terminate)
    return terminated
