"""Whether pods are demonstrably released: what the leader says of itself on the Lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from engine.model.hold import REFUSED_IN_ANNOTATION, RELEASING_ANNOTATION, refused_text

_LONGEST_SECONDS: Final = 10.0
_TRY_AGAIN_SECONDS: Final = 60.0
_MANY: Final = 3
_MOST_NAMESPACES: Final = 200


class ReleasingStatus:
    """Says whether pods are released, from what became of the last writes.

    It is so while no pod waits for a write, or one was accepted in the last 10 s. Where somebody
    refused those of several namespaces, one after the other, only an accepted write counts; a
    minute later it is tried again, with the few pods that are held then. One namespace alone proves
    nothing: who created its pods may be the one who has them refused. So it counts once for each
    pod, and the Lease names the namespaces in which pods are refused: that they are overdue is
    known to be their own affair.

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
        self._refused: set[str] = set()  # namespaces, since the last accepted write
        self._refused_at = 0.0

    def accepted(self) -> None:
        """Note that a release was accepted."""
        self._waiting_since = None
        self._refused.clear()

    def refused(self, namespace: str) -> None:
        """Note that the release of a pod was refused for the first time."""
        self._refused_at = self._clock()
        if len(self._refused) < _MANY:
            self._refused.add(namespace)

    def cycle_ended(self, *, waiting: bool, refused: Mapping[str, int]) -> None:
        """Note that a cycle ended; write what follows.

        Args:
            waiting: whether pods wait for writes.
            refused: how many pods are refused by now, by namespace; none of the others.
        """
        now = self._clock()
        if now - self._refused_at >= _TRY_AGAIN_SECONDS:
            self._refused.clear()
        if not waiting and len(self._refused) < _MANY:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        is_releasing = self._waiting_since is None or now - self._waiting_since < _LONGEST_SECONDS
        self._annotate(RELEASING_ANNOTATION, "true" if is_releasing else "false")
        named = dict(islice(sorted(refused.items()), _MOST_NAMESPACES))
        self._annotate(REFUSED_IN_ANNOTATION, refused_text(named))
