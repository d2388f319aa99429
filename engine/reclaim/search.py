"""The search for the victims of one pod, on every node and in the whole cohort."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

from engine.model.elastic_quota import QuotaKey
from engine.model.quantity import amount_text
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.pipeline import decide
from engine.quota.queueing import is_within_min
from engine.reclaim.borrowers import (
    Accounts,
    Borrower,
    covers,
    fewest_covering,
    freed_by,
    less,
    within_budgets,
)
from engine.reclaim.candidates import Candidate
from engine.reclaim.guards import may_be_evicted
from engine.reclaim.node_fit import NodeFit
from engine.reclaim.node_search import NodeSearch
from engine.reclaim.plan import NoPlan, NoPlanReason, Plan, Situation, Victim
from engine.reclaim.toleration import is_tolerating
from engine.view import NO_ROW, WhatIf, counted_requests

_MOST_NODES: Final = 16
"""The best nodes that are tried: only rules that read other nodes make more than one fail."""


class Search:
    """The search for victims for one pod.

    Attributes:
        is_within_min: whether the pod is within the `min` of its quota.
        fit: the filters of the pod.
        fits: which nodes would take it once the pods that are leaving are gone, (n,).
        needs: what must be freed for it in the cohort, each above 0.
    """

    def __init__(
        self, request: PlacementRequest, quotas: tuple[QuotaKey, ...], situation: Situation
    ) -> None:
        self._request = request
        self._quotas = quotas
        self._situation = situation
        self._requests = counted_requests(request.pod.shape)
        self._leaving = situation.on_their_way_out()
        leaving = requests_by_quota(self._leaving)
        self._accounts = Accounts(situation.accounts, leaving, situation.lendable)
        self.is_within_min = is_within_min(
            self._requests, self._accounts.used(quotas[0]), self._accounts.guaranteed(quotas[0])
        )
        self.needs = self._cohort_needs()
        self.fit = NodeFit(
            request,
            situation.policies,
            situation.view,
            situation.now,
            situation.scope,
            situation.freshness,
        )
        self._base = self._what_if(())
        self.fits = self.fit.passing(self._base)
        guaranteed = self._accounts.guaranteed(quotas[0])
        self._guaranteed = [
            name for name, amount in self._requests.items() if amount > 0 and name in guaranteed
        ]

    def borrowers(self, *, budgets: bool = True, guards: bool = True) -> list[Borrower]:
        """Return the pods that may be evicted, each by itself.

        Args:
            budgets: whether PodDisruptionBudgets hold.
            guards: whether guards of pods and owners hold, and what classes tolerate.
        """
        hittable = filter(self._may_be_hit, self._borrowing) if guards else self._borrowing
        return within_budgets(hittable, self._situation.budgets if budgets else ())

    def plan(self, borrowers: Sequence[Borrower]) -> Plan | None:
        """Return the best plan, None if there is none."""
        if self.fits.any():
            victims = self._covering(borrowers, (), self.needs)
            return None if victims is None else self._plan(self._best_node(), victims)
        nodes = NodeSearch(
            self.fit, self._what_if(()), self._requests, self.needs, self._accounts, borrowers
        )
        for row, of_row in islice(nodes, _MOST_NODES):
            victims = self._completed(borrowers, of_row)
            if victims is not None and self._is_enough(row, victims):
                if any(each.entry.row == row for each in victims[len(of_row) :]):
                    victims = self._without_unneeded(row, victims)
                return self._plan(row, victims)
        return None

    def reason(self) -> NoPlan:
        """Return why no victims were found."""
        more = self.borrowers(budgets=False)
        if self._situation.budgets and self.plan(more) is not None:
            text = "PodDisruptionBudgets allow no eviction of the pods that borrow now"
            return NoPlan(reason=NoPlanReason.BLOCKED_BY_PDB, message=text)
        most = self.borrowers(budgets=False, guards=False)
        if len(most) > len(more) and self.plan(most) is not None:
            text = (
                "the pods that borrow have just started, their class tolerates it, "
                "or their owners were hit before"
            )
            return NoPlan(reason=NoPlanReason.GUARDED, message=text)
        text = "nothing that other quotas borrow makes room for it"
        return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)

    def _cohort_needs(self) -> Amounts:
        leaving = _sum_of(self._leaving)
        room = {
            name: amount + leaving.get(name, 0)
            for name, amount in self._situation.cohort_room.items()
        }
        lacking = {
            name: self._requests[name] - amount
            for name, amount in room.items()
            if self._requests.get(name, 0) > 0
        }
        return {name: amount for name, amount in lacking.items() if amount > 0}

    @cached_property
    def _borrowing(self) -> list[Borrower]:
        """The pods of quotas that borrow, whatever budgets and guards say of each."""
        leaving = {each.pod.uid for each in self._leaving}
        by_kind: dict[tuple[tuple[QuotaKey, ...], int], tuple[bool, Amounts]] = {}
        found = []
        for each in self._situation.candidates:
            pod, shape = each.pod, each.entry.shape
            kind = each.quotas, id(shape)
            known = by_kind.get(kind)
            if known is None:
                requests = counted_requests(shape)
                known = by_kind[kind] = self._borrows(each.quotas, requests), requests
            if not known[0] or pod.is_protected or pod.uid in leaving or each.entry.row == NO_ROW:
                continue
            borrower = Borrower(
                pod=pod,
                entry=each.entry,
                quotas=each.quotas,
                pushed=tuple([quota for quota in each.quotas if quota not in self._quotas]),
                requests=known[1],
                budget=None,
            )
            found.append(borrower)
        return found

    def _borrows(self, quotas: tuple[QuotaKey, ...], requests: Amounts) -> bool:
        """Return whether quotas all borrow of something that the preemptor is guaranteed.

        Those that it counts for, too, get back what they lose; pods of its own quota do not borrow.
        """
        pushed = [quota for quota in quotas if quota not in self._quotas]
        return (
            quotas[0] in pushed
            and all(quota in self._accounts for quota in pushed)
            and any(
                requests.get(name, 0) > 0
                and all(self._accounts.borrows(quota, name) for quota in pushed)
                for name in self._guaranteed
            )
        )

    def _may_be_hit(self, borrower: Borrower) -> bool:
        situation, pod = self._situation, borrower.pod
        now, priority = situation.now, self._request.pod.priority
        return may_be_evicted(
            situation.guards, pod.owner, borrower.entry.assigned_at, now
        ) and not is_tolerating(pod, situation.classes, priority, now)

    def _completed(
        self, borrowers: Sequence[Borrower], victims: Sequence[Borrower]
    ) -> list[Borrower] | None:
        """Return victims on a node with those elsewhere that the cohort needs beside them."""
        needs = less(self.needs, freed_by(victims))
        lacking = {name: needs[name] for name in self.needs if needs[name] > 0}
        if not lacking:
            return [*victims]
        more = self._covering(borrowers, victims, lacking)
        return None if more is None else [*victims, *more]

    def _covering(
        self, borrowers: Sequence[Borrower], victims: Sequence[Borrower], needs: Amounts
    ) -> list[Borrower] | None:
        taken = {borrower.pod.uid for borrower in victims}
        others = [borrower for borrower in borrowers if borrower.pod.uid not in taken]
        return fewest_covering(others, needs, self._accounts, victims)

    def _without_unneeded(self, row: int, victims: list[Borrower]) -> list[Borrower]:
        """Return victims without those that others on the same node have made unneeded."""
        for each in reversed(victims):
            others = [other for other in victims if other is not each]
            if covers(freed_by(others), self.needs) and self._is_enough(row, others):
                victims = others
        return victims

    def _is_enough(self, row: int, victims: Sequence[Borrower]) -> bool:
        return bool(self.fit.passing(self._what_if(victims))[row])

    def _best_node(self) -> int:
        """Return the row that the pod would be released to as things are."""
        situation = self._situation
        decision = decide(
            self._request,
            situation.policies,
            self._base.view,
            situation.now,
            scope=situation.scope,
            freshness=situation.freshness,
        )
        if decision.candidates.size:
            return int(decision.candidates[0])
        names = situation.view.names
        rows: list[int] = self.fits.nonzero()[0].tolist()
        return min(rows, key=lambda row: names[row])

    def _what_if(self, removed: Sequence[Borrower]) -> WhatIf:
        """Return the cluster without the pods that are leaving, and without some more."""
        what_if = WhatIf(self._situation.view)
        gone = [(each.pod.key, each.entry) for each in self._leaving if each.entry.row != NO_ROW]
        what_if.remove([*gone, *(borrower.counted for borrower in removed)])
        return what_if

    def _plan(self, row: int, victims: Sequence[Borrower]) -> Plan:
        names = self._situation.view.names
        return Plan(
            node_name=names[row],
            victims=tuple(
                Victim(
                    key=borrower.pod.key,
                    uid=borrower.pod.uid,
                    quota=borrower.quota,
                    owner=borrower.pod.owner,
                    node_name=names[borrower.entry.row],
                    requests=borrower.requests,
                )
                for borrower in victims
            ),
            message=self._message(victims),
        )

    def _message(self, victims: Sequence[Borrower]) -> str:
        """Return who takes what back from whom."""
        quotas = dict.fromkeys(borrower.quota for borrower in victims)
        borrowed = "; ".join(
            f"{quota_text(quota)} borrows "
            + ", ".join(
                f"{name} {amount_text(name, above)}"
                for name in sorted(self._guaranteed)
                if (above := self._above_min(quota, name)) > 0
            )
            for quota in quotas
        )
        what = ", ".join(
            f"{name} {amount_text(name, self._requests[name])}" for name in sorted(self._guaranteed)
        )
        own = quota_text(self._quotas[0])
        return f"{self._request.pod.key} needs {what} within the min of {own}; {borrowed}"

    def _above_min(self, quota: QuotaKey, name: str) -> int:
        least = self._accounts.guaranteed(quota).get(name, 0)
        return self._accounts.used(quota).get(name, 0) - least


def requests_by_quota(candidates: Collection[Candidate]) -> dict[QuotaKey, dict[str, int]]:
    """Return what pods request, by each quota that they count for."""
    total: dict[QuotaKey, dict[str, int]] = {}
    for candidate in candidates:
        for quota in candidate.quotas:
            amounts = total.setdefault(quota, {})
            for name, amount in counted_requests(candidate.entry.shape).items():
                amounts[name] = amounts.get(name, 0) + amount
    return total


def _sum_of(candidates: Collection[Candidate]) -> dict[str, int]:
    total: dict[str, int] = {}
    for candidate in candidates:
        for name, amount in counted_requests(candidate.entry.shape).items():
            total[name] = total.get(name, 0) + amount
    return total


def quota_text(quota: QuotaKey) -> str:
    """Return `namespace/name` of a quota."""
    namespace, _, name = quota
    return f"{namespace}/{name}"
