"""The release controller: the leader releases held pods, in an order."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from engine.model.elastic_quota import EvictionMode
from engine.model.hold import QueuedReason
from engine.quota.queueing import QuotaRelease
from engine.release import (
    HeldPod,
    HeldPodRecord,
    Phase,
    ReclaimStage,
    ReleaseDecision,
    WaitFacts,
    wait_reason,
    would_stay,
)
from engine.view import ClusterView
from webhook.controllers.release.conditions import DueCondition, Wait
from webhook.controllers.release.context import ReleaseContext
from webhook.controllers.release.gangs import Gangs, QueueTurns
from webhook.controllers.release.pod_writer import WriteError
from webhook.controllers.release.quota_queue import Turn
from webhook.controllers.release.releases import Releases, write_refusals

_DETAILS: Final = {
    QueuedReason.WAITING_FOR_CAPACITY: "no node takes it",
    QueuedReason.WAITING_FOR_BINDINGS: "the one before it is not bound yet",
}
"""What a wait for nobody else says besides its reason."""

_TICK_SECONDS: Final = 1.0
"""Between two cycles without an event: time alone makes pods overdue or lost."""

_AT_ONCE_SECONDS: Final = 0.02
"""For which nodes are looked at between two turns of the event loop: reviews wait meanwhile."""

_MANY: Final = 200
_REST: Final = 3.0
_LONGEST_REST_SECONDS: Final = 0.5
"""The pause after a cycle over so many pods, as a multiple of it: reviews share the processor."""

_DUE: Final = {Phase.CREATED, Phase.QUEUED, Phase.RESERVED, Phase.RELEASING}
"""The phases of a pod that waits for a write of ours, unless quota or its order keeps it."""

_OVERDUE: Final = "it was held for as long as a pod may be held"
_UNRESERVED: Final = "the scheduler finds a node"
_OFF: Final = EvictionMode.OFF


_log = logging.getLogger(__name__)


class ConditionWriter:
    """Writes the conditions of held pods, in a task of its own beside the cycles."""

    def __init__(self, context: ReleaseContext, gangs: Gangs) -> None:
        self._context = context
        self._gangs = gangs
        self._task: asyncio.Task[None] | None = None

    def write_due(self, waiting: Sequence[HeldPod]) -> None:
        """Begin to write the conditions that are due, unless the last ones are still under way."""
        is_writing = self._task is not None and not self._task.done()
        now = self._context.now()
        if is_writing or not self._context.conditions.is_due(now):
            return
        busy = self._context.pods.schedulers_in_order()
        due = self._context.conditions.due(waiting, now, partial(self._wait, busy=busy))
        if due:
            self._task = asyncio.create_task(self._write(due))

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _wait(self, held: HeldPod, busy: Container[str]) -> Wait:
        """Return what a pod waits for; busy are the schedulers whose next pod of an order waits."""
        context = self._context
        record = context.pods.of(held)
        note = record.reclaim_note
        quota = context.pace.condition(self._gangs.first(held).key)
        gang = self._gangs.wait(held)
        is_in_order = held.pod.is_held_for_order
        facts = WaitFacts(
            is_refused=record.phase is Phase.REFUSED,
            quota="" if quota is None else quota.reason,
            gang="" if gang is None else gang.reason,
            finds_no_node=record.phase is Phase.UNPLACED,
            is_behind_binding=is_in_order and held.pod.scheduler_name in busy,
        )
        reason = QueuedReason(wait_reason(facts))
        if record.refusal is not None:
            return Wait(reason, record.refusal.message)
        said = [each for each in (quota, gang) if each is not None and each.reason == reason]
        wait = said[0] if said else Wait(reason, _DETAILS.get(reason, ""))
        if note is None:
            return wait
        noted = QueuedReason(wait_reason(replace(facts, noted=note.reason or "")))
        detail = "; ".join(filter(None, (wait.detail, note.text)))
        return wait._replace(reason=noted, detail=detail)

    async def _write(self, due: Sequence[DueCondition]) -> None:
        for held, condition in due:
            if self._context.held.get(held.key) is not held or self._context.pods.attempt(held.pod):
                continue
            try:
                await self._context.writer.set_condition(held, condition)
            except WriteError as error:
                _log.debug("condition of pod `%s`: %s", held.key, error)


class ReleaseCheck:
    """Decides before a release whether a pod stays held, as no node takes it."""

    def __init__(self, context: ReleaseContext, gangs: Gangs) -> None:
        self._context = context
        self._quota_queue = context.quota_queue
        self._gangs = gangs

    def keeps(self, held: HeldPod, release: QuotaRelease | None) -> bool:
        """Return whether a pod stays held from now on, as no node takes it.

        Nodes are looked at only where that matters; then a pod counts on the one that takes it.
        """
        context = self._context
        record, now, at = context.pods.of(held), context.now(), context.clock()
        reclaim, preemption = self._quota_queue.mode_without_node(held, release), _OFF
        if context.rules.preempts and context.pods.evicts:
            preemption = context.preemption_of(held)
        is_behind_gang = self._gangs.reserves_from(held)
        modes = {reclaim, preemption}
        if not (is_behind_gang or modes != {_OFF}) or self._has_node(held):
            return False
        is_helped = EvictionMode.ON in modes and not record.is_reclaim_in_vain
        if not (is_behind_gang or is_helped):
            for source, mode in (("quota", reclaim), ("preemption", preemption)):
                if mode is EvictionMode.DRY_RUN:
                    context.pods.released_without_node(held, source, now)
            return False
        if reclaim is EvictionMode.ON and release is not None:
            self._quota_queue.keep_without_node(held, release)
        if preemption is EvictionMode.ON or is_behind_gang:
            record.finds_no_node(at, may_evict=preemption is EvictionMode.ON)
        return True

    def keep_gang(self, first: HeldPod, release: QuotaRelease | None) -> None:
        """Note that a gang within min has no room, by its first member: others may be evicted."""
        mode = self._quota_queue.mode_without_node(first, release)
        if mode is not _OFF and release is not None:
            self._quota_queue.keep_without_node(first, release)

    def _has_node(self, held: HeldPod) -> bool:
        """Return whether a node takes a pod, which then counts there.

        The scheduler may choose another; the next pod finds room for one less. One that is too
        large to be judged, or where a rule fails, is left to the scheduler.
        """
        if not held.raw:
            return True
        nominations = self._context.nominations
        nominations.withdraw(held.pod)  # it competes with others, not with itself
        try:
            node_name = self._context.node_for(held)
        except Exception:  # noqa: BLE001 - no bug in a rule keeps a pod
            _log.exception("no node could be looked for, for pod `%s`", held.key)
            return True
        nominations.nominate(held.pod, node_name)
        return bool(node_name)


@dataclass(eq=False)
class ReleaseController:
    """The task of the leader; restarted whenever this replica starts to lead.

    All that must outlive it is on the pods: a new leader finds them held or nominated in its own
    view, and goes on. Each write may be repeated, applies to one pod by its uid, and is sent only
    while this replica leads, so it may end between any two of them.
    """

    context: ReleaseContext  # what it works with
    releases: Releases  # writes the pods that are to be released
    gangs: Gangs  # the gangs whose members are held
    _: KW_ONLY
    # whether view and policies are complete; before that only overdue pods are released
    is_ready: Callable[[], bool]

    def __post_init__(self) -> None:
        self._held, self._unbound, self._pods = (
            self.context.held,
            self.context.unbound,
            self.context.pods,
        )
        self._quota_queue = self.context.quota_queue
        self._clock = self.context.clock
        self._conditions = ConditionWriter(self.context, self.gangs)
        self._release_check = ReleaseCheck(self.context, self.gangs)

    async def run(self) -> None:
        """Repeat cycles until cancelled."""
        self._pods.forget_releases()
        self.gangs.begin()
        beside = [
            asyncio.create_task(self.context.scheduler_lease.run(self._touch)),
            asyncio.create_task(self._write_events()),
        ]
        try:
            while True:
                self._held.changed.clear()
                self._unbound.changed.clear()
                began = self._clock()
                await self.cycle()
                elapsed = self._clock() - began
                if len(self._held) > _MANY:
                    await asyncio.sleep(min(_REST * elapsed, _LONGEST_REST_SECONDS))
                await self._event()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self.end()

    async def end(self) -> None:
        """End all writes, and take back what the view counts ahead of them."""
        await self._conditions.end()
        await self.gangs.end()
        await self.releases.end()
        # Nobody does so while this replica does not lead, and the pods come and go.
        self._pods.retain(lambda _: False)
        self._quota_queue.clear()

    async def cycle(self) -> None:
        """Release the pods that may go now: start to write them."""
        # 1. Forget those whose release is seen, or that are not bound in time.
        self._pods.retain(self._held.holds)
        self._forget_lost()

        waiting: Sequence[HeldPod] = ()
        if not self.context.writer.pause_seconds:
            # 2. Release overdue pods, whatever happens.
            self._release_overdue()

            # 3. Write again what failed. Withdraw nominations that were not followed.
            self.releases.retry()
            for record in self._pods.take_unfollowed(self._clock()):
                self.releases.withdraw_unfollowed(record)

            # 4. Release the next ones in order.
            if self.is_ready():
                waiting = await self._release_next()
                decided = [attempt.held.key for attempt in self._pods.releasing()]
                self.context.pace.cycle_ended(self._quota_queue.waits, decided)

            # 5. Tell those that stay why they wait.
            self._conditions.write_due(waiting)
        records = [self._pods.of(held) for held in self._held]
        self.context.health.cycle_ended(
            waiting=self._is_any_due(records),
            refused=Counter(record.pod.namespace for record in records if record.is_refused),
        )

    def _release_overdue(self) -> None:
        """Release pods that are held for too long with the node that they are nominated to."""
        now = self.context.now()
        for held in self._held:
            if held.release_by > now or not self.releases.may_try(held):
                continue
            attempt = self._pods.attempt(held.pod)
            if attempt is None or attempt.is_idle:
                node_name = held.pod.nominated_node_name
                self.context.nominations.nominate(held.pod, node_name)
                reason = "" if node_name else _OVERDUE
                decision = ReleaseDecision(node_name=node_name, reason=reason)
                self.releases.begin(held, decision, is_overdue=True)

    async def _release_next(self) -> Sequence[HeldPod]:
        """Release pods in order; return those that stay, in order."""
        waiting = self._undecided(self._held)
        view = self.context.state.view()
        if not waiting:
            self._quota_queue.clear()
            self.gangs.turns((), view)
            self._pods.set_order(())
            return ()
        ordered = self.context.rules.order.sorted(
            waiting, view, pod_of=lambda held: held.pod, failed_at=self.gangs.failed_at
        )
        turns = self.gangs.turns(ordered, view)
        remaining = self._releasable(turns, view)
        del view  # each nomination would have to copy it
        for held in self._quota_queue.nominated_in_vain(turns.queue):
            self.releases.take_back(held)
        await self._release_each(remaining, turns)
        return self._undecided(ordered)

    async def _release_each(self, pods: Iterator[Turn], turns: QueueTurns) -> None:
        """Release pods; one of them may stand for a gang."""
        busy = self._pods.schedulers_in_order(with_next=True)
        began = self._clock()
        for held, quota_release in pods:
            if self._clock() - began >= _AT_ONCE_SECONDS:
                await asyncio.sleep(0)  # reviews and events come in between
                began = self._clock()
            if self._held.get(held.key) is not held or not self.releases.may_try(held):
                continue
            if held.key in turns.together:
                if not self.gangs.prepare(held):
                    self._release_check.keep_gang(held, quota_release)
                continue
            scheduler = held.pod.scheduler_name
            if held.pod.is_held_for_order and scheduler in busy:
                continue
            if self._release(held, quota_release) and held.pod.is_held_for_order:
                busy.add(scheduler)

    def _release(self, held: HeldPod, quota_release: QuotaRelease | None) -> bool:
        """Release a pod unless it stays held, as no node takes it; return whether it goes."""
        if self._pods.of(held).take_room():
            # It goes where others have made room, if that is still there.
            node_name = held.pod.nominated_node_name
            if not would_stay(self.context.state.view(), node_name, held.pod):
                return False
            self.releases.begin(held, ReleaseDecision(node_name=node_name))
            return True
        if self._release_check.keeps(held, quota_release):
            return False
        self.releases.begin(held, ReleaseDecision(reason=_UNRESERVED))
        return True

    def _releasable(self, turns: QueueTurns, view: ClusterView) -> Iterator[Turn]:
        """Return the pods that may be released, those first whom others were evicted for."""
        self._pods.set_order(turns.queue)
        ready: list[Turn] = []
        queued: list[HeldPod] = []
        at = self._clock()
        for held in turns.queue:
            record = self._pods.of(held)
            if record.reclaim is ReclaimStage.READY:
                ready.append(Turn(held, None))
            elif not (record.is_reclaiming or record.rests(at)):
                queued.append(held)
        under_way = [attempt.held.key for attempt in self._pods.releasing()]
        under_way += [held.key for held in self._reserved()]
        return chain(ready, self._quota_queue.releasable(queued, under_way, view, turns.together))

    def _reserved(self) -> Iterator[HeldPod]:
        """Return the pods that are nominated, and wait for others to be gone or nominated too."""
        return chain(self._pods.kept_for_reclaim(), self.gangs.prepared())

    async def _touch(self) -> None:
        """Let a scheduler that was restarted note all nominations again that it has forgotten."""
        for held in self._held:
            if not held.pod.nominated_node_name:
                continue
            try:
                await self.context.writer.touch(held)
            except WriteError as error:
                _log.info("pod `%s` is not touched: %s", held.key, error)

    def _undecided(self, pods: Iterable[HeldPod]) -> list[HeldPod]:
        """Return the pods that are not released now."""
        if not self._pods.releasing():
            return list(pods)
        return [held for held in pods if self._pods.attempt(held.pod) is None]

    def _is_any_due(self, records: Iterable[HeldPodRecord]) -> bool:
        """Return whether a held pod waits for a write, and for nothing else."""
        waiting, busy = self._quota_queue.waits, self._pods.schedulers_in_order()
        for record in records:
            phase, pod = record.phase, record.pod
            is_kept = pod.key in waiting or (pod.is_held_for_order and pod.scheduler_name in busy)
            if phase in _DUE and (phase is Phase.RELEASING or not is_kept):
                return True
        return False

    async def _write_events(self) -> None:
        """Keep up with refusals: forget those of pods that are gone, and report those that last."""
        context = self.context
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._pods.retain(self._held.holds)
            await write_refusals(self._pods, context.connection, context.identity, context.clock())

    def _forget_lost(self) -> None:
        """Count pods on nodes no longer that were released, and not bound in time."""
        for record in self._pods.take_lost(self._clock()):
            self._unbound.changed.set()
            _log.info("pod `%s` was released and is not bound", record.pod.key)
            if record.attempt is None:
                self.context.nominations.withdraw(record.pod)

    async def _event(self) -> None:
        """Wait for an event of a held or a released pod, or for a while."""
        events = (self._held.changed, self._unbound.changed)
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
