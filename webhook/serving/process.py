"""The process: start, event loop, memory and signals."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec
import uvloop

from webhook.background import in_background
from webhook.cluster import RecordedPods, Recording, load_recorded
from webhook.serving.composition import run_server
from webhook.serving.server import RunningServer, raise_descriptor_limit
from webhook.serving.services import Role
from webhook.settings import Settings

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, form: Literal["json", "text"], stream: TextIO) -> None:
    """Send every log record of the process to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class JsonLines(logging.Formatter):
    """One JSON object per record, including its `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


class TextLines(logging.Formatter):
    """One line of text per record, and its traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as text; its message never spans lines."""
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{_time(record)} {record.levelname.lower()}: {record.getMessage()}{extra}"
        line = line.replace("\n", "\\n")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


_THRESHOLDS: Final = (50_000, 20, 50)
"""Reviews leave no cycles, so collections are for what changes rarely. A collection takes some 10
ms, however few objects are new: it traverses large young objects each time.
"""


def freeze_objects() -> None:
    """Exclude all existing objects from later collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def freezing_survivors() -> Iterator[None]:
    """Exclude what a collection leaves from later ones, until the block is left.

    For the lists of a start, of which nearly everything stays: each object is looked at once, where
    a collection of all takes 300 ms with 50,000 nodes. Not for longer: an object of a cycle that
    was in use during a collection is never freed.
    """

    def freeze(phase: str, _: Mapping[str, int]) -> None:
        if phase == "stop":
            gc.freeze()

    gc.callbacks.append(freeze)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze)


# A watchdog over the event loop: a process that hangs ends, and does not seem to be alive.
#
# A leader that hangs loses the Lease by its deadline, but its address and its listening sockets
# stay, so that callers wait for it until they time out. Once it has ended they are refused at once.


HANG_SECONDS: Final = 10
"""Time without a turn of the event loop: by then, the deadline of the Lease, it leads no more."""

_LOOK_SECONDS: Final = 1.0
_SHOW_SECONDS: Final = 1.0
_EXIT_STATUS: Final = 70  # EX_SOFTWARE of sysexits.h

_log = logging.getLogger(__name__)


class Watchdog:
    """Counts its own looks at the event loop, not the time of a clock.

    So a process that was suspended, or that gets no processor at all, is not taken for one that
    hangs: its watchdog did not run either.
    """

    def __init__(self, give_up: Callable[[], object], most: int = HANG_SECONDS) -> None:
        self._give_up = give_up
        self._most = most  # looks in a row, one a second, in which the loop had no turn
        self._turns = 0
        self._seen = 0
        self._missed = 0
        self._ended = threading.Event()

    async def watch(self) -> None:
        """Have a thread watch this event loop until cancelled."""
        threading.Thread(target=self._look_on, name="watchdog", daemon=True).start()
        try:
            while True:
                self.turn()
                await asyncio.sleep(_LOOK_SECONDS / 2)
        finally:
            self._ended.set()

    def turn(self) -> None:
        self._turns += 1

    def look(self) -> None:
        """Look for a turn since the last look; give up after too many without any."""
        self._missed = 0 if self._turns != self._seen else self._missed + 1
        self._seen = self._turns
        if self._missed >= self._most:
            self._give_up()

    def _look_on(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self.look()


def end_process() -> None:
    """End this process within a second, and show what each thread was doing."""
    # It may hang as nobody reads what it logs: then this would, too.
    threading.Timer(_SHOW_SECONDS, os._exit, (_EXIT_STATUS,)).start()
    _log.critical("the event loop hangs, and this process ends")
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    os._exit(_EXIT_STATUS)


SWITCH_SECONDS: Final = 20e-6
"""How long a thread with a large pod may hold the interpreter while the event loop waits for it.

A decision gives the interpreter away in each of some hundred calls into numpy, and waits as often.
"""

_TRIM_EVERY_SECONDS: Final = 10.0
_M_MMAP_THRESHOLD: Final = -3  # of `mallopt`, see malloc.h
_LARGE_BYTES: Final = 256 * 1024  # what uvloop takes for each TLS connection

_libc: Final = ctypes.CDLL(None)


def serve(settings: Settings, role: Role) -> None:
    """Run a process in a role until SIGINT or SIGTERM; a second signal ends at once."""
    map_large_blocks()
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    configure(settings.log_level, settings.log_format, sys.stderr)
    pods = RecordedPods() if settings.dashboard_port is not None else None
    recording = None
    if settings.cluster:
        recording = load_recorded(settings.cluster, observers=() if pods is None else (pods,))
        for problem in recording.problems:
            _log.warning("left out: %s", problem)
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
