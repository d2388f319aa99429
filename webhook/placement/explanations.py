"""The latest decisions with their reasons, for the debug page and for support."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

import msgspec
from msgspec import structs

from engine.report import DecisionReport

PER_SECOND: Final = 20
"""How many decisions a second are explained in the long run, and how many at once at most."""


class RecordedDecision(DecisionReport, frozen=True, kw_only=True):
    """A decision as the debug page shows it.

    Attributes:
        left_out_before: number of decisions not recorded since the previous recorded one.
    """

    left_out_before: int


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

    def offer(self, explain: Callable[[], DecisionReport], *, always: bool = False) -> None:
        """Remember a decision.

        Args:
            explain: makes the report; called only if it will be kept.
            always: whether to keep it however many there are.
        """
        if not self._kept.maxlen:
            return
        if not always and not self._one_is_allowed():
            self._left_out += 1
            return
        report = explain()
        recorded = RecordedDecision(**structs.asdict(report), left_out_before=self._left_out)
        self._kept.append((str(report.pod), msgspec.json.encode(recorded)))
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
