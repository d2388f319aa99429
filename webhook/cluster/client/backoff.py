"""How long to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Callable

_LONGEST_ASKED_SECONDS = 120.0  # a server that asks for more is not believed


class Backoff:
    """Waits that double up to a bound, each with jitter, so that replicas do not come at once.

    Args:
        first_seconds: the first wait, before jitter.
        longest_seconds: no wait is longer, unless the server asks for it.
        jitter: a number in [0, 1).
    """

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._jitter = jitter
        self._wait = first_seconds

    def reset(self) -> None:
        """Start again with the first wait: something went well."""
        self._wait = self._first

    def next(self, asked: float | None = None) -> float:
        """Return how many seconds to wait now, between half and all of what is due.

        Args:
            asked: what the server asked for at least, as in `Retry-After`.
        """
        wait = self._wait * (1 + self._jitter()) / 2
        self._wait = min(2 * self._wait, self._longest)
        return max(wait, min(asked or 0.0, _LONGEST_ASKED_SECONDS))
