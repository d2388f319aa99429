"""An event loop whose time goes on only when a test lets it: nothing waits, and runs repeat."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable

_MOST_TURNS = 100_000


class _Selector(selectors.DefaultSelector):
    """Says when there is nothing left to do, instead of waiting."""

    def __init__(self, rest: Callable[[float | None], None]) -> None:
        super().__init__()
        self._rest = rest

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._rest(timeout)
        return []


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, which begins at 0."""

    def __init__(self) -> None:
        self._seconds = self._until = 0.0
        self._turns = 0
        super().__init__(_Selector(self._rest))

    def time(self) -> float:
        """Return the seconds that tests have let pass."""
        return self._seconds

    def advance(self, seconds: float = 0.0) -> None:
        """Run all that there is to do until so many seconds have passed.

        Raises:
            AssertionError: it never ends, although no time passes.
        """
        self._until = self._seconds + seconds
        self._turns = 0
        self.run_forever()

    def _rest(self, timeout: float | None) -> None:
        """Go on to the next timer, or stop where it is later."""
        if timeout == 0:
            self._turns += 1
            if self._turns > _MOST_TURNS:
                raise AssertionError("tasks go on without any time passing")
            return
        self._turns = 0
        if timeout is not None and self._seconds + timeout <= self._until:
            self._seconds += timeout
        else:
            self._seconds = self._until
            self.stop()
