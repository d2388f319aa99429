"""The guards of reclaim, as the leader keeps them and its successor finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from engine.model.time import Micros
from engine.reclaim import GuardState, Victim, with_eviction, with_outcome
from webhook.controllers.reclaim.guard_record import GuardRecord


class Guards:
    """What reclaim has done so far.

    Args:
        record: outlives the leader.
        now: the time of day.

    Attributes:
        state: of this moment.
    """

    def __init__(self, record: GuardRecord, now: Callable[[], Micros]) -> None:
        self._record = record
        self._now = now
        self._writing = asyncio.Lock()
        self.state = GuardState()

    @property
    def is_paused(self) -> bool:
        """Whether no plan is made for pods of some namespace."""
        now = self._now()
        return any(now < until for until in self.state.pauses.values())

    async def load(self) -> None:
        """Take over what an earlier leader has written.

        Raises:
            ApiError: it cannot be read.
        """
        self.state = await self._record.read()

    async def about_to_evict(self, victims: Sequence[Victim]) -> None:
        """Write down evictions, and count them.

        Raises:
            ApiError: they are not written, so nothing may be evicted.
        """
        now = self._now()
        async with self._writing:
            await self._record.write(_with_evictions(self.state, victims, now))
            self.state = _with_evictions(self.state, victims, now)  # it may have changed meanwhile

    async def ended(self, preemptor: str, namespace: str, *, is_bound: bool) -> None:
        """Count how a reclaim for a pod of a namespace ended, and write it down.

        Raises:
            ApiError: it is counted, but not written.
        """
        self.state = with_outcome(self.state, preemptor, namespace, self._now(), bound=is_bound)
        async with self._writing:
            await self._record.write(self.state)


def _with_evictions(state: GuardState, victims: Sequence[Victim], now: Micros) -> GuardState:
    for victim in victims:
        state = with_eviction(state, victim.uid, victim.owner, victim.assigned_at, now)
    return state
