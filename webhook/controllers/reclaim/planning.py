"""What a plan is made from, gathered from the cluster at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.model.priority_class import PriorityClass
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.reclaim import (
    Candidate,
    GuardState,
    NoPlan,
    Plan,
    QuotaAccount,
    RunningPod,
    Situation,
    evictions_allowed,
    plan_reclaim,
)
from engine.view import ClusterState, Freshness
from webhook.controllers.reclaim.running_pods import RunningPods
from webhook.placement.held_pods import HeldPod


class QuotaStanding(NamedTuple):
    """The quotas of one moment.

    Attributes:
        accounts: of each quota.
        cohort_room: what all together may use more, see `Situation`.
        lendable: what all together may use.
        quotas_of: the quota that a pod counts for, then those above that; none where it is limited
            by none. Gets its namespace and labels.
    """

    accounts: Mapping[QuotaKey, QuotaAccount]
    cohort_room: Amounts
    lendable: Amounts
    quotas_of: Callable[[str, Mapping[str, str]], tuple[QuotaKey, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanParts:
    """What plans are made from.

    Attributes:
        state: the cluster.
        running: the pods that may be evicted.
        standing: the quotas, as they would be without a held pod.
        policies: those in force.
        freshness: ages of the sources of the view.
        scope: the pods that policies place.
        now: the time of day.
    """

    state: ClusterState
    running: RunningPods
    standing: Callable[[HeldPod], QuotaStanding]
    policies: Callable[[], PolicySet]
    freshness: Callable[[], Freshness]
    scope: Scope
    now: Callable[[], Micros]


class ReclaimPlanner:
    """Makes plans, each aware of those under way.

    Args:
        parts: what plans are made from.
    """

    def __init__(self, parts: PlanParts) -> None:
        self._parts = parts
        self._claimed: dict[str, frozenset[str]] = {}  # uids of victims by uid of the preemptor

    def may_evict(self, plan: Plan, guards: GuardState) -> bool:
        """Return whether guards allow as many evictions now, beside those of plans under way."""
        claimed = {uid for victims in self._claimed.values() for uid in victims}
        planned = claimed - guards.in_flight.keys()
        pods, now = len(self._parts.running), self._parts.now()
        return len(plan.victims) + len(planned) <= evictions_allowed(guards, pods, now)

    def claim(self, held: HeldPod, plan: Plan) -> None:
        """Count the victims of a plan as leaving in the plans for others."""
        self._claimed[held.pod.uid] = frozenset(victim.uid for victim in plan.victims)

    def claims(self, uid: str) -> bool:
        """Return whether a pod is a victim of a plan under way."""
        return any(uid in victims for victims in self._claimed.values())

    def disclaim(self, held: HeldPod) -> None:
        """Forget the plan for a pod."""
        self._claimed.pop(held.pod.uid, None)

    def plan(self, held: HeldPod, guards: GuardState) -> Plan | NoPlan:
        """Return which pods are to be evicted for a held pod, wherever that is nominated to.

        Args:
            held: within the limits of a decision, so that its object is known.
            guards: what reclaim has done so far.
        """
        state = self._parts.state
        counted = state.assumed_node(held.key)
        if counted:
            state.nominate(held.key, "")
        try:
            return self._plan(held, guards)
        finally:
            if counted:
                state.nominate(held.key, counted)

    def _plan(self, held: HeldPod, guards: GuardState) -> Plan | NoPlan:
        parts, pod = self._parts, held.pod
        standing = parts.standing(held)
        view = parts.state.view()
        situation = Situation(
            view=view,
            policies=parts.policies(),
            scope=parts.scope,
            freshness=parts.freshness(),
            candidates=[
                candidate
                for running in parts.running
                if (candidate := self._candidate(running, standing)) is not None
            ],
            accounts=standing.accounts,
            cohort_room=standing.cohort_room,
            lendable=standing.lendable,
            budgets=view.all_of(DisruptionBudget),
            classes={each.name: each for each in view.all_of(PriorityClass)},
            guards=guards,
            leaving={
                uid
                for preemptor, victims in self._claimed.items()
                if preemptor != pod.uid
                for uid in victims
            },
            now=parts.now(),
        )
        quotas = standing.quotas_of(pod.namespace, pod.labels)
        return plan_reclaim(held.placement_request, quotas, situation)

    def _candidate(self, running: RunningPod, standing: QuotaStanding) -> Candidate | None:
        quotas = standing.quotas_of(running.namespace, running.labels)
        entry = self._parts.state.entry(running.key) if quotas else None
        return None if entry is None else Candidate(pod=running, entry=entry, quotas=quotas)
