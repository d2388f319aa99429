"""One reclaim, step by step: room is reserved before anybody is evicted for it.

All that must outlive the leader is on the objects: the nomination and the annotation of the pod,
and that victims are being deleted. So it may end between any two writes, and another leader plans
again for the pods that it finds so: whoever is on the way out is no victim of that plan.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import ReclaimMode
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason
from engine.reclaim import NoPlan, NoPlanReason, Plan, Victim
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError
from webhook.controllers.reclaim.events import ReclaimEvents, victims_text
from webhook.controllers.reclaim.eviction_writer import (
    Eviction,
    EvictionResult,
    EvictionWriter,
)
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.outcome import Outcome
from webhook.controllers.reclaim.planning import ReclaimPlanner
from webhook.controllers.reclaim.running_pods import RunningPods
from webhook.controllers.release.node_room import is_within_room
from webhook.controllers.release.pod_writer import PodWriter
from webhook.controllers.release.reclaims import ReclaimNote, Reclaims
from webhook.controllers.release.write_error import WriteError, WriteFailure
from webhook.placement.held_pods import HeldPod, HeldPods

_MOST_PLANS: Final = 3
"""Plans for one reclaim until one is right when the own watch has shown its nomination."""

_SEEN_SECONDS: Final = 15.0
_GONE_SECONDS: Final = 600.0
"""Within which victims are to end; a longer grace period is not waited for."""

_ROOM_SECONDS: Final = 5.0
"""For which room may be missing when the victims are gone: events come in any order."""

_BOUND_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.1
_TRY_AGAIN_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class _EndedError(Exception):
    """The reclaim has ended."""

    def __init__(self, outcome: Outcome, message: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimParts:
    """What reclaims work with.

    Attributes:
        state: the cluster, in which nominated pods count.
        held: the pods that are held.
        running: those that are bound.
        reclaims: what the release controller knows of reclaims.
        planner: makes plans.
        guards: what reclaim has done so far.
        writer: writes held pods.
        evictions: evicts.
        events: tells both sides.
        mode_of: the mode of a pod's quota; nothing is evicted for one that is not On.
        clock: seconds that only go forward.
        sleep: waits for some seconds.
    """

    state: ClusterState
    held: HeldPods
    running: RunningPods
    reclaims: Reclaims
    planner: ReclaimPlanner
    guards: Guards
    writer: PodWriter
    evictions: EvictionWriter
    events: ReclaimEvents
    mode_of: Callable[[Pod], ReclaimMode]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Reclaim:
    """The steps for one pod.

    Args:
        held: the pod.
        plan: for it; None where an earlier leader has begun, and left the pod nominated.
        parts: what it works with.
    """

    def __init__(self, held: HeldPod, plan: Plan | None, parts: ReclaimParts) -> None:
        self._held = held
        self._plan = plan
        self._parts = parts
        self._node_name = held.pod.nominated_node_name if plan is None else plan.node_name
        self._has_evicted = plan is None  # for all that is known

    async def run(self) -> Outcome:
        """Carry it out; return how it ended. Where it is cancelled, the next leader goes on."""
        parts, held = self._parts, self._held
        parts.reclaims.keep(held)
        try:
            await self._carry_out()
        except _EndedError as end:
            _log.info("reclaim for pod `%s` ended: %s", held.key, end)
            outcome = end.outcome
        except WriteError as error:
            _log.info("reclaim for pod `%s` ended: %s", held.key, error)
            is_refused = error.failure is WriteFailure.REFUSED
            outcome = Outcome.REFUSED if is_refused else Outcome.UNREACHABLE
            if error.failure in {WriteFailure.GONE, WriteFailure.CHANGED}:
                outcome = Outcome.ABANDONED
        except ApiError as error:
            _log.info("reclaim for pod `%s` ended: %s", held.key, error)
            outcome = Outcome.UNREACHABLE
        else:
            outcome = Outcome.BOUND if self._has_evicted else Outcome.NEEDLESS
        parts.planner.disclaim(held)
        await self._count(outcome)
        await self._leave()
        return outcome

    async def _carry_out(self) -> None:
        # 1. Reserve: the scheduler and all views keep the room, while the pod is held.
        # 2. Plan again, on the newest view, once our own watch shows the nomination.
        plan = await self._reserved()

        if plan is not None:
            # 3. Evict, once dry runs say that all may be evicted.
            await self._check(plan)
            await self._evict(plan)

        # 4. Wait until the victims are gone, and their room is there.
        await self._wait_for_room(plan)

        # 5. Let the release controller decide and release the pod, before others.
        self._parts.reclaims.set_note(self._held, None)
        self._parts.reclaims.set_ready(self._held)

        # 6. See where it ends.
        await self._bound()

    async def _reserved(self) -> Plan | None:
        """Nominate the pod; return the plan that is right then, None where nobody is in the way."""
        plan = self._plan
        for _ in range(_MOST_PLANS):
            if plan is not None:
                await self._nominate(plan)
            if self._parts.mode_of(self._held.pod) is not ReclaimMode.ON:
                raise _EndedError(Outcome.CHANGED, "its quota does not reclaim any more")
            again = self._parts.planner.plan(self._held, self._parts.guards.state)
            if isinstance(again, NoPlan):
                if again.reason is NoPlanReason.NOT_NEEDED:
                    return None
                raise _EndedError(_outcome_of(again), again.message)
            if plan is not None and again.node_name == plan.node_name:
                self._parts.planner.claim(self._held, again)
                return again
            plan = again
        raise _EndedError(Outcome.CHANGED, "the best node is another one each time")

    async def _nominate(self, plan: Plan) -> None:
        parts, held = self._parts, self._held
        self._node_name = plan.node_name
        parts.planner.claim(held, plan)
        parts.reclaims.set_note(held, _waiting(plan))
        parts.state.nominate(held.key, plan.node_name)
        # In this order: whoever finds the nomination finds why.
        await parts.writer.note_plan(held, f"{plan.node_name}: {victims_text(plan)}")
        await parts.writer.nominate(held, plan.node_name)
        await self._until(self._is_seen, _SEEN_SECONDS, Outcome.UNREACHABLE)

    async def _check(self, plan: Plan) -> None:
        """Let the API server check all evictions."""
        for victim in plan.victims:
            eviction = await self._evicted(victim, is_dry_run=True)
            if eviction.result in {EvictionResult.EVICTED, EvictionResult.GONE}:
                continue
            if eviction.result is EvictionResult.BLOCKED:
                raise _EndedError(Outcome.BLOCKED, self._blocked_text(victim))
            is_refused = eviction.result is EvictionResult.REFUSED
            outcome = Outcome.REFUSED if is_refused else Outcome.UNREACHABLE
            raise _EndedError(outcome, eviction.message)

    async def _evict(self, plan: Plan) -> None:
        """Evict all; what may have failed is tried again until the time for it is over."""
        parts, held = self._parts, self._held
        await parts.guards.about_to_evict(plan.victims)
        self._has_evicted = True
        await parts.events.reclaiming(held.pod, plan)
        left, until = list(plan.victims), parts.clock() + _GONE_SECONDS
        while left:
            again = []
            for victim in left:
                eviction = await self._evicted(victim)
                if eviction.result is EvictionResult.EVICTED:
                    await parts.events.reclaimed(victim, held.pod, plan)
                elif eviction.result is EvictionResult.GONE:
                    parts.guards.gone(victim.uid)
                elif eviction.result is EvictionResult.NOT_LEADING:
                    raise _EndedError(Outcome.UNREACHABLE, eviction.message)
                else:
                    again.append(victim)
                    self._note_blocked(victim, eviction)
            left = again
            if left:
                self._check_held()
                if parts.clock() >= until:
                    raise _EndedError(Outcome.NO_ROOM, "victims could not be evicted in time")
                await parts.sleep(max(_TRY_AGAIN_SECONDS, parts.evictions.pause_seconds))
        parts.reclaims.set_note(held, _waiting(plan))

    async def _evicted(self, victim: Victim, *, is_dry_run: bool = False) -> Eviction:
        namespace, _, name = victim.key.partition("/")
        return await self._parts.evictions.evict(namespace, name, victim.uid, is_dry_run=is_dry_run)

    async def _wait_for_room(self, plan: Plan | None) -> None:
        parts, victims = self._parts, () if plan is None else plan.victims
        left = {victim.uid: victim.key for victim in victims}

        def are_gone() -> bool:
            self._check_held()
            for uid in [uid for uid, key in left.items() if not parts.running.runs(key, uid)]:
                parts.guards.gone(uid)
                del left[uid]
            return not left and (bool(victims) or self._is_room())

        await self._until(are_gone, _GONE_SECONDS, Outcome.NO_ROOM)
        await self._until(self._is_room, _ROOM_SECONDS, Outcome.NO_ROOM)

    async def _bound(self) -> None:
        parts, pod = self._parts, self._held.pod

        def is_bound() -> bool:
            if parts.running.runs(pod.key, pod.uid):
                return True
            if parts.state.entry(pod.key) is None:
                raise _EndedError(Outcome.ABANDONED, "the pod is gone")
            return False

        await self._until(is_bound, _BOUND_SECONDS, Outcome.LOST)

    async def _until(self, is_so: Callable[[], bool], seconds: float, otherwise: Outcome) -> None:
        """Wait until something is so; end the reclaim if that takes longer."""
        until = self._parts.clock() + seconds
        while not is_so():
            if self._parts.clock() >= until:
                raise _EndedError(otherwise, f"not within {seconds:g} s")
            await self._parts.sleep(_LOOK_SECONDS)

    def _is_seen(self) -> bool:
        return self._check_held().pod.nominated_node_name == self._node_name

    def _is_room(self) -> bool:
        self._check_held()
        return is_within_room(self._parts.state.view(), self._node_name, self._held.pod)

    def _check_held(self) -> HeldPod:
        """Return the pod as it is seen now; end the reclaim if it is not held any more."""
        now = self._parts.held.get(self._held.key)
        if now is None or now.pod.uid != self._held.pod.uid:
            raise _EndedError(Outcome.ABANDONED, "the pod is not held any more")
        return now

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

    def _note_blocked(self, victim: Victim, eviction: Eviction) -> None:
        if eviction.result is EvictionResult.BLOCKED:
            note = ReclaimNote(QueuedReason.BLOCKED_BY_PDB, self._blocked_text(victim))
            self._parts.reclaims.set_note(self._held, note)

    async def _count(self, outcome: Outcome) -> None:
        """Let the guards know of a reclaim that has cost somebody something."""
        if not self._has_evicted or outcome is Outcome.ABANDONED:
            return
        try:
            await self._parts.guards.ended(self._held.pod.uid, is_bound=outcome is Outcome.BOUND)
        except ApiError as error:
            _log.warning("the end of a reclaim is not written down: %s", error)

    async def _leave(self) -> None:
        """Take back what the pod has, if it is still held, and leave it to the queue."""
        parts, held = self._parts, self._held
        now = parts.held.get(held.key)
        if now is not None and now.pod.uid == held.pod.uid and parts.reclaims.counts(held):
            parts.state.nominate(held.key, "")
            try:
                await parts.writer.withdraw(held)
                await parts.writer.note_plan(held, None)
            except WriteError as error:
                _log.info("nomination of pod `%s` stays: %s", held.key, error)
        parts.reclaims.give_up(held)


def _waiting(plan: Plan) -> ReclaimNote:
    text = f"waits for the end of {victims_text(plan)}: {plan.message}"
    return ReclaimNote(QueuedReason.WAITING_FOR_RECLAIM, text)


def _outcome_of(no_plan: NoPlan) -> Outcome:
    is_blocked = no_plan.reason is NoPlanReason.BLOCKED_BY_PDB
    return Outcome.BLOCKED if is_blocked else Outcome.CHANGED
