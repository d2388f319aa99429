"""Preemption as a source of plans: held pods take the room of pods of lower priority."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.pipeline import policies_for
from engine.preemption import plan_preemption
from engine.reclaim import Candidate, GuardState, NoPlan, Plan
from webhook.controllers.reclaim.plan_parts import PlanParts, QuotaStanding, uncounted
from webhook.controllers.reclaim.plan_source import EventReasons
from webhook.controllers.release.reclaims import BlockedPod
from webhook.placement.held_pods import HeldPod


class PreemptionSource:
    """Plans for held pods whose policies evict pods of lower priority for them.

    Args:
        parts: what plans are made from.
        blocked: the pods that no node takes, in queue order.
    """

    name: Final = "preemption"
    after: Final = Micros(0)
    event_reasons: Final = EventReasons("WouldPreempt", "Preempting", "Preempted")
    wait_reason: Final = QueuedReason.WAITING_FOR_PREEMPTION

    def __init__(self, parts: PlanParts, blocked: Callable[[], Sequence[BlockedPod]]) -> None:
        self._parts = parts
        self._blocked = blocked

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the pods that no node takes, in queue order."""
        return self._blocked()

    def mode_of(self, held: HeldPod) -> ReclaimMode:
        """Return what the policy says that decides the placement of a pod."""
        parts = self._parts
        policies = policies_for(
            held.placement_request, parts.policies(), parts.now(), scope=parts.scope
        )
        return policies[0].placement.preemption if policies else ReclaimMode.OFF

    async def plan(self, held: HeldPod, guards: GuardState) -> Plan | NoPlan:
        """Return which pods are to be evicted for a held pod, wherever that is nominated to.

        Args:
            held: within the limits of a decision, so that its object is known.
            guards: what evictions there were so far.
        """
        with uncounted(self._parts.state, held):
            standing = self._parts.standing(held)
            candidates = list(self._candidates(held, standing, guards))
            situation = self._parts.situation(held, guards, standing, candidates)
            quotas = standing.quotas_of(held.pod.namespace, held.pod.labels)
            return plan_preemption(held.placement_request, quotas, situation)

    def _candidates(
        self, held: HeldPod, standing: QuotaStanding, guards: GuardState
    ) -> Iterator[Candidate]:
        """Yield the pods that matter: of lower priority, on their way out, or of a gang."""
        claimed = self._parts.claims.of_others(held.pod.uid)
        for running in self._parts.running:
            if (
                running.priority < held.pod.priority
                or running.deleting
                or running.gang is not None
                or running.uid in guards.in_flight
                or running.uid in claimed
            ):
                entry = self._parts.state.entry(running.key)
                quotas = standing.quotas_of(running.namespace, running.labels)
                if entry is not None:
                    yield Candidate(pod=running, entry=entry, quotas=quotas)
