"""Quotas as a source of plans: pods within `min` take back what other quotas borrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey, ReclaimMode
from engine.model.pod import Pod
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
    plan_reclaim,
)
from engine.view import ClusterState, Freshness
from webhook.controllers.reclaim.claims import Claims
from webhook.controllers.reclaim.plan_source import EventReasons
from webhook.controllers.reclaim.running_pods import RunningPods
from webhook.controllers.release.reclaims import BlockedPod
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
class QuotaSourceParts:
    """What plans are made from.

    Attributes:
        state: the cluster.
        running: the pods that may be evicted.
        claims: the victims of plans under way.
        blocked: the pods within `min` that wait for room, in queue order.
        quota_mode: the mode of a pod's quota.
        standing: the quotas, as they would be without a held pod.
        policies: those in force.
        freshness: ages of the sources of the view.
        scope: the pods that policies place.
        now: the time of day.
    """

    state: ClusterState
    running: RunningPods
    claims: Claims
    blocked: Callable[[], Sequence[BlockedPod]]
    quota_mode: Callable[[Pod], ReclaimMode]
    standing: Callable[[HeldPod], QuotaStanding]
    policies: Callable[[], PolicySet]
    freshness: Callable[[], Freshness]
    scope: Scope
    now: Callable[[], Micros]


class QuotaSource:
    """Plans for pods within the `min` of their quotas.

    Args:
        parts: what plans are made from.
        after: time for which a pod waits before others are evicted for it.
    """

    name: Final = "quota"
    event_reasons: Final = EventReasons("WouldReclaim", "Reclaiming", "Reclaimed")

    def __init__(self, parts: QuotaSourceParts, after: Micros) -> None:
        self._parts = parts
        self.after: Final = after

    def blocked(self) -> Sequence[BlockedPod]:
        """Return the pods within `min` that wait for room in the cohort or for a node, in order."""
        return self._parts.blocked()

    def mode_of(self, pod: Pod) -> ReclaimMode:
        """Return the mode of the quota of a pod."""
        return self._parts.quota_mode(pod)

    async def plan(self, held: HeldPod, guards: GuardState) -> Plan | NoPlan:
        """Return which pods are to be evicted for a held pod, wherever that is nominated to.

        Args:
            held: within the limits of a decision, so that its object is known.
            guards: what evictions there were so far.
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
            leaving=parts.claims.of_others(pod.uid),
            now=parts.now(),
        )
        quotas = standing.quotas_of(pod.namespace, pod.labels)
        return plan_reclaim(held.placement_request, quotas, situation)

    def _candidate(self, running: RunningPod, standing: QuotaStanding) -> Candidate | None:
        quotas = standing.quotas_of(running.namespace, running.labels)
        entry = self._parts.state.entry(running.key) if quotas else None
        return None if entry is None else Candidate(pod=running, entry=entry, quotas=quotas)
