"""The queue of held pods as one replica observes it, for its pages and its status."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.model.hold import RELEASING_ANNOTATION
from engine.model.time import Micros
from engine.report import HeldStatus, QueueReport, ReleaserReport
from webhook.placement.held_order import HeldOrder
from webhook.placement.hold_guard import HoldGuard, ObservedLease
from webhook.serving.services import Services
from webhook.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueueReporter:
    """The held pods in order; any replica can tell, whoever leads.

    Attributes:
        pods: those that are held, in order.
        guard: says whether further ones may be held.
        lease: as this replica observes it.
    """

    pods: HeldOrder
    guard: HoldGuard
    lease: Callable[[], ObservedLease]

    def report(
        self, *, pod: str = "", namespace: str = "", limit: int | None = None
    ) -> QueueReport:
        """Return the queue of this moment.

        Args:
            pod: list only those whose `namespace/name` contains this text.
            namespace: list only those of this one; "" for all.
            limit: list at most so many, and at most 1,000.
        """
        return self.pods.report(
            self._releaser(),
            lists=lambda listed: pod in listed.key and namespace in {"", listed.namespace},
            limit=limit,
        )

    def status(self) -> HeldStatus:
        """Return the held pods in numbers."""
        held, now = self.pods.held, self.pods.now()
        return HeldStatus(
            held=len(held),
            overdue_seconds=round(held.oldest_overdue_seconds(now), 3),
            not_holding=self.guard.refusal(now),
        )

    def _releaser(self) -> ReleaserReport:
        lease = self.lease()
        age = lease.age_seconds
        return ReleaserReport(
            holder=lease.holder,
            renewed_seconds_ago=round(age, 3) if math.isfinite(age) else None,
            releasing=lease.annotations.get(RELEASING_ANNOTATION) == "true",
        )


def held_queue(
    settings: Settings, services: Services, now: Callable[[], Micros]
) -> HeldQueueReporter | None:
    """Reporter of a process; None where no pod is held.

    Args:
        settings: the settings.
        services: of the process.
        now: the time of day.
    """
    live, guard = services.live, services.hold_guard
    if live is None or guard is None:
        return None
    return HeldQueueReporter(
        pods=HeldOrder(
            held=live.held,
            order=settings.queue_order(),
            queue_rules=settings.queue_rules(),
            view=services.cluster.state.view,
            now=now,
        ),
        guard=guard,
        lease=lambda: live.elector.observed,
    )
