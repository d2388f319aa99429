"""Peaks: prefer nodes whose power consumption rises the least with the pod.

Source: scheduler-plugins, pkg/trimaran/peaks. The power of a node is k0 + k1 * e^(k2 * x), x being
its cpu utilisation in percent; `engine.plugins.lib.trimaran` says which measurement that is.

The request is what the kubelet sees: overhead counts only on top of a request, and containers do
not count if the pod itself names resources.

Differences from upstream:

- **Unknown or full nodes**: a node that the pod would fill beyond 100 %, or without a measurement
  or power model, is the worst. Upstream it costs nothing, which makes it the best.
- **Models**: the args must have one. Upstream can also read it from a file.
- **`watcherAddress`** is accepted and not used: usage comes from the sources of the cluster view.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from engine.model.rule_outcomes import RuleInput, RuleInputs, Unit
from engine.plugins.base import MAX_SCORE, Args, Cycle, NodeName, Plugin, Score, Scores
from engine.plugins.lib.arithmetic import FloatColumn, inverse_minmax
from engine.plugins.lib.reporting import report_age
from engine.plugins.lib.trimaran import capacity, is_recent, measured_load
from engine.view import ClusterView, Domain, IntColumn

_UNIT = 1e15
"""Costs are whole numbers of this part of a watt, or whatever the model is in."""

_DEAREST = 2**61
_UNKNOWN = 2**63 - 1
"""The cost of a node that is the worst; more than any other."""

_Finite: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class PowerModel(Args):
    """The power of a node, k0 + k1 * e^(k2 * x) at a cpu utilisation of x percent."""

    k0: _Finite = 0
    k1: _Finite = 0
    k2: _Finite = 0


class PeaksArgs(Args):
    """PeaksArgs.

    Attributes:
        watcher_address: of a load-watcher service; accepted and not used, for usage comes from the
            sources of the cluster view.
        node_power_model: by the names of nodes, at least one.
    """

    watcher_address: str = ""
    node_power_model: Annotated[dict[NodeName, PowerModel], Field(min_length=1)]


class PeaksScore(Score):
    """Prefers nodes whose power rises the least."""

    def __init__(self, args: PeaksArgs) -> None:
        self._models = args.node_power_model

    def score(self, cycle: Cycle) -> Scores:
        """Return by how much the power of each node would rise: the less the better."""
        view = cycle.view
        used, whole = measured_load(view).average[0], capacity(view)[0]
        factor, rate, is_known = self._curves(view)
        expected = _percent(used + cycle.pod.shape.cpu_request, whole)
        with np.errstate(over="ignore", invalid="ignore"):
            rise = factor * (np.exp(rate * expected) - np.exp(rate * _percent(used, whole)))
            cost = np.clip(rise * _UNIT, -_DEAREST, _DEAREST)
        can_tell = (is_known != 0) & (expected <= MAX_SCORE) & ~np.isnan(cost)
        can_tell &= is_recent(view, cycle.now)
        return Scores(np.where(can_tell, np.where(can_tell, cost, 0).astype(np.int64), _UNKNOWN))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return MAX_SCORE for the least cost, 0 for the greatest; 0 for all that cost nothing."""
        is_known = scores != _UNKNOWN
        costs = scores[is_known]
        points = np.zeros(scores.size, np.int64)
        if scores.any():
            points[is_known] = inverse_minmax(costs)
        return points

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        view = cycle.view
        used, whole = measured_load(view).average[0, row], capacity(view)[0, row]
        model = self._models.get(view.names[row])
        power = f"{model.k0:g} + {model.k1:g} * e^({model.k2:g} * x)" if model else "unknown"
        return (
            RuleInput("cpu measured", round(used), Unit.MILLICORES, capacity=round(whole)),
            RuleInput("this pod", cycle.pod.shape.cpu_request, Unit.MILLICORES),
            RuleInput("power", text=power),
            report_age(view, row, cycle.now),
        )

    def _curves(self, view: ClusterView) -> FloatColumn:
        """Return k1, k2 and whether both model and usage are known, (3, n)."""

        def compute(part: ClusterView) -> FloatColumn:
            models = [self._models.get(name) for name in part.names]
            curves = [(model.k1, model.k2, 1) if model else (0, 0, 0) for model in models]
            table = np.array(curves, np.float64).reshape(len(part), 3).T.copy()
            table[2] *= measured_load(part).is_averaged[0]
            return table

        return view.node_column((self, "curves"), (Domain.NODES, Domain.METRICS), compute)


def _percent(millicores: FloatColumn, whole: FloatColumn) -> FloatColumn:
    """Return the share of a capacity in percent, 0 where there is none."""
    return np.divide(100 * millicores, whole, out=np.zeros_like(whole), where=whole != 0)


PLUGIN = Plugin(args=PeaksArgs, score=PeaksScore, reads=(Domain.NODES, Domain.METRICS))
