"""The latest decisions with their reasons, for the debug page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

import msgspec
from msgspec import structs

from engine.report import DecisionReport

MOST_BYTES: Final = 8 * 2**20
"""Limit of all explanations together; an everyday one takes 3 to 8 KiB."""

PER_SECOND: Final = 20
"""Limit of recorded decisions: for each second in the long run, and for a burst."""


class RecordedDecision(DecisionReport, frozen=True, kw_only=True):
    """A decision as the debug page shows it.

    Attributes:
        left_out_before: number of decisions not recorded since the previous recorded one.
    """

    left_out_before: int


class Explanations:
    """A ring buffer of explained decisions.

    It holds JSON text, a third as large as its values, and not decisions, which hold whole columns.
    An explanation takes a tenth of a whole review, so beyond a rate that nobody could read
    decisions are only counted. The annotations of each pod still explain its decision.

    Args:
        limit: decisions held, 0 for none.
        clock: monotonic seconds.
    """

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorded: deque[tuple[str, bytes]] = deque()  # by key of the pod
        self._limit = limit
        self._bytes = 0  # of the recorded texts
        self._clock = clock
        self._left_out = 0  # since the latest recorded decision
        self._tokens = float(PER_SECOND)  # at `_refilled_at`
        self._refilled_at = clock()

    def __len__(self) -> int:
        return len(self._recorded)

    def offer(self, explain: Callable[[], DecisionReport], *, always: bool = False) -> None:
        """Record a decision, unless there are too many.

        Args:
            explain: makes the report; called only for a decision that is recorded.
            always: whether to record it at any rate.
        """
        if not self._limit:
            return
        if not always and not self._takes_token():
            self._left_out += 1
            return
        report = explain()
        recorded = RecordedDecision(**structs.asdict(report), left_out_before=self._left_out)
        self._append(str(report.pod), msgspec.json.encode(recorded))
        self._left_out = 0

    def latest(self, *, pod: str = "", limit: int | None = None) -> list[msgspec.Raw]:
        """Explanations as JSON, newest first.

        Args:
            pod: only those whose `namespace/name` contains this text.
            limit: at most so many.
        """
        found = (text for key, text in reversed(self._recorded) if pod in key)
        return [msgspec.Raw(text) for text in islice(found, limit)]

    def _append(self, pod: str, text: bytes) -> None:
        """Record a text, and drop the oldest ones beyond the limits; at worst it is dropped too."""
        self._recorded.append((pod, text))
        self._bytes += len(pod) + len(text)
        while len(self._recorded) > self._limit or self._bytes > MOST_BYTES:
            oldest = self._recorded.popleft()
            self._bytes -= sum(map(len, oldest))

    def _takes_token(self) -> bool:
        now = self._clock()
        tokens = self._tokens + (now - self._refilled_at) * PER_SECOND
        self._tokens, self._refilled_at = min(tokens, PER_SECOND), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
