"""The plan of reclaim for a gang within the `min` of its quota: for all of its members, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from engine.model.elastic_quota import QuotaKey
from engine.model.pod_shape import PodShape
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.preemption.gang_search import GangSearch, NeedyGang
from engine.quota.queueing import is_within_min
from engine.reclaim import (
    MOST_VICTIMS,
    Accounts,
    Borrower,
    Candidate,
    NoPlan,
    NoPlanReason,
    Plan,
    Search,
    Situation,
    Steps,
    Victim,
    completed,
    emptied,
    parts_of,
    refusal_of,
    requests_by_quota,
    victims_of,
)
from engine.view import NO_ROW, BoolColumn, quota_requests

_BUDGETS: Final = "PodDisruptionBudgets allow no eviction of the pods that borrow now"
_GUARDS: Final = (
    "the pods that borrow came back after their owners were hit, their class tolerates it, or as"
    " many of their namespaces are being evicted as may be at a time"
)


def plan_gang_reclaim(
    gangs: Sequence[NeedyGang], quotas: tuple[QuotaKey, ...], situation: Situation
) -> Plan | NoPlan:
    """Return what `plan_gang_reclaim_in_steps` does, without a pause."""
    return completed(plan_gang_reclaim_in_steps(gangs, quotas, situation))


def plan_gang_reclaim_in_steps(
    gangs: Sequence[NeedyGang], quotas: tuple[QuotaKey, ...], situation: Situation
) -> Steps[Plan | NoPlan]:
    """Return which pods that borrow are to be evicted for gangs within the `min` of their quota.

    The same arguments always give the same plan. After it all members have room, placed as they are
    when they are released, and the cohort has. Else it holds what is said of
    `plan_reclaim_in_steps`.

    Args:
        gangs: those that start together.
        quotas: the quotas that members count for.
        situation: all else; no member counts on its view.
    """
    # 1. Some gangs are planned for later, or never.
    requests = [request for each in gangs for request in each.members.requests]
    refused = refusal_of(requests[0], situation)
    if refused is not None:
        return refused
    leaving = yield from situation.on_their_way_out()
    total = _sum(request.pod.shape for request in requests)
    accounts = Accounts(situation.accounts, requests_by_quota(leaving), situation.lendable)
    if len(quotas) != 1 or quotas[0] not in accounts:
        text = "no quota guarantees room to all of its members together"
        return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)
    if not is_within_min(total, accounts.used(quotas[0]), accounts.guaranteed(quotas[0])):
        text = "its quota would use more than its min with all of it"
        return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)

    # 2. With the pods that are leaving gone there may be room already.
    gone, own = {each.pod.uid for each in leaving}, {each.gang.key for each in gangs}
    possible = list[Candidate]()
    for part in parts_of(situation.candidates):
        possible += [
            each for each in part if _may_borrow(each, quotas, gone) and each.pod.gang not in own
        ]
        yield
    among = frozenset(each.pod.uid for each in possible)
    needs = _cohort_needs(total, leaving, situation)

    def search(*, budgets: bool = True, guards: bool = True) -> GangSearch:
        of_quotas = _Borrowers(requests[0], quotas, among, budgets, guards)
        return GangSearch(
            gangs,
            situation,
            leaving,
            possible,
            of_quotas.victims,
            needs,
            of_quotas.victims_of_cohort,
        )

    if search().nodes_without(()):
        text = "there is room, or pods that leave make some"
        return NoPlan(reason=NoPlanReason.NOT_NEEDED, message=text)
    yield

    # 3. Find victims for all members, or say what is in the way.
    plan = yield from search().plan()
    if plan is not None:
        return plan
    for reason, text, guards in (
        (NoPlanReason.BLOCKED_BY_PDB, _BUDGETS, True),
        (NoPlanReason.GUARDED, _GUARDS, False),
    ):
        if (yield from search(budgets=False, guards=guards).plan()) is not None:
            return NoPlan(reason=reason, message=text)
    text = f"no {MOST_VICTIMS} pods of what other quotas borrow make room for all of it"
    return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)


class _Borrowers(NamedTuple):
    """The search for what other quotas borrow.

    Attributes:
        first: the first of all members.
        quotas: that members count for.
        among: uids of those that may be victims.
        budgets: whether PodDisruptionBudgets hold.
        guards: whether guards of pods and owners hold, and what classes tolerate.
    """

    first: PlacementRequest
    quotas: tuple[QuotaKey, ...]
    among: frozenset[str]
    budgets: bool
    guards: bool

    def victims(
        self,
        request: PlacementRequest,
        situation: Situation,
        leaving: Sequence[Candidate],
        nodes: BoolColumn | None,
    ) -> Steps[Sequence[Victim]]:
        """Return who is evicted for a member that has no node, see `VictimsOfMember`."""
        # What the cohort needs is found for all members together.
        search = Search(request, self.quotas, replace(situation, cohort_room={}), leaving, nodes)
        borrowers = yield from self._among(search)
        plan = yield from search.plan(borrowers)
        yield from emptied(borrowers)
        yield from search.end()
        return () if plan is None else plan.victims

    def victims_of_cohort(
        self, needs: Amounts, situation: Situation, leaving: Sequence[Candidate]
    ) -> Steps[Sequence[Victim]]:
        """Return who is evicted for the cohort, see `VictimsOfCohort`."""
        search = Search(self.first, self.quotas, situation, leaving)
        borrowers = yield from self._among(search)
        found = yield from search.covering(borrowers, needs)
        victims = victims_of(found, situation.view)
        yield from emptied(borrowers)
        yield from search.end()
        return victims

    def _among(self, search: Search) -> Steps[list[Borrower]]:
        found = yield from search.borrowers(budgets=self.budgets, guards=self.guards)
        return [each for each in found if each.pod.uid in self.among]


def _may_borrow(each: Candidate, quotas: tuple[QuotaKey, ...], gone: set[str]) -> bool:
    """Return whether a pod is of another quota, and may be evicted at all."""
    is_running = each.pod.uid not in gone and each.entry.row != NO_ROW
    return (
        bool(each.quotas)
        and each.quotas[0] not in quotas
        and is_running
        and not each.pod.is_protected
    )


def _cohort_needs(total: Amounts, leaving: Sequence[Candidate], situation: Situation) -> Amounts:
    """Return what the cohort lacks for pods once those that are leaving are gone."""
    freed = _sum(each.entry.shape for each in leaving if each.quotas)
    lacking = {
        name: total[name] - amount - freed.get(name, 0)
        for name, amount in situation.cohort_room.items()
        if total.get(name, 0) > 0
    }
    return {name: amount for name, amount in lacking.items() if amount > 0}


def _sum(shapes: Iterable[PodShape]) -> dict[str, int]:
    total = Counter[str]()
    for shape in shapes:
        total.update(quota_requests(shape))
    return dict(total)
