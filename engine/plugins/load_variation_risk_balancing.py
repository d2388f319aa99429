"""LoadVariationRiskBalancing: prefer nodes whose load is low and steady.

Source: scheduler-plugins, pkg/trimaran/loadvariationriskbalancing. The risk of a node is the mean
of its expected load and of how much that varies; the riskier of cpu and memory counts.
`engine.plugins.lib.trimaran` says which measurements these are.

Differences from upstream:

- **Source of measurements**: `metricProvider` and `watcherAddress` are checked and not used: usage
  comes from the sources of the cluster view.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, ValidationInfo
from pydantic.alias_generators import to_camel

from engine.documents import warn
from engine.model.rule_outcomes import RuleInput, RuleInputs, unit_of
from engine.plugins.base import MAX_SCORE, Cycle, Plugin, Score, Scores
from engine.plugins.lib.arithmetic import FloatColumn, rounded
from engine.plugins.lib.trimaran import (
    RESOURCES,
    TrimaranArgs,
    is_recent,
    load_inputs,
    load_stats,
    share,
)
from engine.view import ClusterView, Domain

_NODE_SIDE = (Domain.NODES, Domain.METRICS)


def _one_if_negative(value: float, info: ValidationInfo) -> float:
    if value >= 0:
        return value
    warn(info, f"`{to_camel(info.field_name or '')}` {value:g} counts as 1")
    return 1


_Factor: TypeAlias = Annotated[
    float, Field(strict=True, allow_inf_nan=False), AfterValidator(_one_if_negative)
]


class LoadVariationRiskBalancingArgs(TrimaranArgs):
    """LoadVariationRiskBalancingArgs, with upstream's defaults; what is negative counts as 1.

    Attributes:
        safe_variance_margin: what the deviation is multiplied by.
        safe_variance_sensitivity: which root of the deviation, a share of 0 to 1, is taken first;
            at 0 no deviation counts but the greatest.
    """

    safe_variance_margin: _Factor = 1
    safe_variance_sensitivity: _Factor = 1


class LoadVariationRiskBalancingScore(Score):
    """Prefers nodes with little load and little variation of it."""

    def __init__(self, args: LoadVariationRiskBalancingArgs) -> None:
        self._margin, self._sensitivity = args.safe_variance_margin, args.safe_variance_sensitivity

    def score(self, cycle: Cycle) -> Scores:
        """Return the points of the riskier resource that is measured, 0 where none is."""
        view = cycle.view
        stats = load_stats(view)
        requests = cycle.pod.shape.peak_requests
        requested = np.array([[float(requests.get(name, 0))] for name in RESOURCES])
        safe = safety(stats.offered, requested, stats.average, self._variation(view))
        least = np.where(stats.is_measured, safe, math.inf).min(axis=0)
        is_known = stats.is_measured.any(axis=0) & is_recent(view, cycle.now)
        return Scores(rounded(np.where(is_known, least, 0)))

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        requests = cycle.pod.shape.peak_requests
        requested = (
            RuleInput(f"{name} of this pod", requests.get(name, 0), unit_of(name))
            for name in RESOURCES
        )
        return (*load_inputs(cycle.view, row, cycle.now), *requested)

    def _variation(self, view: ClusterView) -> FloatColumn:
        def compute(part: ClusterView) -> FloatColumn:
            stats = load_stats(part)
            return variation(stats.offered, stats.deviation, self._margin, self._sensitivity)

        key = ("LoadVariationRiskBalancing", self._margin, self._sensitivity)
        return view.node_column(key, _NODE_SIDE, compute)


def variation(
    offered: FloatColumn, deviation: FloatColumn, margin: float, sensitivity: float
) -> FloatColumn:
    """Return how much load varies, 0 to 1."""
    sigma = share(deviation, offered)
    if sensitivity >= 0:
        sigma **= 1 / sensitivity if sensitivity else math.inf
    return np.clip(sigma * margin, 0, 1)


def safety(
    offered: FloatColumn, request: FloatColumn, average: FloatColumn, varying: FloatColumn
) -> FloatColumn:
    """Return 100 without any risk down to 0, unrounded; 0 where nothing is offered."""
    bounded = np.minimum(np.maximum(average, 0), offered)
    risk = (share(bounded + np.maximum(request, 0), offered) + varying) / 2
    return (offered > 0) * ((1 - risk) * MAX_SCORE)


PLUGIN = Plugin(
    args=LoadVariationRiskBalancingArgs, score=LoadVariationRiskBalancingScore, reads=_NODE_SIDE
)
