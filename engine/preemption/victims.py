"""The pods that may be evicted for a pod of higher priority."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.model.elastic_quota import QuotaKey
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.preemption.toleration import is_exempt
from engine.reclaim import (
    Accounts,
    Borrower,
    Budgets,
    Candidate,
    Situation,
    Steps,
    emptied,
    guards_allow,
    importance,
    parts_of,
    within_budgets,
)
from engine.view import NO_ROW, quota_requests


class PossibleVictims:
    """Pods of lower priority on nodes, whose quotas do not need them for their `min`.

    Args:
        request: the pod that needs room, and its context.
        quotas: the quota that it counts for, then those above that.
        situation: all else.
        leaving: the candidates that are on their way out.
        accounts: the quotas, without these.
    """

    def __init__(
        self,
        request: PlacementRequest,
        quotas: tuple[QuotaKey, ...],
        situation: Situation,
        leaving: Sequence[Candidate],
        accounts: Accounts,
    ) -> None:
        self._pod = request.pod
        self._quotas = frozenset(quotas)
        self._situation = situation
        self._accounts = accounts
        self._leaving = {each.pod.uid for each in leaving}
        self._requests: dict[int, Amounts] = {}  # by the id of a shape, which its pods keep alive
        self._lower: list[Borrower] | None = None

    def of_lower_priority(
        self, *, budgets: bool = True, guards: bool = True, tolerations: bool = True
    ) -> Steps[list[Borrower]]:
        """Return the pods that may be evicted, each by itself.

        Args:
            budgets: whether PodDisruptionBudgets hold.
            guards: whether guards hold.
            tolerations: whether classes are exempt.
        """
        if self._lower is None:
            self._lower = yield from self._all_lower()
        allowed, found = Budgets(self._situation.budgets if budgets else ()), list[Borrower]()
        for part in parts_of(self._lower):
            possible = (
                each
                for each in part
                if not each.pod.is_protected
                and self._is_spare(each)
                and (not guards or guards_allow(self._situation, each))
                and not (tolerations and self._is_exempt(each))
            )
            found += within_budgets(possible, allowed)
            yield
        return found

    def end(self) -> Steps[None]:
        """Forget all pods; nothing may be asked any more."""
        return emptied(self._lower or [])

    def _all_lower(self) -> Steps[list[Borrower]]:
        """Return the pods of lower priority that stay, whatever stands against an eviction."""
        priority, found = self._pod.priority, list[Borrower]()
        for part in parts_of(self._situation.candidates):
            found += [
                self._borrower(each)
                for each in part
                if each.pod.priority < priority
                and each.pod.uid not in self._leaving
                and each.entry.row != NO_ROW
            ]
            yield
        return found

    def _borrower(self, candidate: Candidate) -> Borrower:
        quotas, shape = candidate.quotas, candidate.entry.shape
        requests = self._requests.get(id(shape))
        if requests is None:
            requests = self._requests[id(shape)] = quota_requests(shape)
        return Borrower(
            pod=candidate.pod,
            entry=candidate.entry,
            quotas=quotas,
            pushed=tuple(
                [quota for quota in quotas if quota not in self._quotas and quota in self._accounts]
            ),
            requests=requests,
            budget=None,
        )

    def _is_spare(self, each: Borrower) -> bool:
        """Return whether no quota has less than its `min` without a pod.

        Otherwise its quota would take back at once what was taken from it.
        """
        return all(
            amount <= self._accounts.used(quota).get(name, 0) - least.get(name, 0)
            for quota in each.pushed
            for least in [self._accounts.guaranteed(quota)]
            for name, amount in each.requests.items()
            if amount > 0 and name in least
        )

    def _is_exempt(self, each: Borrower) -> bool:
        situation = self._situation
        return is_exempt(each.pod, self._pod, situation.classes, situation.now)


def in_order(victims: Iterable[Borrower]) -> list[Borrower]:
    """Return pods in the reverse of the order of release: the lowest priority, then the newest."""
    return sorted(victims, key=importance)
