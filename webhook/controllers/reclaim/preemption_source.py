"""Preemption as a source of plans: held pods take the room of pods of lower priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.pipeline import policies_for
from engine.preemption import plan_preemption_in_steps
from engine.reclaim import NoPlan, Plan, RunningPod
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.plan_maker import PlanMaker, Quotas
from webhook.controllers.reclaim.plan_parts import PlanParts
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
        self._maker = PlanMaker(parts, plan_preemption_in_steps)

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

    async def plan(self, held: HeldPod, guards: Guards) -> Plan | NoPlan:
        """Return which pods are to be evicted for a held pod, wherever that is nominated to.

        Events come in between; a plan is right for the moment at which it is returned.

        Args:
            held: within the limits of a decision, so that its object is known.
            guards: what evictions there were so far.
        """
        priority = held.pod.priority
        gone = guards.state.in_flight.keys() | self._parts.claims.of_others(held.pod.uid)

        def matters(running: RunningPod, _quotas: Quotas) -> bool:
            """Of lower priority, on its way out, or of a gang."""
            return (
                running.priority < priority
                or running.deleting
                or running.gang is not None
                or running.uid in gone
            )

        return await self._maker.plan(held, guards, matters)
