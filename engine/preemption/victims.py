"""The pods that may be evicted for a pod of higher priority, and which of them go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from engine.gang import pod_group_of_gang
from engine.model.elastic_quota import QuotaKey
from engine.model.gang import GangKey
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.preemption.toleration import is_exempt
from engine.reclaim import (
    Accounts,
    Borrower,
    Candidate,
    Situation,
    importance,
    may_be_hit,
    within_budgets,
)
from engine.view import NO_ROW, ClusterView, counted_requests

MOST_VICTIMS: Final = 10
"""In one plan: guards never let more pods be on their way out."""


class PossibleVictims:
    """Pods of lower priority on nodes, whose quotas do not need them for their `min`.

    Args:
        request: the pod that needs room, and its context.
        quotas: the quota that it counts for, then those above that.
        situation: all else.
        accounts: the quotas, without the pods that are leaving.
    """

    def __init__(
        self,
        request: PlacementRequest,
        quotas: tuple[QuotaKey, ...],
        situation: Situation,
        accounts: Accounts,
    ) -> None:
        self._pod = request.pod
        self._quotas = frozenset(quotas)
        self._situation = situation
        self._accounts = accounts
        self._leaving = {each.pod.uid for each in situation.on_their_way_out()}
        self._requests: dict[int, Amounts] = {}  # by the id of a shape, which its pods keep alive
        self._lower = [
            self._borrower(each)
            for each in situation.candidates
            if each.pod.priority < self._pod.priority
            and each.pod.uid not in self._leaving
            and each.entry.row != NO_ROW
        ]

    def of_lower_priority(
        self, *, budgets: bool = True, guards: bool = True, tolerations: bool = True
    ) -> list[Borrower]:
        """Return the pods that may be evicted, each by itself, the first to go first.

        Args:
            budgets: whether PodDisruptionBudgets hold.
            guards: whether owners cool down.
            tolerations: whether classes are exempt.
        """
        found = (
            each
            for each in self._lower
            if not each.pod.is_protected
            and self._is_spare(each)
            and not (guards and self._cools_down(each))
            and not (tolerations and self._is_exempt(each))
        )
        return in_order(within_budgets(found, self._situation.budgets if budgets else ()))

    def groups(self, victims: Sequence[Borrower], view: ClusterView) -> Iterator[list[Borrower]]:
        """Yield those of some victims that go together: single pods, and whole gangs.

        A gang of which anybody must stay, or of more pods than may go at once, is left out.

        Args:
            victims: that may go, the first to go first.
            view: the cluster.
        """
        sizes = self._sizes_of_gangs(view)
        gangs: dict[GangKey, list[Borrower]] = {}
        for each in victims:
            key = each.pod.gang
            if key is None or key not in sizes:
                yield [each]
            else:
                gangs.setdefault(key, []).append(each)
        for key, members in gangs.items():
            if len(members) == sizes[key] <= MOST_VICTIMS:
                yield members

    def _sizes_of_gangs(self, view: ClusterView) -> dict[GangKey, int]:
        """Return how many members of each gang run, those that are leaving left out."""
        sizes: dict[GangKey, int] = {}
        is_gang: dict[GangKey, bool] = {}
        for each in self._situation.candidates:
            key = each.pod.gang
            if key is None or each.pod.uid in self._leaving:
                continue
            if key not in is_gang:
                is_gang[key] = pod_group_of_gang(key, view) is not None
            if is_gang[key]:
                sizes[key] = sizes.get(key, 0) + 1
        return sizes

    def _borrower(self, candidate: Candidate) -> Borrower:
        quotas, shape = candidate.quotas, candidate.entry.shape
        requests = self._requests.get(id(shape))
        if requests is None:
            requests = self._requests[id(shape)] = counted_requests(shape)
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

    def _cools_down(self, each: Borrower) -> bool:
        situation = self._situation
        return not may_be_hit(situation.guards, each.pod.owner, situation.now)

    def _is_exempt(self, each: Borrower) -> bool:
        situation = self._situation
        return is_exempt(each.pod, self._pod, situation.classes, situation.now)


def in_order(victims: Iterable[Borrower]) -> list[Borrower]:
    """Return pods in the reverse of the order of release: the lowest priority, then the newest."""
    return sorted(victims, key=importance)


def uids_of(groups: Iterable[Sequence[Borrower]]) -> Mapping[str, Borrower]:
    """Return the pods of groups by uid."""
    return {each.pod.uid: each for group in groups for each in group}
