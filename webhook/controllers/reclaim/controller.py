"""The reclaim controller: the leader finds who has waited for long, and evicts others for them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.reclaim import NoPlan, NoPlanReason, Plan
from webhook.cluster.client.connection import ApiError
from webhook.cluster.object_event import pod_reference
from webhook.controllers.reclaim.due_pods import DuePod, DuePods
from webhook.controllers.reclaim.events import victims_text
from webhook.controllers.reclaim.outcome import Outcome
from webhook.controllers.reclaim.overuse import OveruseRevocation
from webhook.controllers.reclaim.plan_source import PlanSource
from webhook.controllers.reclaim.reclaim import Reclaim, ReclaimParts
from webhook.controllers.release.reclaims import ReclaimNote
from webhook.placement.held_pods import HeldPod

_TICK_SECONDS: Final = 0.5
_MOST_AT_ONCE: Final = 100
"""Reclaims under way for the pods of one namespace."""

_MOST_PLANS: Final = 20
"""Plans in a cycle: what others wait for is not to wait long for them."""

_AT_ONCE: Final = Micros(0)

_IN_VAIN: Final = {NoPlanReason.NO_VICTIMS, NoPlanReason.NEVER_PREEMPTS}
"""Why no plan will be there soon: an autoscaler must see the pod."""

_log = logging.getLogger(__name__)


class ReclaimController:
    """The task of the leader; restarted whenever this replica starts to lead.

    Args:
        parts: what reclaims work with.
        sources: of plans; where a pod is in several, the first goes first.
        overuse: takes back what nobody waits for.
        is_ready: whether all that plans are made from is known.
        now: the time of day.
        count: called with the name of a source and the end of each of its reclaims.
    """

    def __init__(
        self,
        parts: ReclaimParts,
        sources: Sequence[PlanSource],
        overuse: OveruseRevocation,
        *,
        is_ready: Callable[[], bool],
        now: Callable[[], Micros],
        count: Callable[[str, Outcome], None] = lambda _source, _outcome: None,
    ) -> None:
        self._parts = parts
        self._sources = sources
        self._overuse = overuse
        self._is_ready = is_ready
        self._now = now
        self._count = count
        self._due = DuePods(sources, now)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by uid

    async def run(self) -> None:
        """Repeat cycles until cancelled."""
        self._parts.reclaims.begin()
        self._due.begin()
        self._overuse.begin()
        try:
            await self._load_guards()
            while True:
                await self.cycle()
                await self._parts.sleep(_TICK_SECONDS)
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
        self._parts.reclaims.end()

    async def cycle(self) -> None:
        """Start the reclaims that are due."""
        parts = self._parts
        # 1. Forget who is not held any more.
        held = {each.pod.uid for each in parts.held}
        parts.reclaims.retain(held)
        self._due.retain(held)
        if not self._is_ready():
            return

        # 2. Go on with what an earlier leader has begun.
        for each in parts.held:
            if each.raw and each.pod.uid not in self._tasks and parts.reclaims.is_left(each):
                source = _by_mode(self._sources, each)[0]
                if pods := source.together(each):
                    self._start(pods, None, source)

        # 3. Plan for those that have waited for long, in their order.
        plans, busy = 0, Counter(held.pod.namespace for held in parts.reclaims)
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
                # Whoever comes after it waits for the same, and does not overtake it.
                waiting.add(namespace)
                self._due.planned(due.held, _AT_ONCE)
            await asyncio.sleep(0)  # reviews and events come in between
        await self._report_unplaced()

        # 4. Take back what quotas use beyond what they may, whoever waits.
        await self._overuse.cycle()

    async def _plan(self, due: DuePod) -> Sequence[Plan | NoPlan]:
        """Make a plan for a due pod, and begin with it; return all that were made."""
        parts, held = self._parts, due.held
        self._due.planned(held)
        no_plans: list[NoPlan] = []
        for source in _by_mode(due.sources, held):
            if source.mode_of(held) is ReclaimMode.OFF:
                break
            pods = source.together(held)
            before = self._nodes_of(pods)
            if not before:
                break
            plan = await source.plan(pods, parts.guards)
            if self._nodes_of(pods) != before:
                return [*no_plans, plan]  # one ended, or was decided meanwhile
            if isinstance(plan, Plan):
                parts.reclaims.set_in_vain(held, in_vain=False)
                await self._begin(held, pods, plan, source)
                return [*no_plans, plan]
            no_plans.append(plan)
            self._note(pods, _note_of(no_plans[0]))
        reasons = {no_plan.reason for no_plan in no_plans}
        in_vain = due.is_due_everywhere and bool(reasons) and reasons <= _IN_VAIN
        parts.reclaims.set_in_vain(held, in_vain=in_vain)
        if not no_plans:
            parts.reclaims.set_note(held, None)
        return no_plans

    async def _begin(
        self, held: HeldPod, pods: Sequence[HeldPod], plan: Plan, source: PlanSource
    ) -> None:
        """Carry out a plan for a due pod and those that get room with it, or say why not."""
        if source.mode_of(held) is ReclaimMode.DRY_RUN:
            text = f"{source.name} (DryRun) would evict {victims_text(plan.victims)}"
            self._note(pods, ReclaimNote(None, text))
            if self._due.may_report(held):
                await self._report(held, plan, source)
        else:
            self._start(pods, plan, source)

    def _nodes_of(self, pods: Sequence[HeldPod]) -> list[str]:
        """Return where each of some pods counts; nothing if one of them is not held any more."""
        held, state = self._parts.held, self._parts.state
        now = [held.get(each.key) for each in pods]
        if any(
            found is None or found.pod.uid != each.pod.uid
            for each, found in zip(pods, now, strict=True)
        ):
            return []
        return [state.assumed_node(each.key) for each in pods]

    def _note(self, pods: Sequence[HeldPod], note: ReclaimNote | None) -> None:
        for held in pods:
            self._parts.reclaims.set_note(held, note)

    async def _report(self, held: HeldPod, plan: Plan, source: PlanSource) -> None:
        """Say what mode On would do."""
        self._count(source.name, Outcome.REPORTED)
        about = pod_reference(held.pod.namespace, held.pod.name, held.pod.uid)
        await self._parts.events.would_evict(about, plan, source.event_reasons)

    async def _report_unplaced(self) -> None:
        """Say what mode On would do for pods that were released and that no node has taken."""
        parts = self._parts
        for source in self._sources:
            before = Micros(self._now() - source.after)
            for held in parts.reclaims.take_unplaced(source.name, before):
                is_waiting = parts.state.entry(held.key) and not parts.running.get(held.key)
                if not (held.raw and is_waiting):
                    continue
                plan = await source.plan([held], parts.guards)
                if isinstance(plan, Plan):
                    await self._report(held, plan, source)
                await asyncio.sleep(0)

    def _start(self, pods: Sequence[HeldPod], plan: Plan | None, source: PlanSource) -> None:
        uids = [held.pod.uid for held in pods]
        for held in pods:
            self._parts.reclaims.keep(held)
        if plan is not None:
            self._parts.planned.set(uids[0], plan.victims)
        reclaim = Reclaim(pods, plan, source, self._parts)
        task = asyncio.create_task(self._carry_out(reclaim, source))
        self._tasks |= dict.fromkeys(uids, task)

        def forget(_task: asyncio.Task[None]) -> None:
            for uid in uids:
                self._tasks.pop(uid, None)

        task.add_done_callback(forget)

    async def _carry_out(self, reclaim: Reclaim, source: PlanSource) -> None:
        try:
            self._count(source.name, await reclaim.run())
        except Exception:  # noqa: BLE001 - no bug in one reclaim ends the others
            _log.exception("a reclaim failed")

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


def _by_mode(sources: Sequence[PlanSource], held: HeldPod) -> list[PlanSource]:
    """Return sources of plans for a pod, those in mode On first, those in mode Off last."""
    modes = [ReclaimMode.ON, ReclaimMode.DRY_RUN, ReclaimMode.OFF]
    return sorted(sources, key=lambda source: modes.index(source.mode_of(held)))


def _note_of(no_plan: NoPlan) -> ReclaimNote | None:
    """Return what a person learns of it; nothing where a pod just waits for those that leave."""
    if no_plan.reason is NoPlanReason.NOT_NEEDED:
        return None
    is_blocked = no_plan.reason is NoPlanReason.BLOCKED_BY_PDB
    return ReclaimNote(QueuedReason.BLOCKED_BY_PDB if is_blocked else None, no_plan.message)
