"""The plan of preemption for a gang: `plan_gang_preemption` is the table of contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.model.elastic_quota import QuotaKey
from engine.model.request import PlacementRequest
from engine.preemption.gang_search import GangSearch, NeedyGang
from engine.preemption.search import OBSTACLES, PreemptionSearch
from engine.preemption.toleration import is_preempting
from engine.reclaim import (
    MOST_VICTIMS,
    Candidate,
    NodeFit,
    NoPlan,
    NoPlanReason,
    Plan,
    Situation,
    Steps,
    Victim,
    completed,
    emptied,
    parts_of,
    refusal_of,
)
from engine.view import NO_ROW, BoolColumn


def plan_gang_preemption(
    gangs: Sequence[NeedyGang], quotas: tuple[QuotaKey, ...], situation: Situation
) -> Plan | NoPlan:
    """Return what `plan_gang_preemption_in_steps` does, without a pause."""
    return completed(plan_gang_preemption_in_steps(gangs, quotas, situation))


def plan_gang_preemption_in_steps(
    gangs: Sequence[NeedyGang], quotas: tuple[QuotaKey, ...], situation: Situation
) -> Steps[Plan | NoPlan]:
    """Return which pods of lower priority are to be evicted so that gangs start together.

    The same arguments always give the same plan. After it all members have room, placed as they are
    when they are released; all victims have a lower priority than any member. Else it holds what is
    said of `plan_preemption_in_steps`.

    Args:
        gangs: those that start together.
        quotas: the quotas that members count for, and those above them.
        situation: all else. Its candidates are all running pods; no member counts on its view.
    """
    # 1. For some gangs nobody is evicted, now or ever.
    requests = [request for each in gangs for request in each.members.requests]
    refused = _refusal_of(requests, situation)
    if refused is not None:
        return refused

    # 2. With the pods that are leaving gone there may be room already.
    leaving = yield from situation.on_their_way_out()
    least = min(request.pod.priority for request in requests)
    possible = yield from _possible_victims(gangs, least, situation, leaving)
    among = frozenset(each.pod.uid for each in possible)

    def search(
        *, budgets: bool = True, guards: bool = True, tolerations: bool = True
    ) -> GangSearch:
        single = _SinglePods(quotas, among, budgets, guards, tolerations)
        return GangSearch(gangs, situation, leaving, possible, single.victims)

    if search().nodes_without(()):
        text = "there is room, or pods that leave make some"
        return NoPlan(reason=NoPlanReason.NOT_NEEDED, message=text)
    yield

    # 3. Find victims for all members, or say what is in the way.
    plan = yield from search().plan()
    if plan is not None:
        return plan
    for reason, text, tolerations, guards in OBSTACLES if possible else ():
        relaxed = search(budgets=False, guards=guards, tolerations=tolerations)
        if (yield from relaxed.plan()) is not None:
            return NoPlan(reason=reason, message=text)
    text = f"no {MOST_VICTIMS} pods of lower priority make room for all of it"
    return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)


class _SinglePods(NamedTuple):
    """The search for the victims of one member, as of a pod by itself.

    Attributes:
        quotas: that members count for, and those above them.
        among: uids of those that may be victims.
        budgets: whether PodDisruptionBudgets hold.
        guards: whether owners cool down.
        tolerations: whether classes are exempt.
    """

    quotas: tuple[QuotaKey, ...]
    among: frozenset[str]
    budgets: bool
    guards: bool
    tolerations: bool

    def victims(
        self,
        request: PlacementRequest,
        situation: Situation,
        leaving: Sequence[Candidate],
        nodes: BoolColumn | None,
    ) -> Steps[Sequence[Victim]]:
        """Return who is evicted for a member that has no room, see `VictimsOfMember`."""
        search = PreemptionSearch(request, self.quotas, situation, leaving, nodes)
        victims = yield from search.victims.of_lower_priority(
            budgets=self.budgets, guards=self.guards, tolerations=self.tolerations
        )
        lower = [victim for victim in victims if victim.pod.uid in self.among]
        plan = yield from search.plan(lower)
        yield from emptied(victims)
        yield from emptied(lower)
        yield from search.victims.end()
        return () if plan is None else plan.victims


def _refusal_of(requests: Sequence[PlacementRequest], situation: Situation) -> NoPlan | None:
    """Return why no plan is made for pods that start together, None if one may be."""
    for request in requests:
        if not is_preempting(request.pod, situation.classes):
            text = f"the PriorityClass `{request.pod.priority_class_name}` never preempts"
            return NoPlan(reason=NoPlanReason.NEVER_PREEMPTS, message=text)
    refused = refusal_of(requests[0], situation)
    if refused is not None:
        return refused
    fit = NodeFit(
        requests[0],
        situation.policies,
        situation.view,
        situation.now,
        situation.scope,
        situation.freshness,
    )
    if not fit.stale:
        return None
    return NoPlan(reason=NoPlanReason.STALE, message=", ".join(fit.stale.values()))


def _possible_victims(
    gangs: Sequence[NeedyGang], least: int, situation: Situation, leaving: Sequence[Candidate]
) -> Steps[list[Candidate]]:
    """Return the pods of lower priority than any member, whatever guards and budgets say."""
    gone, own = {each.pod.uid for each in leaving}, {each.gang.key for each in gangs}
    found = list[Candidate]()
    for part in parts_of(situation.candidates):
        found += [
            each
            for each in part
            if each.pod.priority < least
            and each.pod.gang not in own
            and not (each.pod.is_protected or each.pod.uid in gone or each.entry.row == NO_ROW)
        ]
        yield
    return found
