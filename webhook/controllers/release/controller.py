"""The release controller: the leader decides held pods in an order, nominates and releases them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.view import ClusterView
from webhook.controllers.release.condition_writer import ConditionWriter
from webhook.controllers.release.gangs import QueueTurns
from webhook.controllers.release.node_room import has_room
from webhook.controllers.release.parts import ReleaseParts
from webhook.controllers.release.post_filter import PostFilter
from webhook.controllers.release.states import ReleaseDecision
from webhook.controllers.release.write_error import WriteError
from webhook.placement.held_pods import HeldPod

_TICK_SECONDS: Final = 1.0
"""Between two cycles without an event: time alone makes pods overdue or lost."""

_MOST_AT_ONCE: Final = 64
_AT_ONCE_SECONDS: Final = 0.02
"""Pods decided between two turns of the event loop, and for how long: reviews wait meanwhile."""

_MANY: Final = 200
_REST: Final = 3.0
_LONGEST_REST_SECONDS: Final = 0.5
"""The pause after a cycle over so many pods, as a multiple of it: reviews share the processor."""

_OVERDUE: Final = "it was held for as long as a pod may be held"

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
        self._at_once = _MOST_AT_ONCE
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
        """Decide the pods that may be released now, and start to write them."""
        # 1. Count what became of those that were released.
        self._decided.forget_unheld()
        self._count_outcomes()

        waiting: Sequence[HeldPod] = ()
        if not self._parts.writes.writer.pause_seconds:
            # 2. Release overdue pods, whatever happens.
            self._release_overdue()

            # 3. Write again what failed; what is old is decided again. Withdraw nominations that
            # were not followed.
            self._decided.retry()
            for nomination in self._unbound.take_stale_nominations():
                self._decided.withdraw_stale(nomination)

            # 4. Decide the next ones in order, and write them.
            if self._is_ready():
                waiting = await self._release_next()
                self._parts.pace.cycle_ended(self._quota_queue.waits, self._decided.keys)

            # 5. Tell those that stay why they wait.
            self._conditions.write_due(waiting)
        self._parts.writes.releasing.cycle_ended(waiting=self._is_anything_due())

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
        """Decide pods in order while there is room for more; return those that stay, in order."""
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
        schedulers = {held.pod.scheduler_name for held in ordered}
        while batch := list(self._with_room(remaining, self._room_of(schedulers), turns)):
            began = self._clock()
            self._decide(batch, turns)
            self._adapt(len(batch), self._clock() - began)
            await asyncio.sleep(0)  # reviews and events come in between
        return self._undecided(ordered)

    def _decide(self, batch: Sequence[HeldPod], turns: QueueTurns) -> None:
        """Decide pods in order; the last of them may stand for a gang."""
        is_gang = batch[-1].key in turns.together
        pods = batch[:-1] if is_gang else batch
        for held, decision in zip(pods, self._parts.decider.decide(pods), strict=True):
            self._reserve(held, decision)
        if is_gang and not self._gangs.prepare(batch[-1]):
            self._post_filter.keep_gang(batch[-1])

    def _reserve(self, held: HeldPod, decision: ReleaseDecision) -> None:
        """Write a pod, unless it stays held as no node takes it."""
        is_ready = self._reclaims.hand_over(held)
        if decision.fits_nowhere and (is_ready or self._gangs.reserves_from(held)):
            return
        is_placed = decision.node_name or is_ready
        if not is_placed and self._post_filter.keeps(held, decision):
            return
        if is_ready and not decision.node_name:
            # No policy places it: it goes where others have made room.
            node_name = held.pod.nominated_node_name
            self._parts.writes.state.nominate(held.key, node_name)
            decision = replace(decision, node_name=node_name, reason="")
        self._decided.reserve(held, decision)

    def _releasable(self, turns: QueueTurns, view: ClusterView) -> Iterator[HeldPod]:
        """Return the pods that may be decided, those first whom others were evicted for."""
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
        """Return whether a pod that no node takes is not to be decided again yet."""
        return self._preemptors.rests(held) and not self._reclaims.is_in_vain(held)

    def _reserved(self) -> Iterator[HeldPod]:
        """Return the pods that are nominated, and wait for others to be gone or nominated too."""
        return chain(self._reclaims, self._gangs.prepared())

    async def _touch(self) -> None:
        """Let a scheduler that was restarted note all nominations again that it has forgotten."""
        await self._decided.touch()
        for held in self._reserved():
            try:
                await self._parts.writes.writer.touch(held)
            except WriteError as error:
                _log.info("pod `%s` is not touched: %s", held.key, error)

    def _undecided(self, pods: Iterable[HeldPod]) -> list[HeldPod]:
        """Return the pods that are not decided."""
        if not len(self._decided):
            return list(pods)
        return [held for held in pods if held.key not in self._decided]

    def _room_of(self, schedulers: Iterable[str]) -> dict[str, int]:
        """Return how many more pods may be decided for each scheduler that may get any."""
        decided = self._decided.uncounted()
        room = {name: self._unbound.room(name) - decided[name] for name in schedulers}
        return {name: left for name, left in room.items() if left > 0}

    def _with_room(
        self, pods: Iterator[HeldPod], room: dict[str, int], turns: QueueTurns
    ) -> Iterator[HeldPod]:
        """Yield the next pods that may be written, and whose schedulers may get more.

        One that stands for a gang is the last: its members are placed with all before them.
        """
        most = self._at_once
        while room and most and (held := next(pods, None)):
            name = held.pod.scheduler_name
            if name not in room or self._held.get(held.key) is not held:
                continue
            if self._decided.may_try(held):
                yield held
                if held.key in turns.together:
                    return
                most -= 1
                room[name] -= 1
                if not room[name]:
                    del room[name]

    def _adapt(self, pods: int, seconds: float) -> None:
        """Let the next batch take as long as one may."""
        fitting = int(pods * _AT_ONCE_SECONDS / max(seconds, 1e-6))
        self._at_once = max(1, min(fitting, 2 * self._at_once, _MOST_AT_ONCE))

    def _is_anything_due(self) -> bool:
        """Return whether a pod that nobody refuses waits for a write, and not for quota."""
        waiting = self._quota_queue.waits
        for held in self._held:
            is_kept = (
                held.key in waiting
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

    def _count_outcomes(self) -> None:
        """Count the pods that were bound, and those that were not in time."""
        state, outcomes, now = self._parts.writes.state, self._parts.outcomes, self._now()

        def still_fits(pod: Pod, node_name: str) -> bool:
            return has_room(state.view(), node_name, pod, now)

        for landing in self._unbound.take_landings():
            outcomes.count(landing, still_fits)
        for release in self._unbound.take_lost():
            _log.info("pod `%s` was released and is not bound", release.key)
            outcomes.count_lost()
            if release.key not in self._decided:
                state.nominate(release.key, "")

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
