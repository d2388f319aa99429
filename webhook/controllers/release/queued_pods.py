"""Held pods as the queues of quotas see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from engine.model.elastic_quota import QuotaKey
from engine.model.koordinator_quota import NAME_LABEL
from engine.model.resources import Amounts
from engine.model.time import micros
from engine.quota.queueing import NamespaceQueue, NamespaceQueues, QueuedPod
from engine.view import ClusterState
from webhook.placement.held_pods import HeldPod

_MOST_OBSOLETE: Final = 1024


class QueuedPods:
    """The held pods that wait for a quota; what is made of one is kept while it is the same.

    INVARIANT: an id stands for the pod of its entry, which the entry keeps alive.

    Args:
        state: the cluster.
        queues: of its quotas.
    """

    def __init__(self, state: ClusterState, queues: NamespaceQueues) -> None:
        self._state = state
        self._queues = queues
        self._by_id: dict[int, tuple[HeldPod, QueuedPod]] = {}
        self._generation = -1  # of the queues that the pods are in
        self._requests: dict[tuple[tuple[str, int], ...], Amounts] = {}

    def __contains__(self, held: object) -> bool:
        """Whether a held pod waits for a quota."""
        return id(held) in self._by_id

    def __getitem__(self, held: HeldPod) -> QueuedPod:
        return self._by_id[id(held)][1]

    def items(self) -> Sequence[tuple[HeldPod, QueuedPod]]:
        """Return all of them, in the queue order."""
        return list(self._by_id.values())

    def clear(self) -> None:
        """Forget all."""
        self._by_id.clear()
        self._requests.clear()

    def update(self, ordered: Sequence[HeldPod], together: Mapping[str, Sequence[HeldPod]]) -> None:
        """Adopt the pods that wait for a quota.

        Args:
            ordered: held pods, in the queue order.
            together: by the key of one that stands for others, all of these, itself included.
        """
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
