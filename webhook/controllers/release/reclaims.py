"""Held pods for which others are evicted: what the release and the reclaim tell each other.

Whoever is reclaimed for is nominated while it is held, so that the scheduler and every view keep
its room. Until the victims are gone nobody else may decide or release it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from webhook.placement.held_pods import HeldPod

_MOST_UNPLACED: Final = 100


class BlockedPod(NamedTuple):
    """A held pod within the `min` of its quota that the cohort or the nodes have no room for.

    Attributes:
        wait: what it waits for without a reclaim.
    """

    held: HeldPod
    wait: QueuedReason


class ReclaimNote(NamedTuple):
    """What reclaim adds to the condition of a pod.

    Attributes:
        reason: None for that of its wait.
    """

    reason: QueuedReason | None
    text: str


class Reclaims:
    """The held pods that are reclaimed for; in the memory of the leader, while reclaim runs."""

    def __init__(self) -> None:
        self._is_running = False
        self._kept: dict[str, HeldPod] = {}
        self._ready: set[str] = set()  # uids
        self._notes: dict[str, ReclaimNote] = {}  # by uid
        self._given_up: set[str] = set()  # uids
        self._in_vain: set[str] = set()  # uids
        self._unplaced: dict[str, deque[tuple[Micros, HeldPod]]] = {}  # by source of plans

    def __iter__(self) -> Iterator[HeldPod]:
        """Iterate over the pods that are reclaimed for, and those whose room is there."""
        return iter(list(self._kept.values()))

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
        self._kept.clear()
        self._ready.clear()
        self._notes.clear()
        self._given_up.clear()
        self._in_vain.clear()
        self._unplaced.clear()

    def keeps(self, held: HeldPod) -> bool:
        """Return whether a pod must neither be decided nor released now."""
        return held.pod.uid not in self._ready and (self.counts(held) or self.is_left(held))

    def counts(self, held: HeldPod) -> bool:
        """Return whether a pod is reclaimed for, so that its request counts as used."""
        kept = self._kept.get(held.key)
        return kept is not None and kept.pod.uid == held.pod.uid

    def is_ready(self, held: HeldPod) -> bool:
        """Return whether the room of a pod is there, so that it goes first."""
        return held.pod.uid in self._ready

    def is_left(self, held: HeldPod) -> bool:
        """Return whether an earlier leader has reclaimed for a pod, and this one did not begin to.

        Whoever may write a pod can write the annotation; nobody but us and schedulers nominates.
        """
        return (
            self._is_running
            and held.pod.is_reclaimed_for
            and held.key not in self._kept
            and held.pod.uid not in self._given_up
        )

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
        return self._notes.get(held.pod.uid)

    def keep(self, held: HeldPod) -> None:
        """Keep a pod from being decided and released from now on."""
        self._kept[held.key] = held

    def set_note(self, held: HeldPod, note: ReclaimNote | None) -> None:
        """Replace what reclaim adds to the condition of a pod."""
        if note is None:
            self._notes.pop(held.pod.uid, None)
        else:
            self._notes[held.pod.uid] = note

    def set_ready(self, held: HeldPod) -> None:
        """Let a pod be decided and released, before others: its room is there."""
        self._ready.add(held.pod.uid)

    def hand_over(self, held: HeldPod) -> bool:
        """Leave a pod whose room is there to its release; return whether it is such a pod."""
        if held.pod.uid not in self._ready:
            return False
        self.give_up(held)
        return True

    def give_up(self, held: HeldPod) -> None:
        """Leave a pod to the queue again, or to its end."""
        self._kept.pop(held.key, None)
        self._ready.discard(held.pod.uid)
        self._given_up.add(held.pod.uid)

    def set_in_vain(self, held: HeldPod, *, in_vain: bool) -> None:
        """Note whether nothing that anyone borrows makes room for a pod."""
        if in_vain:
            self._in_vain.add(held.pod.uid)
        else:
            self._in_vain.discard(held.pod.uid)

    def is_in_vain(self, held: HeldPod) -> bool:
        """Return whether a pod that no node takes waits for nothing: autoscalers must see it."""
        return held.pod.uid in self._in_vain

    def retain(self, uids: set[str]) -> None:
        """Forget what is noted of all pods but those with these uids, the held ones."""
        self._given_up &= uids
        self._in_vain &= uids
        self._notes = {uid: note for uid, note in self._notes.items() if uid in uids}
