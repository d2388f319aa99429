"""The release controller: the leader decides held pods in an order, nominates and releases them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.hold import RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.model.resource_names import PODS
from engine.model.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from engine.model.time import Micros
from engine.queue import QueueOrder
from engine.view import ClusterState, Sum
from webhook.controllers.release.decider import HeldPodDecider
from webhook.controllers.release.outcomes import Outcomes
from webhook.controllers.release.pacing import Release, UnboundReleases
from webhook.controllers.release.pod_writer import PodWriter
from webhook.controllers.release.refusals import Refusals
from webhook.controllers.release.releasing import ReleasingStatus
from webhook.controllers.release.scheduler_lease import SchedulerLease
from webhook.controllers.release.states import ReleaseDecision, ReleaseState, Reservation
from webhook.controllers.release.write_error import WriteError, WriteFailure
from webhook.placement.held_pods import HeldPod, HeldPods

_TICK_SECONDS: Final = 1.0
"""Between two cycles without an event: time alone makes pods overdue or lost."""

_AT_ONCE: Final = 64
"""Pods decided between two turns of the event loop, some 20 ms: reviews must not wait longer."""

_REST: Final = 3.0
"""Pause after a cycle that was long, as a multiple of it: reviews share the processor."""

_SHORT_SECONDS: Final = 0.005
_CHECK_AGAIN_SECONDS: Final = 5.0
"""After which a reservation is decided again: its scheduler may have forgotten the nomination."""

_CHANGED_SECONDS: Final = 1.0
"""After which a pod that was not as we knew it is tried again, even if nothing is seen of it."""

_OVERDUE: Final = ReleaseDecision(reason="it was held for as long as a pod may be held")

_REPELLING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseParts:
    """What the controller works with.

    Attributes:
        held: the pods that are held.
        unbound: those that are released and not bound.
        state: the cluster.
        decider: decides.
        order: of the held pods.
        writer: writes them.
        outcomes: where they land.
        refusals: those that somebody refuses.
        releasing: whether pods are released.
        scheduler_lease: tells when the scheduler was restarted.
    """

    held: HeldPods
    unbound: UnboundReleases
    state: ClusterState
    decider: HeldPodDecider
    order: QueueOrder
    writer: PodWriter
    outcomes: Outcomes
    refusals: Refusals
    releasing: ReleasingStatus
    scheduler_lease: SchedulerLease


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
        self._is_ready = is_ready
        self._now = now
        self._clock = clock
        self._reserved: dict[str, Reservation] = {}  # by key
        self._not_before: dict[str, tuple[int, float]] = {}  # of a key: version, moment
        self._writes: set[asyncio.Task[None]] = set()

    def state_of(self, held: HeldPod) -> ReleaseState:
        """Return the state of a held pod."""
        is_reserved = held.key in self._reserved or held.pod.nominated_node_name
        return ReleaseState.RESERVED if is_reserved else ReleaseState.HELD

    async def run(self) -> None:
        """Repeat cycles until cancelled."""
        parts = self._parts
        parts.unbound.clear()
        lease = asyncio.create_task(parts.scheduler_lease.run(self._touch_reserved))
        try:
            while True:
                began = self._clock()
                parts.held.changed.clear()
                parts.unbound.changed.clear()
                await self.cycle()
                parts.releasing.cycle_ended(waiting=bool(self._reserved))
                await parts.refusals.write_events()
                elapsed = self._clock() - began
                if elapsed > _SHORT_SECONDS:
                    await asyncio.sleep(_REST * elapsed)
                await self._event()
        finally:
            lease.cancel()
            await asyncio.gather(lease, return_exceptions=True)
            await self._end()

    async def cycle(self) -> None:
        """Decide the pods that may be released now, and start to write them."""
        # 1. Count what became of those that were released.
        self._count_outcomes()

        # 2. Forget what is no longer held.
        self._drop_unheld()

        # 3. Release overdue pods, whatever happens.
        waiting = [held for held in self._parts.held if self._may_try(held)]
        now = self._now()
        for held in waiting:
            if held.release_by <= now:
                self._release_overdue(held)

        # 4. Decide the next ones in order, and write them.
        if self._is_ready():
            await self._release_next(waiting)

    async def _release_next(self, waiting: Sequence[HeldPod]) -> None:
        """Decide pods in order until there is no room for more, and start to write them."""
        self._check_again()
        left = [held for held in waiting if held.key not in self._reserved]
        if not left:
            return
        ordered = self._parts.order.sorted(left, self._parts.state.view(), pod_of=_pod_of)
        remaining = iter(ordered)
        while batch := list(self._with_room(remaining, _AT_ONCE)):
            for held, decision in zip(batch, self._parts.decider.decide(batch), strict=True):
                self._reserve(held, decision)
            await asyncio.sleep(0)  # reviews and events come in between

    def _with_room(self, pods: Iterator[HeldPod], most: int) -> Iterator[HeldPod]:
        """Yield the next pods whose schedulers may get more, and that are still held as known."""
        reserved = Counter(
            reservation.held.pod.scheduler_name
            for reservation in self._reserved.values()
            if reservation.decision.node_name
        )
        for held in pods:
            name = held.pod.scheduler_name
            is_current = self._parts.held.get(held.key) is held
            if is_current and reserved[name] < self._parts.unbound.room(name):
                reserved[name] += 1
                yield held
                most -= 1
                if not most:
                    return

    def _reserve(self, held: HeldPod, decision: ReleaseDecision) -> None:
        reservation = Reservation(held=held, decision=decision, since=self._clock())
        self._reserved[held.key] = reservation
        self._start(reservation)

    def _release_overdue(self, held: HeldPod) -> None:
        """Release a pod with what is decided of it, or as it is."""
        reservation = self._reserved.get(held.key)
        if reservation is None:
            self._reserve(held, _OVERDUE)
        elif not reservation.is_writing:
            self._start(reservation)

    def _check_again(self) -> None:
        """Write reservations again whose write failed; decide those anew that are old."""
        for key, reservation in list(self._reserved.items()):
            if reservation.is_writing or not self._may_try(reservation.held):
                continue
            if self._clock() - reservation.since < _CHECK_AGAIN_SECONDS:
                self._start(reservation)
            else:
                del self._reserved[key]

    def _may_try(self, held: HeldPod) -> bool:
        """Whether a pod may be written: nobody refuses it, and it is as we know it."""
        version, moment = self._not_before.get(held.key, (0, 0.0))
        is_as_known = held.version != version or self._clock() >= moment
        return is_as_known and self._parts.refusals.is_due(held.pod)

    def _start(self, reservation: Reservation) -> None:
        """Write a reservation beside others."""
        reservation.is_writing = True
        task = asyncio.create_task(self._write(reservation))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write(self, reservation: Reservation) -> None:
        """Nominate a pod and release it; what fails is left for another cycle."""
        held = reservation.held
        try:
            await self._nominate_and_release(reservation)
        except WriteError as error:
            await self._failed(reservation, error)
        except Exception:  # noqa: BLE001 - no bug in the write of a pod ends those of others
            _log.exception("pod `%s` could not be released", held.key)
            self._give_back(reservation)
        else:
            self._not_before.pop(held.key, None)
            self._parts.refusals.forget(held.pod)
            self._parts.releasing.accepted()
        finally:
            reservation.is_writing = False

    async def _nominate_and_release(self, reservation: Reservation) -> None:
        held, decision, writer = reservation.held, reservation.decision, self._parts.writer
        node_name = decision.node_name if decision.nominates else ""
        if node_name != held.pod.nominated_node_name:
            await writer.nominate(held, node_name)
        self._parts.unbound.add(
            Release(
                key=held.key,
                uid=held.pod.uid,
                scheduler_name=held.pod.scheduler_name,
                node_name=node_name,
                is_placed=bool(decision.node_name),
            )
        )
        released = {RELEASED_ANNOTATION: decision.node_name or decision.reason}
        patch = decision.patch
        await writer.release(held, patch.operations, {**patch.annotations, **released})

    async def _failed(self, reservation: Reservation, error: WriteError) -> None:
        """Do what the failure of a write asks for; the pod is tried again in a later cycle."""
        held, failure = reservation.held, error.failure
        if failure is WriteFailure.UNREACHABLE:
            return  # maybe it was written; the reservation stays
        self._parts.unbound.discard(held.key)
        if failure is WriteFailure.REFUSED:
            self._parts.releasing.refused()
            if self._parts.refusals.refused(held.pod, error):
                self._give_back(reservation)
                await self._withdraw(held)
        else:
            self._not_before[held.key] = held.version, self._clock() + _CHANGED_SECONDS
            self._give_back(reservation)

    async def _withdraw(self, held: HeldPod) -> None:
        """Let the room go that the scheduler keeps for a pod; without success it is kept."""
        try:
            await self._parts.writer.withdraw(held)
        except WriteError as error:
            _log.info("nomination of pod `%s` stays: %s", held.key, error)

    def _give_back(self, reservation: Reservation) -> None:
        key = reservation.held.key
        self._parts.state.nominate(key, "")
        if self._reserved.get(key) is reservation:
            del self._reserved[key]

    def _drop_unheld(self) -> None:
        """Forget reservations of pods that are not held any more; the view follows the watch."""
        held = self._parts.held
        for key, reservation in list(self._reserved.items()):
            now = held.get(key)
            if now is None or now.pod.uid != reservation.held.pod.uid:
                del self._reserved[key]
        for key in [key for key in self._not_before if held.get(key) is None]:
            del self._not_before[key]

    def _count_outcomes(self) -> None:
        """Count the pods that were bound, and those that were not in time."""
        for landing in self._parts.unbound.take_landings():
            self._parts.outcomes.count(landing, self._still_fits)
        for release in self._parts.unbound.take_lost():
            _log.info("pod `%s` was released and is not bound", release.key)
            self._parts.state.nominate(release.key, "")

    def _still_fits(self, pod: Pod, node_name: str) -> bool:
        """Return whether a pod that was bound elsewhere would have room on a node."""
        view = self._parts.state.view()
        row = view.rows.get(node_name)
        node = None if row is None else view.nodes[row]
        if row is None or node is None or node.unschedulable:
            return False
        if untolerated(node.taints, pod.tolerations, _REPELLING):
            return False
        free = view.allocatable - view.sums[Sum.REQUESTS]
        needs = {**pod.shape.requests, PODS: 1}
        return all(view.amount(free, name)[row] >= amount for name, amount in needs.items())

    async def _touch_reserved(self) -> None:
        """Let a scheduler that was restarted note the nominations again that it has forgotten."""
        for reservation in list(self._reserved.values()):
            if reservation.decision.nominates and reservation.decision.node_name:
                try:
                    await self._parts.writer.touch(reservation.held)
                except WriteError as error:
                    _log.info("pod `%s` is not touched: %s", reservation.held.key, error)

    async def _event(self) -> None:
        """Wait for an event of a held or a released pod, or for a while."""
        events = (self._parts.held.changed, self._parts.unbound.changed)
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _end(self) -> None:
        """End the writes, and take back what the view counts ahead of them."""
        for task in self._writes:
            task.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        for reservation in list(self._reserved.values()):
            self._give_back(reservation)


def _pod_of(held: HeldPod) -> Pod:
    return held.pod
