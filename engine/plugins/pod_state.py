"""PodState: prefer nodes that pods are leaving, and avoid those that are being freed for others.

Source: scheduler-plugins, pkg/podstate/pod_state.go. Pods that have finished no longer count.

No difference from upstream is known.
"""

from __future__ import annotations

import numpy as np

from engine.model.rule_outcomes import RuleInput, RuleInputs, Unit
from engine.plugins.base import Cycle, NoArgs, Plugin, Score, Scores, for_every_pod
from engine.plugins.lib.arithmetic import minmax_normalize
from engine.view import NO_TRANSITIONS, ClusterView, Domain, IntColumn

_PODS = (Domain.PODS,)


class PodStateScore(Score):
    """Scores nodes by pods that are being deleted less pods that are nominated to them."""

    def score(self, cycle: Cycle) -> Scores:
        """Return the difference of the two; a nomination of the pod itself counts too."""
        raw = cycle.view.node_column("pods that leave less pods to come", _PODS, _differences)
        row = cycle.view.rows.get(cycle.pod.nominated_node_name)
        if row is None:
            return Scores(raw)
        raw = raw.copy()
        raw[row] -= 1
        return Scores(raw)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores stretched over the scale, 0 if they are equal."""
        return minmax_normalize(scores)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        view = cycle.view
        turnover = view.transitions.get(view.names[row], NO_TRANSITIONS)
        coming = turnover.nominated + (cycle.pod.nominated_node_name == view.names[row])
        return (
            RuleInput("pods that leave", turnover.terminating, Unit.COUNT),
            RuleInput("pods to come", coming, Unit.COUNT),
        )


def _differences(rows: ClusterView) -> IntColumn:
    each = [rows.transitions.get(name, NO_TRANSITIONS) for name in rows.names]
    return np.array([node.terminating - node.nominated for node in each], np.int64)


PLUGIN = Plugin(
    args=NoArgs,
    score=lambda _: PodStateScore(),
    reads=_PODS,
    reads_other_nodes=for_every_pod,  # transitions are kept by name
)
