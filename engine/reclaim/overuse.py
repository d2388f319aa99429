"""Revocation: pods of a quota of Koordinator's tree that uses more than its runtime.

The runtime of a quota shrinks when others of its tree request more. What runs above it is lent no
longer, whoever waits. How long a quota has used too much is for the caller to say.

Other than upstream, nothing is evicted that a quota needs for its `min`, also where guarantees are
scaled down, no pod that requests nothing of what there is too much of, and no part of a gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain

from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import ElasticQuota
from engine.model.gang import GangKey
from engine.model.priority_class import PriorityClass
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.tree import RevocablePod, TreeBounds, overused, pods_to_revoke
from engine.reclaim.borrowers import less
from engine.reclaim.budgets import Budgets
from engine.reclaim.candidates import Candidate
from engine.reclaim.groups import MOST_VICTIMS
from engine.reclaim.guards import GuardState, may_be_evicted
from engine.reclaim.plan import Victim
from engine.reclaim.toleration import is_tolerating
from engine.view import NO_ROW, quota_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class OveruseSituation:
    """All that revocations are made from, of one moment.

    Attributes:
        bounds: the tree.
        candidates: the running pods of its quotas, also those that are being deleted.
        node_names: by row.
        gangs: how many members of each gang run that are not leaving.
        budgets: all PodDisruptionBudgets.
        classes: all PriorityClasses, by name.
        guards: what evictions there were so far.
        leaving: uids of pods that are about to be evicted, by plans under way.
        now: the moment.
    """

    bounds: TreeBounds
    candidates: Sequence[Candidate]
    node_names: Sequence[str]
    gangs: Mapping[GangKey, int] = field(default_factory=dict)
    budgets: Sequence[DisruptionBudget] = ()
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    guards: GuardState = field(default_factory=GuardState)
    leaving: AbstractSet[str] = frozenset()
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """Pods to be evicted, for their quota uses more than its runtime.

    Attributes:
        groups: pods that go together, single pods or gangs; the least important first.
        message: one line for a person.
    """

    quota: ElasticQuota
    groups: tuple[tuple[Victim, ...], ...]
    message: str

    @property
    def victims(self) -> tuple[Victim, ...]:
        """All of them."""
        return tuple(chain.from_iterable(self.groups))

    def at_most(self, room: Callable[[str], int]) -> tuple[Victim, ...]:
        """Return the first groups, with so many pods of each namespace at most."""
        found, taken = list[Victim](), Counter[str]()
        for group in self.groups:
            taken.update(victim.namespace for victim in group)
            if any(pods > room(namespace) for namespace, pods in taken.items()):
                break
            found += group
        return tuple(found)


def overusing(bounds: TreeBounds) -> Iterator[ElasticQuota]:
    """Yield the quotas that use more than they may, each after those below it."""
    for quota in bounds.tree.bottom_up():
        if overused(bounds.used[quota.name], _limit(bounds, quota)):
            yield quota


def plan_revocations(
    quotas: Collection[ElasticQuota], situation: OveruseSituation
) -> Iterator[Revocation]:
    """Yield which pods of some quotas are to be evicted so that each uses no more than it may.

    Pods that are leaving count no longer, those of an earlier revocation among them: a quota gives
    nothing that those below it give already. Only pods of the quota itself go, not of those below.

    Args:
        quotas: each after those below it.
        situation: all else.
    """
    budgets, gone = Budgets(situation.budgets), _leaving(situation)
    for quota in quotas:
        used = less(situation.bounds.used[quota.name], _requests_of(gone, quota))
        limit = _limit(situation.bounds, quota)
        if not overused(used, limit):
            continue
        own = _groups(_revocable(quota, situation, budgets, gone), situation.gangs)
        groups = {each[0].pod.key: each for each in _sparable(own, used, limit, quota.min or {})}
        revocable = [
            RevocablePod(
                key,
                max(each.pod.priority for each in group),
                Micros(max(each.entry.assigned_at for each in group)),
                _requests(group),
            )
            for key, group in groups.items()
        ]
        revoked = [groups[pod.key] for pod in reversed(pods_to_revoke(revocable, used, limit))]
        if revoked:
            gone |= {each.pod.uid: each for group in revoked for each in group}
            yield Revocation(
                quota=quota,
                groups=tuple(
                    tuple(_victim(each, situation.node_names) for each in group)
                    for group in revoked
                ),
                message=_message(quota, used, limit),
            )


def _limit(bounds: TreeBounds, quota: ElasticQuota) -> Amounts:
    """Return what a quota may use: its runtime, and not less than its `min`."""
    least = quota.min or {}
    runtime = bounds.shares[quota.name].runtime
    return {name: max(amount, least.get(name, 0)) for name, amount in runtime.items()}


def _leaving(situation: OveruseSituation) -> dict[str, Candidate]:
    """Return the pods that are on their way out, by uid."""
    return {
        each.pod.uid: each
        for each in situation.candidates
        if each.pod.deleting or each.pod.uid in situation.leaving
    }


def _requests_of(candidates: Mapping[str, Candidate], quota: ElasticQuota) -> Amounts:
    """Return what pods request that count for a quota, or for one below it."""
    return _requests(each for each in candidates.values() if quota.key in each.quotas)


def _revocable(
    quota: ElasticQuota,
    situation: OveruseSituation,
    budgets: Budgets,
    gone: Mapping[str, Candidate],
) -> Iterator[Candidate]:
    """Yield the pods of a quota that may all be evicted, the least important first."""
    disrupted: Counter[str] = Counter()
    own = [each for each in situation.candidates if each.quotas[0] == quota.key]
    for each in sorted(own, key=_importance):
        pod, entry = each.pod, each.entry
        if pod.is_protected or pod.uid in gone or entry.row == NO_ROW:
            continue
        if not may_be_evicted(situation.guards, pod, entry.assigned_at, situation.now):
            continue
        # Nobody's priority stands against it: so it is spared as from its equals.
        if is_tolerating(pod, situation.classes, pod.priority, situation.now):
            continue
        may_disrupt, budget = budgets.of(pod)
        if budget is not None:
            may_disrupt = may_disrupt and disrupted[budget.key] < budget.disruptions_allowed
            disrupted[budget.key] += may_disrupt
        if may_disrupt:
            yield each


def _groups(
    candidates: Iterable[Candidate], gangs: Mapping[GangKey, int]
) -> list[Sequence[Candidate]]:
    """Return pods with those that they go with, in the same order; gangs only as a whole."""
    groups: dict[GangKey | str, list[Candidate]] = {}
    for each in candidates:
        gang = each.pod.gang
        key = each.pod.key if gang is None or gang not in gangs else gang
        groups.setdefault(key, []).append(each)
    return [
        group
        for key, group in groups.items()
        if isinstance(key, str) or len(group) == gangs[key] <= MOST_VICTIMS
    ]


def _sparable(
    groups: Iterable[Sequence[Candidate]], used: Amounts, limit: Amounts, least: Amounts
) -> Iterator[Sequence[Candidate]]:
    """Yield pods that help, and that can all go without their quota using less than its `min`."""
    over = [name for name, bound in limit.items() if used.get(name, 0) > bound]
    spare = {
        name: left for name, amount in least.items() if (left := used.get(name, 0) - amount) >= 0
    }
    for group in groups:
        requests = _requests(group)
        helps = any(requests.get(name, 0) > 0 for name in over)
        if helps and all(requests.get(name, 0) <= left for name, left in spare.items()):
            spare = {name: left - requests.get(name, 0) for name, left in spare.items()}
            yield group


def _requests(candidates: Iterable[Candidate]) -> Amounts:
    total: Counter[str] = Counter()
    for each in candidates:
        total.update(quota_requests(each.entry.shape))
    return total


def _importance(candidate: Candidate) -> tuple[int, int, str]:
    return candidate.pod.priority, -candidate.entry.assigned_at, candidate.pod.key


def _victim(candidate: Candidate, node_names: Sequence[str]) -> Victim:
    pod, entry = candidate.pod, candidate.entry
    return Victim(
        key=pod.key,
        uid=pod.uid,
        quota=candidate.quotas[0],
        owner=pod.owner,
        assigned_at=entry.assigned_at,
        node_name=node_names[entry.row],
        requests=quota_requests(entry.shape),
    )


def _message(quota: ElasticQuota, used: Amounts, limit: Amounts) -> str:
    over = ", ".join(
        f"{name} {amount_text(name, used[name])} of {amount_text(name, bound)}"
        for name, bound in sorted(limit.items())
        if used.get(name, 0) > bound
    )
    return f"{quota.namespace}/{quota.name} uses more than its runtime: {over}"
