"""Held pods that wait for quota: which of them may be released now, and why the others wait.

The leader alone decides the order; what keeps `max` exact is that each release is judged as a
creation is, by whichever replica gets it. So nothing here is written anywhere: a new leader decides
from its own view.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

from engine.model.elastic_quota import ElasticQuota, ReclaimMode
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.quota.queueing import (
    NamespaceQueues,
    PodUnderWay,
    QueueCycle,
    QueueRules,
    QueueSituation,
    QuotaRelease,
    QuotaWait,
    QuotaWaits,
)
from engine.view import ClusterState, ClusterView
from webhook.controllers.release.exceeded_quotas import ExceededQuotas
from webhook.controllers.release.queued_pods import QueuedPods, quota_label
from webhook.controllers.release.reclaims import BlockedPod
from webhook.controllers.release.surging_pods import SurgingPods
from webhook.controllers.release.unbound_releases import UnboundReleases
from webhook.placement.held_pods import HeldPod, HeldPods

_LOOK_AGAIN_SECONDS: Final = 2.0
"""After which a node is looked for again, for a pod that found none."""

_ALONE: Final[Mapping[str, Sequence[HeldPod]]] = MappingProxyType({})


class QuotaQueue:
    """The pods that wait for quota, as the leader sees them.

    Args:
        state: the cluster.
        held: the pods that are held.
        unbound: those that are released and not bound.
        rules: by which pods wait.
        now: the time of day.
        reclaims: whether pods are evicted for others where their quota says so. Then a pod within
            min that no node takes stays held.
        surges: finds the pods that may go above `max`; none does where it is not given.
        clock: seconds that only go forward.

    Attributes:
        situation: of the last cycle, before it released any; None before the first.
        within_min_since: when each pod within min that waits was first seen to, by key.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        state: ClusterState,
        held: HeldPods,
        unbound: UnboundReleases,
        rules: QueueRules,
        *,
        now: Callable[[], Micros],
        reclaims: bool = False,
        surges: SurgingPods | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._held = held
        self._unbound = unbound
        self._queues = NamespaceQueues(rules)
        self._now = now
        self._reclaims = reclaims
        self._surges = surges
        self._clock = clock
        self._pods = QueuedPods(state, self._queues)
        self._exceeded = ExceededQuotas(state, clock)
        self._cycle: QueueCycle | None = None
        self._let_go: dict[str, QuotaRelease] = {}
        self._without_room: dict[str, QuotaWait] = {}
        self._waits: QuotaWaits | None = None  # made when they are asked for
        self._look_again: dict[str, float] = {}  # by uid, when to look for a node again
        self.situation: QueueSituation | None = None
        self.within_min_since: dict[str, Micros] = {}
        self._decided: Iterable[str] = ()
        self._together: Mapping[str, Sequence[HeldPod]] = _ALONE

    def releasable(
        self,
        ordered: Sequence[HeldPod],
        decided: Iterable[str],
        view: ClusterView,
        together: Mapping[str, Sequence[HeldPod]] = _ALONE,
    ) -> Iterator[HeldPod]:
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
            return iter(ordered)
        self._let_go, self._without_room, self._waits = {}, {}, None
        now = self._now()
        self._queues.update(view)
        self.situation = situation = self._situation(view, decided, ordered)
        self._pods.update(ordered, together)
        cycle = QueueCycle(
            self._exceeded.marked((pod for _, pod in self._pods.items()), view),
            situation.quotas,
            situation.usage,
            situation.cohort,
            now,
        )
        self._cycle = cycle
        self._note_within_min(cycle, now)
        return chain(self._in_order(ordered, cycle.releases()), self._surging(ordered, view))

    def clear(self) -> None:
        """Note that no pod waits for quota."""
        self._cycle, self.within_min_since = None, {}
        self._let_go, self._without_room, self._waits = {}, {}, None
        self._pods.clear()
        self._look_again.clear()

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

    def blocked(self) -> list[BlockedPod]:
        """Return the pods within min that wait for room in the cohort or for a node, in order.

        One that stands for others is within it with all of them.
        """
        if not self.within_min_since:
            return []
        waits = self.waits
        return [
            BlockedPod(held, wait.reason)
            for held, _ in self._pods.items()
            if held.key in self.within_min_since
            and (wait := waits.get(held.key)) is not None
            and _is_blocked(wait)
        ]

    def situation_without(self, pods: Sequence[HeldPod]) -> QueueSituation:
        """Return the situation of now, as if held pods were neither under way nor nominated."""
        view = self._state.view()
        self._queues.update(view)
        left_out = {held.key for held in pods}
        decided = [key for key in self._decided if key not in left_out]
        others = [each for each in self._held if each.key not in left_out]
        return self._situation(view, decided, others)

    def quota_of(self, namespace: str, labels: Mapping[str, str]) -> ElasticQuota | None:
        """Return the quota in the cohort that guarantees room to a pod, if any.

        Args:
            namespace: of the pod.
            labels: of the pod.
        """
        queue = self._queues.get(namespace, quota_label(labels))
        return None if queue is None or not queue.queue.is_in_cohort else queue.quota

    def mode_without_node(self, held: HeldPod) -> ReclaimMode:
        """Return what is to be done for a pod that quota lets go where no node takes it.

        On: it stays held, as pods that borrow are evicted for it. DryRun: it is released, and told.
        """
        release = self._let_go.get(held.key)
        quota = self.quota_of(held.pod.namespace, held.pod.labels)
        if release is None or quota is None or held not in self._pods:
            return ReclaimMode.OFF
        may_reclaim = self._reclaims and release.is_within_min
        return quota.reclaim if may_reclaim else ReclaimMode.OFF

    def keep_without_node(self, held: HeldPod) -> None:
        """Note that no node takes a pod that stays held then."""
        self._look_again[held.pod.uid] = self._clock() + _LOOK_AGAIN_SECONDS
        self._wait_for_capacity(held, self._let_go[held.key])
        self.within_min_since.setdefault(held.key, self._now())

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
                self._state.pod_requests(held.key),
                quota_label(held.pod.labels),
            )
            for key in keys
            if (held := self._held.get(key)) is not None
            and held.is_queued
            and self._pods.queue_of(held) is not None
        ]
        nominated = (
            held.key
            for first in ordered
            for held in self._all_with(first)
            if held.pod.nominated_node_name
        )
        # INVARIANT: each of these that is assumed is counted by `unbound` too, or waits.
        candidates = dict.fromkeys((*keys, *self._unbound.keys(), *nominated))
        assumed = [
            (node_name, self._state.pod_requests(key))
            for key in candidates
            if self._queues.is_in_cohort(key.partition("/")[0])
            and (node_name := self._state.assumed_node(key))
        ]
        return self._queues.situation(view, under_way=under_way, assumed=assumed)

    def _all_with(self, held: HeldPod) -> Sequence[HeldPod]:
        """Return the pods that a pod stands for, itself included."""
        return self._together.get(held.key, (held,))

    def _in_order(
        self, ordered: Sequence[HeldPod], releases: Iterator[QuotaRelease]
    ) -> Iterator[HeldPod]:
        """Yield the pods that go, those that wait for quota in the places of all that do."""
        by_key = {pod.key: held for held, pod in self._pods.items()}
        now = self._clock()
        for held in ordered:
            if held not in self._pods:
                yield held
                continue
            release = next(releases, None)
            if release is None:
                continue
            turn = by_key[release.key]
            self._let_go[release.key] = release
            self._waits = None
            if self._look_again.get(turn.pod.uid, now) > now:
                self._wait_for_capacity(turn, release)
            else:
                yield turn

    def _surging(self, ordered: Sequence[HeldPod], view: ClusterView) -> Iterator[HeldPod]:
        """Yield the pods of rollouts that may go though their quota has no room, after the rest."""
        if self._surges is None:
            return
        waiting = (
            held
            for held in ordered
            if held in self._pods
            and held.key not in self._let_go
            and not self._exceeded.keep(held, view)
        )
        decided = (self._held.get(key) for key in self._decided)
        under_way = [held for held in decided if held is not None]
        yield from self._surges.among(waiting, under_way, view)

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
            since=self._pods[held].since,
        )

    def _note_within_min(self, cycle: QueueCycle, now: Micros) -> None:
        """Note since when pods within min wait, those without a node included."""
        known, pods = self.within_min_since, self._pods.items()
        waiting = {key for key, within in cycle.waiting() if within}
        waiting |= {pod.key for held, pod in pods if held.pod.uid in self._look_again}
        self.within_min_since = {key: known.get(key, now) for key in waiting}
        uids = {held.pod.uid for held, _ in pods} if self._look_again else ()
        self._look_again = {uid: at for uid, at in self._look_again.items() if uid in uids}


def _is_blocked(wait: QuotaWait) -> bool:
    """Return whether nothing but what others borrow is in the way of a pod."""
    return (
        wait.is_within_min
        and wait.reason in {QueuedReason.WAITING_FOR_QUOTA, QueuedReason.WAITING_FOR_CAPACITY}
        and not (wait.behind or wait.refusal)
        and all(lack.bound is None for lack in wait.lacks)
    )
