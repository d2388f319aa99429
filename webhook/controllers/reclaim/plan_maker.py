"""Plans on a cluster that goes on changing while they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from engine.model.elastic_quota import QuotaKey
from engine.model.koordinator_quota import NAME_LABEL
from engine.reclaim import (
    Candidate,
    NoPlan,
    NoPlanReason,
    Plan,
    RunningPod,
    Situation,
    Steps,
    completed,
    parts_of,
)
from engine.view import ClusterState
from webhook.controllers.reclaim.guards import Guards
from webhook.controllers.reclaim.plan_parts import PlanParts, QuotasOfMoment, uncounted
from webhook.placement.held_pods import HeldPod

Quotas: TypeAlias = tuple[QuotaKey, ...]
Planner: TypeAlias = Callable[[Quotas, Situation], Steps[Plan | NoPlan]]
"""Makes a plan for some pods, by the quotas that they count for."""

Matters: TypeAlias = Callable[[RunningPod, Quotas], bool]
"""Whether a planner must know of a running pod of some quotas."""

_MOST_TRIES: Final = 3
_FORGOTTEN_AT_ONCE: Final = 2000


class PlanMaker:
    """Makes plans for one pod after the other, or for those of one gang after the other.

    A plan is made in slices, on what was seen when it was begun. What has changed since may matter
    to it: so it is made once more in the end, at once and on what is seen then, with its victims
    for the only ones that may be evicted. Where that fails it is begun anew.

    Args:
        parts: what plans are made from.
    """

    def __init__(self, parts: PlanParts) -> None:
        self._parts = parts

    async def plan(
        self, pods: Sequence[HeldPod], planner: Planner, guards: Guards, matters: Matters
    ) -> Plan | NoPlan:
        """Return which pods are to be evicted for held pods, wherever they are nominated to.

        A plan is right for the moment at which it is returned.

        Args:
            pods: those that get room together; within the limits of a decision, so that their
                objects are known.
            planner: makes a plan for them.
            guards: what evictions there were so far.
            matters: which running pods the planner gets.
        """
        slices = self._parts.slices
        async with slices.turn:
            for _ in range(_MOST_TRIES):
                candidates = self._candidates(pods, matters)
                await slices.complete(candidates.add(list(self._parts.running)))
                pauses = slices.pauses
                plan = await slices.complete(
                    self._steps(pods, planner, guards, candidates, self._parts.running)
                )
                await slices.complete(candidates.forget())
                if isinstance(plan, NoPlan) or slices.pauses == pauses:
                    return plan
                again = completed(
                    self._steps(pods, planner, guards, candidates, self._concerned(pods, plan))
                )
                if isinstance(again, Plan) or again.reason is NoPlanReason.NOT_NEEDED:
                    return again
        text = "the cluster changes faster than plans are made"
        return NoPlan(reason=NoPlanReason.STALE, message=text)

    def _candidates(self, pods: Sequence[HeldPod], matters: Matters) -> _Candidates:
        return _Candidates(self._parts.state, self._quotas(pods).quotas_of, matters)

    def _quotas(self, pods: Sequence[HeldPod]) -> QuotasOfMoment:
        with uncounted(self._parts.state, pods):
            return self._parts.standing(pods)

    def _steps(
        self,
        pods: Sequence[HeldPod],
        planner: Planner,
        guards: Guards,
        candidates: _Candidates,
        running: Iterable[RunningPod],
    ) -> Steps[Plan | NoPlan]:
        """Return the steps of a plan for the cluster as it is now."""
        with uncounted(self._parts.state, pods):
            quotas = self._parts.standing(pods)
            situation = self._parts.situation(
                pods, guards.state, quotas.standing, candidates.of(running)
            )
        own = dict.fromkeys(
            quota
            for held in pods
            for quota in quotas.quotas_of(held.pod.namespace, held.pod.labels)
        )
        return planner(tuple(own), situation)

    def _concerned(self, pods: Sequence[HeldPod], plan: Plan) -> list[RunningPod]:
        """Return the victims of a plan that still run, their gangs, and the pods that leave."""
        running = self._parts.running
        keys = [
            victim.key
            for victim in (*plan.victims, *self._parts.planned.victims_of_others(pods[0].pod.uid))
        ]
        named = [pod for key in keys if (pod := running.get(key)) is not None]
        gangs = {pod.gang for pod in named if pod.gang is not None}
        members = [pod for pod in running if pod.gang in gangs] if gangs else []
        concerned = (*named, *members, *running.deleting)
        return list({pod.key: pod for pod in concerned}.values())


class _Candidates:
    """Running pods as planners see them; each is looked at once as long as it is the same.

    Args:
        state: the cluster.
        quotas_of: the quotas that a pod counts for, see `QuotasOfMoment`.
        matters: which pods planners get.
    """

    def __init__(
        self,
        state: ClusterState,
        quotas_of: Callable[..., Quotas],
        matters: Matters,
    ) -> None:
        self._state = state
        self._quotas_of = quotas_of
        self._matters = matters
        self._quotas: dict[tuple[str, str | None], Quotas] = {}
        # By id of the pod, which its entry keeps alive: there is another one after each event.
        self._known: dict[int, tuple[RunningPod, Candidate | None]] = {}

    def add(self, running: Sequence[RunningPod]) -> Steps[None]:
        """Look at pods."""
        for part in parts_of(running):
            self._known |= {id(pod): (pod, self._candidate(pod)) for pod in part}
            yield

    def forget(self) -> Steps[None]:
        """Forget all pods."""
        while self._known:
            for _ in range(min(len(self._known), _FORGOTTEN_AT_ONCE)):
                self._known.popitem()
            yield

    def of(self, running: Iterable[RunningPod]) -> list[Candidate]:
        """Return those of some pods that matter, as they are now."""
        known = self._known
        found = (
            entry[1] if (entry := known.get(id(pod))) is not None else self._candidate(pod)
            for pod in running
        )
        return [candidate for candidate in found if candidate is not None]

    def _candidate(self, pod: RunningPod) -> Candidate | None:
        kind = pod.namespace, pod.labels.get(NAME_LABEL)  # many pods, of few quotas
        quotas = self._quotas.get(kind)
        if quotas is None:
            quotas = self._quotas[kind] = self._quotas_of(pod.namespace, pod.labels)
        if not self._matters(pod, quotas):
            return None
        entry = self._state.entry(pod.key)
        if entry is None or entry.is_overdue:
            return None
        return Candidate(pod=pod, entry=entry, quotas=quotas)
