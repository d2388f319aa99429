"""Strategies of the search: whose pods may be evicted for whom, and in which order.

`Reclaim` is for pods within the `min` of their quota: they get back what other quotas borrow.
`Preemption` is for pods of higher priority.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from engine.eviction.candidates import Candidate, is_exempt, is_preempting, is_tolerating
from engine.eviction.guards import is_backed_off, is_paused
from engine.eviction.nodes import MOST_VICTIMS, Preemptor
from engine.eviction.plan import NoPlan, NoPlanReason, Plan, Situation, victims_of
from engine.eviction.quota_accounts import Accounts, PossibleVictim, importance
from engine.model.decision import PlacementRequest
from engine.model.elastic_quota import QuotaKey
from engine.model.pod_shape import PodShape
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.quota.queueing import is_within_min
from engine.view import quota_requests


class Protections(NamedTuple):
    """What may protect a pod from eviction; whether each of these holds."""

    budgets: bool = True  # PodDisruptionBudgets
    tolerations: bool = True  # of PriorityClasses
    guards: bool = True


ALL_HOLD: Final = Protections()
NONE_HOLDS: Final = Protections(budgets=False, tolerations=False, guards=False)


class Obstacle(NamedTuple):
    """What may be in the way of a plan, and what holds without it."""

    reason: NoPlanReason
    message: str
    without: Protections


@dataclass(frozen=True)
class Strategy(ABC):
    """Whose pods may be evicted for a pod, or for those of a gang.

    Args:
        quotas: the quota that they count for, then those above that.
        overrides_budgets: whether PodDisruptionBudgets give way where nothing else makes room.
    """

    quotas: tuple[QuotaKey, ...]
    overrides_budgets: bool = False

    obstacles: ClassVar[tuple[Obstacle, ...]]
    """The first that gives way to a plan is the reason why there is none."""

    tells_limit: ClassVar[bool]
    """Whether a single pod waits until fewer pods of a namespace are being evicted."""

    most_on_node: ClassVar[int | None] = None
    """Victims on one node."""

    tries_sets: ClassVar[bool]
    """Whether victims on several nodes are tried for rules that read other nodes, too."""

    victims_text: ClassVar[str]
    no_victims_text: ClassVar[str]

    def refusal(self, requests: Sequence[PlacementRequest], situation: Situation) -> NoPlan | None:
        """Return why no plan is made for pods now, None if one may be."""
        pod, guards, now = requests[0].pod, situation.guards, situation.now
        if is_paused(guards, pod.namespace, now):
            text = (
                "no pods are evicted for its namespace now: fewer than 80 % of the last reclaims"
                " for it ended in a binding"
            )
            return NoPlan(reason=NoPlanReason.PAUSED, message=text)
        if is_backed_off(guards, pod.uid, now):
            text = "two plans for this pod have failed"
            return NoPlan(reason=NoPlanReason.BACKED_OFF, message=text)
        return None

    def quota_refusal(
        self, requests: Sequence[PlacementRequest], accounts: Accounts, *, is_gang: bool
    ) -> NoPlan | None:
        """Return why the quotas, without the pods that leave, allow no plan."""
        del requests, accounts, is_gang
        return None

    def needs(
        self,
        requests: Sequence[PlacementRequest],
        leaving: Sequence[Candidate],
        situation: Situation,
    ) -> Amounts:
        """Return what must be freed for pods in the cohort, each above 0."""
        del requests, leaving, situation
        return {}

    @abstractmethod
    def is_possible(self, candidate: Candidate, priority: int) -> bool:
        """Return whether a pod may be a victim, even if something protects it.

        Args:
            candidate: a running pod.
            priority: the least of the pods that need room.
        """

    @abstractmethod
    def pushed(
        self, quotas: tuple[QuotaKey, ...], requests: Amounts, preemptor: Preemptor
    ) -> tuple[QuotaKey, ...] | None:
        """Return the quotas that the eviction of a pod takes from; None if they do not allow it.

        Args:
            quotas: of the pod.
            requests: of the pod.
            preemptor: that needs room.
        """

    @abstractmethod
    def is_exempt(self, victim: PossibleVictim, preemptor: Preemptor) -> bool:
        """Return whether a pod is spared for the sake of its PriorityClass."""

    @abstractmethod
    def in_order(
        self, victims: Sequence[PossibleVictim], accounts: Accounts
    ) -> Iterable[PossibleVictim]:
        """Return pods on one node, the first to be evicted first."""

    @abstractmethod
    def plan(self, preemptor: Preemptor, row: int, victims: Sequence[PossibleVictim]) -> Plan:
        """Return the plan to evict some pods for one that gets the node of a row."""


class Reclaim(Strategy):
    """Takes back what other quotas borrow, for pods within the `min` of their quota."""

    tells_limit = True
    tries_sets = False
    victims_text = "pods of what other quotas borrow"
    no_victims_text = "nothing that other quotas borrow makes room for it"
    obstacles = (
        Obstacle(
            NoPlanReason.BLOCKED_BY_PDB,
            "PodDisruptionBudgets allow no eviction of the pods that borrow now",
            Protections(budgets=False),
        ),
        Obstacle(
            NoPlanReason.GUARDED,
            "the pods that borrow came back after their owners were hit, their class tolerates it,"
            " as many of their Deployments or StatefulSets are not ready as may be, or as many of"
            " their namespaces are being evicted as may be at a time",
            NONE_HOLDS,
        ),
    )

    def quota_refusal(
        self, requests: Sequence[PlacementRequest], accounts: Accounts, *, is_gang: bool
    ) -> NoPlan | None:
        """Return why pods are not within the `min` of their quota, None if they are."""
        if not self.quotas or self.quotas[0] not in accounts or (is_gang and len(self.quotas) > 1):
            text = "no quota guarantees room to all of its members together"
            text = text if is_gang else "no quota guarantees it any room"
            return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)
        own = self.quotas[0]
        total = _sum(request.pod.shape for request in requests)
        if is_within_min(total, accounts.used(own), accounts.guaranteed(own)):
            return None
        text = f"{_quota_text(own)} would use more than its min"
        text = "its quota would use more than its min with all of it" if is_gang else text
        return NoPlan(reason=NoPlanReason.NOT_WITHIN_MIN, message=text)

    def needs(
        self,
        requests: Sequence[PlacementRequest],
        leaving: Sequence[Candidate],
        situation: Situation,
    ) -> Amounts:
        """Return what the cohort lacks for pods once those that are leaving are gone."""
        total = _sum(request.pod.shape for request in requests)
        freed = _sum(each.entry.shape for each in leaving if each.quotas)
        lacking = {
            name: total[name] - amount - freed.get(name, 0)
            for name, amount in situation.cohort_room.items()
            if total.get(name, 0) > 0
        }
        return {name: amount for name, amount in lacking.items() if amount > 0}

    def is_possible(self, candidate: Candidate, priority: int) -> bool:
        """Return whether a pod is of another quota."""
        del priority
        return bool(candidate.quotas) and candidate.quotas[0] not in self.quotas

    def pushed(
        self, quotas: tuple[QuotaKey, ...], requests: Amounts, preemptor: Preemptor
    ) -> tuple[QuotaKey, ...] | None:
        """Return the quotas that a pod takes from; None if it does not borrow.

        They must all borrow of something that the preemptor is guaranteed. Those that this counts
        for, too, get back what they lose.
        """
        accounts = preemptor.accounts
        pushed = tuple([quota for quota in quotas if quota not in self.quotas])
        borrows = all(quota in accounts for quota in pushed) and any(
            requests.get(name, 0) > 0 and all(accounts.borrows(quota, name) for quota in pushed)
            for name in self._guaranteed(preemptor)
        )
        return pushed if borrows else None

    def is_exempt(self, victim: PossibleVictim, preemptor: Preemptor) -> bool:
        """Return whether a pod tolerates the priority of the preemptor."""
        situation, priority = preemptor.situation, preemptor.pod.priority
        return is_tolerating(victim.pod, situation.classes, priority, situation.now)

    def in_order(
        self, victims: Sequence[PossibleVictim], accounts: Accounts
    ) -> Iterable[PossibleVictim]:
        """Return pods by the shares of their quotas, the highest first."""
        return accounts.in_order(victims)

    def plan(self, preemptor: Preemptor, row: int, victims: Sequence[PossibleVictim]) -> Plan:
        """Return the plan, with who takes what back from whom."""
        names, accounts = sorted(self._guaranteed(preemptor)), preemptor.accounts

        def above_min(quota: QuotaKey, name: str) -> int:
            return accounts.used(quota).get(name, 0) - accounts.guaranteed(quota).get(name, 0)

        borrowed = "; ".join(
            f"{_quota_text(quota)} borrows "
            + ", ".join(
                f"{name} {amount_text(name, above)}"
                for name in names
                if (above := above_min(quota, name)) > 0
            )
            for quota in dict.fromkeys(victim.quota for victim in victims)
        )
        what = ", ".join(f"{name} {amount_text(name, preemptor.requests[name])}" for name in names)
        own, view = _quota_text(self.quotas[0]), preemptor.situation.view
        return Plan(
            node_names=(view.names[row],),
            victims=victims_of(victims, view.names),
            message=f"{preemptor.pod.key} needs {what} within the min of {own}; {borrowed}",
        )

    def _guaranteed(self, preemptor: Preemptor) -> list[str]:
        """Return the resources that the preemptor requests and that its quota guarantees."""
        guaranteed = preemptor.accounts.guaranteed(self.quotas[0])
        return [
            name for name, amount in preemptor.requests.items() if amount > 0 and name in guaranteed
        ]


class Preemption(Strategy):
    """Takes the room of pods of lower priority, as far as their quotas do not need them."""

    tells_limit = False
    tries_sets = True
    most_on_node = MOST_VICTIMS
    victims_text = "pods of lower priority"
    no_victims_text = "no pods of lower priority make room for it"
    obstacles = (
        Obstacle(
            NoPlanReason.BLOCKED_BY_PDB,
            "PodDisruptionBudgets allow no eviction of the pods of lower priority now",
            Protections(budgets=False),
        ),
        Obstacle(
            NoPlanReason.TOLERATED,
            "the PriorityClasses of the pods of lower priority tolerate preemption",
            Protections(budgets=False, tolerations=False),
        ),
        Obstacle(
            NoPlanReason.GUARDED,
            "the pods of lower priority came back after their owners were hit, as many of their"
            " Deployments or StatefulSets are not ready as may be, or as many pods of their"
            " namespaces are being evicted as may be at a time",
            NONE_HOLDS,
        ),
    )

    def refusal(self, requests: Sequence[PlacementRequest], situation: Situation) -> NoPlan | None:
        """Return why no plan is made for pods now, None if one may be."""
        for request in requests:
            if not is_preempting(request.pod, situation.classes):
                text = f"its PriorityClass `{request.pod.priority_class_name}` never preempts"
                return NoPlan(reason=NoPlanReason.NEVER_PREEMPTS, message=text)
        return super().refusal(requests, situation)

    def is_possible(self, candidate: Candidate, priority: int) -> bool:
        """Return whether a pod has a lower priority."""
        return candidate.pod.priority < priority

    def pushed(
        self, quotas: tuple[QuotaKey, ...], requests: Amounts, preemptor: Preemptor
    ) -> tuple[QuotaKey, ...] | None:
        """Return the quotas that a pod takes from; None if one has less than its `min` then.

        Otherwise its quota would take back at once what was taken from it.
        """
        accounts = preemptor.accounts
        pushed = tuple(
            [quota for quota in quotas if quota not in self.quotas and quota in accounts]
        )
        is_spare = all(
            amount <= accounts.used(quota).get(name, 0) - least.get(name, 0)
            for quota in pushed
            for least in [accounts.guaranteed(quota)]
            for name, amount in requests.items()
            if amount > 0 and name in least
        )
        return pushed if is_spare else None

    def is_exempt(self, victim: PossibleVictim, preemptor: Preemptor) -> bool:
        """Return whether a pod is exempt from preemption, or not yet subject to it."""
        situation = preemptor.situation
        return is_exempt(victim.pod, preemptor.pod, situation.classes, situation.now)

    def in_order(
        self, victims: Sequence[PossibleVictim], accounts: Accounts
    ) -> Iterable[PossibleVictim]:
        """Return pods in the reverse of the order of release: low priorities first, then new."""
        del accounts
        return sorted(victims, key=importance)

    def plan(self, preemptor: Preemptor, row: int, victims: Sequence[PossibleVictim]) -> Plan:
        """Return the plan, with the priorities on both sides."""
        view, pod = preemptor.situation.view, preemptor.pod
        most = max(each.pod.priority for each in victims)
        return Plan(
            node_names=(view.names[row],),
            victims=victims_of(sorted(victims, key=importance), view.names),
            message=(
                f"{pod.key} has priority {pod.priority} and needs room on node {view.names[row]}; "
                f"priority of the victims: {most}" + (" at most" if len(victims) > 1 else "")
            ),
        )


def _sum(shapes: Iterable[PodShape]) -> Amounts:
    total = Counter[str]()
    for shape in shapes:
        total.update(quota_requests(shape))
    return dict(total)


def _quota_text(quota: QuotaKey) -> str:
    namespace, _, name = quota
    return f"{namespace}/{name}"
