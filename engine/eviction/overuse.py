"""Revocation: pods of a quota of Koordinator's tree that uses more than its runtime.

The runtime of a quota shrinks when others of its tree request more. What runs above it is lent no
longer, even if nobody waits. How long a quota has used too much is for the caller to say.

Other than upstream, nothing is evicted that a quota needs for its `min`, also where guarantees are
scaled down, no pod that requests nothing of what there is too much of, and no part of a gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from engine.eviction.candidates import is_tolerating
from engine.eviction.nodes import group
from engine.eviction.plan import (
    BaseSituation,
    QuotaAccount,
    Victim,
    guards_allow,
    requests_by_quota,
    victims_of,
)
from engine.eviction.quota_accounts import (
    Accounts,
    Budgets,
    PossibleVictim,
    Takings,
    freed_by,
    importance,
    less,
)
from engine.eviction.steps import completed
from engine.model.elastic_quota import ElasticQuota
from engine.model.gang import GangKey
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.tree import RevocablePod, TreeBounds, overused, pods_to_revoke
from engine.view import NO_ROW, quota_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class OveruseSituation(BaseSituation):
    """All that revocations are made from, of one moment.

    Attributes:
        bounds: the tree; candidates are the running pods of its quotas.
        node_names: by row.
        gangs: how many members of each gang run that are not leaving.
    """

    bounds: TreeBounds
    node_names: Sequence[str]
    gangs: Mapping[GangKey, int] = field(default_factory=dict)


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
        for together in self.groups:
            taken.update(victim.namespace for victim in together)
            if any(pods > room(namespace) for namespace, pods in taken.items()):
                break
            found += together
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
    budgets, gone = Budgets(situation.budgets), completed(situation.on_their_way_out())
    given = list[PossibleVictim]()  # by the quotas before
    for quota in quotas:
        leaving = requests_by_quota(gone).get(quota.key, {})
        used = less(situation.bounds.used[quota.name], leaving)
        limit = _limit(situation.bounds, quota)
        if not overused(used, limit):
            continue
        account = QuotaAccount(guaranteed=quota.min or {}, used=used)
        takings = Takings(Accounts({quota.key: account}, {}, {}), given)
        over = [name for name, bound in limit.items() if used.get(name, 0) > bound]
        groups: dict[str, list[PossibleVictim]] = {}
        revocable: list[RevocablePod] = []
        for each in _groups(quota, situation, budgets, {pod.pod.uid for pod in gone}):
            requests = freed_by(each)
            if any(requests.get(name, 0) > 0 for name in over) and takings.take_all(each):
                key, priority = each[0].pod.key, max(victim.pod.priority for victim in each)
                assigned_at = Micros(max(victim.entry.assigned_at for victim in each))
                groups[key] = each
                revocable.append(RevocablePod(key, priority, assigned_at, requests))
        revoked = [groups[pod.key] for pod in reversed(pods_to_revoke(revocable, used, limit))]
        if revoked:
            given += chain.from_iterable(revoked)
            gone += chain.from_iterable(revoked)
            yield Revocation(
                quota=quota,
                groups=tuple(victims_of(each, situation.node_names) for each in revoked),
                message=_message(quota, used, limit),
            )


def _limit(bounds: TreeBounds, quota: ElasticQuota) -> Amounts:
    """Return what a quota may use: its runtime, and not less than its `min`."""
    least = quota.min or {}
    runtime = bounds.shares[quota.name].runtime
    return {name: max(amount, least.get(name, 0)) for name, amount in runtime.items()}


def _groups(
    quota: ElasticQuota, situation: OveruseSituation, budgets: Budgets, gone: Collection[str]
) -> list[list[PossibleVictim]]:
    """Return the pods of a quota that may be evicted, with those that they go with.

    The least important first; gangs only as a whole.
    """
    possible = [
        PossibleVictim(
            pod=each.pod,
            entry=each.entry,
            quotas=each.quotas,
            pushed=(quota.key,),
            requests=quota_requests(each.entry.shape),
        )
        for each in situation.candidates
        if each.quotas[0] == quota.key
        and not (each.pod.is_protected or each.pod.uid in gone or each.entry.row == NO_ROW)
        and guards_allow(situation, each)
        # Nobody's priority stands against it: so it is spared as from its equals.
        and not is_tolerating(each.pod, situation.classes, each.pod.priority, situation.now)
    ]
    ordered = sorted(budgets.allowed(possible), key=importance)
    groups = completed(completed(group(ordered, situation.gangs)).all())
    return sorted(groups, key=lambda each: importance(each[0]))


def _message(quota: ElasticQuota, used: Amounts, limit: Amounts) -> str:
    over = ", ".join(
        f"{name} {amount_text(name, used[name])} of {amount_text(name, bound)}"
        for name, bound in sorted(limit.items())
        if used.get(name, 0) > bound
    )
    return f"{quota.namespace}/{quota.name} uses more than its runtime: {over}"
