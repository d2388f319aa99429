"""The controller: the leader finds who has waited for long, and evicts others for them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

from engine.eviction import NoPlan, NoPlanReason, Plan
from engine.model.elastic_quota import EvictionMode
from engine.model.hold import QueuedReason
from engine.model.time import SECOND, Micros, micros
from engine.release import HeldPod, ReclaimNote, ReclaimStage, RoomWait
from webhook.cluster.client.connection import ApiError
from webhook.cluster.object_event import pod_reference
from webhook.controllers.eviction.context import EvictionContext
from webhook.controllers.eviction.execution import PlanExecution
from webhook.controllers.eviction.overuse import OveruseRevocation
from webhook.controllers.eviction.plans import unbound_claim
from webhook.controllers.eviction.sources import (
    PlanSource,
    PreemptionSource,
    QuotaSource,
    WaitingForQuota,
    WaitingGangs,
)
from webhook.controllers.eviction.writer import EvictionOutcome, victims_text

_PLAN_AGAIN: Final = Micros(10 * SECOND)
"""Between two plans for one pod."""

_REPORT_AGAIN: Final = 600 * SECOND
"""Between two Events about what mode On would do for one pod."""

_FORGOTTEN_AFTER: Final = 15 * SECOND
"""For which a pod may wait for something else, as while it is decided, and go on waiting.

A gang without room is placed again each 10 s, and waits for that in between."""

_AT_ONCE: Final = Micros(0)


class DuePod(NamedTuple):
    """A pod that plans may be made for."""

    held: HeldPod
    sources: Sequence[PlanSource]  # of plans, in their order; at least one
    is_due_everywhere: bool = True  # whether these are all that it waits in


class DuePods:
    """Finds the pods that have waited for room for long enough."""

    def __init__(self, context: EvictionContext, sources: Sequence[PlanSource]) -> None:
        self._pods = context.pods
        self._now = context.now
        self._sources = sources
        self._is_first = True

    def begin(self) -> None:
        """Begin again: pods that wait when a leader begins have waited before."""
        self._is_first = True

    def due(self, busy: Container[str]) -> list[DuePod]:
        """Return the pods that have waited for long enough, in the order of sources and queues."""
        now, found = self._now(), False
        due: dict[str, tuple[HeldPod, list[PlanSource]]] = {}
        later = set[str]()
        for source in self._sources:
            for held in source.blocked():
                found = True
                wait = self._seen(held, now)
                if now - wait.since < source.eviction_delay:
                    later.add(held.pod.uid)
                    continue
                is_due = now >= wait.plan_at
                if is_due and held.raw and held.pod.uid not in busy:
                    due.setdefault(held.pod.uid, (held, []))[1].append(source)
        self._is_first = self._is_first and not found
        return [
            DuePod(held, sources, is_due_everywhere=uid not in later)
            for uid, (held, sources) in due.items()
        ]

    def planned(self, held: HeldPod, again: Micros = _PLAN_AGAIN) -> None:
        """Note that a plan for a due pod is made now, and after how long the next may be."""
        now = self._now()
        self._seen(held, now).plan_at = now + again

    def begin_report(self, held: HeldPod) -> bool:
        """Note that a due pod gets an Event about a plan now; return False if it got one lately."""
        now = self._now()
        wait = self._seen(held, now)
        if now < wait.report_at:
            return False
        wait.report_at = now + _REPORT_AGAIN
        return True

    def _seen(self, held: HeldPod, now: Micros) -> RoomWait:
        record, pod = self._pods.of(held), held.pod
        wait = record.room_wait
        if wait is None or now - wait.seen_at > _FORGOTTEN_AFTER:
            created = now if pod.created is None else min(micros(pod.created), now)
            since = created if self._is_first else now
            wait = record.room_wait = RoomWait(since=since, seen_at=now)
        wait.seen_at = now
        return wait


_TICK_SECONDS: Final = 0.5
_MOST_AT_ONCE: Final = 100
"""Reclaims under way for the pods of one namespace."""

_MOST_PLANS: Final = 20
"""Plans in a cycle: what others wait for is not to wait long for them."""


_IN_VAIN: Final = {
    NoPlanReason.NO_VICTIMS,
    NoPlanReason.NEVER_PREEMPTS,
    NoPlanReason.UNBOUND_CLAIM,
}
"""Why no plan will be there soon: an autoscaler must see the pod."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class EvictionController:
    """The task of the leader; restarted whenever this replica starts to lead."""

    context: EvictionContext  # what evictions work with
    sources: Sequence[PlanSource]  # of plans; where a pod is in several, the first goes first
    _: KW_ONLY
    is_ready: Callable[[], bool]  # whether all that plans are made from is known

    def __post_init__(self) -> None:
        self._overuse = OveruseRevocation(self.context)
        self._due = DuePods(self.context, self.sources)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by uid

    async def run(self) -> None:
        """Repeat cycles until cancelled."""
        self.context.pods.begin_evictions()
        self._due.begin()
        self._overuse.begin()
        try:
            await self._load_guards()
            while True:
                await self.cycle()
                await self.context.sleep(_TICK_SECONDS)
        finally:
            await self.end()

    async def end(self) -> None:
        """End all reclaims where they are; another leader goes on with them."""
        tasks = {*self._tasks.values()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        await self._overuse.end()
        self.context.pods.end_evictions()

    async def cycle(self) -> None:
        """Start the reclaims that are due."""
        context = self.context
        if not self.is_ready():
            return

        # 1. Go on with what an earlier leader has begun.
        for each in context.held:
            is_left = context.pods.of(each).reclaim is ReclaimStage.LEFT
            if is_left and each.raw and each.pod.uid not in self._tasks:
                source = _by_mode(self.sources, each)[0]
                if pods := source.together(each):
                    self._start(pods, None, source)

        # 2. Plan for those that have waited for long, in their order.
        plans, busy = 0, Counter(held.pod.namespace for held in context.pods.kept_for_reclaim())
        waiting = {namespace for namespace, count in busy.items() if count >= _MOST_AT_ONCE}
        for due in self._due.due(self._tasks):
            namespace = due.held.pod.namespace
            if plans >= _MOST_PLANS:
                break
            if namespace in waiting:
                continue
            made = await self._plan(due)
            plans += len(made)
            if any(
                isinstance(each, NoPlan) and each.reason is NoPlanReason.AT_LIMIT for each in made
            ):
                # The pods after it wait for the same, and do not overtake it.
                waiting.add(namespace)
                self._due.planned(due.held, _AT_ONCE)
            await asyncio.sleep(0)  # reviews and events come in between
        await self._report_unplaced()

        # 3. Take back what quotas use beyond what they may.
        await self._overuse.cycle()

    async def _plan(self, due: DuePod) -> Sequence[Plan | NoPlan]:
        """Make a plan for a due pod, and begin with it; return all that were made."""
        held, record = due.held, self.context.pods.of(due.held)
        self._due.planned(held)
        no_plans: list[NoPlan] = []
        for source in _by_mode(due.sources, held):
            if source.mode_of(held) is EvictionMode.OFF:
                break
            pods = source.together(held)
            before = self._nodes_of(pods)
            if not before:
                break
            plan = await self._without_claims(pods) or await source.plan(pods)
            if self._nodes_of(pods) != before:
                return [*no_plans, plan]  # one ended, or was decided in the meantime
            if isinstance(plan, Plan):
                record.is_reclaim_in_vain = False
                await self._begin(held, pods, plan, source)
                return [*no_plans, plan]
            no_plans.append(plan)
            self._note(pods, _note_of(no_plans[0]))
        reasons = {no_plan.reason for no_plan in no_plans}
        in_vain = due.is_due_everywhere and bool(reasons) and reasons <= _IN_VAIN
        record.is_reclaim_in_vain = in_vain
        if not no_plans:
            record.reclaim_note = None
        return no_plans

    async def _without_claims(self, pods: Sequence[HeldPod]) -> NoPlan | None:
        """Return that there is no plan where a volume claim keeps a pod from all nodes."""
        for held in pods:
            if name := await unbound_claim(self.context.connection, held):
                message = f"volume claim `{name}` of pod `{held.key}` is not bound"
                return NoPlan(reason=NoPlanReason.UNBOUND_CLAIM, message=message)
        return None

    async def _begin(
        self, held: HeldPod, pods: Sequence[HeldPod], plan: Plan, source: PlanSource
    ) -> None:
        """Carry out a plan for a due pod and those that get room with it, or say why not."""
        if source.mode_of(held) is EvictionMode.DRY_RUN:
            text = f"{source.name} (DryRun) would evict {victims_text(plan.victims)}"
            self._note(pods, ReclaimNote(None, text))
            if self._due.begin_report(held):
                await self._report(held, plan, source)
        else:
            self._start(pods, plan, source)

    def _nodes_of(self, pods: Sequence[HeldPod]) -> list[str]:
        """Return where each of some pods counts; nothing if one of them is not held any more."""
        held, state = self.context.held, self.context.state
        if not all(held.holds(each.pod) for each in pods):
            return []
        return [state.assumed_node(each.key) for each in pods]

    def _note(self, pods: Sequence[HeldPod], note: ReclaimNote | None) -> None:
        for held in pods:
            self.context.pods.of(held).reclaim_note = note

    async def _report(self, held: HeldPod, plan: Plan, source: PlanSource) -> None:
        """Say what mode On would do."""
        self.context.metrics.ended(source.name, EvictionOutcome.REPORTED)
        about = pod_reference(held.pod.namespace, held.pod.name, held.pod.uid)
        await self.context.events.would_evict(about, plan, source.event_reasons)

    async def _report_unplaced(self) -> None:
        """Say what mode On would do for pods that were released and that no node has taken."""
        context = self.context
        for source in self.sources:
            before = Micros(context.now() - source.eviction_delay)
            for held in context.pods.take_released_without_node(source.name, before):
                is_waiting = context.state.entry(held.key) and not context.running.get(held.key)
                if not (held.raw and is_waiting):
                    continue
                plan = await source.plan([held])
                if isinstance(plan, Plan):
                    await self._report(held, plan, source)
                await asyncio.sleep(0)

    def _start(self, pods: Sequence[HeldPod], plan: Plan | None, source: PlanSource) -> None:
        uids = [held.pod.uid for held in pods]
        for held in pods:
            self.context.pods.of(held).reclaim_begins()
        if plan is not None:
            self.context.planned.set(uids[0], plan.victims)
        execution = PlanExecution(pods, plan, source, self.context)
        task = asyncio.create_task(self._carry_out(execution, source))
        self._tasks |= dict.fromkeys(uids, task)

        def forget(_task: asyncio.Task[None]) -> None:
            for uid in uids:
                self._tasks.pop(uid, None)

        task.add_done_callback(forget)

    async def _carry_out(self, execution: PlanExecution, source: PlanSource) -> None:
        try:
            self.context.metrics.ended(source.name, await execution.run())
        except Exception:  # noqa: BLE001 - no bug in one reclaim ends the others
            _log.exception("a reclaim failed")

    async def _load_guards(self) -> None:
        """Read what earlier leaders have done; nothing is evicted before that is known."""
        while True:
            try:
                await self.context.guards.load()
            except ApiError as error:
                _log.warning("reclaim waits for what is known of earlier ones: %s", error)
                await self.context.sleep(_TICK_SECONDS)
            else:
                return


def build(
    context: EvictionContext,
    *,
    waiting: WaitingForQuota,
    gangs: WaitingGangs,
    eviction_delay: Micros,
    is_ready: Callable[[], bool],
) -> EvictionController:
    """Return the controller, with all sources of plans."""
    sources = [
        QuotaSource(context, waiting, gangs, eviction_delay),
        PreemptionSource(context, gangs),
    ]
    return EvictionController(context, sources, is_ready=is_ready)


def _by_mode(sources: Sequence[PlanSource], held: HeldPod) -> list[PlanSource]:
    """Return sources of plans for a pod, those in mode On first, those in mode Off last."""
    modes = [EvictionMode.ON, EvictionMode.DRY_RUN, EvictionMode.OFF]
    return sorted(sources, key=lambda source: modes.index(source.mode_of(held)))


def _note_of(no_plan: NoPlan) -> ReclaimNote | None:
    """Return what a person learns of it; nothing where a pod just waits for those that leave."""
    if no_plan.reason is NoPlanReason.NOT_NEEDED:
        return None
    is_blocked = no_plan.reason is NoPlanReason.BLOCKED_BY_PDB
    return ReclaimNote(QueuedReason.BLOCKED_BY_PDB if is_blocked else None, no_plan.message)
