"""Quotas as a source of plans: pods within `min` take back what other quotas borrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.reclaim import Candidate, GuardState, NoPlan, Plan, RunningPod, plan_reclaim
from webhook.controllers.reclaim.plan_parts import PlanParts, QuotaStanding, uncounted
from webhook.controllers.reclaim.plan_source import EventReasons
from webhook.controllers.release.reclaims import BlockedPod
from webhook.placement.held_pods import HeldPod


@dataclass(frozen=True, slots=True)
class WaitingForQuota:
    """The pods that wait for quota.

    Attributes:
        blocked: those within `min` that wait for room, in queue order.
        mode_of: the mode of a pod's quota.
    """

    blocked: Callable[[], Sequence[BlockedPod]]
    mode_of: Callable[[Pod], ReclaimMode]


class QuotaSource:
    """Plans for pods within the `min` of their quotas.

    Args:
        parts: what plans are made from.
        waiting: the pods that plans are made for.
        after: time for which a pod waits before others are evicted for it.
    """

    name: Final = "quota"
    event_reasons: Final = EventReasons("WouldReclaim", "Reclaiming", "Reclaimed")
    wait_reason: Final = QueuedReason.WAITING_FOR_RECLAIM

    def __init__(self, parts: PlanParts, waiting: WaitingForQuota, after: Micros) -> None:
        self._parts = parts
        self._waiting = waiting
        self.after: Final = after

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the pods within `min` that wait for room in the cohort or for a node, in order."""
        return self._waiting.blocked()

    def mode_of(self, held: HeldPod) -> ReclaimMode:
        """Return the mode of the quota of a pod."""
        return self._waiting.mode_of(held.pod)

    async def plan(self, held: HeldPod, guards: GuardState) -> Plan | NoPlan:
        """Return which pods are to be evicted for a held pod, wherever that is nominated to.

        Args:
            held: within the limits of a decision, so that its object is known.
            guards: what evictions there were so far.
        """
        with uncounted(self._parts.state, held):
            standing = self._parts.standing(held)
            candidates = [
                candidate
                for running in self._parts.running
                if (candidate := self._candidate(running, standing)) is not None
            ]
            situation = self._parts.situation(held, guards, standing, candidates)
            quotas = standing.quotas_of(held.pod.namespace, held.pod.labels)
            return plan_reclaim(held.placement_request, quotas, situation)

    def _candidate(self, running: RunningPod, standing: QuotaStanding) -> Candidate | None:
        quotas = standing.quotas_of(running.namespace, running.labels)
        entry = self._parts.state.entry(running.key) if quotas else None
        return None if entry is None else Candidate(pod=running, entry=entry, quotas=quotas)
