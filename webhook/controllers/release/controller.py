"""The release controller: the leader releases held pods, in an order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.view import ClusterView
from webhook.controllers.release.condition_writer import ConditionWriter
from webhook.controllers.release.gangs import QueueTurns
from webhook.controllers.release.node_room import would_stay
from webhook.controllers.release.parts import ReleaseParts
from webhook.controllers.release.post_filter import PostFilter
from webhook.controllers.release.states import ReleaseDecision
from webhook.controllers.release.write_error import WriteError
from webhook.placement.held_pods import HeldPod

_TICK_SECONDS: Final = 1.0
"""Between two cycles without an event: time alone makes pods overdue or lost."""

_AT_ONCE_SECONDS: Final = 0.02
"""For which nodes are looked at between two turns of the event loop: reviews wait meanwhile."""

_MANY: Final = 200
_REST: Final = 3.0
_LONGEST_REST_SECONDS: Final = 0.5
"""The pause after a cycle over so many pods, as a multiple of it: reviews share the processor."""

_OVERDUE: Final = "it was held for as long as a pod may be held"
_UNRESERVED: Final = "the scheduler finds a node"

_log = logging.getLogger(__name__)


class ReleaseController:
    """The task of the leader; restarted whenever this replica starts to lead.

    All that must outlive it is on the pods: a new leader finds them held or nominated in its own
    view, and goes on. Each write may be repeated, applies to one pod by its uid, and is sent only
    while this replica leads, so it may end between any two of them.

    Args:
        parts: what it works with.
        is_ready: whether view and policies are complete; before that only overdue pods are
            released.
        now: the time of day.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        parts: ReleaseParts,
        *,
        is_ready: Callable[[], bool],
        now: Callable[[], Micros],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._held, self._unbound = parts.writes.held, parts.writes.unbound
        self._quota_queue = parts.writes.quota_queue
        self._reclaims, self._preemptors = parts.reclaims, parts.preemptors
        self._gangs = parts.gangs
        self._decided = parts.decided
        self._is_ready = is_ready
        self._now = now
        self._clock = clock
        self._conditions = ConditionWriter(parts, now=now)
        self._post_filter = PostFilter(parts, now=now)

    async def run(self) -> None:
        """Repeat cycles until cancelled."""
        self._unbound.clear()
        self._gangs.begin()
        beside = [
            asyncio.create_task(self._parts.scheduler_lease.run(self._touch)),
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
        await self._gangs.end()
        await self._decided.end()

    async def cycle(self) -> None:
        """Release the pods that may go now: start to write them."""
        # 1. Forget those whose release is seen, or that are not bound in time.
        self._decided.forget_unheld()
        self._forget_lost()

        waiting: Sequence[HeldPod] = ()
        if not self._parts.writes.writer.pause_seconds:
            # 2. Release overdue pods, whatever happens.
            self._release_overdue()

            # 3. Write again what failed. Withdraw nominations that were not followed.
            self._decided.retry()
            for nomination in self._unbound.take_stale_nominations():
                self._decided.withdraw_stale(nomination)

            # 4. Release the next ones in order.
            if self._is_ready():
                waiting = await self._release_next()
                self._parts.pace.cycle_ended(self._quota_queue.waits, self._decided.keys)

            # 5. Tell those that stay why they wait.
            self._conditions.write_due(waiting)
        self._parts.writes.releasing.cycle_ended(
            waiting=self._is_anything_due(),
            refused=self._parts.writes.refusals.by_namespace,
        )

    def _release_overdue(self) -> None:
        """Release pods that are held for too long with the node that they are nominated to."""
        now = self._now()
        for held in self._held:
            if held.release_by > now or not self._decided.may_try(held):
                continue
            decided = self._decided.get(held.key)
            if decided is None or decided.is_idle:
                node_name = held.pod.nominated_node_name
                self._parts.writes.state.nominate(held.key, node_name)
                reason = "" if node_name else _OVERDUE
                decision = ReleaseDecision(node_name=node_name, reason=reason)
                self._decided.reserve(held, decision, is_overdue=True)

    async def _release_next(self) -> Sequence[HeldPod]:
        """Release pods in order; return those that stay, in order."""
        waiting = self._undecided(self._held)
        view = self._parts.writes.state.view()
        if not waiting:
            self._quota_queue.clear()
            self._gangs.turns((), view)
            self._preemptors.retain(())
            return ()
        ordered = self._parts.order.sorted(
            waiting, view, pod_of=_pod_of, failed_at=self._gangs.failed_at
        )
        turns = self._gangs.turns(ordered, view)
        remaining = self._releasable(turns, view)
        del view  # each nomination would have to copy it
        for held in self._quota_queue.nominated_in_vain(turns.queue):
            self._decided.take_back(held)
        await self._release_each(remaining, turns)
        return self._undecided(ordered)

    async def _release_each(self, pods: Iterator[HeldPod], turns: QueueTurns) -> None:
        """Release pods; one of them may stand for a gang."""
        busy = self._unbound.schedulers_in_order() | self._decided.schedulers_in_order()
        began = self._clock()
        for held in pods:
            if self._clock() - began >= _AT_ONCE_SECONDS:
                await asyncio.sleep(0)  # reviews and events come in between
                began = self._clock()
            if self._held.get(held.key) is not held or not self._decided.may_try(held):
                continue
            if held.key in turns.together:
                if not self._gangs.prepare(held):
                    self._post_filter.keep_gang(held)
                continue
            scheduler = held.pod.scheduler_name
            if held.pod.is_held_for_order and scheduler in busy:
                continue
            if self._release(held) and held.pod.is_held_for_order:
                busy.add(scheduler)

    def _release(self, held: HeldPod) -> bool:
        """Release a pod unless it stays held, as no node takes it; return whether it goes."""
        if self._reclaims.hand_over(held):
            # It goes where others have made room, if that is still there.
            node_name = held.pod.nominated_node_name
            if not would_stay(self._parts.writes.state.view(), node_name, held.pod):
                return False
            self._decided.reserve(held, ReleaseDecision(node_name=node_name))
            return True
        if self._post_filter.keeps(held):
            return False
        self._decided.reserve(held, ReleaseDecision(reason=_UNRESERVED))
        return True

    def _releasable(self, turns: QueueTurns, view: ClusterView) -> Iterator[HeldPod]:
        """Return the pods that may be released, those first whom others were evicted for."""
        reclaims, queue = self._reclaims, turns.queue
        self._preemptors.retain(queue)
        ready = [held for held in queue if reclaims.is_ready(held)]
        queued = [
            held
            for held in queue
            if not (reclaims.keeps(held) or reclaims.is_ready(held) or self._rests(held))
        ]
        under_way = [*self._decided.keys, *(held.key for held in self._reserved())]
        return chain(ready, self._quota_queue.releasable(queued, under_way, view, turns.together))

    def _rests(self, held: HeldPod) -> bool:
        """Return whether a node is not to be looked for again yet, for a pod that found none."""
        return self._preemptors.rests(held) and not self._reclaims.is_in_vain(held)

    def _reserved(self) -> Iterator[HeldPod]:
        """Return the pods that are nominated, and wait for others to be gone or nominated too."""
        return chain(self._reclaims, self._gangs.prepared())

    async def _touch(self) -> None:
        """Let a scheduler that was restarted note all nominations again that it has forgotten."""
        for held in self._reserved():
            try:
                await self._parts.writes.writer.touch(held)
            except WriteError as error:
                _log.info("pod `%s` is not touched: %s", held.key, error)

    def _undecided(self, pods: Iterable[HeldPod]) -> list[HeldPod]:
        """Return the pods that are not released now."""
        if not len(self._decided):
            return list(pods)
        return [held for held in pods if held.key not in self._decided]

    def _is_anything_due(self) -> bool:
        """Return whether a pod that nobody refuses waits for a write, and for nothing else."""
        waiting, busy = self._quota_queue.waits, self._unbound.schedulers_in_order()
        for held in self._held:
            is_kept = (
                held.key in waiting
                or (held.pod.is_held_for_order and held.pod.scheduler_name in busy)
                or held in self._preemptors
                or self._reclaims.keeps(held)
                or self._gangs.keeps(held)
            )
            if is_kept and held.key not in self._decided:
                continue
            decided = self._decided.get(held.key)
            is_released = decided is not None and decided.is_released
            if not is_released and not self._parts.writes.refusals.message(held.pod):
                return True
        return False

    async def _write_events(self) -> None:
        """Keep up with refusals: forget those of pods that are gone, and report those that last."""
        refusals = self._parts.writes.refusals
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if len(refusals):
                refusals.retain({held.pod.uid for held in self._held})
                await refusals.write_events()

    def _forget_lost(self) -> None:
        """Count pods on nodes no longer that were released, and not bound in time."""
        for release in self._unbound.take_lost():
            _log.info("pod `%s` was released and is not bound", release.key)
            if release.key not in self._decided:
                self._parts.writes.state.nominate(release.key, "")

    async def _event(self) -> None:
        """Wait for an event of a held or a released pod, or for a while."""
        events = (self._held.changed, self._unbound.changed)
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _pod_of(held: HeldPod) -> Pod:
    return held.pod
