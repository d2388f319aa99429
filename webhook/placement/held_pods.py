"""The held pods of a cluster, as the watch of one replica shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from math import isfinite
from types import MappingProxyType
from typing import Final

import msgspec

from engine.gang import Gang, GangKey, GangMember, gang_described_by, gang_metadata_of, member_of
from engine.model import api
from engine.model.hold import REFUSED_IN_ANNOTATION, RELEASING_ANNOTATION, refused_in
from engine.model.pod import Pod
from engine.model.pod_shape import shape_of
from engine.model.quantity import INT64_MAX
from engine.model.time import SECOND, Micros, micros
from engine.quota.queueing import NamespaceQueues, QueueRules
from engine.release import HeldPod, QueueOrder
from engine.report import HeldStatus, QueueEntry, QueueReport, ReleaserReport, queue_report
from engine.view import ClusterView
from webhook.fairness import Shares
from webhook.placement.placer import MOST_BYTES, beyond_limits


class GangMembers:
    """An observer that keeps what matters of each member that has not finished, some 300 bytes.

    Pods that name no gang cost one look at their labels. Whoever may create pods may name gangs;
    memory follows the pods that do.
    """

    def __init__(self) -> None:
        self._by_gang: dict[GangKey, dict[str, GangMember]] = {}
        self._described: dict[GangKey, dict[str, Gang]] = {}  # by the keys of pods that say more
        self._gang_of: dict[str, GangKey] = {}

    def __len__(self) -> int:
        return len(self._gang_of)

    def __iter__(self) -> Iterator[GangKey]:
        return iter(list(self._by_gang))

    def gang_of(self, pod_key: str) -> GangKey | None:
        return self._gang_of.get(pod_key)

    def of(self, key: GangKey) -> tuple[GangMember, ...]:
        return tuple(self._by_gang.get(key, {}).values())

    def described(self, key: GangKey) -> Gang | None:
        """Return the gang that its oldest member describes, None if none describes it."""
        found = self._described.get(key)
        if not found:
            return None
        members = self._by_gang[key]
        return found[min(found, key=lambda pod_key: _age(members[pod_key]))]

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        if pod.key in self._gang_of:
            self._forget(pod.key)
        member = member_of(pod)
        if member is None:
            return
        key = member.key
        self._gang_of[key] = member.gang
        self._by_gang.setdefault(member.gang, {})[key] = member
        gang = gang_described_by(pod)
        if gang is not None:
            self._described.setdefault(member.gang, {})[key] = gang

    def pod_deleted(self, namespace: str, name: str) -> None:
        key = f"{namespace}/{name}"
        if key in self._gang_of:
            self._forget(key)

    def _forget(self, key: str) -> None:
        gang = self._gang_of.pop(key)
        for by_gang in (self._by_gang, self._described):
            members = by_gang.get(gang)
            if members is not None:
                members.pop(key, None)
                if not members:
                    del by_gang[gang]


def _age(member: GangMember) -> tuple[float, str]:
    """Return a key by which the oldest member is the first, the same on every replica."""
    created = float("inf") if member.created is None else member.created.timestamp()
    return created, member.uid


DEFAULT_HOLD_SECONDS: Final = 60
DEFAULT_HOLD_MAX: Final = 10_000

NEVER: Final = Micros(INT64_MAX)
"""The bound of a pod that waits for quota or its gang: it waits for as long as that takes."""

_RECLAIM: Final = 720 * SECOND
"""By which a hold is longer while others are evicted for a pod: their end is waited for, at most
600 s, beside some writes."""

_LONGEST_OVERDUE: Final = 30 * SECOND
_MOST_BYTES_OF_ALL: Final = 64 * 1024 * 1024  # their models take as much again
_LEAST_BYTES: Final = 3 * 1024  # that a pod counts for: its model takes those, however small it is
_MOST_OBSOLETE: Final = 1024
_decode: Final = msgspec.json.Decoder(api.Pod).decode
_NO_SHAPE: Final = shape_of(api.Pod())
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class HeldPods:
    """An observer that lists the pods which nothing but our gate keeps from the scheduler.

    Pods that another gate keeps too are left out: nobody waits for us. Whoever may create pods may
    write our gate on them, in any number and size. So no namespace has more than its share of what
    may be held: the pods beyond it do not count, and of those beyond it in bytes only who they are
    is kept, about 1 KiB each.

    Args:
        now: the time of day.
        hold_seconds: the bound of a hold.
        most: number of pods that should be held at most; 0 where none should be.
        most_bytes: bytes of objects that are kept at most.
    """

    def __init__(
        self,
        now: Callable[[], Micros],
        *,
        hold_seconds: int = DEFAULT_HOLD_SECONDS,
        most: int = DEFAULT_HOLD_MAX,
        most_bytes: int = _MOST_BYTES_OF_ALL,
    ) -> None:
        self._now = now
        self._hold_micros = hold_seconds * SECOND
        self._number, self._bytes = Shares(most), Shares(most_bytes)
        self._held: dict[str, HeldPod] = {}
        self._charges: dict[str, tuple[int, int]] = {}  # of each of them: number and bytes
        # set with each pod that is held from now on, or was and has changed; whoever waits for it
        # clears it
        self.changed = asyncio.Event()
        self._queue: list[tuple[Micros, str]] = []  # a heap by overdue_from, with obsolete entries
        self._overdue: dict[str, dict[str, Micros]] = {}  # for too long, by namespace and key

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldPod]:
        """Iterate over those of this moment, in any order; events may come meanwhile."""
        return iter(list(self._held.values()))

    def get(self, key: str) -> HeldPod | None:
        return self._held.get(key)

    def now(self, held: HeldPod) -> HeldPod | None:
        found = self._held.get(held.key)
        return None if found is None or found.pod.uid != held.pod.uid else found

    def holds(self, pod: Pod) -> bool:
        """Return whether a pod is held, and not another one of its name."""
        found = self._held.get(pod.key)
        return found is not None and found.pod.uid == pod.uid

    def is_full(self, namespace: str) -> bool:
        """Whether no further pods of a namespace should be held."""
        has_room = self._number.has_room(namespace, 1)
        return not (has_room and self._bytes.has_room(namespace, MOST_BYTES))

    def overdue(self, now: Micros) -> Mapping[str, Mapping[str, Micros]]:
        """Return what is overdue for 30 seconds and more: since when, by namespace and key.

        Pods that wait for quota or their gang never are.
        """
        while (first := self._first_due()) is not None and first <= now - _LONGEST_OVERDUE:
            overdue_from, key = heappop(self._queue)
            self._overdue.setdefault(self._held[key].pod.namespace, {})[key] = overdue_from
        return self._overdue

    def oldest_overdue_seconds(self, now: Micros) -> float:
        """Return for how long the oldest overdue hold has been overdue, 0 if none is."""
        moments = [moment for pods in self.overdue(now).values() for moment in pods.values()]
        if (first := self._first_due()) is not None:
            moments.append(first)
        return max(0, now - min(moments, default=now)) / SECOND

    def _first_due(self) -> Micros | None:
        """Return the moment from which the next hold is overdue."""
        while self._queue:
            overdue_from, key = self._queue[0]
            held = self._held.get(key)
            if held is not None and held.overdue_from == overdue_from:
                return overdue_from
            heappop(self._queue)
        return None

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:
        if not pod.is_held_by_us_alone or pod.is_terminal or pod.deleting:
            self._drop(pod.key)
            return
        old = self._held.get(pod.key)
        is_queued, is_held_for_gang = pod.is_queued, pod.is_held_for_gang
        if old is not None and (
            old.pod.uid != pod.uid
            or (old.is_queued, old.is_held_for_gang) != (is_queued, is_held_for_gang)
        ):
            old = None  # its time begins now
        # What it was charged it keeps: others that came since take nothing from it.
        had_number, had_size = self._charges.get(pod.key, (0, 0))
        self._drop(pod.key)
        size = max(len(raw), _LEAST_BYTES)
        has_room = size <= had_size or self._bytes.has_room(pod.namespace, size)
        is_kept = has_room and _may_be_decided(raw)
        number = had_number or int(self._number.has_room(pod.namespace, 1))
        seen_at = self._now() if old is None else old.seen_at
        created = seen_at if pod.created is None else micros(pod.created)
        held = HeldPod(
            pod=pod if is_kept else _identity_of(pod),
            version=version,
            raw=bytes(raw) if is_kept else b"",
            release_by=NEVER
            if is_queued or is_held_for_gang
            else Micros(created + self._hold_micros + pod.is_reclaimed_for * _RECLAIM),
            seen_at=seen_at,
            is_queued=is_queued,
            is_held_for_gang=is_held_for_gang,
        )
        self._held[pod.key] = held
        self._charges[pod.key] = number, size * is_kept
        self._number.take(pod.namespace, number)
        self._bytes.take(pod.namespace, size * is_kept)
        self.changed.set()
        self._enqueue(held)

    def pod_deleted(self, namespace: str, name: str) -> None:
        self._drop(f"{namespace}/{name}")

    def _drop(self, key: str) -> None:
        old = self._held.pop(key, None)
        if old is None:
            return
        number, size = self._charges.pop(key)
        namespace = old.pod.namespace
        self._number.take(namespace, -number)
        self._bytes.take(namespace, -size)
        overdue = self._overdue.get(namespace, {})
        if overdue.pop(key, None) is not None and not overdue:
            del self._overdue[namespace]

    def _enqueue(self, held: HeldPod) -> None:
        if held.is_unbounded:
            return
        heappush(self._queue, (held.overdue_from, held.key))
        if len(self._queue) > 2 * len(self._held) + _MOST_OBSOLETE:
            self._queue = [
                (each.overdue_from, key)
                for key, each in self._held.items()
                if not each.is_unbounded
            ]
            heapify(self._queue)


def _may_be_decided(raw: bytes | msgspec.Raw) -> bool:
    """Return whether an object, as a watch has decoded it, is within the limits of a decision."""
    return 0 < len(raw) <= MOST_BYTES and not beyond_limits(_decode(raw))


def _identity_of(pod: Pod) -> Pod:
    """Return the model of a pod without all that whoever created it could make large.

    It is a member of its gang all the same.
    """
    labels, annotations = gang_metadata_of(pod)
    return Pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        labels=labels,
        annotations=annotations,
        node_selector=_NOTHING,
        scheduler_name=pod.scheduler_name,
        scheduling_gates=pod.scheduling_gates,
        nominated_node_name=pod.nominated_node_name,
        priority=pod.priority,
        created=pod.created,
        shape=_NO_SHAPE,
    )


_LONGEST_SILENCE_SECONDS: Final = 15.0
"""Since the last renewal of the Lease; then another replica takes over."""

_MANY: Final = 3
"""Overdue or refused pods of a namespace after which it holds no further ones, whoever is at fault.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLease:
    """The Lease of the leader election, as one replica has last seen it."""

    holder: str  # the identity of the leader, "" for none
    annotations: Mapping[str, str]  # those that the holder has written
    # since the last renewal that this replica has observed, by its own steady clock; infinite
    # before the first: nobody can tell how old a Lease is that was only found
    age_seconds: float


class Refusal(StrEnum):
    """Why no pod may be held now; the label of its metric."""

    NONE = ""
    NO_LEADER = "no_leader"  # nobody renews the Lease
    NOT_RELEASING = "not_releasing"  # its holder has released no pod lately that was due
    OVERDUE = "overdue"  # pods are held for too long
    FULL = "full"  # too many pods of the namespace are held


class HoldGuard:
    """Says whether pods may be held: while their release can be relied on, and never otherwise.

    A pod whose release is refused is the affair of its namespace: the leader has named that on the
    Lease long before the pod counts as overdue.
    """

    def __init__(self, lease: Callable[[], ObservedLease], held: HeldPods) -> None:
        self._lease = lease
        self._held = held

    def refusal(self, now: Micros, namespace: str = "") -> Refusal:
        """Return why no pod of a namespace may be held at a moment, "" if it may.

        Without a namespace, why none may of any.
        """
        lease = self._lease()
        if not lease.holder or lease.age_seconds >= _LONGEST_SILENCE_SECONDS:
            return Refusal.NO_LEADER
        if lease.annotations.get(RELEASING_ANNOTATION) != "true":
            return Refusal.NOT_RELEASING
        refused = refused_in(lease.annotations.get(REFUSED_IN_ANNOTATION, ""))
        if refused.get(namespace, 0) >= _MANY:  # what waits for quota or a gang is never overdue
            return Refusal.NOT_RELEASING
        overdue = self._held.overdue(now)
        if len(overdue.get(namespace, ())) >= _MANY or not overdue.keys() <= refused.keys():
            return Refusal.OVERDUE
        return Refusal.FULL if self._held.is_full(namespace) else Refusal.NONE

    def status(self, now: Micros) -> HeldStatus:
        """Return the held pods in numbers, and whether further ones may be held."""
        return HeldStatus(
            held=len(self._held),
            overdue_seconds=round(self._held.oldest_overdue_seconds(now), 3),
            not_holding=self.refusal(now),
        )

    def releaser(self) -> ReleaserReport:
        """Return who releases held pods."""
        lease = self._lease()
        age = lease.age_seconds
        return ReleaserReport(
            holder=lease.holder,
            renewed_seconds_ago=round(age, 3) if isfinite(age) else None,
            releasing=lease.annotations.get(RELEASING_ANNOTATION) == "true",
        )


_MOST_LISTED: Final = 1_000  # in some 20 ms, during which no review is answered


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOrder:
    """The held pods in order; any replica can tell, whoever leads."""

    held: HeldPods  # the pods that are held
    order: QueueOrder  # in which they are released
    queue_rules: QueueRules  # by which they wait for quota
    view: Callable[[], ClusterView]  # for the order
    now: Callable[[], Micros]  # the time of day
    guard: HoldGuard | None = None  # knows who releases them; None where nobody does

    def report(
        self, *, pod: str = "", namespace: str = "", limit: int | None = None
    ) -> QueueReport:
        """Return the queue of this moment, with the pods whose keys have a part, of a namespace."""
        view, queues = self.view(), NamespaceQueues(self.queue_rules)
        queues.update(view)
        ordered = self.order.sorted(self.held, view, pod_of=lambda held: held.pod)
        return queue_report(
            [_entry(held, queues) for held in ordered],
            self.now(),
            queue_sort=self.order.sort,
            releaser=None if self.guard is None else self.guard.releaser(),
            lists=lambda listed: pod in listed.key and namespace in {"", listed.namespace},
            most=_MOST_LISTED if limit is None else min(limit, _MOST_LISTED),
        )


def _entry(held: HeldPod, queues: NamespaceQueues) -> QueueEntry:
    pod = held.pod
    queue = queues.of(pod) if pod.is_queued else None
    return QueueEntry(
        pod=pod,
        release_by=held.release_by,
        raw=held.raw,
        quota=None if queue is None else queue.quota,
    )
