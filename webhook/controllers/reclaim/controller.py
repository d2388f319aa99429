"""The reclaim controller: the leader finds who has waited for long, and reclaims for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.queued_condition import QueuedReason
from engine.model.time import SECOND, Micros, micros
from engine.reclaim import NoPlan, NoPlanReason, Plan
from webhook.cluster.client.connection import ApiError
from webhook.controllers.reclaim.events import victims_text
from webhook.controllers.reclaim.outcome import Outcome
from webhook.controllers.reclaim.reclaim import Reclaim, ReclaimParts
from webhook.controllers.release.reclaims import BlockedPod, ReclaimNote
from webhook.placement.held_pods import HeldPod

_TICK_SECONDS: Final = 0.5
_MOST_AT_ONCE: Final = 10
_MOST_PLANS: Final = 4
"""Plans in a cycle: each takes some milliseconds, in which no review is answered."""

_PLAN_AGAIN: Final = 10 * SECOND
"""Between two plans for one pod."""

_REPORT_AGAIN: Final = 600 * SECOND
"""Between two Events about what mode On would do for one pod."""

_FORGOTTEN_AFTER: Final = 5 * SECOND
"""For which a pod may wait for something else, as while it is decided, and go on waiting."""

_TOO_MANY: Final = ReclaimNote(None, "too many pods are being evicted, or were a moment ago")
_AT_ONCE: Final = Micros(0)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    """What is known of a pod that may be reclaimed for.

    Attributes:
        since: when it began to wait for room.
        seen_at: when it was last seen waiting.
        plan_at: before which no plan is made for it.
        report_at: before which it gets no Event about a plan.
    """

    since: Micros
    seen_at: Micros
    plan_at: Micros = _AT_ONCE
    report_at: Micros = _AT_ONCE


class ReclaimController:
    """The task of the leader; restarted whenever this replica starts to lead.

    Args:
        parts: what reclaims work with.
        blocked: the pods that may be reclaimed for, in queue order.
        is_ready: whether all that plans are made from is known.
        after: time for which a pod waits before others are evicted for it.
        now: the time of day.
        count: called with the end of each reclaim.
    """

    def __init__(
        self,
        parts: ReclaimParts,
        *,
        blocked: Callable[[], Sequence[BlockedPod]],
        is_ready: Callable[[], bool],
        after: Micros,
        now: Callable[[], Micros],
        count: Callable[[Outcome], None] = lambda _outcome: None,
    ) -> None:
        self._parts = parts
        self._blocked = blocked
        self._is_ready = is_ready
        self._after = after
        self._now = now
        self._count = count
        self._waiting: dict[str, _Waiting] = {}  # by uid
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by uid
        self._is_first = True

    async def run(self) -> None:
        """Repeat cycles until cancelled."""
        self._parts.reclaims.begin()
        self._waiting.clear()
        self._is_first = True
        try:
            await self._load_guards()
            while True:
                await self.cycle()
                await self._parts.sleep(_TICK_SECONDS)
        finally:
            await self.end()

    async def end(self) -> None:
        """End all reclaims where they are; another leader goes on with them."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        self._parts.reclaims.end()

    async def cycle(self) -> None:
        """Start the reclaims that are due."""
        parts, now = self._parts, self._now()
        # 1. Forget who is not held any more, and evicted pods that are gone.
        held = {each.pod.uid for each in parts.held}
        parts.reclaims.retain(held)
        self._waiting = {uid: each for uid, each in self._waiting.items() if uid in held}
        self._count_gone()
        if not self._is_ready():
            return

        # 2. Go on with what an earlier leader has begun.
        for each in parts.held:
            if each.raw and each.pod.uid not in self._tasks and parts.reclaims.is_left(each):
                self._start(each, None)

        # 3. Plan for those that have waited for long, in their order.
        plans = 0
        for blocked in self._due(now):
            if plans == _MOST_PLANS or len(self._tasks) >= _MOST_AT_ONCE:
                break
            mode = parts.mode_of(blocked.held.pod)
            if mode is ReclaimMode.OFF:
                parts.reclaims.set_note(blocked.held, None)
                continue
            plans += 1
            await self._plan(blocked, mode, now)
            await asyncio.sleep(0)  # reviews and events come in between
        await self._report_unplaced(now)

    async def _report_unplaced(self, now: Micros) -> None:
        """Say what mode On would do for pods that were released and that no node has taken."""
        parts = self._parts
        for held in parts.reclaims.take_unplaced(Micros(now - self._after)):
            is_waiting = parts.state.entry(held.key) and not parts.running.get(held.key)
            if not (held.raw and is_waiting):
                continue
            plan = parts.planner.plan(held, parts.guards.state)
            if isinstance(plan, Plan):
                self._count(Outcome.REPORTED)
                await parts.events.would_reclaim(held.pod, plan)
            await asyncio.sleep(0)

    def _due(self, now: Micros) -> list[BlockedPod]:
        """Return the pods that have waited for long enough, in queue order."""
        due, found = [], self._blocked()
        for blocked in found:
            pod = blocked.held.pod
            waiting = self._waiting.get(pod.uid)
            if waiting is None or now - waiting.seen_at > _FORGOTTEN_AFTER:
                created = now if pod.created is None else min(micros(pod.created), now)
                # Whoever waits when a leader begins has waited before.
                since = created if self._is_first else now
                waiting = self._waiting[pod.uid] = _Waiting(since, now)
            waiting.seen_at = now
            is_due = now - waiting.since >= self._after and now >= waiting.plan_at
            if is_due and blocked.held.raw and pod.uid not in self._tasks:
                due.append(blocked)
        self._is_first = self._is_first and not found
        return due

    async def _plan(self, blocked: BlockedPod, mode: ReclaimMode, now: Micros) -> None:
        parts, held = self._parts, blocked.held
        waiting = self._waiting[held.pod.uid]
        waiting.plan_at = Micros(now + _PLAN_AGAIN)
        plan = parts.planner.plan(held, parts.guards.state)
        in_vain = isinstance(plan, NoPlan) and plan.reason is NoPlanReason.NO_VICTIMS
        parts.reclaims.set_in_vain(held, in_vain=in_vain)
        if isinstance(plan, NoPlan):
            parts.reclaims.set_note(held, _note_of(plan))
        elif mode is ReclaimMode.DRY_RUN:
            await self._report(held, plan, waiting)
        elif parts.planner.may_evict(plan, parts.guards.state):
            self._start(held, plan)
        else:
            parts.reclaims.set_note(held, _TOO_MANY)

    async def _report(self, held: HeldPod, plan: Plan, waiting: _Waiting) -> None:
        """Say what mode On would do."""
        text = f"reclaim (DryRun) would evict {victims_text(plan)}"
        self._parts.reclaims.set_note(held, ReclaimNote(None, text))
        if self._now() >= waiting.report_at:
            waiting.report_at = Micros(self._now() + _REPORT_AGAIN)
            self._count(Outcome.REPORTED)
            await self._parts.events.would_reclaim(held.pod, plan)

    def _start(self, held: HeldPod, plan: Plan | None) -> None:
        uid = held.pod.uid
        self._parts.reclaims.keep(held)
        if plan is not None:
            self._parts.planner.claim(held, plan)
        task = asyncio.create_task(self._carry_out(Reclaim(held, plan, self._parts)))
        self._tasks[uid] = task
        task.add_done_callback(lambda _task: self._tasks.pop(uid, None))

    async def _carry_out(self, reclaim: Reclaim) -> None:
        try:
            self._count(await reclaim.run())
        except Exception:  # noqa: BLE001 - no bug in one reclaim ends the others
            _log.exception("a reclaim failed")

    def _count_gone(self) -> None:
        """Count as gone whoever does not run any more, or was not evicted after all."""
        parts = self._parts
        if not (in_flight := parts.guards.state.in_flight):
            return
        leaving = {
            each.uid
            for each in parts.running
            if each.uid in in_flight and (each.deleting or parts.planner.claims(each.uid))
        }
        for uid in in_flight.keys() - leaving:
            parts.guards.gone(uid)

    async def _load_guards(self) -> None:
        """Read what earlier leaders have done; nothing is evicted before that is known."""
        while True:
            try:
                await self._parts.guards.load()
            except ApiError as error:
                _log.warning("reclaim waits for what is known of earlier ones: %s", error)
                await self._parts.sleep(_TICK_SECONDS)
            else:
                return


def _note_of(no_plan: NoPlan) -> ReclaimNote | None:
    """Return what a person learns of it; nothing where a pod just waits for those that leave."""
    if no_plan.reason is NoPlanReason.NOT_NEEDED:
        return None
    is_blocked = no_plan.reason is NoPlanReason.BLOCKED_BY_PDB
    return ReclaimNote(QueuedReason.BLOCKED_BY_PDB if is_blocked else None, no_plan.message)
