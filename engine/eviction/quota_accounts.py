"""What quotas use, guarantee and lend: the pods that may go, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, groupby
from typing import Final, TypeAlias

import numpy as np
from msgspec import structs

from engine.eviction.candidates import Candidate
from engine.eviction.plan import QuotaAccount
from engine.eviction.steps import Steps, parts_of
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.model.resources import Amounts
from engine.quota.queueing import weighted_share
from engine.view import PodEntry

_FEW: Final = 100

_SOME: Final = 100
"""Pods that a step takes from quotas: the share of a quota is computed for each."""


class PossibleVictim(Candidate, frozen=True, kw_only=True, gc=False, eq=False):
    """A pod that may be evicted as long as its quotas and its budget allow it."""

    # The quotas that its eviction takes from: those of the preemptor get back what they lose.
    pushed: tuple[QuotaKey, ...]
    requests: Amounts  # what its end frees of its quotas, base units
    # The PodDisruptionBudget that its eviction counts against, and that allows it, if any.
    budget: DisruptionBudget | None = None
    # Those that count it and that give way to its eviction.
    overridden: tuple[DisruptionBudget, ...] = ()

    @property
    def quota(self) -> QuotaKey:
        """The quota that it counts for. INVARIANT: a pod that borrows has one."""
        return self.quotas[0]

    @property
    def counted(self) -> tuple[str, PodEntry]:
        """The pod as a `WhatIf` takes it."""
        return self.pod.key, self.entry


_Head: TypeAlias = tuple[int, tuple[int, int, str], PossibleVictim]
"""A pod after the share of its quota, which it lowers, and its importance.

INVARIANT: that is no other's, so pods are never compared."""


class Accounts:
    """What quotas use once the pods that are leaving are gone, and what that leaves to take.

    `accounts` still count these, and `leaving` is what they request.
    """

    def __init__(
        self,
        accounts: Mapping[QuotaKey, QuotaAccount],
        leaving: Mapping[QuotaKey, Amounts],
        lendable: Amounts,
    ) -> None:
        self._accounts = accounts
        self._leaving = leaving
        self._lendable = lendable
        self._used: dict[QuotaKey, Amounts] = {}
        self._spare: dict[QuotaKey, Amounts] = {}
        self._shares: dict[tuple[QuotaKey, tuple[tuple[str, int], ...]], int] = {}

    def __contains__(self, key: object) -> bool:
        """Whether a quota is known."""
        return key in self._accounts

    def guaranteed(self, key: QuotaKey) -> Amounts:
        """Return what nobody takes from a quota."""
        return self._accounts[key].guaranteed

    def used(self, key: QuotaKey) -> Amounts:
        """Return what a quota uses."""
        used = self._used.get(key)
        if used is None:
            used = self._used[key] = less(self._accounts[key].used, self._leaving.get(key, {}))
        return used

    def borrows(self, key: QuotaKey, resource: str) -> bool:
        """Return whether a quota uses more of a resource than its `min`."""
        return self.used(key).get(resource, 0) > max(self.guaranteed(key).get(resource, 0), 0)

    def spare(self, key: QuotaKey) -> Amounts:
        """Return what may be taken of each resource that a `min` names without undercutting it.

        INVARIANT: nothing of a resource of which a quota uses less than its `min` is listed: that
        cannot be undercut by what it borrows of others.
        """
        spare = self._spare.get(key)
        if spare is None:
            used = self.used(key)
            above = {
                name: used.get(name, 0) - least for name, least in self.guaranteed(key).items()
            }
            spare = self._spare[key] = {name: left for name, left in above.items() if left >= 0}
        return spare

    def share(self, key: QuotaKey, removed: Amounts) -> int:
        """Return the weighted share of a quota without some of its pods, to be compared alone."""
        wanted = key, tuple(sorted(removed.items()))
        share = self._shares.get(wanted)
        if share is None:
            account = self._accounts[key]
            share = self._shares[wanted] = weighted_share(
                less(self.used(key), removed),
                {},
                account.guaranteed,
                self._lendable,
                account.weight,
            )
        return share

    def in_order(self, victims: Sequence[PossibleVictim]) -> Iterator[PossibleVictim]:
        """Yield pods that may all be evicted, the first to be evicted first."""
        return (each for each in self.in_order_with_pauses(victims) if each is not None)

    def in_order_with_pauses(
        self, victims: Sequence[PossibleVictim]
    ) -> Iterator[PossibleVictim | None]:
        """Yield pods that may all be evicted, the first to be evicted first; None for a pause.

        The highest share first, as it is once those before are gone; then the lowest priority, then
        the newest.
        """
        by_quota: dict[QuotaKey, list[PossibleVictim]] = {}
        for part in parts_of(victims):
            for victim in part:
                by_quota.setdefault(victim.quota, []).append(victim)
            yield None
        queues = {quota: _by_importance(of_quota) for quota, of_quota in by_quota.items()}
        removed: dict[QuotaKey, dict[str, int]] = {quota: {} for quota in queues}
        heads: list[_Head] = []
        for quota, queue in queues.items():
            yield from self._push(heads, queue, quota, {})
        while heads:
            _, _, victim = heappop(heads)
            yield victim
            gone = removed[victim.quota]
            for name, amount in victim.requests.items():
                gone[name] = gone.get(name, 0) + amount
            yield from self._push(heads, queues[victim.quota], victim.quota, gone)

    def _push(
        self,
        heads: list[_Head],
        queue: Iterator[PossibleVictim | None],
        quota: QuotaKey,
        removed: Amounts,
    ) -> Iterator[None]:
        """Put the next pod of a quota among the heads of all."""
        for each in queue:
            if each is not None:
                heappush(heads, (-self.share(quota, removed), importance(each), each))
                return
            yield


class Takings:
    """The pods of one plan so far, as far as their quotas and budgets limit them."""

    def __init__(self, accounts: Accounts, taken: Iterable[PossibleVictim] = ()) -> None:
        self._accounts = accounts
        self._taken: dict[QuotaKey, dict[str, int]] = {}
        self._disrupted: Counter[str] = Counter()
        for victim in taken:
            self._add(victim)

    def take(self, victim: PossibleVictim) -> bool:
        """Take a pod; False, without effect, if a quota or its budget does not allow it."""
        budget = victim.budget
        if budget is not None and self._disrupted[budget.key] >= budget.disruptions_allowed:
            return False
        for quota in victim.pushed:
            spare, taken = self._accounts.spare(quota), self._taken.get(quota, {})
            for name, amount in victim.requests.items():
                if name in spare and amount > spare[name] - taken.get(name, 0):
                    return False
        self._add(victim)
        return True

    def would_violate(self, victim: PossibleVictim) -> bool:
        """Return whether a pod that is taken next would violate a budget that gives way."""
        return any(
            self._disrupted[budget.key] >= budget.disruptions_allowed
            for budget in victim.overridden
        )

    def take_all(self, victims: Sequence[PossibleVictim]) -> bool:
        """Take pods that go together; False, without effect, if one of them is not allowed."""
        if len(victims) == 1:
            return self.take(victims[0])
        before = {quota: dict(taken) for quota, taken in self._taken.items()}
        disrupted = self._disrupted.copy()
        if all(map(self.take, victims)):
            return True
        self._taken, self._disrupted = before, disrupted
        return False

    def _add(self, victim: PossibleVictim) -> None:
        if victim.budget is not None:
            self._disrupted[victim.budget.key] += 1
        self._disrupted.update(budget.key for budget in victim.overridden)
        for quota in victim.pushed:
            taken = self._taken.setdefault(quota, {})
            for name, amount in victim.requests.items():
                taken[name] = taken.get(name, 0) + amount


class Budgets:
    """PodDisruptionBudgets of all namespaces."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[DisruptionBudget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.namespace, []).append(budget)

    def allowed(self, victims: Iterable[PossibleVictim]) -> list[PossibleVictim]:
        """Return the pods that none protects, each with the one that its eviction counts against.

        The API server evicts no pod of several.
        """
        if not self._by_namespace:
            return list(victims)
        found = []
        for each in victims:
            of_pod = self._of(each)
            if not of_pod:
                found.append(each)
            elif len(of_pod) == 1 and of_pod[0].disruptions_allowed > 0:
                found.append(structs.replace(each, budget=of_pod[0]))
        return found

    def overridden(self, victims: Iterable[PossibleVictim]) -> list[PossibleVictim]:
        """Return pods, each with the budgets that count it and give way to its eviction."""
        if not self._by_namespace:
            return list(victims)
        return [structs.replace(each, overridden=self._of(each)) for each in victims]

    def _of(self, victim: PossibleVictim) -> tuple[DisruptionBudget, ...]:
        pod = victim.pod
        budgets = self._by_namespace.get(pod.namespace, ())
        return tuple([each for each in budgets if each.selects(pod.namespace, pod.labels)])


def split_by_violation(
    victims: Iterable[PossibleVictim],
) -> tuple[list[PossibleVictim], list[PossibleVictim]]:
    """Return pods that violate no budget if they are evicted one after the other, and the others.

    Source: kubernetes, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go,
    filterPodsWithPDBViolation.
    """
    within, violating, taken = list[PossibleVictim](), list[PossibleVictim](), Counter[str]()
    for each in victims:
        is_within = all(taken[of.key] < of.disruptions_allowed for of in each.overridden)
        (within if is_within else violating).append(each)
        taken.update(of.key for of in each.overridden)
    return within, violating


def covers(amounts: Amounts, needs: Amounts) -> bool:
    """Return whether some amounts are as much as is needed of every resource."""
    return all(amounts.get(name, 0) >= amount for name, amount in needs.items())


def freed_by(victims: Iterable[PossibleVictim]) -> dict[str, int]:
    """Return what the end of pods frees."""
    freed: dict[str, int] = {}
    for victim in victims:
        for name, amount in victim.requests.items():
            freed[name] = freed.get(name, 0) + amount
    return freed


def less(amounts: Amounts, taken: Amounts) -> dict[str, int]:
    """Return amounts without others."""
    left = dict(amounts)
    for name, amount in taken.items():
        left[name] = left.get(name, 0) - amount
    return left


def fewest_covering(
    possible: Sequence[PossibleVictim],
    needs: Amounts,
    accounts: Accounts,
    victims: Iterable[PossibleVictim],
) -> Steps[list[PossibleVictim] | None]:
    """Return pods that free what is needed, none of which can be spared; None if all are too few.

    The first of one pod alone that is enough; otherwise the first ones, without those that are not
    needed, the most important of them spared first. Those that violate a budget come after all
    others. Each of `needs` is above 0; `victims` go too.
    """
    takings = Takings(accounts, victims)
    alone = yield from _one_covering(possible, needs, accounts, takings)
    if alone is not None:
        return [alone]
    taken, violating = list[PossibleVictim](), list[PossibleVictim]()
    left = dict(needs)
    first = ((each, False) for each in accounts.in_order_with_pauses(possible))
    last = ((each, True) for each in violating)
    for at, (each, is_last) in enumerate(chain(first, last)):
        if each is None or at % _SOME == 0:
            yield
        if each is None:
            continue
        if not is_last and takings.would_violate(each):
            violating.append(each)
        elif any(each.requests.get(name, 0) > 0 for name in left) and takings.take(each):
            taken.append(each)
            left = {name: rest for name, rest in less(left, each.requests).items() if rest > 0}
            if not left:
                return _without_unneeded(taken, needs)
    return None


def _one_covering(
    possible: Sequence[PossibleVictim], needs: Amounts, accounts: Accounts, takings: Takings
) -> Steps[PossibleVictim | None]:
    """Return the first pod that frees what is needed alone, and violates no budget."""
    enough = list[PossibleVictim]()
    for part in parts_of(possible):
        enough += [each for each in part if covers(each.requests, needs)]
        yield
    for at, each in enumerate(accounts.in_order_with_pauses(enough)):
        if each is None or at % _SOME == 0:
            yield
        if each is not None and not takings.would_violate(each) and takings.take(each):
            return each
    return None


def _without_unneeded(taken: Sequence[PossibleVictim], needs: Amounts) -> list[PossibleVictim]:
    """Return the pods without those that are not needed, the last of them first."""
    freed, needed = freed_by(taken), list(taken)
    for each in reversed(taken):
        without = less(freed, each.requests)
        if covers(without, needs):
            freed = without
            needed.remove(each)
    return needed


def importance(candidate: Candidate) -> tuple[int, int, str]:
    """Return the key of an order in which the first is evicted first, within a quota."""
    return candidate.pod.priority, -candidate.entry.assigned_at, candidate.pod.key


def _by_importance(victims: Sequence[PossibleVictim]) -> Iterator[PossibleVictim | None]:
    """Yield pods, the first to be evicted first; None for a pause."""
    if len(victims) <= _FEW:
        yield from sorted(victims, key=importance)
        return
    priorities, assigned_at = list[int](), list[int]()
    for part in parts_of(victims):
        priorities += [each.pod.priority for each in part]
        assigned_at += [each.entry.assigned_at for each in part]
        yield None
    order = np.lexsort((-np.array(assigned_at, np.int64), np.array(priorities, np.int64)))
    yield None
    ordered = (victims[at] for at in order)
    for _, alike in groupby(ordered, key=lambda each: (each.pod.priority, each.entry.assigned_at)):
        yield from sorted(alike, key=importance)
