"""The report on a pod: where it is, what was decided for it, and what would be decided now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.binding import BINDING_REASON_ANNOTATION, SCHEDULER_NODE_ANNOTATION, BindingAction
from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.pipeline import Scope
from engine.placement import REASON_ANNOTATION, as_submitted
from engine.policy import PolicySet
from engine.release import creation_of
from engine.report import BindingReport, DecisionReport, PodName, PodReport, decision_report
from engine.view import NO_ROW, ClusterView, WhatIf
from webhook.cluster import Cluster
from webhook.placement.advice_limits import MOST_BYTES, beyond_limits
from webhook.placement.explanations import Explanations
from webhook.placement.placer import Placer

_NODES_EXPLAINED: Final = 20
_INPUTS_EXPLAINED: Final = 3
_MOST_RECORDED: Final = 20  # whose keys contain that of the pod
_decode: Final = msgspec.json.Decoder(api.Pod).decode
_decode_report: Final = msgspec.json.Decoder(DecisionReport).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDecisions:
    """Decides for pods of a cluster again, without a trace.

    Attributes:
        cluster: the cluster.
        policies: those in force.
        scope: the pods that they place.
        explanations: of the latest decisions.
        clock: monotonic seconds that limit the evaluation of expressions.
    """

    cluster: Cluster
    policies: Callable[[], PolicySet]
    scope: Scope
    explanations: Explanations
    clock: Callable[[], float]

    def report(self, raw: bytes, node: str = "") -> PodReport:
        """Return the report on a pod.

        Args:
            raw: the pod, as it is stored.
            node: to be told of in any case; "" for none.

        Raises:
            ValueError: it is not a pod.
        """
        pod = pod_of(_decode(raw))
        problem, recorded = self._problem(raw), self._recorded(pod)
        return PodReport(
            pod=PodName(pod.namespace, pod.name),
            node=pod.node_name,
            expected_node=self.cluster.state.assumed_node(pod.key),
            is_held=pod.is_held,
            binding=(recorded and recorded.binding) or _noted_binding(pod),
            noted=pod.annotations.get(REASON_ANNOTATION, ""),
            recorded=recorded,
            now=None if problem else self._decided_now(raw, node),
            problem=problem,
        )

    def _problem(self, raw: bytes) -> str:
        if len(raw) > MOST_BYTES:
            return f"it is larger than {MOST_BYTES // 1024} KiB"
        too_much = beyond_limits(_decode(raw))
        return f"it has {too_much}" if too_much else ""

    def _recorded(self, pod: Pod) -> DecisionReport | None:
        """Return the newest decision for a pod that was created by this name."""
        for text in self.explanations.latest(pod=pod.key, limit=_MOST_RECORDED):
            report = _decode_report(text)
            if str(report.pod) == pod.key:
                return report
        return None

    def _decided_now(self, raw: bytes, node: str) -> DecisionReport:
        """Return the decision for a pod as if it was created now, and counted nowhere yet."""
        submitted = as_submitted(raw)
        pod = pod_of(_decode(submitted), kubernetes=self.cluster.state.kubernetes)
        request = PlacementRequest(pod=pod, raw=submitted, request=creation_of(pod))
        view = self._without(pod.key)
        placer = Placer(
            view=lambda: view,
            now=self.cluster.now,
            scope=self.scope,
            clock=self.clock,
            freshness=self.cluster.freshness,
        )
        decision, _ = placer.decide(request, self.policies())
        return decision_report(
            decision, most_nodes=_NODES_EXPLAINED, most_inputs=_INPUTS_EXPLAINED, node=node
        )

    def _without(self, key: str) -> ClusterView:
        """Return the cluster without a pod: it competes with others, not with itself."""
        view, entry = self.cluster.view(), self.cluster.state.entry(key)
        if entry is None or entry.row == NO_ROW:
            return view
        what_if = WhatIf(view)
        what_if.remove([(key, entry)])
        return what_if.view


def _noted_binding(pod: Pod) -> BindingReport | None:
    """Return what became of a pod at its binding, as it is noted on the pod by whoever decided."""
    scheduler_node = pod.annotations.get(SCHEDULER_NODE_ANNOTATION, "")
    if not (scheduler_node and pod.node_name):
        return None
    is_moved = pod.node_name != scheduler_node
    return BindingReport(
        action=str(BindingAction.MOVE if is_moved else BindingAction.KEEP),
        reason=pod.annotations.get(BINDING_REASON_ANNOTATION, ""),
        scheduler_node=scheduler_node,
        node=pod.node_name,
        message=pod.annotations.get(REASON_ANNOTATION, ""),
    )
