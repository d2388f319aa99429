"""The plan of reclaim for one pod: `plan_reclaim` is the table of contents."""

from __future__ import annotations

from engine.model.elastic_quota import QuotaKey
from engine.model.request import PlacementRequest
from engine.reclaim.guards import is_backed_off, is_paused
from engine.reclaim.plan import NoPlan, NoPlanReason, Plan, Situation
from engine.reclaim.search import Search, quota_text
from engine.reclaim.steps import Steps, completed, emptied


def plan_reclaim(
    request: PlacementRequest, quotas: tuple[QuotaKey, ...], situation: Situation
) -> Plan | NoPlan:
    """Return what `plan_reclaim_in_steps` does, without a pause."""
    return completed(plan_reclaim_in_steps(request, quotas, situation))


def plan_reclaim_in_steps(
    request: PlacementRequest, quotas: tuple[QuotaKey, ...], situation: Situation
) -> Steps[Plan | NoPlan]:
    """Return which pods are to be evicted for a pod within the `min` of its quota.

    The same arguments always give the same plan. After it the pod fits the node and the cohort, no
    quota is below a `min` that it was not below before, gangs run as a whole or not at all, and
    none of the victims, or none of their gangs, can be spared.

    Args:
        request: the pod and its context.
        quotas: the quota that it counts for, then those above that.
        situation: all else.
    """
    # 1. Some pods are planned for later, or never.
    no_plan = refusal_of(request, situation)
    if no_plan is not None:
        return no_plan
    leaving = yield from situation.on_their_way_out()
    search = Search(request, quotas, situation, leaving)
    if not search.is_within_min:
        text = f"{quota_text(quotas[0])} would use more than its min"
        return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)

    # 2. With the pods that are leaving gone there may be room already.
    if search.fit.stale:
        return NoPlan(reason=NoPlanReason.STALE, message=", ".join(search.fit.stale.values()))
    if search.fits.any() and not search.needs:
        return NoPlan(
            reason=NoPlanReason.NOT_NEEDED, message="there is room, or pods that leave make some"
        )

    # 3. Find victims, or say what is in the way.
    borrowers = yield from search.borrowers()
    plan = yield from search.plan(borrowers)
    found = plan or (yield from search.reason())
    yield from emptied(borrowers)
    yield from search.end()
    return found


def refusal_of(request: PlacementRequest, situation: Situation) -> NoPlan | None:
    """Return why no plan is made for a pod now, None if one may be."""
    guards, now = situation.guards, situation.now
    if is_paused(guards, request.pod.namespace, now):
        text = (
            "no pods are evicted for its namespace now: fewer than 80 % of the last reclaims"
            " for it ended in a binding"
        )
        return NoPlan(reason=NoPlanReason.PAUSED, message=text)
    if is_backed_off(guards, request.pod.uid, now):
        text = "two plans for this pod have failed"
        return NoPlan(reason=NoPlanReason.BACKED_OFF, message=text)
    return None
