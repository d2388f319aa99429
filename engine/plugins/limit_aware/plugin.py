"""LimitAware: keep the limits of a node's pods within a multiple of its capacity.

Source: Koordinator pull request 1486, pkg/scheduler/plugins/limitaware (filtering.go, scoring.go,
least_allocated.go). Only resources that a ratio is given for take part, node by node.
"""

from __future__ import annotations

from engine.model.measure import Measure, NodeThreshold
from engine.plugins.base import Plugin, Score
from engine.plugins.limit_aware.args import LimitAwareArgs
from engine.plugins.limit_aware.filter import LimitAwareFilter
from engine.plugins.limit_aware.limit_ratios import read
from engine.plugins.limit_aware.score import LimitAwareBalance, LimitAwareScore
from engine.view import Domain


def _thresholds(args: LimitAwareArgs) -> list[NodeThreshold]:
    ratios = read(args.default_limit_to_allocatable_ratio).percents
    return [NodeThreshold(Measure.LIMITS, name, percent) for name, percent in ratios.items()]


def _score(args: LimitAwareArgs) -> Score:
    return LimitAwareBalance(args) if args.strategy == "Balanced" else LimitAwareScore(args)


PLUGIN = Plugin(
    args=LimitAwareArgs,
    filter=LimitAwareFilter,
    score=_score,
    thresholds=_thresholds,
    reads=(Domain.NODES, Domain.PODS),
)
