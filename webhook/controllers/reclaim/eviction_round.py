"""The evictions of one plan: checked by dry runs, written down, sent, and waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.reclaim import Victim
from engine.view import ClusterState
from webhook.controllers.reclaim.eviction_writer import Eviction, EvictionResult, EvictionWriter
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.outcome import Outcome
from webhook.controllers.reclaim.planned_victims import PlannedVictims
from webhook.controllers.reclaim.running_pods import RunningPods

GONE_SECONDS: Final = 600.0
"""Within which victims are to end; a longer grace period is not waited for."""

_REFUSED_SECONDS: Final = 10.0
"""For which evictions that the dry run let pass are tried again; there may be other victims."""

_DONE: Final = {EvictionResult.EVICTED, EvictionResult.GONE}
_REFUSED: Final = {EvictionResult.BLOCKED, EvictionResult.REFUSED}

_LOOK_SECONDS: Final = 0.1
_TRY_AGAIN_SECONDS: Final = 2.0


class EndedError(Exception):
    """A plan is not carried out any further."""

    def __init__(self, outcome: Outcome, message: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionParts:
    """What evictions work with.

    Attributes:
        state: the cluster.
        running: the pods that are bound.
        planned: the victims of plans under way.
        guards: what evictions there were so far.
        evictions: evicts.
        count_pod: called with the quota of each pod that was evicted.
        clock: seconds that only go forward.
        sleep: waits for some seconds.
    """

    state: ClusterState
    running: RunningPods
    planned: PlannedVictims
    guards: Guards
    evictions: EvictionWriter
    count_pod: Callable[[QuotaKey | None], None] = lambda _quota: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def until(self, is_so: Callable[[], bool], seconds: float, otherwise: Outcome) -> None:
        """Wait until something is so.

        Raises:
            EndedError: it takes longer.
        """
        until = self.clock() + seconds
        while not is_so():
            if self.clock() >= until:
                raise EndedError(otherwise, f"not within {seconds:g} s")
            await self.sleep(_LOOK_SECONDS)


class EvictionRound:
    """The evictions of one plan.

    Args:
        victims: of the plan.
        parts: what it works with.
        is_evicted: called after each eviction.
        is_blocked: called with a text wherever a budget stands against one.
        check: raises EndedError where the plan is not to be carried out any further.

    """

    def __init__(
        self,
        victims: Sequence[Victim],
        parts: EvictionParts,
        *,
        is_evicted: Callable[[Victim], Awaitable[None]],
        is_blocked: Callable[[str], None] = lambda _text: None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._victims = victims
        self._parts = parts
        self._is_evicted = is_evicted
        self._is_blocked = is_blocked
        self._check = check

    async def dry_run(self) -> None:
        """Let the API server check all evictions.

        Raises:
            EndedError: it would not evict all.
        """
        for victim in self._victims:
            eviction = await self._evict(victim, is_dry_run=True)
            if eviction.result in _DONE:
                continue
            if eviction.result is EvictionResult.BLOCKED:
                raise EndedError(Outcome.BLOCKED, self._blocked_text(victim))
            is_refused = eviction.result is EvictionResult.REFUSED
            outcome = Outcome.REFUSED if is_refused else Outcome.UNREACHABLE
            raise EndedError(outcome, eviction.message)

    async def record(self) -> None:
        """Write the evictions down, before any: whoever leads next knows of them.

        Raises:
            ApiError: they are not written down, so nobody may be evicted.
        """
        await self._parts.guards.about_to_evict(self._victims)

    async def evict(self) -> None:
        """Evict all; what may have failed is tried again until the time for it is over.

        Raises:
            EndedError: not all could be evicted.
        """
        parts, left, begin = self._parts, list(self._victims), self._parts.clock()
        while True:
            results = [await self._send(victim) for victim in left]
            left = [
                victim for victim, result in zip(left, results, strict=True) if result not in _DONE
            ]
            if not left:
                return
            self._check()
            is_refused = not _REFUSED.isdisjoint(results)
            if parts.clock() >= begin + (_REFUSED_SECONDS if is_refused else GONE_SECONDS):
                outcome = Outcome.BLOCKED if is_refused else Outcome.UNREACHABLE
                raise EndedError(outcome, "victims could not be evicted in time")
            await parts.sleep(max(_TRY_AGAIN_SECONDS, parts.evictions.pause_seconds))

    async def wait_until_gone(self) -> None:
        """Wait until no victim runs any more, or those that do should be gone by now.

        Raises:
            EndedError: it takes too long.
        """
        parts, left = self._parts, {victim.uid: victim.key for victim in self._victims}

        def are_gone() -> bool:
            self._check()
            for uid, key in list(left.items()):
                if not parts.running.runs(key, uid) or parts.state.is_overdue(key):
                    del left[uid]
            return not left

        await parts.until(are_gone, GONE_SECONDS, Outcome.STILL_ENDING)

    async def _send(self, victim: Victim) -> EvictionResult:
        """Evict a pod; return what became of it."""
        eviction = await self._evict(victim)
        match eviction.result:
            case EvictionResult.EVICTED:
                self._parts.count_pod(victim.quota)
                await self._is_evicted(victim)
            case EvictionResult.NOT_LEADING:
                raise EndedError(Outcome.UNREACHABLE, eviction.message)
            case EvictionResult.BLOCKED:
                self._is_blocked(self._blocked_text(victim))
            case _:
                pass
        return eviction.result

    async def _evict(self, victim: Victim, *, is_dry_run: bool = False) -> Eviction:
        namespace, _, name = victim.key.partition("/")
        return await self._parts.evictions.evict(namespace, name, victim.uid, is_dry_run=is_dry_run)

    def _blocked_text(self, victim: Victim) -> str:
        running = self._parts.running.get(victim.key)
        labels = {} if running is None else running.labels
        names = [
            f"`{budget.key}`"
            for budget in self._parts.state.view().all_of(DisruptionBudget)
            if budget.selects(victim.key.partition("/")[0], labels)
        ]
        of = f" {', '.join(names)}" if names else ""
        return f"PodDisruptionBudget{of} protects pod `{victim.key}`"
