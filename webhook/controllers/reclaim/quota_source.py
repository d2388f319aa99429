"""Quotas as a source of plans: pods within `min` take back what other quotas borrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import QuotaKey, ReclaimMode
from engine.model.koordinator_quota import NAME_LABEL
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.reclaim import Candidate, GuardState, NoPlan, NoPlanReason, Plan, plan_reclaim
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
            quotas = standing.quotas_of(held.pod.namespace, held.pod.labels)
            if not quotas:
                text = "no quota guarantees it any room"
                return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)
            candidates = list(self._candidates(standing))
            situation = self._parts.situation(held, guards, standing, candidates)
            return plan_reclaim(held.placement_request, quotas, situation)

    def _candidates(self, standing: QuotaStanding) -> Iterator[Candidate]:
        """Yield the running pods of quotas; there may be very many, of few quotas."""
        entry_of = self._parts.state.entry
        known: dict[tuple[str, str | None], tuple[QuotaKey, ...]] = {}
        for running in self._parts.running:
            kind = running.namespace, running.labels.get(NAME_LABEL)
            quotas = known.get(kind)
            if quotas is None:
                quotas = known[kind] = standing.quotas_of(running.namespace, running.labels)
            if quotas and (entry := entry_of(running.key)) is not None:
                yield Candidate(pod=running, entry=entry, quotas=quotas)
