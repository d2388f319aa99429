"""Noticing that files have changed: by looking, which works on every kind of mount."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

_log = logging.getLogger(__name__)


def fingerprint(paths: Sequence[Path]) -> frozenset[tuple[str, int, int, int]]:
    """Return what tells one state of files, and of all files in folders, from another.

    Links are followed: a mounted ConfigMap changes by pointing its links elsewhere.
    """
    return frozenset(_states(paths))


def _states(paths: Sequence[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            try:
                status = file.stat()
            except OSError:
                yield str(file), 0, 0, 0  # a link to nowhere: its end is a change too
                continue
            yield str(file), status.st_ino, status.st_mtime_ns, status.st_size


async def on_change(
    paths: Sequence[Path], every_seconds: float, act: Callable[[], Awaitable[object]]
) -> None:
    """Call `act` whenever the files have changed; runs until cancelled."""
    seen = fingerprint(paths)
    while True:
        await asyncio.sleep(every_seconds)
        now = fingerprint(paths)
        if now == seen:
            continue
        seen = now
        try:
            await act()
        except Exception:  # noqa: BLE001 - the next change is still to be noticed
            _log.exception("a changed file could not be taken up")
