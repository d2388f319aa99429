"""Quotas as a source of plans: pods within `min` take back what other quotas borrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.preemption import plan_gang_reclaim_in_steps
from engine.reclaim import (
    NoPlan,
    NoPlanReason,
    Plan,
    RunningPod,
    Situation,
    Steps,
    plan_reclaim_in_steps,
)
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.plan_maker import PlanMaker, Planner, Quotas
from webhook.controllers.reclaim.plan_parts import PlanParts
from webhook.controllers.reclaim.plan_source import EventReasons
from webhook.controllers.reclaim.waiting_gangs import WaitingGangs, planner_for, together_with
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
        gangs: those that have no room.
        after: time for which a pod waits before others are evicted for it.
    """

    name: Final = "quota"
    event_reasons: Final = EventReasons("WouldReclaim", "Reclaiming", "Reclaimed")
    wait_reason: Final = QueuedReason.WAITING_FOR_RECLAIM

    def __init__(
        self, parts: PlanParts, waiting: WaitingForQuota, gangs: WaitingGangs, after: Micros
    ) -> None:
        self._waiting = waiting
        self._gangs = gangs
        self.after: Final = after
        self._maker = PlanMaker(parts)

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the pods within `min` that wait for room in the cohort or for a node, in order."""
        return self._waiting.blocked()

    def mode_of(self, held: HeldPod) -> ReclaimMode:
        """Return the mode of the quota of a pod."""
        return self._waiting.mode_of(held.pod)

    def together(self, held: HeldPod) -> Sequence[HeldPod]:
        """Return the members of a gang that get room together; of other pods the pod."""
        return together_with(held, self._gangs)

    async def plan(self, pods: Sequence[HeldPod], guards: Guards) -> Plan | NoPlan:
        """Return which pods are to be evicted for held pods; see `PlanSource.plan`."""
        planner: Planner = partial(_plan, pods[0].placement_request)
        if self._gangs.waits(pods[0]):
            planner = planner_for(pods, self._gangs, plan_gang_reclaim_in_steps)
        return await self._maker.plan(pods, planner, guards, _matters)


def _matters(running: RunningPod, quotas: Quotas) -> bool:
    """Return whether a pod is of a quota, or of a gang of which others may be."""
    return bool(quotas) or running.gang is not None


def _plan(request: PlacementRequest, quotas: Quotas, situation: Situation) -> Steps[Plan | NoPlan]:
    if not quotas:
        text = "no quota guarantees it any room"
        return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)
    return (yield from plan_reclaim_in_steps(request, quotas, situation))
