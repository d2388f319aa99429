"""Pods that were bound, and what judging each costs the leader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import structs

from engine.model.decision import Decision
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.outcome import BoundPod, Judge
from engine.pipeline import Scope, decide
from engine.policy import PolicySet
from engine.simulation import SchedulerModel
from engine.view import FRESH, ClusterState
from tests.bench.measuring import clock

_HOT_PERCENT = 80  # the default
_CALLS = 12


class Landings:
    """Pods that are bound to the best node one by one, and judged.

    Args:
        state: the cluster; it is left as it was.
        policies: those in force.
        arriving: the pods.
        now: the moment.
    """

    def __init__(
        self,
        state: ClusterState,
        policies: PolicySet,
        arriving: Iterator[PlacementRequest],
        now: Micros,
    ) -> None:
        self._state = state
        self._policies = policies
        self._arriving = arriving
        self._now = now
        self._judge = Judge(Scope(), SchedulerModel(1).place, hot_percent=_HOT_PERCENT)

    def judged(self) -> Sequence[float]:
        """Judge some pods: decide again without them, and ask the model of the scheduler."""
        placed = (
            (request, decision.names[decision.candidates[0]])
            for request in self._arriving
            if (decision := self._decision(request)).candidates.size
        )
        return [self._judged(*each) for each in islice(placed, _CALLS)]

    def _decision(self, request: PlacementRequest) -> Decision:
        return decide(request, self._policies, self._state.view(), self._now)

    def _judged(self, request: PlacementRequest, node_name: str) -> float:
        state, key, policies, now = self._state, request.pod.key, self._policies, self._now
        state.set_pod(structs.replace(request.pod, node_name=node_name), seen_at=now)
        entry = state.entry(key)
        if entry is None:
            raise AssertionError("it was just bound")
        bound = BoundPod(request=request, node_name=node_name, entries=[(key, entry)])
        view = state.view()
        start = clock()
        landings = self._judge.judge(bound, policies, view, now, FRESH)
        spent = clock() - start
        if not landings:
            raise AssertionError("a policy applies to it")
        del view
        state.delete_pod(key)
        return spent
