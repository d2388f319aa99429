"""Whether pods are demonstrably released: what the leader says of itself on the Lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from engine.model.hold import RELEASING_ANNOTATION

_LONGEST_SECONDS: Final = 10.0
_TRY_AGAIN_SECONDS: Final = 60.0
_MANY: Final = 3


class ReleasingStatus:
    """Says whether pods are released, from what became of the last writes.

    It is so while no pod waits for a write, or one was accepted in the last 10 s. Where somebody
    refused those of several pods, one after the other, only an accepted write counts; a minute
    later it is tried again, with the few pods that are held then. One pod alone proves nothing: who
    created it may be the one who has it refused.

    Args:
        annotate: writes an annotation on the Lease.
        clock: seconds that only go forward.
    """

    def __init__(
        self, annotate: Callable[[str, str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._annotate = annotate
        self._clock = clock
        self._waiting_since: float | None = None
        self._refused: set[str] = set()  # uids, since the last accepted write
        self._refused_at = 0.0

    def accepted(self) -> None:
        """Note that a release was accepted."""
        self._waiting_since = None
        self._refused.clear()

    def refused(self, uid: str) -> None:
        """Note that somebody refused a write of a pod."""
        self._refused_at = self._clock()
        if len(self._refused) < _MANY:
            self._refused.add(uid)

    def cycle_ended(self, *, waiting: bool) -> None:
        """Note that a cycle ended, and whether pods wait for writes; write what follows."""
        now = self._clock()
        if now - self._refused_at >= _TRY_AGAIN_SECONDS:
            self._refused.clear()
        if not waiting and len(self._refused) < _MANY:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        is_releasing = self._waiting_since is None or now - self._waiting_since < _LONGEST_SECONDS
        self._annotate(RELEASING_ANNOTATION, "true" if is_releasing else "false")
