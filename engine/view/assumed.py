"""Assumed pods: advised to take a node or nominated to one, but not bound yet.

Known pods are held by `namespace/name`; those in flight, between the response to a review and the
first event of the pod, by `in_flight_key`.

Only the scheduler and we may write the status of a pod, so a nominated node is trusted. Anyone may
write gates and annotations: an advice counts on no node where the scheduler will never put the pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from engine.model import api
from engine.model.decision import MOST_NODES, Advice, advice_in
from engine.model.hold import RELEASED_ANNOTATION
from engine.model.node import NO_EXECUTE, NO_SCHEDULE, Node, untolerated
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.selectors import NodeSelector, parse_node_selector
from engine.model.time import SECOND, Micros, micros
from engine.view.pod_table import IN_FLIGHT

_LONGEST_TEXT: Final = 4_096  # of some thousand assumed pods at a time
_CACHED_TEXTS: Final = 256  # of templates that arrive together
_REPELLING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
_UNSCHEDULABLE: Final = api.Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class _Wire(msgspec.Struct, frozen=True, array_like=True):
    """The text, as msgpack."""

    labels: dict[str, str]
    required: api.NodeSelector | None
    tolerations: tuple[api.Toleration, ...]


class _Constraints(NamedTuple):
    labels: dict[str, str]
    selector: NodeSelector | None
    tolerations: tuple[api.Toleration, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Wire).decode


def constraints_of(pod: Pod) -> bytes | None:
    """Return the constraints of a pod as a text, equal for pods of one template.

    None if the text would be too long to be kept, or holds half a character.
    """
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution
    try:
        text = _encode(_Wire(dict(pod.node_selector), required, pod.tolerations))
    except UnicodeEncodeError:
        return None
    return text if len(text) <= _LONGEST_TEXT else None


def admits(constraints: bytes, requests: Amounts, node: Node) -> bool:
    """Return whether a pod could ever run on a node, were it empty."""
    labels, selector, tolerations = _parsed(constraints)
    taints = (*node.taints, _UNSCHEDULABLE) if node.unschedulable else node.taints
    if taints and untolerated(taints, tolerations, _REPELLING):
        return False
    if any(node.labels.get(key) != value for key, value in labels.items()):
        return False
    if selector is not None and not selector.matches(node.labels, node.name):
        return False
    return all(amount <= node.allocatable.get(name, 0) for name, amount in requests.items())


@lru_cache(maxsize=_CACHED_TEXTS)
def _parsed(constraints: bytes) -> _Constraints:
    wire = _decode(constraints)
    selector = None if wire.required is None else parse_node_selector(wire.required)[0]
    return _Constraints(wire.labels, selector, wire.tolerations)


class NominatedNodes:
    """The nodes that pods are nominated to: as seen, or as decided here and not seen yet.

    What was decided here holds until the pod is seen nominated to another node than before: then
    the write has arrived, or somebody else has written since. Memory follows the pods that are
    nominated, and those decided here.
    """

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._decided: dict[str, str] = {}  # "" for nowhere; never what was seen

    def current(self, pod: Pod) -> Pod:
        """Return a pod that was just seen, and is not bound, as nominated to where it counts."""
        if not (pod.nominated_node_name or self._seen or self._decided):
            return pod  # nearly always
        key, seen = pod.key, pod.nominated_node_name
        if seen != self._seen.get(key, ""):
            self.forget(key)
            if seen:
                self._seen[key] = seen
        decided = self._decided.get(key)
        return pod if decided is None else replace(pod, nominated_node_name=decided)

    def decide(self, key: str, node_name: str) -> None:
        """Nominate a pod to a node, "" for none, ahead of what will be seen of it."""
        if node_name == self._seen.get(key, ""):
            self._decided.pop(key, None)
        else:
            self._decided[key] = node_name

    def forget(self, key: str) -> None:
        """Drop a pod that is bound or gone."""
        self._seen.pop(key, None)
        self._decided.pop(key, None)


def counts_as_nominated(pod: Pod) -> bool:
    """Return whether a pod that is not bound counts on its nominated node.

    Not one of others: the scheduler preempts pods there for it, and those still count.
    """
    return bool(pod.nominated_node_name) and (pod.is_held or RELEASED_ANNOTATION in pod.annotations)


DEFAULT_ASSUMED_SECONDS = 300
DEFAULT_IN_FLIGHT_SECONDS = 10
NOMINATED_SECONDS = 60
"""For which a pod without gates counts on its nominated node: the scheduler needs far less."""

MOST_IN_FLIGHT = 10_000
MOST_IN_FLIGHT_OF_NAMESPACE = 256
"""Many times what a burst has between its reviews and its watch events; others may be refused."""

MOST_WAITING_OF_NAMESPACE = 1_000
"""Of one namespace, and assumed: its pods may wait for good, for what no node offers."""

_LARGEST_SHAPE = 16_384  # bytes
_MOST_OBSOLETE = 1024


def in_flight_key(advice_id: str) -> str:
    """Return the key of a pod until it is seen."""
    return IN_FLIGHT + advice_id


class Assumed(msgspec.Struct, frozen=True, gc=False):
    """The advice or the nomination of an assumed pod."""

    # names of the advised nodes, best first, or of the nominated one; none once it was assumed for
    # too long
    nodes: tuple[str, ...]
    # when it was advised, or first seen to be; of a nominated pod when its gates were gone
    since: Micros
    constraints: bytes = b""  # by which nodes it can run at all; see `constraints_of`
    namespace: str = ""  # that of the pod, where its pods are limited in number
    nominated_to: str = ""  # name of the nominated node, "" for an advised pod
    gated: bool = False  # whether it is nominated while it has gates, and so for as long as it has


class AssumedPods:
    """The assumed pods until their time is up; the caller counts them.

    Memory follows their number: one record per pod, of at most MOST_NODES names, and the queue of
    moments is swept when most of it is obsolete. Pods come and go by the thousand a second, nodes
    hardly: the index by node is rebuilt when a node comes or goes, in 1.5 ms for each 1,000 pods.

    Tenants decide how many pods they create, refused ones among them: so only so many of one
    namespace are held, and none that is very large.
    """

    def __init__(self, assumed_seconds: int, in_flight_seconds: int) -> None:
        self._assumed_micros = assumed_seconds * SECOND
        self._in_flight_micros = in_flight_seconds * SECOND
        self._held: dict[str, Assumed] = {}
        self._by_node: dict[str, list[str]] | None = None  # None since the last change
        self._queue: list[tuple[int, str]] = []  # a heap by moment, with obsolete entries
        self._of_namespace: Counter[tuple[bool, str]] = Counter()  # in flight or waiting
        self._latest = Micros(0)  # the latest moment that `expire` was told
        self.in_flight = 0

    def keys(self) -> list[str]:
        return list(self._held)

    def get(self, key: str) -> Assumed | None:
        return self._held.get(key)

    def advised(self, pod: Pod, advice: Advice, at: Micros) -> str | None:
        """Hold a pod that was just advised, until it is seen; return its key.

        None where it is not held: the pod could not be recognised later, would count nowhere, is
        very large, or too many are in flight already.
        """
        if pod.gated or not (advice.id and advice.nodes) or self.in_flight >= MOST_IN_FLIGHT:
            return None
        key, constraints = in_flight_key(advice.id), constraints_of(pod)
        if constraints is None or pod.shape.size > _LARGEST_SHAPE or not self._has_room(key, pod):
            return None
        self._hold(key, Assumed(advice.nodes[:MOST_NODES], at, constraints, pod.namespace))
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
        """Hold a pod that waits for the scheduler, if it is nominated, or advised without gates.

        Its time runs from its creation; where it was known before, from when its gates were gone.
        """
        key = pod.key
        if counts_as_nominated(pod):
            return self.nominate(key, pod.nominated_node_name, gated=pod.gated, since=seen_at)
        advice = None if pod.gated else advice_in(pod.annotations)
        constraints = constraints_of(pod) if advice is not None and advice.nodes else None
        if advice is None or constraints is None:
            self.forget(key)
            return None
        old = self._held.get(key)
        if old is not None and old.nominated_to:
            self.forget(key)
            old = None
        if old is not None and not old.nodes:
            return old
        if old is None and not self._has_room(key, pod):
            return None
        since = micros(pod.created) if is_new and pod.created is not None else seen_at
        since = since if old is None else old.since
        return self._hold(
            key, Assumed(advice.nodes[:MOST_NODES], since, constraints, pod.namespace)
        )

    def nominate(self, key: str, node_name: str, *, gated: bool, since: Micros) -> Assumed:
        """Hold a pod that is nominated to a node; one that was for too long stays as it is."""
        old = self._held.get(key)
        if old is not None and old.nominated_to == node_name and old.gated == gated:
            return old
        since = Micros(0) if gated else since
        return self._hold(key, Assumed((node_name,), since, nominated_to=node_name, gated=gated))

    def hold(self, key: str, nodes: Iterable[str], since: Micros) -> Assumed:
        """Hold a pod without constraints, in place of any of the same key."""
        return self._hold(key, Assumed(tuple(nodes)[:MOST_NODES], since))

    def _hold(self, key: str, new: Assumed) -> Assumed:
        old = self._held.get(key)
        if old == new:
            return new
        self._count(key, old, -1)
        self._count(key, new, 1)
        self._held[key] = new
        self._by_node = None
        if old is None:
            self.in_flight += key.startswith(IN_FLIGHT)
        if new.nodes and not new.gated:
            heappush(self._queue, (self._until(key, new), key))
            if len(self._queue) > 2 * len(self._held) + _MOST_OBSOLETE:
                self._sweep()
        return new

    def forget(self, key: str) -> None:
        old = self._held.pop(key, None)
        if old is not None:
            self._count(key, old, -1)
            self.in_flight -= key.startswith(IN_FLIGHT)
            self._by_node = None

    def has_landed(self, key: str) -> bool:
        """Return whether a key is of a pod no longer in flight, which counts nowhere."""
        return key.startswith(IN_FLIGHT) and key not in self._held

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
        return bool(self._queue) and (self._queue[0][0] <= now or now < self._latest)

    def expire(self, now: Micros, most: int | None = None) -> list[str]:
        """Return the keys of the pods that were assumed for too long, each once.

        Known ones stay on record without nodes, the others are dropped.
        """
        if now < self._latest:
            self._restart(now)
        self._latest, keys = now, []
        for _ in range(len(self._queue) if most is None else most):
            if not self.is_due(now):
                break
            until, key = heappop(self._queue)
            assumed = self._held.get(key)
            if (
                assumed is None
                or not assumed.nodes
                or assumed.gated
                or self._until(key, assumed) != until
            ):
                continue
            self.forget(key)
            if not key.startswith(IN_FLIGHT):
                self._hold(key, Assumed((), assumed.since, nominated_to=assumed.nominated_to))
            keys.append(key)
        return keys

    def _has_room(self, key: str, pod: Pod) -> bool:
        """Return whether another pod of the namespace may be held, in flight or waiting."""
        is_in_flight = key.startswith(IN_FLIGHT)
        most = MOST_IN_FLIGHT_OF_NAMESPACE if is_in_flight else MOST_WAITING_OF_NAMESPACE
        return self._of_namespace[is_in_flight, pod.namespace] < most

    def _count(self, key: str, assumed: Assumed | None, sign: int) -> None:
        """Count a pod that has nodes for its namespace, or no longer."""
        if assumed is None or not assumed.nodes or assumed.nominated_to:
            return
        of_namespace = key.startswith(IN_FLIGHT), assumed.namespace
        self._of_namespace[of_namespace] += sign
        if not self._of_namespace[of_namespace]:
            del self._of_namespace[of_namespace]

    def _until(self, key: str, assumed: Assumed) -> int:
        if assumed.nominated_to:
            return assumed.since + NOMINATED_SECONDS * SECOND
        is_in_flight = key.startswith(IN_FLIGHT)
        return assumed.since + (self._in_flight_micros if is_in_flight else self._assumed_micros)

    def _restart(self, now: Micros) -> None:
        """Let all times begin no later than now: the clock was set back."""
        for key, assumed in self._held.items():
            if assumed.since > now:
                self._held[key] = msgspec.structs.replace(assumed, since=now)
        self._sweep()

    def _sweep(self) -> None:
        """Take obsolete entries out of the queue."""
        self._queue = [
            (self._until(key, assumed), key)
            for key, assumed in self._held.items()
            if assumed.nodes and not assumed.gated
        ]
        heapify(self._queue)
