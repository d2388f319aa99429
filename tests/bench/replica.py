"""The cluster and the policies as one replica of the webhook has them, without its server."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from engine.model.decision import Decision, PlacementRequest
from engine.model.pod import Pod
from engine.model.time import micros
from engine.pipeline import decide
from engine.policy import PolicySet
from engine.view import ClusterState, ClusterView
from tests.bench.arrivals import reports_between
from tests.bench.measuring import clock
from tests.bench.texts import NOW

_NOW = micros(NOW)


class Replica:
    """Decides, and follows events; all times are CPU time in nanoseconds.

    Attributes:
        state: the cluster.
    """

    def __init__(self, state: ClusterState, policies: PolicySet) -> None:
        self.state = state
        self._policies = policies
        usages = [usage for usage in state.view().usages if usage is not None]
        self._reports = reports_between(random.Random(1).sample(usages, len(usages)))

    def decide(self, request: PlacementRequest, view: ClusterView) -> Decision:
        """Decide by the policies."""
        return decide(request, self._policies, view, _NOW)

    def still(self, requests: Iterable[PlacementRequest]) -> list[int]:
        """Return what each decision takes while nothing changes."""
        view = self.state.view()
        spent = []
        for request in requests:
            start = clock()
            self.decide(request, view)
            spent.append(clock() - start)
        return spent

    def amid_events(self, requests: Iterable[PlacementRequest], ended: Iterable[Pod]) -> list[int]:
        """Return what each decision takes, with the view it needs, while the cluster changes.

        After each, its pod is created, and bound where it was advised, one of `ended` is gone, and
        some nodes report. The time of these events is not counted.
        """
        spent = []
        for request, gone in zip(requests, ended, strict=False):
            start = clock()
            view = self.state.view()
            decision = self.decide(request, view)
            spent.append(clock() - start)
            bound = bound_as_advised(request.pod, decision)
            del view, decision  # as an answer is sent before the next event is looked at
            self.state.set_pod(request.pod, seen_at=_NOW)
            self.state.set_pod(bound, seen_at=_NOW)
            self.state.delete_pod(gone.key)
            for usage in next(self._reports):
                self.state.set_usage(usage)
        return spent


def bound_as_advised(pod: Pod, decision: Decision) -> Pod:
    """Return the pod as it is when the scheduler follows the advice; pending without any."""
    if not decision.candidates.size:
        return pod
    best = decision.names[int(decision.candidates[0])]
    return msgspec.structs.replace(pod, node_name=best, scheduled_at=_NOW)
