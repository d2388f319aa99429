"""Quotas as a source of plans: pods within `min` take back what other quotas borrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.pod import Pod
from engine.model.queued_condition import QueuedReason
from engine.model.request import PlacementRequest
from engine.model.time import Micros
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
from webhook.controllers.reclaim.plan_maker import PlanMaker, Quotas
from webhook.controllers.reclaim.plan_parts import PlanParts
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
        self._waiting = waiting
        self.after: Final = after
        self._maker = PlanMaker(parts, _plan)

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the pods within `min` that wait for room in the cohort or for a node, in order."""
        return self._waiting.blocked()

    def mode_of(self, held: HeldPod) -> ReclaimMode:
        """Return the mode of the quota of a pod."""
        return self._waiting.mode_of(held.pod)

    async def plan(self, held: HeldPod, guards: Guards) -> Plan | NoPlan:
        """Return which pods are to be evicted for a held pod, wherever that is nominated to.

        Events come in between; a plan is right for the moment at which it is returned.

        Args:
            held: within the limits of a decision, so that its object is known.
            guards: what evictions there were so far.
        """
        return await self._maker.plan(held, guards, _matters)


def _matters(running: RunningPod, quotas: Quotas) -> bool:
    """Return whether a pod is of a quota, or of a gang of which others may be."""
    return bool(quotas) or running.gang is not None


def _plan(request: PlacementRequest, quotas: Quotas, situation: Situation) -> Steps[Plan | NoPlan]:
    if not quotas:
        text = "no quota guarantees it any room"
        return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)
    return (yield from plan_reclaim_in_steps(request, quotas, situation))
