"""The held pods in the order of their release, as any replica can tell, whoever leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.quota.queueing import NamespaceQueues, QueueRules
from engine.release import HeldPod, QueueOrder
from engine.report import QueueEntry, QueueReport, ReleaserReport, queue_report
from engine.view import ClusterView
from webhook.placement.held_pods import HeldPods

_MOST_LISTED: Final = 1_000  # in some 20 ms, during which no review is answered


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOrder:
    """The held pods in order.

    Attributes:
        held: the pods that are held.
        order: in which they are released.
        queue_rules: by which they wait for quota.
        view: for the order.
        now: the time of day.
    """

    held: HeldPods
    order: QueueOrder
    queue_rules: QueueRules
    view: Callable[[], ClusterView]
    now: Callable[[], Micros]

    def report(
        self,
        releaser: ReleaserReport | None,
        *,
        lists: Callable[[Pod], bool],
        limit: int | None = None,
    ) -> QueueReport:
        """Return the queue of this moment.

        Args:
            releaser: who releases them; None if that is unknown.
            lists: whether to list a pod; all of them have places.
            limit: list at most so many, and at most 1,000.
        """
        view, queues = self.view(), NamespaceQueues(self.queue_rules)
        queues.update(view)
        ordered = self.order.sorted(self.held, view, pod_of=_pod_of)
        return queue_report(
            [_entry(held, queues) for held in ordered],
            self.now(),
            queue_sort=self.order.sort,
            releaser=releaser,
            lists=lists,
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


def _pod_of(held: HeldPod) -> Pod:
    return held.pod
