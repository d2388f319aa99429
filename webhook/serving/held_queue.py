"""The queue of held pods as one replica observes it, for its debug page and its status."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from engine.model.hold import RELEASING_ANNOTATION
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.queue import QueueOrder
from engine.quota.queueing import NamespaceQueues, QueueRules
from engine.report import HeldStatus, QueueEntry, QueueReport, ReleaserReport, queue_report
from engine.view import ClusterView
from webhook.controllers.release import Outcomes
from webhook.placement.held_pods import HeldPod, HeldPods
from webhook.placement.hold_guard import HoldGuard, Lease

_MOST_LISTED: Final = 1_000  # in some 20 ms, during which no review is answered

_MOST_SCHEDULERS: Final = 20  # a pod may name any


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueue:
    """The held pods in order; any replica can tell, whoever leads.

    Attributes:
        held: the pods that are held.
        guard: says whether further ones may be held.
        outcomes: whether schedulers follow nominations; the leader alone learns it.
        lease: as this replica observes it.
        order: in which they are released.
        queue_rules: by which they wait for quota.
        view: for the order.
        now: the time of day.
    """

    held: HeldPods
    guard: HoldGuard
    outcomes: Outcomes
    lease: Callable[[], Lease]
    order: QueueOrder
    queue_rules: QueueRules
    view: Callable[[], ClusterView]
    now: Callable[[], Micros]

    def report(self, *, pod: str = "", limit: int | None = None) -> QueueReport:
        """Return the queue of this moment.

        Args:
            pod: list only those whose `namespace/name` contains this text.
            limit: list at most so many, and at most 1,000.
        """
        view, queues = self.view(), NamespaceQueues(self.queue_rules)
        queues.update(view)
        ordered = self.order.sorted(self.held, view, pod_of=_pod_of)
        return queue_report(
            [_entry(held, queues) for held in ordered],
            self.now(),
            queue_sort=self.order.sort,
            releaser=self._releaser(),
            lists=lambda listed: pod in listed.key,
            most=_MOST_LISTED if limit is None else min(limit, _MOST_LISTED),
        )

    def status(self) -> HeldStatus:
        """Return the held pods in numbers."""
        now = self.now()
        rates = list(islice(self.outcomes.hit_rates(), _MOST_SCHEDULERS))
        return HeldStatus(
            held=len(self.held),
            overdue_seconds=round(self.held.oldest_overdue_seconds(now), 3),
            not_holding=self.guard.refusal(now),
            hit_rates={name: round(rate, 3) for name, rate in rates},
            not_nominated=tuple(name for name, _ in rates if not self.outcomes.nominates(name)),
        )

    def _releaser(self) -> ReleaserReport:
        lease = self.lease()
        age = lease.age_seconds
        return ReleaserReport(
            holder=lease.holder,
            renewed_seconds_ago=round(age, 3) if math.isfinite(age) else None,
            releasing=lease.annotations.get(RELEASING_ANNOTATION) == "true",
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
