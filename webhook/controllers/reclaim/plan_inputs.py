"""Whether all that plans are made from is known."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from engine.model.time import SECOND, Micros
from webhook.cluster.watch.source_status import SourceStatus

_PATIENCE: Final = 60 * SECOND
_SAY_AGAIN: Final = 600 * SECOND

_log = logging.getLogger(__name__)


class PlanInputs:
    """What plans are made from; says in the log what is missing for long, as a right may be.

    Args:
        is_known: whether the cluster and the policies are.
        sources: what is read for plans alone.
        now: the time of day.
    """

    def __init__(
        self,
        is_known: Callable[[], bool],
        sources: Iterable[SourceStatus],
        now: Callable[[], Micros],
    ) -> None:
        self._is_known = is_known
        self._sources = tuple(sources)
        self._now = now
        self._say_at: int | None = None

    def are_ready(self) -> bool:
        """Return whether plans may be made."""
        missing = [source for source in self._sources if not source.synced]
        if self._is_known() and not missing:
            self._say_at = None
            return True
        now = self._now()
        if self._say_at is None:
            self._say_at = now + _PATIENCE
        elif now >= self._say_at:
            self._say_at = now + _SAY_AGAIN
            for source in missing:
                why = source.last_error or "not read yet"
                _log.warning(
                    "nobody is evicted for pods that wait: %s cannot be read: %s", source.name, why
                )
        return False
