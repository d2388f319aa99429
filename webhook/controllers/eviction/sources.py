"""Sources of plans: for whom others may be evicted, and whom.

The steps of an eviction, and the guards, are the same for all: `PlanExecution` carries out plans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Protocol

from engine import eviction
from engine.batch import StartingGang
from engine.eviction import (
    NeedyGang,
    NoPlan,
    NoPlanReason,
    Plan,
    RunningPod,
    Situation,
    Steps,
    Strategy,
    plan_for_gang,
    plan_for_pod,
    quota_standing,
)
from engine.gang import GangKey
from engine.model.elastic_quota import EvictionMode, QuotaKey
from engine.model.hold import QueuedReason
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.time import Micros
from engine.pipeline import policies_for
from engine.release import HeldPod
from engine.view import ClusterState
from webhook.controllers.eviction.context import EvictionContext, QuotasOfMoment
from webhook.controllers.eviction.plans import Matters, PlanMaker, Quotas
from webhook.controllers.eviction.writer import EventReasons
from webhook.controllers.release import GangPart, QuotaQueue

_MODES: Final = (EvictionMode.OFF, EvictionMode.DRY_RUN, EvictionMode.ON)


class WaitingGangs(Protocol):
    def blocked(self) -> Sequence[HeldPod]:
        """Return the first members of gangs that have no room as a whole, in queue order."""

    def waits(self, held: HeldPod) -> bool:
        """Return whether a pod is to be released with its gang, or never."""

    def parts_of(self, held: HeldPod) -> Sequence[GangPart]:
        """Return the gangs that start together with a member; none if they are not complete."""

    def running(self, gang: GangKey) -> Sequence[tuple[str, PodShape]]:
        """Return the nodes and shapes of the members of a gang that run."""


class PlanSource(ABC):
    """Who gets room by evictions, and by whose.

    Where a pod waits in several sources the first that has a plan evicts for it, those in mode On
    before those in mode DryRun.
    """

    name: ClassVar[str]
    """The value of the label `source` in metrics."""

    strategy: ClassVar[type[Strategy]]
    event_reasons: ClassVar[EventReasons]

    queued_reason: ClassVar[QueuedReason]
    """The reason of the condition of a pod while its victims end."""

    eviction_delay: Micros
    """Time for which a pod waits before others are evicted for it."""

    def __init__(self, context: EvictionContext, gangs: WaitingGangs) -> None:
        self._context = context
        self._gangs = gangs
        self._maker = PlanMaker(context)

    @abstractmethod
    def blocked(self) -> Sequence[HeldPod]:
        """Return the held pods that may get room by evictions, in queue order."""

    @abstractmethod
    def mode_of(self, held: HeldPod) -> EvictionMode:
        """Return what is to be done for a pod; nobody is evicted for one that is not On."""

    @abstractmethod
    def matters(self, pods: Sequence[HeldPod]) -> Matters:
        """Return which running pods a plan for held pods must know of."""

    def overrides_budgets(self, held: HeldPod) -> bool:
        """Return whether PodDisruptionBudgets give way where nothing else makes room for a pod."""
        del held
        return False

    def together(self, held: HeldPod) -> Sequence[HeldPod]:
        """Return the held pods that get room with one, itself among them, in a fixed order.

        None where it gets none now. The first of them stands for all where one must.
        """
        if not self._gangs.waits(held):
            return [held]
        return [each for part in self._gangs.parts_of(held) for each in part.members if each.raw]

    async def plan(self, pods: Sequence[HeldPod]) -> Plan | NoPlan:
        """Return which pods are to be evicted for held pods, wherever they are nominated to.

        Events come in between; a plan is right for the moment at which it is returned.
        """
        # As they were when the plan was begun: nominations of ours change nothing.
        gangs = self._needy_gangs(pods) if self._gangs.waits(pods[0]) else None

        overrides_budgets = self.overrides_budgets(pods[0])

        def plan(quotas: Quotas, situation: Situation) -> Steps[Plan | NoPlan]:
            strategy = self.strategy(quotas, overrides_budgets)
            if gangs is None:
                return plan_for_pod(pods[0].placement_request, strategy, situation)
            return plan_for_gang(gangs, strategy, situation) if gangs else _changed()

        return await self._maker.plan(pods, plan, self.matters(pods))

    def _needy_gangs(self, pods: Sequence[HeldPod]) -> list[NeedyGang]:
        """Return the gangs of members that get room together; none if they are others by now."""
        needy, known = list[NeedyGang](), {held.pod.uid: held for held in pods}
        parts = self._gangs.parts_of(pods[0])
        if {each.pod.uid for part in parts for each in part.members if each.raw} != known.keys():
            return []
        for part in parts:
            members = [known[each.pod.uid] for each in part.members if each.raw]
            if members:
                starting = StartingGang(
                    requests=[held.placement_request for held in members],
                    topology=part.gang.topology,
                    beside=part.beside,
                )
                running = self._gangs.running(part.gang.key)
                needy.append(NeedyGang(gang=part.gang, members=starting, running=running))
        return needy


class WaitingForQuota(Protocol):
    """The pods that wait for quota."""

    def blocked(self) -> Sequence[HeldPod]:
        """Return those within `min` that wait for room, in queue order."""

    def mode_of(self, pod: Pod) -> EvictionMode:
        """Return the mode of a pod's quota."""

    def reclaims_hard(self, pod: Pod) -> bool:
        """Return whether budgets give way to a pod, as its quota asks for, and may ask for."""


class QuotaSource(PlanSource):
    """Plans for pods within the `min` of their quotas, which take back what others borrow."""

    name = "quota"
    strategy = eviction.Reclaim
    event_reasons = EventReasons("WouldReclaim", "Reclaiming", "Reclaimed")
    queued_reason = QueuedReason.WAITING_FOR_RECLAIM

    def __init__(
        self,
        context: EvictionContext,
        waiting: WaitingForQuota,
        gangs: WaitingGangs,
        eviction_delay: Micros,
    ) -> None:
        super().__init__(context, gangs)
        self._waiting = waiting
        self.eviction_delay = eviction_delay

    def blocked(self) -> Sequence[HeldPod]:
        """Return the pods within `min` that wait for room in the cohort or for a node, in order."""
        return self._waiting.blocked()

    def mode_of(self, held: HeldPod) -> EvictionMode:
        return self._waiting.mode_of(held.pod)

    def overrides_budgets(self, held: HeldPod) -> bool:
        return self._waiting.reclaims_hard(held.pod)

    def matters(self, pods: Sequence[HeldPod]) -> Matters:
        del pods
        return lambda running, quotas: bool(quotas) or running.gang is not None


class PreemptionSource(PlanSource):
    """Plans for held pods and gangs whose policies evict pods of lower priority for them."""

    name = "preemption"
    strategy = eviction.Preemption
    event_reasons = EventReasons("WouldPreempt", "Preempting", "Preempted")
    queued_reason = QueuedReason.WAITING_FOR_PREEMPTION
    eviction_delay = Micros(0)

    def blocked(self) -> Sequence[HeldPod]:
        """Return the pods that no node takes, and the first members of gangs without room."""
        return [*self._context.pods.without_node(), *self._gangs.blocked()]

    def mode_of(self, held: HeldPod) -> EvictionMode:
        """Return what the policy says that decides the placement of a pod.

        Of a gang the least of what those of its members say.
        """
        modes = (self._mode_of(each) for each in self.together(held) or [held])
        return min(modes, key=_MODES.index)

    def _mode_of(self, held: HeldPod) -> EvictionMode:
        context = self._context
        policies = policies_for(
            held.placement_request, context.policies(), context.now(), scope=context.scope
        )
        return policies[0].placement.preemption if policies else EvictionMode.OFF

    def matters(self, pods: Sequence[HeldPod]) -> Matters:
        """Return the pods of lower priority, those on their way out, and those of gangs."""
        priority = max(held.pod.priority for held in pods)
        leaving = self._context.planned.of_others(pods[0].pod.uid)

        def matters(running: RunningPod, _quotas: Quotas) -> bool:
            return (
                running.priority < priority
                or running.deleting
                or running.gang is not None
                or running.uid in leaving
            )

        return matters


def _changed() -> Steps[Plan | NoPlan]:
    """Return that there is no plan for a gang that is another by now."""
    yield from ()
    return NoPlan(reason=NoPlanReason.STALE, message="members of the gang came or went")


def quotas_without(
    queue: QuotaQueue, state: ClusterState, pods: Sequence[HeldPod]
) -> QuotasOfMoment:
    """Return the quotas as they would be without pods that are held, or were until now."""
    counted: dict[QuotaKey | None, Counter[str]] = {}
    for held in pods:
        own = queue.quota_of(held.pod.namespace, held.pod.labels)
        amounts = counted.setdefault(None if own is None else own.key, Counter())
        amounts.update(state.requests(held.key))

    def quotas_of(namespace: str, labels: Mapping[str, str]) -> tuple[QuotaKey, ...]:
        quota = queue.quota_of(namespace, labels)
        return () if quota is None else (quota.key,)

    return QuotasOfMoment(
        standing=quota_standing(
            queue.situation_without(pods), [held.pod.shape for held in pods], counted
        ),
        quotas_of=quotas_of,
    )
