"""What plans are made from, whatever their source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.model.priority_class import PriorityClass
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.reclaim import Candidate, GuardState, QuotaAccount, Situation
from engine.view import ClusterState, Freshness
from webhook.controllers.reclaim.claims import Claims
from webhook.controllers.reclaim.running_pods import RunningPods
from webhook.controllers.reclaim.slices import Slices
from webhook.placement.held_pods import HeldPod


class QuotaStanding(NamedTuple):
    """The quotas of one moment.

    Attributes:
        accounts: of each quota.
        cohort_room: what all together may use more, see `Situation`.
        lendable: what all together may use.
        quotas_of: the quota that a pod counts for, then those above that; none where it is limited
            by none. Gets its namespace and labels; of these a name of Koordinator's matters alone.
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
        claims: the victims of plans under way.
        standing: the quotas, as they would be without a held pod.
        policies: those in force.
        freshness: ages of the sources of the view.
        scope: the pods that policies place.
        now: the time of day.
        slices: plans are made in.
    """

    state: ClusterState
    running: RunningPods
    claims: Claims
    standing: Callable[[HeldPod], QuotaStanding]
    policies: Callable[[], PolicySet]
    freshness: Callable[[], Freshness]
    scope: Scope
    now: Callable[[], Micros]
    slices: Slices = field(default_factory=Slices)

    def situation(
        self,
        held: HeldPod,
        guards: GuardState,
        standing: QuotaStanding,
        candidates: Sequence[Candidate],
    ) -> Situation:
        """Return what a plan for a held pod, which counts nowhere, is made from.

        Args:
            held: the pod.
            guards: what evictions there were so far.
            standing: the quotas without it.
            candidates: the running pods that matter.
        """
        view = self.state.view()
        return Situation(
            view=view,
            policies=self.policies(),
            scope=self.scope,
            freshness=self.freshness(),
            candidates=candidates,
            accounts=standing.accounts,
            cohort_room=standing.cohort_room,
            lendable=standing.lendable,
            budgets=view.all_of(DisruptionBudget),
            classes={each.name: each for each in view.all_of(PriorityClass)},
            guards=guards,
            leaving=self.claims.of_others(held.pod.uid),
            now=self.now(),
        )


@contextmanager
def uncounted(state: ClusterState, held: HeldPod) -> Iterator[None]:
    """Let a held pod count on no node meanwhile, wherever it is nominated to."""
    counted = state.assumed_node(held.key)
    if counted:
        state.nominate(held.key, "")
    try:
        yield
    finally:
        if counted:
            state.nominate(held.key, counted)
