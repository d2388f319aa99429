"""What plans are made from, whatever their source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.model.priority_class import PriorityClass
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.reclaim import Candidate, GuardState, QuotaStanding, RunningPod, Situation
from engine.view import ClusterState, ClusterView, Freshness
from webhook.controllers.reclaim.planned_victims import PlannedVictims
from webhook.controllers.reclaim.running_pods import RunningPods
from webhook.controllers.reclaim.slices import Slices
from webhook.placement.held_pods import HeldPod


class QuotasOfMoment(NamedTuple):
    """The quotas of one moment.

    Attributes:
        standing: what they guarantee, use and share.
        quotas_of: the quota that a pod counts for, then those above that; none where it is limited
            by none. Gets its namespace and labels; of these a name of Koordinator's matters alone.
    """

    standing: QuotaStanding
    quotas_of: Callable[[str, Mapping[str, str]], tuple[QuotaKey, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanParts:
    """What plans are made from.

    Attributes:
        state: the cluster.
        running: the pods that may be evicted.
        planned: the victims of plans under way.
        standing: the quotas, as they would be without some held pods.
        policies: those in force.
        freshness: ages of the sources of the view.
        scope: the pods that policies place.
        now: the time of day.
        slices: plans are made in.
    """

    state: ClusterState
    running: RunningPods
    planned: PlannedVictims
    standing: Callable[[Sequence[HeldPod]], QuotasOfMoment]
    policies: Callable[[], PolicySet]
    freshness: Callable[[], Freshness]
    scope: Scope
    now: Callable[[], Micros]
    slices: Slices = field(default_factory=Slices)

    def situation(
        self,
        pods: Sequence[HeldPod],
        guards: GuardState,
        standing: QuotaStanding,
        candidates: Sequence[Candidate],
    ) -> Situation:
        """Return what a plan for held pods, which count nowhere, is made from.

        Args:
            pods: those that get room together; the first stands for them.
            guards: what evictions there were so far.
            standing: the quotas without them.
            candidates: the running pods that matter.
        """
        view, claimant = self.state.view(), pods[0].pod.uid
        return Situation(
            view=view,
            policies=self.policies(),
            scope=self.scope,
            freshness=self.freshness(),
            candidates=candidates,
            accounts=standing.accounts,
            cohort_room=standing.cohort_room,
            lendable=standing.lendable,
            budgets=self._budgets(view, claimant),
            classes={each.name: each for each in view.all_of(PriorityClass)},
            guards=guards,
            leaving=self.planned.of_others(claimant),
            at_limit=self.planned.at_limit(claimant),
            now=self.now(),
        )

    def _budgets(self, view: ClusterView, claimant: str) -> list[DisruptionBudget]:
        """Return all budgets, without what other plans are about to take from them."""
        claimed: dict[str, list[RunningPod]] = {}  # by namespace: budgets are many
        for victim in self.planned.victims_of_others(claimant):
            pod = self.running.get(victim.key)
            if pod is not None and not pod.deleting:
                claimed.setdefault(pod.namespace, []).append(pod)

        def left(budget: DisruptionBudget) -> DisruptionBudget:
            pods = claimed.get(budget.namespace, ())
            taken = sum(budget.selects(pod.namespace, pod.labels) for pod in pods)
            allowed = budget.disruptions_allowed - taken
            return replace(budget, disruptions_allowed=allowed) if taken else budget

        return [left(budget) for budget in view.all_of(DisruptionBudget)]


@contextmanager
def uncounted(state: ClusterState, pods: Sequence[HeldPod]) -> Iterator[None]:
    """Let held pods count on no node meanwhile, wherever they are nominated to."""
    nodes = {held.key: state.assumed_node(held.key) for held in pods}
    counted = {key: node_name for key, node_name in nodes.items() if node_name}
    for key in counted:
        state.nominate(key, "")
    try:
        yield
    finally:
        for key, node_name in counted.items():
            state.nominate(key, node_name)
