"""The search for the victims of one pod, on every node and in the whole cohort."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from engine.model.elastic_quota import QuotaKey
from engine.model.gang import GangKey
from engine.model.quantity import amount_text
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.quota.queueing import is_within_min
from engine.reclaim.borrowers import (
    Borrower,
    covers,
    fewest_covering,
    freed_by,
    less,
    within_budgets,
)
from engine.reclaim.budgets import Budgets
from engine.reclaim.candidates import Candidate
from engine.reclaim.cross_node import CrossNodeSearch
from engine.reclaim.groups import Groups, group, members_of, sizes_of_gangs
from engine.reclaim.node_search import NodeSearch, best_rows
from engine.reclaim.plan import NoPlan, NoPlanReason, Plan, Situation, guards_allow, victims_of
from engine.reclaim.preemptor import Preemptor
from engine.reclaim.steps import Steps, emptied, parts_of
from engine.reclaim.toleration import is_tolerating
from engine.view import NO_ROW, BoolColumn, quota_requests

_Quotas: TypeAlias = tuple[QuotaKey, ...]

AT_LIMIT: Final = "as many pods of their namespaces are being evicted as may be at a time"

_MOST_NODES: Final = 16
"""The best nodes that are tried: only rules that read other nodes make more than one fail."""


class Search:
    """The search for victims for one pod.

    Args:
        request: the pod and its context.
        quotas: the quota that it counts for, then those above that.
        situation: all else.
        leaving: the candidates that are on their way out.
        nodes: those that it may take, (n,); None for all.

    Attributes:
        is_within_min: whether the pod is within the `min` of its quota.
        fit: the filters of the pod.
        fits: which nodes would take it once the pods that are leaving are gone, (n,).
        needs: what must be freed for it in the cohort, each above 0.
    """

    def __init__(
        self,
        request: PlacementRequest,
        quotas: tuple[QuotaKey, ...],
        situation: Situation,
        leaving: Sequence[Candidate],
        nodes: BoolColumn | None = None,
    ) -> None:
        self._pod = request.pod
        self._quotas = quotas
        self._situation = situation
        self._leaving = leaving
        self._preemptor = Preemptor(request, situation, leaving, nodes)
        self._requests, self._accounts = self._preemptor.requests, self._preemptor.accounts
        self.fit, self.fits = self._preemptor.fit, self._preemptor.fits
        guaranteed = self._accounts.guaranteed(quotas[0])
        self.is_within_min = is_within_min(
            self._requests, self._accounts.used(quotas[0]), guaranteed
        )
        self.needs = self._cohort_needs()
        self._guaranteed = [
            name for name, amount in self._requests.items() if amount > 0 and name in guaranteed
        ]
        self._borrowing: list[Borrower] | None = None
        self._gangs: Mapping[GangKey, int] | None = None

    def borrowers(self, *, budgets: bool = True, guards: bool = True) -> Steps[list[Borrower]]:
        """Return the pods that may be evicted, each by itself.

        Args:
            budgets: whether PodDisruptionBudgets hold.
            guards: whether guards of pods and owners hold, and what classes tolerate.
        """
        if self._borrowing is None:
            self._borrowing = yield from self._all_borrowing()
        allowed, found = Budgets(self._situation.budgets if budgets else ()), list[Borrower]()
        for part in parts_of(self._borrowing):
            found += within_budgets(filter(self._may_be_hit, part) if guards else part, allowed)
            yield
        return found

    def plan(self, borrowers: Sequence[Borrower]) -> Steps[Plan | None]:
        """Return the best plan, None if there is none.

        Gangs go where single pods do not make room.
        """
        groups = yield from group(borrowers, (yield from self._sizes()))
        plan = yield from self._plan_of_single_pods(groups.single)
        if plan is not None or not groups.gangs:
            return plan
        return (yield from self._plan_with_gangs(groups))

    def covering(self, borrowers: Sequence[Borrower], needs: Amounts) -> Steps[list[Borrower]]:
        """Return pods by themselves that free what the cohort needs; none where all are too few.

        Args:
            borrowers: that may be evicted.
            needs: of each resource, above 0.
        """
        groups = yield from group(borrowers, (yield from self._sizes()))
        return (yield from self._covering(groups.single, (), needs)) or []

    def end(self) -> Steps[None]:
        """Forget all pods; nothing may be asked any more."""
        return emptied(self._borrowing or [])

    def reason(self) -> Steps[NoPlan]:
        """Return why no victims were found."""
        if at_limit := self._situation.at_limit:
            borrowing = yield from self.borrowers(budgets=False, guards=False)
            if any(each.pod.namespace in at_limit for each in borrowing):
                return NoPlan(reason=NoPlanReason.AT_LIMIT, message=AT_LIMIT)
        more = yield from self.borrowers(budgets=False)
        if self._situation.budgets and (yield from self.plan(more)) is not None:
            text = "PodDisruptionBudgets allow no eviction of the pods that borrow now"
            return NoPlan(reason=NoPlanReason.BLOCKED_BY_PDB, message=text)
        most = yield from self.borrowers(budgets=False, guards=False)
        if len(most) > len(more) and (yield from self.plan(most)) is not None:
            text = (
                "the pods that borrow came back after their owners were hit, "
                "or their class tolerates it"
            )
            return NoPlan(reason=NoPlanReason.GUARDED, message=text)
        text = "nothing that other quotas borrow makes room for it"
        return NoPlan(reason=NoPlanReason.NO_VICTIMS, message=text)

    def _sizes(self) -> Steps[Mapping[GangKey, int]]:
        """Return how many members of each gang run."""
        if self._gangs is None:
            self._gangs = yield from sizes_of_gangs(
                self._situation.candidates, self._leaving, self._situation.view
            )
        return self._gangs

    def _plan_of_single_pods(self, borrowers: Sequence[Borrower]) -> Steps[Plan | None]:
        if self.fits.any():
            victims = yield from self._covering(borrowers, (), self.needs)
            return None if victims is None else self._plan(self._preemptor.best_node(()), victims)
        tried = 0
        for found in self._nodes(borrowers):
            if found is None:
                yield
                continue
            row, of_row = found
            victims = yield from self._completed(borrowers, of_row)
            if victims is not None and self._preemptor.fits_on(row, victims):
                if any(each.entry.row == row for each in victims[len(of_row) :]):
                    victims = self._without_unneeded(row, victims)
                return self._plan(row, victims)
            tried += 1
            if tried == _MOST_NODES:
                break
        return None

    def _plan_with_gangs(self, groups: Groups) -> Steps[Plan | None]:
        everyone, rows = (yield from groups.all()), list[int]()
        if not self.fits.any():
            members = yield from members_of(everyone)
            rows = yield from best_rows(self._nodes(members), _MOST_NODES)
        search = CrossNodeSearch(
            self._pod, self.fit, self._preemptor.what_if(()), self._accounts, self.needs
        )
        victims = yield from search.victims(everyone, rows)
        yield from emptied(everyone)
        return None if victims is None else self._plan(self._preemptor.best_node(victims), victims)

    def _nodes(self, borrowers: Sequence[Borrower]) -> NodeSearch:
        base = self._preemptor.what_if(())
        return NodeSearch(self.fit, base, self._requests, self.needs, self._accounts, borrowers)

    def _cohort_needs(self) -> Amounts:
        leaving = _sum_of([each for each in self._leaving if each.quotas])
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

    def _all_borrowing(self) -> Steps[list[Borrower]]:
        """Return the pods of quotas that borrow, whatever budgets and guards say of each."""
        leaving = {each.pod.uid for each in self._leaving}
        # By quotas and the id of a shape, which its pods keep alive: None where they do not borrow.
        kinds: dict[tuple[_Quotas, int], tuple[_Quotas, Amounts] | None] = {}
        found = []
        for part in parts_of(self._situation.candidates):
            yield
            for each in part:
                pod, shape = each.pod, each.entry.shape
                kind = each.quotas, id(shape)
                if kind not in kinds:
                    kinds[kind] = self._borrowed(each.quotas, quota_requests(shape))
                known = kinds[kind]
                is_leaving = pod.uid in leaving or each.entry.row == NO_ROW
                if known is None or pod.is_protected or is_leaving:
                    continue
                borrower = Borrower(
                    pod=pod,
                    entry=each.entry,
                    quotas=each.quotas,
                    pushed=known[0],
                    requests=known[1],
                    budget=None,
                )
                found.append(borrower)
        return found

    def _borrowed(self, quotas: _Quotas, requests: Amounts) -> tuple[_Quotas, Amounts] | None:
        """Return the quotas that a pod takes from and its requests, None if it does not borrow.

        Its quotas must all borrow of something that the preemptor is guaranteed. Those that this
        counts for, too, get back what they lose; pods of its own quota do not borrow.
        """
        pushed = tuple([quota for quota in quotas if quota not in self._quotas])
        borrows = (
            bool(quotas)
            and quotas[0] in pushed
            and all(quota in self._accounts for quota in pushed)
            and any(
                requests.get(name, 0) > 0
                and all(self._accounts.borrows(quota, name) for quota in pushed)
                for name in self._guaranteed
            )
        )
        return (pushed, requests) if borrows else None

    def _may_be_hit(self, borrower: Borrower) -> bool:
        situation, pod = self._situation, borrower.pod
        return guards_allow(situation, borrower) and not is_tolerating(
            pod, situation.classes, self._pod.priority, situation.now
        )

    def _completed(
        self, borrowers: Sequence[Borrower], victims: Sequence[Borrower]
    ) -> Steps[list[Borrower] | None]:
        """Return victims on a node with those elsewhere that the cohort needs beside them."""
        needs = less(self.needs, freed_by(victims))
        lacking = {name: needs[name] for name in self.needs if needs[name] > 0}
        if not lacking:
            return [*victims]
        more = yield from self._covering(borrowers, victims, lacking)
        return None if more is None else [*victims, *more]

    def _covering(
        self, borrowers: Sequence[Borrower], victims: Sequence[Borrower], needs: Amounts
    ) -> Steps[list[Borrower] | None]:
        taken, others = {each.pod.uid for each in victims}, list[Borrower]()
        for part in parts_of(borrowers):
            others += [each for each in part if each.pod.uid not in taken]
            yield
        return (yield from fewest_covering(others, needs, self._accounts, victims))

    def _without_unneeded(self, row: int, victims: list[Borrower]) -> list[Borrower]:
        """Return victims without those that others on the same node have made unneeded."""
        for each in reversed(victims):
            others = [other for other in victims if other is not each]
            if covers(freed_by(others), self.needs) and self._preemptor.fits_on(row, others):
                victims = others
        return victims

    def _plan(self, row: int, victims: Sequence[Borrower]) -> Plan:
        return Plan(
            node_names=(self._situation.view.names[row],),
            victims=victims_of(victims, self._situation.view),
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
        return f"{self._pod.key} needs {what} within the min of {own}; {borrowed}"

    def _above_min(self, quota: QuotaKey, name: str) -> int:
        least = self._accounts.guaranteed(quota).get(name, 0)
        return self._accounts.used(quota).get(name, 0) - least


def _sum_of(candidates: Collection[Candidate]) -> dict[str, int]:
    total: dict[str, int] = {}
    for candidate in candidates:
        for name, amount in quota_requests(candidate.entry.shape).items():
            total[name] = total.get(name, 0) + amount
    return total


def quota_text(quota: QuotaKey) -> str:
    """Return `namespace/name` of a quota."""
    namespace, _, name = quota
    return f"{namespace}/{name}"
