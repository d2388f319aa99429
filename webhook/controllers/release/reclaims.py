"""Held pods for which others are evicted: what the release and the reclaim tell each other.

A pod that is reclaimed for is nominated while it is held, so that the scheduler and every view keep
its room. Until the victims are gone nobody else may decide or release it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from engine.model.hold import QueuedReason
from engine.model.time import Micros
from engine.release import HeldPod, HeldPodRegistry, Reclaim, ReclaimNote

_MOST_UNPLACED: Final = 100

_LOOK_AGAIN_SECONDS: Final = 2.0
"""Between two decisions for one pod that no node takes."""


class BlockedPod(NamedTuple):
    """A held pod within the `min` of its quota that the cohort or the nodes have no room for.

    Attributes:
        wait: what it waits for without a reclaim.
    """

    held: HeldPod
    wait: QueuedReason


class Reclaims:
    """The held pods that are reclaimed for; in the memory of the leader, while reclaim runs.

    Args:
        pods: the records of held pods; new ones where nobody else has any.
    """

    def __init__(self, pods: HeldPodRegistry | None = None) -> None:
        self._pods = HeldPodRegistry() if pods is None else pods
        self._is_running = False
        self._unplaced: dict[str, deque[tuple[Micros, HeldPod]]] = {}  # by source of plans

    def __iter__(self) -> Iterator[HeldPod]:
        """Iterate over the pods that are reclaimed for, and those whose room is there."""
        return iter([each.held for each in self._pods if each.held and each.is_kept_for_reclaim()])

    @property
    def is_running(self) -> bool:
        """Whether plans are made on this replica."""
        return self._is_running

    def begin(self) -> None:
        """Begin to keep pods, those of an earlier leader among them."""
        self.end()
        self._is_running = True

    def end(self) -> None:
        """Keep no pod any more, and forget all."""
        self._is_running = False
        self._unplaced.clear()
        for record in self._pods:
            record.forget_reclaim()

    def keeps(self, held: HeldPod) -> bool:
        """Return whether a pod must neither be decided nor released now."""
        stage = self._stage(held)
        return stage is Reclaim.EVICTING or (stage is Reclaim.NONE and self.is_left(held))

    def counts(self, held: HeldPod) -> bool:
        """Return whether a pod is reclaimed for, so that its request counts as used."""
        return self._stage(held) in {Reclaim.EVICTING, Reclaim.READY}

    def is_ready(self, held: HeldPod) -> bool:
        """Return whether the room of a pod is there, so that it goes first."""
        return self._stage(held) is Reclaim.READY

    def is_left(self, held: HeldPod) -> bool:
        """Return whether an earlier leader has reclaimed for a pod, and this one did not begin to.

        Whoever may write a pod can write the annotation; nobody but us and schedulers nominates.
        """
        is_new = self._is_running and held.pod.is_reclaimed_for
        return is_new and self._stage(held) is Reclaim.NONE

    def add_unplaced(self, source: str, held: HeldPod, at: Micros) -> None:
        """Note that a pod is released unplaced, for which mode On would maybe evict others.

        Args:
            source: of plans, by its name.
            held: the pod.
            at: the moment.
        """
        if self._is_running:
            unplaced = self._unplaced.setdefault(source, deque(maxlen=_MOST_UNPLACED))
            unplaced.append((at, held))

    def take_unplaced(self, source: str, before: Micros) -> list[HeldPod]:
        """Return the pods noted for a source before a moment, each once."""
        due, unplaced = list[HeldPod](), self._unplaced.get(source, deque())
        while unplaced and unplaced[0][0] <= before:
            due.append(unplaced.popleft()[1])
        return due

    def note(self, held: HeldPod) -> ReclaimNote | None:
        """Return what reclaim adds to the condition of a pod."""
        record = self._pods.find(held.pod)
        return None if record is None else record.reclaim_note

    def keep(self, held: HeldPod) -> None:
        """Keep a pod from being decided and released from now on."""
        self._pods.of(held).reclaim_begins()

    def set_note(self, held: HeldPod, note: ReclaimNote | None) -> None:
        """Replace what reclaim adds to the condition of a pod."""
        self._pods.of(held).reclaim_note = note

    def set_ready(self, held: HeldPod) -> None:
        """Let a pod be decided and released, before others: its room is there."""
        self._pods.of(held).room_is_there()

    def hand_over(self, held: HeldPod) -> bool:
        """Leave a pod whose room is there to its release; return whether it is such a pod."""
        if not self.is_ready(held):
            return False
        self.give_up(held)
        return True

    def give_up(self, held: HeldPod) -> None:
        """Leave a pod to the queue again, or to its end."""
        self._pods.of(held).reclaim_given_up()

    def set_in_vain(self, held: HeldPod, *, in_vain: bool) -> None:
        """Note whether nothing that anyone borrows makes room for a pod."""
        self._pods.of(held).is_reclaim_in_vain = in_vain

    def is_in_vain(self, held: HeldPod) -> bool:
        """Return whether a pod that no node takes waits for nothing: autoscalers must see it."""
        record = self._pods.find(held.pod)
        return record is not None and record.is_reclaim_in_vain

    def retain(self, uids: set[str]) -> None:
        """Forget what is noted of all pods but those with these uids, the held ones."""
        for record in self._pods:
            if record.pod.uid not in uids and not record.is_kept_for_reclaim():
                record.forget_reclaim()

    def _stage(self, held: HeldPod) -> Reclaim:
        record = self._pods.find(held.pod)
        return Reclaim.NONE if record is None else record.reclaim


class Preemptors:
    """The held pods whose policies evict others for them, while no node takes them.

    Args:
        pods: the records of held pods; new ones where nobody else has any.
        is_enabled: whether anybody may be evicted for them.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        pods: HeldPodRegistry | None = None,
        *,
        is_enabled: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pods = HeldPodRegistry() if pods is None else pods
        self._clock = clock
        self.is_enabled: Final = is_enabled
        self._queue: Sequence[HeldPod] = ()

    def __contains__(self, held: object) -> bool:
        """Whether a held pod waits for others to be evicted."""
        return isinstance(held, HeldPod) and self._look_again_at(held) is not None

    def keep(self, held: HeldPod) -> None:
        """Note that no node takes a pod, which stays held."""
        self._pods.of(held).look_again_at = self._clock() + _LOOK_AGAIN_SECONDS

    def rests(self, held: HeldPod) -> bool:
        """Return whether a pod is not to be decided again yet."""
        look_again_at = self._look_again_at(held)
        return look_again_at is not None and self._clock() < look_again_at

    def retain(self, queue: Iterable[HeldPod]) -> None:
        """Forget all but some pods, in the queue order."""
        self._queue = list(queue)
        waiting = [each for each in self._pods if each.look_again_at is not None]
        if waiting:
            uids = {held.pod.uid for held in self._queue}
            for record in waiting:
                if record.pod.uid not in uids:
                    record.look_again_at = None

    def blocked(self) -> list[BlockedPod]:
        """Return the pods that wait for a node, in the queue order."""
        return [
            BlockedPod(held, QueuedReason.WAITING_FOR_CAPACITY)
            for held in self._queue
            if held in self
        ]

    def _look_again_at(self, held: HeldPod) -> float | None:
        record = self._pods.find(held.pod)
        return None if record is None else record.look_again_at
