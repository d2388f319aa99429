"""Preemption as a source of plans: held pods and gangs take the room of those of lower priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.pipeline import policies_for
from engine.preemption import plan_gang_preemption_in_steps, plan_preemption_in_steps
from engine.reclaim import NoPlan, Plan, RunningPod
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.plan_maker import PlanMaker, Planner, Quotas
from webhook.controllers.reclaim.plan_parts import PlanParts
from webhook.controllers.reclaim.plan_source import EventReasons
from webhook.controllers.reclaim.waiting_gangs import WaitingGangs, planner_for, together_with
from webhook.controllers.release.reclaims import BlockedPod
from webhook.placement.held_pods import HeldPod

_MODES: Final = (ReclaimMode.OFF, ReclaimMode.DRY_RUN, ReclaimMode.ON)


class PreemptionSource:
    """Plans for held pods and gangs whose policies evict pods of lower priority for them.

    Args:
        parts: what plans are made from.
        blocked: the pods that no node takes, in queue order.
        gangs: those that have no room.
    """

    name: Final = "preemption"
    after: Final = Micros(0)
    event_reasons: Final = EventReasons("WouldPreempt", "Preempting", "Preempted")
    wait_reason: Final = QueuedReason.WAITING_FOR_PREEMPTION

    def __init__(
        self,
        parts: PlanParts,
        blocked: Callable[[], Sequence[BlockedPod]],
        gangs: WaitingGangs,
    ) -> None:
        self._parts = parts
        self._blocked = blocked
        self._gangs = gangs
        self._maker = PlanMaker(parts)

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the pods that no node takes, and the first members of gangs without room."""
        return [*self._blocked(), *self._gangs.blocked()]

    def together(self, held: HeldPod) -> Sequence[HeldPod]:
        """Return the members of a gang that get room together; of other pods the pod."""
        return together_with(held, self._gangs)

    def mode_of(self, held: HeldPod) -> ReclaimMode:
        """Return what the policy says that decides the placement of a pod.

        Of a gang the least of what those of its members say.
        """
        modes = (self._mode_of(each) for each in self.together(held) or [held])
        return min(modes, key=_MODES.index)

    def _mode_of(self, held: HeldPod) -> ReclaimMode:
        parts = self._parts
        policies = policies_for(
            held.placement_request, parts.policies(), parts.now(), scope=parts.scope
        )
        return policies[0].placement.preemption if policies else ReclaimMode.OFF

    async def plan(self, pods: Sequence[HeldPod], guards: Guards) -> Plan | NoPlan:
        """Return which pods are to be evicted for held pods; see `PlanSource.plan`."""
        priority = max(held.pod.priority for held in pods)
        leaving = self._parts.planned.of_others(pods[0].pod.uid)

        def matters(running: RunningPod, _quotas: Quotas) -> bool:
            """Of lower priority, on its way out, or of a gang."""
            return (
                running.priority < priority
                or running.deleting
                or running.gang is not None
                or running.uid in leaving
            )

        planner: Planner = partial(plan_preemption_in_steps, pods[0].placement_request)
        if self._gangs.waits(pods[0]):
            planner = planner_for(pods, self._gangs, plan_gang_preemption_in_steps)
        return await self._maker.plan(pods, planner, guards, matters)
