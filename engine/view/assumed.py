"""Which pods are assumed on which nodes, and until when: advised, but not bound yet.

Two kinds are held under one kind of key: pods that are known, by `namespace/name`, and those in
flight, between an answer to a review and the event that tells of the pod, by `in_flight_key`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import msgspec

from engine.model.advice import MOST_NODES, Advice, advice_in
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros, micros

DEFAULT_ASSUMED_SECONDS = 300
DEFAULT_IN_FLIGHT_SECONDS = 10
MOST_IN_FLIGHT = 10_000

_IN_FLIGHT = "/"  # no pod's key begins so: its namespace has a name
_MOST_OBSOLETE = 1024


def in_flight_key(advice_id: str) -> str:
    """Return what a pod is held under until it is seen."""
    return _IN_FLIGHT + advice_id


class Assumed(msgspec.Struct, frozen=True, gc=False):
    """What is held of an assumed pod.

    Attributes:
        nodes: names of the advised nodes, best first; none once it was assumed for too long.
        since: when it was advised, or first seen to be.
    """

    nodes: tuple[str, ...]
    since: Micros


class AssumedPods:
    """Remembers advice until it is too old; whoever asks does the counting.

    Memory follows what is held: one record per pod, of at most MOST_NODES names, and the queue of
    moments is swept when most of it is obsolete. Pods come and go by the thousand a second, nodes
    hardly: which pods name a node is put together when one does, in 1.5 ms for each 1,000 pods.

    Args:
        assumed_seconds: for how long a known pod is assumed at most. One that no node takes must
            not keep the advised one from others for ever.
        in_flight_seconds: for how long a pod that is not seen is assumed at most. It may never
            come: its creation can be refused after we answered.
    """

    def __init__(self, assumed_seconds: int, in_flight_seconds: int) -> None:
        self._assumed_micros = assumed_seconds * SECOND
        self._in_flight_micros = in_flight_seconds * SECOND
        self._held: dict[str, Assumed] = {}
        self._naming: dict[str, list[str]] | None = None  # None since what is held has changed
        self._queue: list[tuple[int, str]] = []  # a heap by moment; may hold obsolete ones
        self.in_flight = 0

    def get(self, key: str) -> Assumed | None:
        """Return what is held of a pod, None if nothing is."""
        return self._held.get(key)

    def advised(self, pod: Pod, advice: Advice, at: Micros) -> str | None:
        """Hold a pod that was just advised, until it is seen; returns what it is held under.

        None where it is not held: nobody could tell that the pod is the one seen later, it would
        count nowhere, or too many are in flight already.
        """
        if pod.gated or not (advice.id and advice.nodes) or self.in_flight >= MOST_IN_FLIGHT:
            return None
        key = in_flight_key(advice.id)
        self.hold(key, advice.nodes, at)
        return key

    def pop_in_flight(self, pod: Pod) -> str | None:
        """Return what a pod was held under in flight, if it was; it is not held there any more.

        For a pod that is seen for the first time, or judged again before that.
        """
        advice = advice_in(pod.annotations) if self.in_flight else None
        key = in_flight_key(advice.id) if advice else ""
        if key not in self._held:
            return None
        self.forget(key)
        return key

    def waiting(self, pod: Pod, *, is_new: bool, seen_at: Micros) -> Assumed | None:
        """Hold a pod that waits for the scheduler, if it was advised and has no gates.

        Its time runs from its creation; where it was known before, from when its gates were gone.
        """
        key = pod.key
        advice = None if pod.gated else advice_in(pod.annotations)
        if advice is None or not advice.nodes:
            self.forget(key)
            return None
        held = self._held.get(key)
        if held is not None:
            return self.hold(key, advice.nodes, held.since) if held.nodes else held
        since = micros(pod.created) if is_new and pod.created is not None else seen_at
        return self.hold(key, advice.nodes, since)

    def hold(self, key: str, nodes: Iterable[str], since: Micros) -> Assumed:
        """Hold a pod, in place of what was held under the same key."""
        old = self._held.get(key)
        new = Assumed(tuple(nodes)[:MOST_NODES], since)
        if old == new:
            return new
        self._held[key] = new
        self._naming = None
        if old is None:
            self.in_flight += key.startswith(_IN_FLIGHT)
        if new.nodes:
            heappush(self._queue, (self._until(key, new), key))
            if len(self._queue) > 2 * len(self._held) + _MOST_OBSOLETE:
                self._sweep()
        return new

    def forget(self, key: str) -> None:
        """Hold nothing of a pod any more, if anything is."""
        if self._held.pop(key, None) is not None:
            self.in_flight -= key.startswith(_IN_FLIGHT)
            self._naming = None

    def flight_is_over(self, key: str) -> bool:
        """Return whether a key is of a flight that ended, so that its pod counts nowhere."""
        return key.startswith(_IN_FLIGHT) and key not in self._held

    def naming(self, node_name: str) -> tuple[str, ...]:
        """Return the keys of the pods that a node was advised for."""
        if self._naming is None:
            self._naming = {}
            for key, held in self._held.items():
                for name in dict.fromkeys(held.nodes):
                    self._naming.setdefault(name, []).append(key)
        return tuple(self._naming.get(node_name, ()))

    def is_due(self, now: Micros) -> bool:
        """Return whether there is anything for `expire` to do."""
        return bool(self._queue) and self._queue[0][0] <= now

    def expire(self, now: Micros, most: int | None = None) -> list[str]:
        """Return the keys of the pods that were assumed for too long, each once.

        Of those that are known it stays on record that they were, of the others nothing.

        Args:
            now: now.
            most: how many moments are looked at, the earliest first; None for all.
        """
        keys = []
        for _ in range(len(self._queue) if most is None else most):
            if not self.is_due(now):
                break
            until, key = heappop(self._queue)
            held = self._held.get(key)
            if held is None or not held.nodes or self._until(key, held) != until:
                continue
            self.forget(key)
            if not key.startswith(_IN_FLIGHT):
                self.hold(key, (), held.since)
            keys.append(key)
        return keys

    def _until(self, key: str, held: Assumed) -> int:
        is_in_flight = key.startswith(_IN_FLIGHT)
        return held.since + (self._in_flight_micros if is_in_flight else self._assumed_micros)

    def _sweep(self) -> None:
        """Take out of the queue what became obsolete."""
        self._queue = [
            (self._until(key, held), key) for key, held in self._held.items() if held.nodes
        ]
        heapify(self._queue)
