"""A watchdog over the event loop: a process that hangs ends, and does not seem to be alive.

A leader that hangs loses the Lease by its deadline, but its address and its listening sockets stay,
so that callers wait for it until they time out. Once it has ended they are refused at once.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

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

    Args:
        give_up: ends the process.
        most: looks in a row, one a second, in which the loop had no turn.
    """

    def __init__(self, give_up: Callable[[], object], most: int = HANG_SECONDS) -> None:
        self._give_up = give_up
        self._most = most
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
        """Note a turn of the event loop."""
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
