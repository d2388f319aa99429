"""What is being done for gangs: their releases, and what becomes of those that failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from engine.gang import GangKey

_log = logging.getLogger(__name__)


class GangTasks:
    """Tasks, one for each gang."""

    def __init__(self) -> None:
        self._tasks: dict[GangKey, asyncio.Task[None]] = {}

    def __contains__(self, key: object) -> bool:
        """Whether something is being done for a gang."""
        return key in self._tasks

    def run(self, key: GangKey, work: Awaitable[None]) -> None:
        """Do something for a gang for which nothing is being done."""
        task = self._tasks[key] = asyncio.create_task(self._run(key, work))
        task.add_done_callback(lambda _task: self._tasks.pop(key, None))

    async def end(self) -> None:
        """Cancel all."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, key: GangKey, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 - no bug in one gang ends the others
            _log.exception("gang `%s` could not be released", key)
