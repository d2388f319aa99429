"""The plan of preemption for one held pod: `plan_preemption` is the table of contents."""

from __future__ import annotations

from engine.model.elastic_quota import QuotaKey
from engine.model.request import PlacementRequest
from engine.preemption.search import PreemptionSearch
from engine.preemption.toleration import is_preempting
from engine.reclaim import (
    NoPlan,
    NoPlanReason,
    Plan,
    Situation,
    Steps,
    completed,
    emptied,
    refusal_of,
)


def plan_preemption(
    request: PlacementRequest, quotas: tuple[QuotaKey, ...], situation: Situation
) -> Plan | NoPlan:
    """Return what `plan_preemption_in_steps` does, without a pause."""
    return completed(plan_preemption_in_steps(request, quotas, situation))


def plan_preemption_in_steps(
    request: PlacementRequest, quotas: tuple[QuotaKey, ...], situation: Situation
) -> Steps[Plan | NoPlan]:
    """Return which pods of lower priority are to be evicted for a held pod.

    The same arguments always give the same plan. After it the pod fits the node, no quota is below
    a `min` for it, gangs run as a whole or not at all, no budget is exceeded, and none of the
    victims, or none of their gangs, can be spared.

    Args:
        request: the pod and its context.
        quotas: the quota that it counts for, then those above that; none where it is limited by
            none.
        situation: all else. Its candidates are all running pods; what the cohort has is not
            looked at.
    """
    # 1. For some pods nobody is evicted, now or ever.
    if not is_preempting(request.pod, situation.classes):
        text = f"its PriorityClass `{request.pod.priority_class_name}` never preempts"
        return NoPlan(reason=NoPlanReason.NEVER_PREEMPTS, message=text)
    refused = refusal_of(request, situation)
    if refused is not None:
        return refused

    # 2. With the pods that are leaving gone there may be room already.
    leaving = yield from situation.on_their_way_out()
    search = PreemptionSearch(request, quotas, situation, leaving)
    if search.fit.stale:
        return NoPlan(reason=NoPlanReason.STALE, message=", ".join(search.fit.stale.values()))
    if search.fits.any():
        return NoPlan(
            reason=NoPlanReason.NOT_NEEDED, message="there is room, or pods that leave make some"
        )

    # 3. Find victims on one node or on several, or say what is in the way.
    victims = yield from search.victims.of_lower_priority()
    plan = yield from search.plan(victims)
    found = plan or (yield from search.reason())
    yield from emptied(victims)
    yield from search.victims.end()
    return found
