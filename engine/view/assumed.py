"""Assumed pods: advised to take a node, but not bound yet.

Known pods are held by `namespace/name`; those in flight, between the response to a review and the
first event of the pod, by `in_flight_key`.
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

_IN_FLIGHT = "/"  # no `namespace/name` begins so
_MOST_OBSOLETE = 1024


def in_flight_key(advice_id: str) -> str:
    """Return the key of a pod until it is seen."""
    return _IN_FLIGHT + advice_id


class Assumed(msgspec.Struct, frozen=True, gc=False):
    """The advice an assumed pod follows.

    Attributes:
        nodes: names of the advised nodes, best first; none once it was assumed for too long.
        since: when it was advised, or first seen to be.
    """

    nodes: tuple[str, ...]
    since: Micros


class AssumedPods:
    """The assumed pods until their time is up; the caller counts them.

    Memory follows their number: one record per pod, of at most MOST_NODES names, and the queue of
    moments is swept when most of it is obsolete. Pods come and go by the thousand a second, nodes
    hardly: the index by node is rebuilt when a node comes or goes, in 1.5 ms for each 1,000 pods.

    Args:
        assumed_seconds: the longest time a known pod is assumed. One that no node takes must not
            keep the advised node from others for ever.
        in_flight_seconds: the longest time a pod is assumed that is not seen. It may never come:
            its creation can be refused after the review.
    """

    def __init__(self, assumed_seconds: int, in_flight_seconds: int) -> None:
        self._assumed_micros = assumed_seconds * SECOND
        self._in_flight_micros = in_flight_seconds * SECOND
        self._held: dict[str, Assumed] = {}
        self._by_node: dict[str, list[str]] | None = None  # None since the last change
        self._queue: list[tuple[int, str]] = []  # a heap by moment, with obsolete entries
        self.in_flight = 0

    def get(self, key: str) -> Assumed | None:
        """Return the advice of a pod, None if it is not assumed."""
        return self._held.get(key)

    def advised(self, pod: Pod, advice: Advice, at: Micros) -> str | None:
        """Hold a pod that was just advised, until it is seen; return its key.

        None where it is not held: the pod could not be recognised later, would count nowhere, or
        too many are in flight already.
        """
        if pod.gated or not (advice.id and advice.nodes) or self.in_flight >= MOST_IN_FLIGHT:
            return None
        key = in_flight_key(advice.id)
        self.hold(key, advice.nodes, at)
        return key

    def pop_in_flight(self, pod: Pod) -> str | None:
        """Take out a pod that is in flight; return its key, None if it is not.

        For a pod that is seen for the first time, or reviewed again before that.
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
        old = self._held.get(key)
        if old is not None:
            return self.hold(key, advice.nodes, old.since) if old.nodes else old
        since = micros(pod.created) if is_new and pod.created is not None else seen_at
        return self.hold(key, advice.nodes, since)

    def hold(self, key: str, nodes: Iterable[str], since: Micros) -> Assumed:
        """Hold a pod, in place of any of the same key."""
        old = self._held.get(key)
        new = Assumed(tuple(nodes)[:MOST_NODES], since)
        if old == new:
            return new
        self._held[key] = new
        self._by_node = None
        if old is None:
            self.in_flight += key.startswith(_IN_FLIGHT)
        if new.nodes:
            heappush(self._queue, (self._until(key, new), key))
            if len(self._queue) > 2 * len(self._held) + _MOST_OBSOLETE:
                self._sweep()
        return new

    def forget(self, key: str) -> None:
        """Drop a pod, if it is held."""
        if self._held.pop(key, None) is not None:
            self.in_flight -= key.startswith(_IN_FLIGHT)
            self._by_node = None

    def has_landed(self, key: str) -> bool:
        """Return whether a key is of a pod no longer in flight, which counts nowhere."""
        return key.startswith(_IN_FLIGHT) and key not in self._held

    def advised_to(self, node_name: str) -> tuple[str, ...]:
        """Return the keys of the pods that were advised to take a node."""
        if self._by_node is None:
            self._by_node = {}
            for key, assumed in self._held.items():
                for name in dict.fromkeys(assumed.nodes):
                    self._by_node.setdefault(name, []).append(key)
        return tuple(self._by_node.get(node_name, ()))

    def is_due(self, now: Micros) -> bool:
        """Return whether `expire` would do anything."""
        return bool(self._queue) and self._queue[0][0] <= now

    def expire(self, now: Micros, most: int | None = None) -> list[str]:
        """Return the keys of the pods that were assumed for too long, each once.

        Known ones stay on record without nodes, the others are dropped.

        Args:
            now: now.
            most: the number of moments to process, the earliest first; None for all.
        """
        keys = []
        for _ in range(len(self._queue) if most is None else most):
            if not self.is_due(now):
                break
            until, key = heappop(self._queue)
            assumed = self._held.get(key)
            if assumed is None or not assumed.nodes or self._until(key, assumed) != until:
                continue
            self.forget(key)
            if not key.startswith(_IN_FLIGHT):
                self.hold(key, (), assumed.since)
            keys.append(key)
        return keys

    def _until(self, key: str, assumed: Assumed) -> int:
        is_in_flight = key.startswith(_IN_FLIGHT)
        return assumed.since + (self._in_flight_micros if is_in_flight else self._assumed_micros)

    def _sweep(self) -> None:
        """Take obsolete entries out of the queue."""
        self._queue = [
            (self._until(key, assumed), key) for key, assumed in self._held.items() if assumed.nodes
        ]
        heapify(self._queue)
