"""The latest decisions with their reasons, for the debug page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from engine.report import DecisionExcerpt, DecisionReport

MOST_BYTES: Final = 8 * 2**20
"""Limit of all explanations together; an everyday one takes 2 to 5 KiB."""

_MOST_DECISIONS: Final = 256
"""What a person who looks into a moment reads; with reasons some 1 MiB."""

PER_SECOND: Final = 20
"""Limit of recorded decisions: for each second in the long run, and for a burst."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(DecisionExcerpt).decode


class RecordedDecision(DecisionReport, frozen=True, kw_only=True):
    """A decision as the debug page shows it."""

    left_out_before: int  # number of decisions not recorded since the previous recorded one


class _Recorded(NamedTuple):
    pod: str  # its key
    excerpt: bytes  # as JSON
    left_out_before: int  # as in `RecordedDecision`

    @property
    def size(self) -> int:
        return len(self.pod) + len(self.excerpt)

    def explanation(self) -> msgspec.Raw:
        report = structs.asdict(_decode(self.excerpt).report())
        return msgspec.Raw(
            _encode(RecordedDecision(**report, left_out_before=self.left_out_before))
        )


@dataclass(eq=False)
class Explanations:
    """A ring buffer of decisions, which are explained when somebody reads about them.

    It holds excerpts as JSON text, a third as large as their values, and not decisions, which hold
    whole columns. An excerpt takes a tenth of a whole review, so beyond a rate that nobody could
    read decisions are only counted. The annotations of each pod still explain its decision.
    """

    limit: int = _MOST_DECISIONS  # decisions held, 0 for none
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic  # monotonic seconds

    def __post_init__(self) -> None:
        self._recorded: deque[_Recorded] = deque()
        self._bytes = 0  # of the recorded texts
        self._left_out = 0  # since the latest recorded decision
        self._tokens = float(PER_SECOND)  # at `_refilled_at`
        self._refilled_at = self.clock()

    def __len__(self) -> int:
        return len(self._recorded)

    def offer(self, excerpt: Callable[[], DecisionExcerpt], *, always: bool = False) -> None:
        """Record a decision, unless there are too many."""
        if not self.limit:
            return
        if not always and not self._takes_token():
            self._left_out += 1
            return
        made = excerpt()
        self._append(_Recorded(str(made.pod), _encode(made), self._left_out))
        self._left_out = 0

    def latest(self, *, pod: str = "", limit: int | None = None) -> Iterator[msgspec.Raw]:
        """Explanations as JSON, newest first, of what is recorded now; 0.1 ms each."""
        found = [recorded for recorded in reversed(self._recorded) if pod in recorded.pod]
        return (recorded.explanation() for recorded in found[:limit])

    def _append(self, recorded: _Recorded) -> None:
        """Record a decision, and drop the oldest ones beyond the limits; at worst it is dropped."""
        self._recorded.append(recorded)
        self._bytes += recorded.size
        while len(self._recorded) > self.limit or self._bytes > MOST_BYTES:
            self._bytes -= self._recorded.popleft().size

    def _takes_token(self) -> bool:
        now = self.clock()
        tokens = self._tokens + (now - self._refilled_at) * PER_SECOND
        self._tokens, self._refilled_at = min(tokens, PER_SECOND), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
