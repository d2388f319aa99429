"""What evictions work with: the one record of the feature, and what it makes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from engine.eviction import (
    DEFAULT_IN_FLIGHT_PERCENT,
    Candidate,
    QuotaStanding,
    RunningPod,
    Situation,
    Steps,
)
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.model.pod_classes import PriorityClass
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.quota.tree import QuotaTree
from engine.release import HeldPod, HeldPodRegistry, WriteFailure
from engine.view import ClusterState, ClusterView, Freshness
from webhook.cluster.client.connection import Connection
from webhook.controllers.eviction.guards import Guards, PlannedVictims, RunningPods, WorkloadTurns
from webhook.controllers.eviction.writer import (
    EvictionEvents,
    EvictionMetrics,
    EvictionOutcome,
    EvictionWriter,
)
from webhook.controllers.release.nominations import Nominations
from webhook.controllers.release.pod_writer import PodWriter, WriteKind
from webhook.placement.held_pods import HeldPods

_T = TypeVar("_T")

_LOOK_SECONDS: Final = 0.1

_SLICE_SECONDS: Final = 0.005
"""After which reviews and events come in between; a step more may take some milliseconds."""


class CooperativeScheduler:
    """Runs work in slices, one piece of work after the other.

    Hold `lock` for as long as work takes. While `yields` stays the same nothing else has run.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.lock: Final[AbstractAsyncContextManager[object]] = asyncio.Lock()
        self.yields = 0

    async def complete(self, steps: Steps[_T]) -> _T:
        """Do work; return its result."""
        until = self._clock() + _SLICE_SECONDS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: _T = end.value
                return result
            if self._clock() >= until:
                self.yields += 1
                await asyncio.sleep(0)
                until = self._clock() + _SLICE_SECONDS


class QuotasOfMoment(NamedTuple):
    """The quotas of one moment."""

    standing: QuotaStanding  # what they guarantee, use and share
    # the quota that a pod counts for, then those above that; none where it is limited by none. Gets
    # its namespace and labels; of these a name of Koordinator's matters alone
    quotas_of: Callable[[str, Mapping[str, str]], tuple[QuotaKey, ...]]


@dataclass(kw_only=True)
class EvictionContext:
    """What evictions work with."""

    connection: Connection  # to the API server
    may_write: Callable[[], bool]  # whether this replica leads at this very moment
    identity: str  # of this process, written in each Event
    metrics: EvictionMetrics  # of evictions
    state: ClusterState  # the cluster
    held: HeldPods  # the pods that are held
    running: RunningPods  # the pods that are bound
    pods: HeldPodRegistry  # their records
    nominations: Nominations  # the nodes that they count on
    guards: Guards  # what evictions there were so far
    # the quotas, as they would be without some held pods
    standing: Callable[[Sequence[HeldPod]], QuotasOfMoment]
    tree: Callable[[ClusterView], QuotaTree]  # the quotas of Koordinator's tree in a view
    # whether the pods of a namespace are held to their quotas by waiting
    is_limited: Callable[[ClusterView, str], bool]
    policies: Callable[[], PolicySet]  # those in force
    freshness: Callable[[], Freshness]  # ages of the sources of the view
    scope: Scope  # the pods that policies place
    # of the running pods of a namespace, as many may be on their way out
    in_flight_percent: int = DEFAULT_IN_FLIGHT_PERCENT
    # called with each write of a held pod
    count_write: Callable[[WriteKind, WriteFailure | None], None] = lambda _kind, _failure: None
    now: Callable[[], Micros]  # the time of day
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward
    step_clock: Callable[[], float] = time.perf_counter  # the same, for steps of plans
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # waits for some seconds

    planned: PlannedVictims = field(init=False)
    turns: WorkloadTurns = field(init=False)
    writer: PodWriter = field(init=False)
    evictions: EvictionWriter = field(init=False)
    events: EvictionEvents = field(init=False)
    scheduler: CooperativeScheduler = field(init=False)

    def __post_init__(self) -> None:
        """Make what only evictions work with."""
        self.planned = PlannedVictims(self.running, self.in_flight_percent)
        self.turns = WorkloadTurns(self.connection, self.running, self.state.is_overdue, self.clock)
        self.writer = PodWriter(
            self.connection,
            may_write=self.may_write,
            clock=self.clock,
            count_write=self.count_write,
        )
        self.evictions = EvictionWriter(
            self.connection,
            may_write=self.may_write,
            clock=self.clock,
            count=self.metrics.evicted,
        )
        self.events = EvictionEvents(self.connection, identity=self.identity)
        self.scheduler = CooperativeScheduler(self.step_clock)

    async def until(
        self, is_so: Callable[[], bool], seconds: float, otherwise: EvictionOutcome
    ) -> None:
        """Wait until something is so.

        Raises:
            EndedError: it takes longer.
        """
        until = self.clock() + seconds
        while not is_so():
            if self.clock() >= until:
                raise EndedError(otherwise, f"not within {seconds:g} s")
            await self.sleep(_LOOK_SECONDS)

    def situation(
        self,
        pods: Sequence[HeldPod],
        standing: QuotaStanding,
        candidates: Sequence[Candidate],
    ) -> Situation:
        """Return what a plan for held pods, which count nowhere, is made from.

        Args:
            pods: those that get room together; the first stands for them.
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
            budgets=self.budgets(view, claimant),
            classes={each.name: each for each in view.all_of(PriorityClass)},
            guards=self.guards.state,
            leaving=self.planned.of_others(claimant),
            at_limit=self.planned.at_limit(claimant),
            exhausted=self.turns.exhausted(),
            now=self.now(),
        )

    def budgets(self, view: ClusterView, claimant: str = "") -> list[DisruptionBudget]:
        """Return all budgets, without what the plans of others are about to take from them."""
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


class EndedError(Exception):
    """A plan is not carried out any further."""

    def __init__(self, outcome: EvictionOutcome, message: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
