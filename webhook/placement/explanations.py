"""The latest decisions with their reasons, for the debug page and for support."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import msgspec

PER_SECOND: Final = 20
"""How many decisions a second are explained in the long run, and how many at once at most."""


class Explanations:
    """A bounded memory of explanations; the oldest makes room for the newest.

    They are kept as JSON text, a third as large as its values, and not as decisions, which hold
    whole columns. To make one takes a tenth of a whole review, so where pods come faster than
    anyone could read, only some are made. What is left out is counted, and the annotations of each
    pod tell why all the same.

    Args:
        most: how many are kept, 0 for none.
        clock: seconds that only grow.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept: deque[tuple[str, bytes]] = deque(maxlen=most)  # by key of the pod
        self._clock = clock
        self._left_out = 0  # since the latest that is kept
        self._allowed = float(PER_SECOND)  # at `_counted_at`
        self._counted_at = clock()

    def __len__(self) -> int:
        return len(self._kept)

    def offer(self, explain: Callable[[], dict[str, Any]], *, always: bool = False) -> None:
        """Remember a decision, with `leftOutBefore`: how many others were not since the last one.

        Args:
            explain: gives what `engine.report.explanation` does; called if it will be kept.
            always: whether to keep it however many there are.
        """
        if not self._kept.maxlen:
            return
        if not always and not self._one_is_allowed():
            self._left_out += 1
            return
        explanation = {**explain(), "leftOutBefore": self._left_out}
        self._kept.append((_key(explanation), msgspec.json.encode(explanation)))
        self._left_out = 0

    def latest(self, *, pod: str = "", limit: int | None = None) -> list[msgspec.Raw]:
        """Explanations as JSON, newest first.

        Args:
            pod: keep only those whose `namespace/name` contains this text.
            limit: return at most so many.
        """
        found = (text for key, text in reversed(self._kept) if pod in key)
        return [msgspec.Raw(text) for text in islice(found, limit)]

    def _one_is_allowed(self) -> bool:
        now = self._clock()
        allowed = self._allowed + (now - self._counted_at) * PER_SECOND
        self._allowed, self._counted_at = min(allowed, PER_SECOND), now
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True


def _key(explanation: dict[str, Any]) -> str:
    return f"{explanation['pod']['namespace']}/{explanation['pod']['name']}"
