"""Held pods that wait for quota: which of them may be released now, and why the others wait.

The leader alone decides the order; what keeps `max` exact is that each release is judged as a
creation is, by whichever replica gets it. So nothing here is written anywhere: a new leader decides
from its own view.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from engine.model.elastic_quota import NAME_LABEL, ElasticQuota, EvictionMode, QuotaKey
from engine.model.hold import QueuedReason
from engine.model.pod import DeploymentPod, Pod, deployment_pod_of
from engine.model.resources import Amounts
from engine.model.time import Micros, micros
from engine.quota import decode_reservations, quotas_of
from engine.quota.queueing import (
    NamespaceQueue,
    NamespaceQueues,
    PodUnderWay,
    QueueCycle,
    QueuedPod,
    QueueRules,
    QueueSituation,
    QuotaRelease,
    QuotaWait,
    QuotaWaits,
)
from engine.release import HeldPod, HeldPodRegistry
from engine.report import ReleaseRates, expected_wait
from engine.view import ClusterState, ClusterView
from webhook.controllers.release.conditions import Place, Wait
from webhook.placement.held_pods import HeldPods

_TRY_AGAIN_SECONDS: Final = 5.0
"""After which a refused release is tried again though nothing is seen to have changed: what stood
against it may have been reserved for a pod that never came, which nobody sees end."""


class _Exceeded(NamedTuple):
    """The last refusals by the quota of a namespace."""

    used: Amounts  # by the namespace then
    versions: tuple[int, ...]  # of its quotas then
    until: float  # the latest moment at which it is tried again
    requests: tuple[Amounts, ...]  # of the pods that were refused
    message: str  # of the last

    def concerns(self, requests: Amounts) -> bool:
        """Return whether a pod requests as much as one that was refused."""
        return any(
            all(requests.get(name, 0) >= amount for name, amount in refused.items())
            for refused in self.requests
        )


class ExceededQuotas:
    """The refusals by quotas that still stand."""

    def __init__(self, state: ClusterState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._by_namespace: dict[str, _Exceeded] = {}

    def add(self, held: HeldPod, message: str) -> None:
        """Note that the release of a pod was refused: others were first, or the view is behind."""
        namespace, view = held.pod.namespace, self._state.view()
        used, versions = _usage(namespace, view)
        old = self._by_namespace.get(namespace)
        requests = self._state.pod_requests(held.key)
        known = () if old is None or (old.used, old.versions) != (used, versions) else old.requests
        self._by_namespace[namespace] = _Exceeded(
            used,
            versions,
            self._clock() + _TRY_AGAIN_SECONDS,
            (*(each for each in known if each != requests), requests),
            message,
        )

    def keep(self, held: HeldPod, view: ClusterView) -> bool:
        """Return whether a pod would be refused again."""
        exceeded = self._standing(held.pod.namespace, view)
        return exceeded is not None and exceeded.concerns(self._state.pod_requests(held.key))

    def marked(self, queued: Iterable[QueuedPod], view: ClusterView) -> list[QueuedPod]:
        """Return pods with the refusals that keep them."""
        pods = list(queued)
        if not self._by_namespace:
            return pods
        standing = {name: self._standing(name, view) for name in list(self._by_namespace)}
        return [
            pod
            if (exceeded := standing.get(pod.key.partition("/")[0])) is None
            or not exceeded.concerns(pod.requests)
            else pod._replace(refusal=exceeded.message)
            for pod in pods
        ]

    def _standing(self, namespace: str, view: ClusterView) -> _Exceeded | None:
        exceeded = self._by_namespace.get(namespace)
        if exceeded is None:
            return None
        is_unchanged = (exceeded.used, exceeded.versions) == _usage(namespace, view)
        if is_unchanged and self._clock() < exceeded.until:
            return exceeded
        del self._by_namespace[namespace]
        return None


def _usage(namespace: str, view: ClusterView) -> tuple[Amounts, tuple[int, ...]]:
    """Return what a namespace uses, and the versions of its quotas."""
    quotas = view.namespaces.quotas.get(namespace, ())
    used = dict(view.namespaces.requested.get(namespace, {}))
    return used, tuple(quota.version for quota in quotas)


_MOST_OBSOLETE: Final = 1024


class QueuedPods:
    """The held pods that wait for a quota; what is made of one is kept while it is the same.

    INVARIANT: an id stands for the pod of its entry, which the entry keeps alive.
    """

    def __init__(self, state: ClusterState, queues: NamespaceQueues) -> None:
        self._state = state
        self._queues = queues
        self._by_id: dict[int, tuple[HeldPod, QueuedPod]] = {}
        self._generation = -1  # of the queues that the pods are in
        self._requests: dict[tuple[tuple[str, int], ...], Amounts] = {}

    def __contains__(self, held: object) -> bool:
        return id(held) in self._by_id

    def __getitem__(self, held: HeldPod) -> QueuedPod:
        return self._by_id[id(held)][1]

    def items(self) -> Sequence[tuple[HeldPod, QueuedPod]]:
        """Return all of them, in the queue order."""
        return list(self._by_id.values())

    def clear(self) -> None:
        self._by_id.clear()
        self._requests.clear()

    def update(self, ordered: Sequence[HeldPod], together: Mapping[str, Sequence[HeldPod]]) -> None:
        """Adopt the pods that wait for a quota."""
        known, self._by_id = self._by_id, {}
        is_same = self._generation == self._queues.generation
        self._generation = self._queues.generation
        for held in ordered:
            is_alone = held.key not in together
            entry = known.get(id(held)) if is_same and is_alone else None
            if entry is None:
                queue = self.queue_of(held) if held.is_queued else None
                if queue is None:
                    continue
                members = (held,) if is_alone else together[held.key]
                entry = held, self._queued_pod(held, queue.queue.key, members)
            self._by_id[id(held)] = entry
        if len(self._requests) > 2 * len(self._by_id) + _MOST_OBSOLETE:
            kept = (pod.requests for _, pod in self._by_id.values())
            self._requests = {tuple(each.items()): each for each in kept}

    def queue_of(self, held: HeldPod) -> NamespaceQueue | None:
        """Return the queue that a pod would wait in, None where no quota limits it."""
        return self._queues.get(held.pod.namespace, quota_label(held.pod.labels))

    def _queued_pod(self, held: HeldPod, quota: QuotaKey, members: Sequence[HeldPod]) -> QueuedPod:
        """Return a pod as queues see it; equal requests are one object."""
        requests = _sum([self._state.pod_requests(each.key) for each in members if each.is_queued])
        requests = self._requests.setdefault(tuple(requests.items()), requests)
        created = held.pod.created
        since = held.seen_at if created is None else micros(created)
        return QueuedPod(held.key, quota, requests, since)


def quota_label(labels: Mapping[str, str]) -> str:
    """Return the quota of Koordinator that the labels of a pod name, "" for none."""
    return labels.get(NAME_LABEL, "")


def _sum(requests: Sequence[Amounts]) -> Amounts:
    if len(requests) == 1:
        return requests[0]
    total = Counter[str]()
    for amounts in requests:
        total.update(amounts)
    return dict(total)


@dataclass(eq=False)
class SurgingPods:
    """Finds the held pods that may surge: one of each Deployment."""

    state: ClusterState  # the cluster
    # the pods of a namespace that one of a Deployment may replace, by name
    replaced_by: Callable[[str, DeploymentPod], Iterable[str]]

    def among(
        self, waiting: Iterable[HeldPod], under_way: Iterable[HeldPod], view: ClusterView
    ) -> Iterator[HeldPod]:
        """Yield the pods that may surge, in their order."""
        surging: set[tuple[str, str]] | None = None
        for held in waiting:
            pod = held.pod
            of = _deployment_of(pod) if self.state.allows_surge(pod.namespace) else None
            if of is None:
                continue
            if surging is None:
                going = ((each.pod.namespace, _deployment_of(each.pod)) for each in under_way)
                surging = {(namespace, of.deployment) for namespace, of in going if of is not None}
            key = pod.namespace, of.deployment
            if key in surging or self._is_listed(view, *key) or not self._replaces(pod, of):
                continue
            surging.add(key)
            yield held

    def _replaces(self, pod: Pod, of: DeploymentPod) -> bool:
        names = self.replaced_by(pod.namespace, of)
        return any(self.state.requests(f"{pod.namespace}/{name}") for name in names)

    def _is_listed(self, view: ClusterView, namespace: str, deployment: str) -> bool:
        """Return whether a pod of a Deployment surges, and the one that it replaces still runs."""
        for quota in quotas_of(view, namespace):
            reservations = decode_reservations(quota.reservations, quota.uid)
            for each in () if reservations is None else reservations.by_key.values():
                if each.surge == deployment and self.state.requests(f"{namespace}/{each.replaces}"):
                    return True
        return False


def _deployment_of(pod: Pod) -> DeploymentPod | None:
    return deployment_pod_of(pod.generate_name, pod.labels, pod.owner_kinds)


_ALONE: Final[Mapping[str, Sequence[HeldPod]]] = MappingProxyType({})


class Turn(NamedTuple):
    """A pod whose turn has come."""

    held: HeldPod
    # why its quota lets it go, None where it waits for none or surges
    release: QuotaRelease | None = None


@dataclass(eq=False)
class QuotaQueue:
    """The pods that wait for quota, as the leader sees them."""

    state: ClusterState  # the cluster
    held: HeldPods  # the pods that are held
    records: HeldPodRegistry  # theirs
    rules: QueueRules  # by which pods wait
    _: KW_ONLY
    now: Callable[[], Micros]  # the time of day
    # whether pods are evicted for others where their quota says so. Then a pod within min that no
    # node takes stays held
    reclaims: bool = False
    hard_namespaces: Container[str] = ()  # whose quotas may ask for Hard reclaim
    # finds the pods that may go above `max`; none does where it is not given
    surges: SurgingPods | None = None
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward

    def __post_init__(self) -> None:
        self._queues = NamespaceQueues(self.rules)
        self._queued = QueuedPods(self.state, self._queues)
        self._exceeded = ExceededQuotas(self.state, self.clock)
        self._cycle: QueueCycle | None = None
        self._without_room: dict[str, QuotaWait] = {}
        self._waits: QuotaWaits | None = None  # made when they are asked for
        # of the last cycle, before it released any; None before the first
        self.situation: QueueSituation | None = None
        self._decided: Iterable[str] = ()
        self._together: Mapping[str, Sequence[HeldPod]] = _ALONE

    def releasable(
        self,
        ordered: Sequence[HeldPod],
        decided: Iterable[str],
        view: ClusterView,
        together: Mapping[str, Sequence[HeldPod]] = _ALONE,
    ) -> Iterator[Turn]:
        """Return the pods that quota does not keep, in the order in which they are to be released.

        They are found one by one, so that nobody looks for more than can be released. Pods that
        wait for no quota stay in their places; the places of those that do are filled in the order
        of the quotas.

        Args:
            ordered: the pods that are not decided, in the queue order.
            decided: the keys of those that are, and still held.
            view: the cluster.
            together: by the key of a pod that stands for others, all that go with it or not at all;
                it has their place, and asks for what they request together.
        """
        self._decided, self._together = decided, together
        if not any(held.is_queued for held in ordered):
            self.clear()
            return map(Turn, ordered)
        self._without_room, self._waits = {}, None
        now = self.now()
        self._queues.update(view)
        self.situation = situation = self._situation(view, decided, ordered)
        self._queued.update(ordered, together)
        cycle = QueueCycle(
            self._exceeded.marked((pod for _, pod in self._queued.items()), view),
            situation.quotas,
            situation.usage,
            situation.cohort,
            now,
        )
        self._cycle = cycle
        self._note_within_min(cycle, now)
        return self._turns(ordered, cycle.releases(), view)

    def clear(self) -> None:
        """Note that no pod waits for quota."""
        self._cycle, self._together = None, _ALONE
        self._without_room, self._waits = {}, None
        self._queued.clear()
        for record in self.records:
            record.waits_within_min_no_more()

    def nominated_in_vain(self, ordered: Iterable[HeldPod]) -> list[HeldPod]:
        """Return the pods that wait for room, and have a node from an earlier leader.

        Not those within min that others are evicted for.
        """
        nominated = [
            (first, held)
            for first in ordered
            for held in self._all_with(first)
            if held.pod.nominated_node_name
        ]
        if not nominated or self._cycle is None:
            return []
        waiting = dict(self._cycle.waiting())
        return [
            held
            for first, held in nominated
            if first.key in waiting and not (waiting[first.key] and held.pod.is_reclaimed_for)
        ]

    @property
    def waits(self) -> QuotaWaits:
        """Why pods wait since the last cycle, for quota or for a node, by `namespace/name`."""
        if self._waits is None:
            others = self._without_room
            self._waits = QuotaWaits(others) if self._cycle is None else self._cycle.waits(others)
        return self._waits

    def blocked(self) -> list[HeldPod]:
        """Return the pods within min that wait for room in the cohort or for a node, in order.

        One that stands for others is within it with all of them.
        """
        waits, records = self.waits, self.records
        return [
            held
            for held, pod in self._queued.items()
            if records.of(held).within_min_since is not None
            and (wait := waits.get(pod.key)) is not None
            and _is_blocked(wait)
        ]

    def situation_without(self, pods: Sequence[HeldPod]) -> QueueSituation:
        """Return the situation of now, as if held pods were neither under way nor nominated."""
        view = self.state.view()
        self._queues.update(view)
        left_out = {held.key for held in pods}
        decided = [key for key in self._decided if key not in left_out]
        others = [each for each in self.held if each.key not in left_out]
        return self._situation(view, decided, others)

    def quota_of(self, namespace: str, labels: Mapping[str, str]) -> ElasticQuota | None:
        """Return the quota in the cohort that guarantees room to a pod, if any."""
        queue = self._queues.get(namespace, quota_label(labels))
        return None if queue is None or not queue.queue.is_in_cohort else queue.quota

    def mode_of(self, pod: Pod) -> EvictionMode:
        """Return whether pods that borrow are evicted for one within the `min` of its quota."""
        quota = self.quota_of(pod.namespace, pod.labels)
        return EvictionMode.OFF if quota is None else quota.reclaim

    def reclaims_hard(self, pod: Pod) -> bool:
        """Return whether PodDisruptionBudgets of pods that borrow give way to a pod."""
        quota = self.quota_of(pod.namespace, pod.labels)
        return (
            quota is not None
            and quota.asks_for_hard_reclaim
            and quota.namespace in self.hard_namespaces
        )

    def mode_without_node(self, held: HeldPod, release: QuotaRelease | None) -> EvictionMode:
        """Return what is to be done for a pod that quota lets go where no node takes it.

        On: it stays held, as pods that borrow are evicted for it. DryRun: it is released, and told.
        """
        may_reclaim = self.reclaims and release is not None and release.is_within_min
        return self.mode_of(held.pod) if may_reclaim else EvictionMode.OFF

    def keep_without_node(self, held: HeldPod, release: QuotaRelease) -> None:
        """Note that no node takes a pod that stays held then."""
        self._wait_for_capacity(held, release)
        self.records.of(held).finds_no_node_within_min(self.now(), self.clock())

    def refused(self, held: HeldPod, message: str) -> None:
        """Note that the release of a pod was refused as it exceeds its quota.

        It waits until the usage of the quota changes, or what is reserved on it.
        """
        self._exceeded.add(held, message)

    def _situation(
        self, view: ClusterView, decided: Iterable[str], ordered: Sequence[HeldPod]
    ) -> QueueSituation:
        keys = list(decided)
        under_way = [
            PodUnderWay(
                held.pod.namespace,
                self.state.pod_requests(held.key),
                quota_label(held.pod.labels),
            )
            for key in keys
            if (held := self.held.get(key)) is not None
            and held.is_queued
            and self._queued.queue_of(held) is not None
        ]
        nominated = (
            held.key
            for first in ordered
            for held in self._all_with(first)
            if held.pod.nominated_node_name
        )
        # INVARIANT: each of these that is assumed is released and unbound, too, or waits.
        candidates = dict.fromkeys(
            (*keys, *(each.pod.key for each in self.records.unbound()), *nominated)
        )
        assumed = [
            (node_name, self.state.pod_requests(key))
            for key in candidates
            if self._queues.is_in_cohort(key.partition("/")[0])
            and (node_name := self.state.assumed_node(key))
        ]
        return self._queues.situation(view, under_way=under_way, assumed=assumed)

    def _all_with(self, held: HeldPod) -> Sequence[HeldPod]:
        """Return the pods that a pod stands for, itself included."""
        return self._together.get(held.key, (held,))

    def _turns(
        self, ordered: Sequence[HeldPod], releases: Iterator[QuotaRelease], view: ClusterView
    ) -> Iterator[Turn]:
        """Yield the pods that go, those that wait for quota in the places of all that do.

        After them come the pods of rollouts that may go though their quota has no room.
        """
        by_key = {pod.key: held for held, pod in self._queued.items()}
        at, let_go = self.clock(), set[str]()
        for held in ordered:
            if held not in self._queued:
                yield Turn(held)
                continue
            release = next(releases, None)
            if release is None:
                continue
            turn = by_key[release.key]
            let_go.add(release.key)
            self._waits = None
            again_at = self.records.of(turn).capacity_again_at
            if again_at is not None and again_at > at:
                self._wait_for_capacity(turn, release)
            else:
                yield Turn(turn, release)
        if self.surges is None:
            return
        waiting = (
            held
            for held, pod in self._queued.items()
            if pod.key not in let_go and not self._exceeded.keep(held, view)
        )
        decided = (self.held.get(key) for key in self._decided)
        under_way = [held for held in decided if held is not None]
        yield from map(Turn, self.surges.among(waiting, under_way, view))

    def _wait_for_capacity(self, held: HeldPod, release: QuotaRelease) -> None:
        """Note that a pod within min waits for a node, after those of its quota that do."""
        position = sum(each.quota == release.quota for each in self._without_room.values()) + 1
        self._waits = None
        self._without_room[held.key] = QuotaWait(
            reason=QueuedReason.WAITING_FOR_CAPACITY,
            quota=release.quota,
            position=position,
            of=position,
            is_within_min=True,
            since=self._queued[held].since,
        )

    def _note_within_min(self, cycle: QueueCycle, now: Micros) -> None:
        """Note since when pods within min wait, those without a node included."""
        queued = {held.pod.uid: (held, pod.key) for held, pod in self._queued.items()}
        within = {key for key, is_within in cycle.waiting() if is_within}
        for record in self.records:
            found = queued.get(record.pod.uid)
            if found is None:
                record.waits_within_min_no_more()
            elif found[1] not in within and record.capacity_again_at is None:
                record.within_min_since = None
        for held, key in queued.values() if within else ():
            if key in within:
                self.records.of(held).waits_within_min(now)


def _is_blocked(wait: QuotaWait) -> bool:
    """Return whether nothing but what others borrow is in the way of a pod."""
    return (
        wait.is_within_min
        and wait.reason in {QueuedReason.WAITING_FOR_QUOTA, QueuedReason.WAITING_FOR_CAPACITY}
        and not (wait.behind or wait.refusal)
        and all(lack.bound is None for lack in wait.lacks)
    )


@dataclass(eq=False)
class QuotaPace:
    """Counts releases of pods that had to wait, and tells others how long they are going to.

    A new leader knows nothing at first: it tells none before it has seen five releases of a quota.
    """

    now: Callable[[], Micros]  # the time of day

    def __post_init__(self) -> None:
        self._rates = ReleaseRates()
        self._waits = QuotaWaits()

    def cycle_ended(self, waits: QuotaWaits, decided: Iterable[str]) -> None:
        """Count the pods that waited until this cycle, and are about to be released now.

        Args:
            waits: those that wait; the mapping of another cycle is another.
            decided: the keys of pods that are about to be released, or are released and still held.
        """
        now = self.now()
        for key in decided:
            if key in self._waits and key not in waits:
                self._rates.released(self._waits[key].quota, now)
        quotas = waits.quotas
        for quota in quotas:
            self._rates.waits(quota, now)
        self._rates.retain(now, quotas)
        self._waits = waits

    def first_waits(self) -> dict[QuotaKey, QuotaWait]:
        """Return why the first pod of each queue waits."""
        return {
            quota: wait
            for quota, wait in self._waits.firsts().items()
            if wait.reason is QueuedReason.WAITING_FOR_QUOTA
        }

    def interval(self, quota: QuotaKey) -> Micros | None:
        """Return the mean time between two releases of a quota, None if nobody knows it."""
        return self._rates.interval(quota, self.now())

    def condition(self, key: str) -> Wait | None:
        """Return what a pod by `namespace/name` says of its wait, None if it waits for no quota."""
        wait = self._waits.get(key)
        if wait is None:
            return None
        namespace, _, name = wait.quota
        interval = None
        if wait.reason is QueuedReason.WAITING_FOR_QUOTA:
            interval = self.interval(wait.quota)
        return Wait(
            wait.reason,
            wait.message,
            Place(wait.position, wait.of, f"{namespace}/{name}"),
            None if interval is None else expected_wait(wait.position, interval),
        )
