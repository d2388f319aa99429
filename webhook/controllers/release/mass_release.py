"""Release of many held pods at once, by whoever has the right: nothing else of ours need run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from webhook.controllers.release.pod_writer import PodWriter
from webhook.controllers.release.write_error import WriteError, WriteFailure
from webhook.placement.held_pods import HeldPod

_WORKERS: Final = 50
_MOST_ATTEMPTS: Final = 5
_DONE: Final = frozenset({WriteFailure.GONE, WriteFailure.CHANGED})
"""Failures of a pod that somebody else has deleted or released."""


async def release_holds(
    writer: PodWriter,
    holds: Iterable[HeldPod],
    *,
    progress: Callable[[], None] = lambda: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, str]:
    """Remove our gate from pods; return why it could not be, by uid.

    One that fails does not keep the others waiting.

    Args:
        writer: bounds rate and number in flight.
        holds: pods with our gate.
        progress: called after each pod.
        sleep: waits for some seconds.
    """
    failures: dict[str, str] = {}
    waiting = iter(holds)
    async with asyncio.TaskGroup() as workers:
        for _ in range(_WORKERS):
            workers.create_task(_release_waiting(writer, waiting, failures, progress, sleep))
    return failures


async def _release_waiting(
    writer: PodWriter,
    waiting: Iterator[HeldPod],
    failures: dict[str, str],
    progress: Callable[[], None],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    for hold in waiting:
        failure = await _release(writer, hold, sleep)
        if failure:
            failures[hold.pod.uid] = failure
        progress()


async def _release(
    writer: PodWriter, hold: HeldPod, sleep: Callable[[float], Awaitable[None]]
) -> str:
    """Release a pod; return why it could not be, "" if it is."""
    attempts = 0
    while True:
        attempts += 1
        try:
            await writer.release(hold)
        except WriteError as error:
            if error.failure in _DONE:
                return ""
            if error.failure is WriteFailure.REFUSED or attempts == _MOST_ATTEMPTS:
                return error.message
            await sleep(writer.pause_seconds)
        else:
            return ""
