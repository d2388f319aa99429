"""Held pods that wait for quota: which of them may be released now, and why the others wait.

The leader alone decides the order; what keeps `max` exact is that each release is judged as a
creation is, by whichever replica gets it. So nothing here is written anywhere: a new leader decides
from its own view.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from engine.model.elastic_quota import ElasticQuota, QuotaKey, ReclaimMode
from engine.model.koordinator_quota import NAME_LABEL
from engine.model.queued_condition import QueuedReason
from engine.model.resources import Amounts
from engine.model.time import Micros, micros
from engine.quota.queueing import (
    NamespaceQueue,
    NamespaceQueues,
    PodUnderWay,
    QueuedPod,
    QueueRules,
    QueueSituation,
    QuotaRelease,
    QuotaWait,
    next_releases,
)
from engine.view import ClusterState, ClusterView
from webhook.controllers.release.pacing import UnboundReleases
from webhook.controllers.release.reclaims import BlockedPod
from webhook.placement.held_pods import HeldPod, HeldPods

_LOOK_AGAIN_SECONDS: Final = 2.0
"""After which a node is looked for again, for a pod that found none."""

_REFUSED_SECONDS: Final = 5.0
"""After which a refused release is tried again though nothing is seen to have changed: what stood
against it may have been reserved for a pod that never came, which nobody sees end."""

_MOST_OBSOLETE: Final = 1024


class _Refusal(NamedTuple):
    """The last refusals by the quota of a namespace.

    Attributes:
        used: by the namespace then.
        versions: of its quotas then.
        until: the latest moment at which it is tried again.
        requests: of the pods that were refused.
        message: of the last.
    """

    used: Amounts
    versions: tuple[int, ...]
    until: float
    requests: tuple[Amounts, ...]
    message: str

    def concerns(self, requests: Amounts) -> bool:
        """Return whether a pod requests as much as one that was refused."""
        return any(
            all(requests.get(name, 0) >= amount for name, amount in refused.items())
            for refused in self.requests
        )


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
        clock: seconds that only go forward.

    Attributes:
        situation: of the last cycle, before it released any; None before the first.
        within_min_since: when each pod within min that waits was first seen to, by key.
    """

    def __init__(
        self,
        state: ClusterState,
        held: HeldPods,
        unbound: UnboundReleases,
        rules: QueueRules,
        *,
        now: Callable[[], Micros],
        reclaims: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._held = held
        self._unbound = unbound
        self._queues = NamespaceQueues(rules)
        self._now = now
        self._reclaims = reclaims
        self._clock = clock
        self._pods: dict[str, tuple[HeldPod, QueuedPod]] = {}
        self._requests: dict[tuple[tuple[str, int], ...], Amounts] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._let_go: Mapping[str, QuotaRelease] = {}
        self._without_node: dict[str, float] = {}  # by key, when to look again
        self._without_node_since: dict[str, Micros] = {}
        self.situation: QueueSituation | None = None
        self._waits: dict[str, QuotaWait] = {}
        self._without_room: Counter[QuotaKey] = Counter()
        self.within_min_since: dict[str, Micros] = {}
        self._decided: Iterable[str] = ()

    def releasable(
        self, ordered: Sequence[HeldPod], decided: Iterable[str], view: ClusterView
    ) -> list[HeldPod]:
        """Return the pods that quota does not keep, in the order in which they are to be released.

        Pods that wait for no quota stay in their places; the places of those that do are filled in
        the order of the quotas.

        Args:
            ordered: the pods that are not decided, in the queue order.
            decided: the keys of those that are, and still held.
            view: the cluster.
        """
        self._decided = decided
        if not any(held.is_queued for held in ordered):
            self._forget()
            return list(ordered)
        now = self._now()
        self._queues.update(view)
        self.situation = self._situation(view, decided, ordered)
        queued = self._queued(ordered, view)
        decision = next_releases(
            [queued[held.key] for held in ordered if held.key in queued],
            self.situation.quotas,
            self.situation.usage,
            self.situation.cohort,
            now,
        )
        self._let_go = {release.key: release for release in decision.released}
        self._waits, self._without_room = dict(decision.waits), Counter()
        releasable = self._in_order(ordered, queued, list(self._let_go))
        self._note_within_min(now)
        return releasable

    @property
    def waits(self) -> Mapping[str, QuotaWait]:
        """Why pods wait since the last cycle, for quota or for a node, by `namespace/name`."""
        return self._waits

    def blocked(self, ordered: Sequence[HeldPod]) -> list[BlockedPod]:
        """Return the pods within min that wait for room in the cohort, or for a node, in order.

        Args:
            ordered: the pods that are not decided, in the queue order.
        """
        if not self.within_min_since:
            return []
        return [
            BlockedPod(held, wait.reason)
            for held in ordered
            if (wait := self._waits.get(held.key)) is not None and _is_blocked(wait)
        ]

    def situation_without(self, held: HeldPod) -> QueueSituation:
        """Return the situation of now, as if a held pod were neither under way nor nominated."""
        view = self._state.view()
        self._queues.update(view)
        decided = [key for key in self._decided if key != held.key]
        return self._situation(view, decided, [each for each in self._held if each is not held])

    def quota_of(self, namespace: str, labels: Mapping[str, str]) -> ElasticQuota | None:
        """Return the quota in the cohort that guarantees room to a pod, if any.

        Args:
            namespace: of the pod.
            labels: of the pod.
        """
        queue = self._queues.get(namespace, labels.get(NAME_LABEL, ""))
        return None if queue is None or not queue.queue.is_in_cohort else queue.quota

    def keeps_without_node(self, held: HeldPod) -> bool:
        """Note that no node takes a pod that quota lets go; return whether it stays held.

        It does where pods that borrow are evicted for it.
        """
        release = self._let_go.get(held.key)
        queue = self._queue_of(held)
        if release is None or queue is None:
            return False
        reclaims = self._reclaims and queue.quota.reclaim is ReclaimMode.ON
        if not (reclaims and release.is_within_min):
            return False
        self._without_node[held.key] = self._clock() + _LOOK_AGAIN_SECONDS
        self._wait_for_capacity(held)
        since = self._without_node_since.get(held.key, self._now())
        self.within_min_since.setdefault(held.key, since)
        return True

    def refused(self, held: HeldPod, message: str) -> None:
        """Note that the release of a pod was refused as it exceeds its quota.

        Somebody else was first, or the view is behind. It waits until the usage of the quota
        changes, or what is reserved on it.
        """
        namespace, view = held.pod.namespace, self._state.view()
        used, versions = self._signature(namespace, view)
        old = self._refusals.get(namespace)
        requests = self._state.pod_requests(held.key)
        known = () if old is None or (old.used, old.versions) != (used, versions) else old.requests
        until = self._clock() + _REFUSED_SECONDS
        self._refusals[namespace] = _Refusal(
            used,
            versions,
            until,
            (*(each for each in known if each != requests), requests),
            message,
        )

    def _signature(self, namespace: str, view: ClusterView) -> tuple[Amounts, tuple[int, ...]]:
        quotas = view.namespaces.quotas.get(namespace, ())
        used = dict(view.namespaces.requested.get(namespace, {}))
        return used, tuple(quota.version for quota in quotas)

    def _refusal(self, namespace: str, view: ClusterView) -> _Refusal | None:
        """Return what still stands of the refusals of a namespace."""
        refusal = self._refusals.get(namespace)
        if refusal is None:
            return None
        is_unchanged = (refusal.used, refusal.versions) == self._signature(namespace, view)
        if is_unchanged and self._clock() < refusal.until:
            return refusal
        del self._refusals[namespace]
        return None

    def _situation(
        self, view: ClusterView, decided: Iterable[str], ordered: Sequence[HeldPod]
    ) -> QueueSituation:
        keys = list(decided)
        under_way = [
            PodUnderWay(held.pod.namespace, self._state.pod_requests(held.key), _label(held))
            for key in keys
            if (held := self._held.get(key)) is not None
            and held.is_queued
            and self._queue_of(held) is not None
        ]
        nominated = (held.key for held in ordered if held.pod.nominated_node_name)
        # INVARIANT: each of these that is assumed is counted by `unbound` too, or waits.
        candidates = dict.fromkeys((*keys, *self._unbound.keys(), *nominated))
        assumed = [
            (node_name, self._state.pod_requests(key))
            for key in candidates
            if self._queues.is_in_cohort(key.partition("/")[0])
            and (node_name := self._state.assumed_node(key))
        ]
        return self._queues.situation(view, under_way=under_way, assumed=assumed)

    def _queued(self, ordered: Sequence[HeldPod], view: ClusterView) -> dict[str, QueuedPod]:
        """Return the pods that wait for a quota, by key; in the same order."""
        known, self._pods = self._pods, {}
        queued: dict[str, QueuedPod] = {}
        refusals: dict[str, _Refusal | None] = {}
        for held in ordered:
            namespace = held.pod.namespace
            queue = self._queue_of(held) if held.is_queued else None
            if queue is None:
                continue
            entry = known.get(held.key)
            if entry is None or entry[0] is not held or entry[1].quota != queue.queue.key:
                entry = held, self._queued_pod(held, queue.queue.key)
            self._pods[held.key] = entry
            pod = entry[1]
            if namespace not in refusals:
                refusals[namespace] = self._refusal(namespace, view)
            refusal = refusals[namespace]
            if refusal is not None and refusal.concerns(pod.requests):
                pod = pod._replace(refusal=refusal.message)
            queued[held.key] = pod
        if len(self._requests) > 2 * len(queued) + _MOST_OBSOLETE:
            self._requests = {tuple(p.requests.items()): p.requests for p in queued.values()}
        return queued

    def _queue_of(self, held: HeldPod) -> NamespaceQueue | None:
        return self._queues.get(held.pod.namespace, _label(held))

    def _queued_pod(self, held: HeldPod, quota: QuotaKey) -> QueuedPod:
        requests = self._state.pod_requests(held.key)
        requests = self._requests.setdefault(tuple(requests.items()), requests)
        created = held.pod.created
        since = held.seen_at if created is None else micros(created)
        return QueuedPod(held.key, quota, requests, since)

    def _in_order(
        self, ordered: Sequence[HeldPod], queued: Mapping[str, QueuedPod], let_go: Sequence[str]
    ) -> list[HeldPod]:
        """Return the pods that go, those that wait for quota in the places of any of them."""
        by_key = {held.key: held for held in ordered}
        turns = iter(let_go)
        turned = (
            held if held.key not in queued else by_key[next(turns)]
            for held in ordered
            if held.key not in queued or held.key in self._let_go
        )
        now = self._clock()
        look_again = {key: at for key, at in self._without_node.items() if key in self._let_go}
        self._without_node = look_again
        releasable = []
        for held in turned:
            if look_again.get(held.key, 0.0) > now:
                self._wait_for_capacity(held)
            else:
                releasable.append(held)
        return releasable

    def _wait_for_capacity(self, held: HeldPod) -> None:
        quota = self._let_go[held.key].quota
        self._without_room[quota] += 1
        pod = self._pods[held.key][1]
        self._waits[held.key] = QuotaWait(
            reason=QueuedReason.WAITING_FOR_CAPACITY,
            quota=quota,
            position=self._without_room[quota],
            of=self._without_room[quota],
            is_within_min=True,
            since=pod.since,
        )

    def _note_within_min(self, now: Micros) -> None:
        known = self.within_min_since
        self.within_min_since = {
            key: known.get(key, now) for key, wait in self._waits.items() if wait.is_within_min
        }
        # A pod for which a node is looked for now may turn out to wait on.
        self._without_node_since = {key: known[key] for key in self._without_node if key in known}

    def _forget(self) -> None:
        """Forget all, as no pod waits for quota."""
        self._waits, self._let_go, self.within_min_since = {}, {}, {}
        self._pods.clear()
        self._requests.clear()
        self._without_node.clear()


def _is_blocked(wait: QuotaWait) -> bool:
    """Return whether nothing but what others borrow is in the way of a pod."""
    return (
        wait.is_within_min
        and wait.reason in {QueuedReason.WAITING_FOR_QUOTA, QueuedReason.WAITING_FOR_CAPACITY}
        and not (wait.behind or wait.refusal)
        and all(lack.bound is None for lack in wait.lacks)
    )


def _label(held: HeldPod) -> str:
    """Return the quota of Koordinator that the label of a pod names, "" for none."""
    return held.pod.labels.get(NAME_LABEL, "")
