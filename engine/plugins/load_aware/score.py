"""The score of LoadAware: how much of the capacity of a node is unused, by estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.rule_input import RuleInputs
from engine.model.time import Micros
from engine.plugins.base import MAX_SCORE, NeverFaults, Scores
from engine.plugins.lib.arithmetic import FloatColumn, free_percent, sum_of_rows
from engine.plugins.lib.balance import BalancedScore, Weighed
from engine.plugins.lib.inputs import report_age
from engine.plugins.load_aware.args import LoadAwareArgs
from engine.plugins.load_aware.expected import (
    NODE_SIDE,
    UNREACHABLE,
    expected_usage,
    expired_rows,
    usage_inputs,
)
from engine.plugins.load_aware.usage import Readings, UsageSource, capacity, readings_of
from engine.view import ClusterView, Domain, IntColumn, RowWise, extremes


@dataclass(frozen=True, slots=True)
class _ScoreSide(RowWise):
    """The part of the score that no pod changes.

    Attributes:
        readings: the usage that pods add to.
        room: the rest of the known capacities beyond each reading, (n_known, n).
        totals: those capacities, 1 where a node has none, (n_known, n).
    """

    readings: Readings
    room: IntColumn
    totals: FloatColumn

    def take(self, rows: NDArray[np.intp]) -> _ScoreSide:
        """Return some rows."""
        return _ScoreSide(
            self.readings.take(rows), self.room.take(rows, axis=1), self.totals.take(rows, axis=1)
        )


class LoadAwareScore(NeverFaults):
    """Prefers nodes with much of their capacity unused, by estimate."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._score_source = args.score_source
        weights = [args.resource_weights.get(name, 0) for name in self._profile.known]
        self._weights = np.array(weights, np.float64)[:, np.newaxis]
        self._are_alike = set(weights) == {1}
        # INVARIANT: not 0, for weights are filled in unless there is a dominant one.
        self._total_weight = sum(weights) + args.dominant_resource_weight

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:
        """Return the weighted share of each node that is free, 0 where its report is too old."""
        side = self._side(view, by_production=_by_production(self._args, pod))
        taken = side.readings.added(view, self._profile) + expected_usage(pod.shape, self._profile)
        free = np.subtract(side.room, taken, out=taken)
        np.maximum(free, 0, out=free)
        percents = free_percent(side.totals, free)
        weighed = percents if self._are_alike else percents * self._weights
        total = sum_of_rows(weighed)
        if self._args.dominant_resource_weight:
            total += percents.min(axis=0) * self._args.dominant_resource_weight
        total /= self._total_weight
        score = total.astype(np.int64)
        expired = expired_rows(view, self._args, now)
        if expired.size:
            score[expired] = 0
        return Scores(score)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores, which are percentages unless estimates are negative."""
        if not scores.size:
            return scores
        least, greatest = extremes(scores)
        return scores if least >= 0 and greatest <= MAX_SCORE else np.clip(scores, 0, MAX_SCORE)

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:
        """Return the expected usage with the pod, and the capacity."""
        part = view.take(np.array([row]))
        readings = self._readings(part, by_production=_by_production(self._args, pod))
        usages = usage_inputs(self._profile, readings, part, pod, self._totals(part)[:, 0])
        weighted = self._args.resource_weights
        scored = (usage for name, usage in usages.items() if name in weighted)
        return (*scored, report_age(view, row, now))

    def _side(self, view: ClusterView, *, by_production: bool) -> _ScoreSide:
        def make(whole: ClusterView) -> _ScoreSide:
            readings = self._readings(whole, by_production=by_production)
            totals = capacity(whole, self._profile.known)
            room = totals - readings.amounts
            # Very negative where a node has none of a resource, or its usage is not known.
            room[(totals <= 0) | ~readings.is_measured] = -UNREACHABLE
            return _ScoreSide(readings, room, self._totals(whole))

        key = ("LoadAware score", self._profile.known, self._source(by_production=by_production))
        return view.node_aggregate(key, NODE_SIDE, make)

    def _totals(self, view: ClusterView) -> FloatColumn:
        """Return each known capacity, 1 where a node has none of it, (n_known, n)."""
        known = self._profile.known

        def compute(part: ClusterView) -> FloatColumn:
            return np.maximum(capacity(part, known), 1).astype(np.float64)

        return view.node_column(("LoadAware totals", known), (Domain.NODES,), compute)

    def _readings(self, view: ClusterView, *, by_production: bool) -> Readings:
        source = self._source(by_production=by_production)
        return readings_of(view, self._profile.known, source)

    def _source(self, *, by_production: bool) -> UsageSource:
        return self._args.production_source if by_production else self._score_source


class LoadAwareBalance(NeverFaults, BalancedScore):
    """Prefers nodes where a pod makes the usage of nodes most even, by estimate.

    A node without a report, or with one that is too old, takes no part.
    """

    measure = "usage"
    domains = NODE_SIDE

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._known = self._profile.known
        self._weights = tuple([float(args.resource_weights.get(name, 0)) for name in self._known])

    def weighed(self, pod: Pod) -> Weighed:
        """Return all known resources, with the expected usage of the pod."""
        return Weighed(self._known, self._weights, expected_usage(pod.shape, self._profile))

    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:  # noqa: ARG002 (all)
        """Return the estimated usage."""
        readings = readings_of(view, self._known, self.key(pod))
        return readings.amounts + readings.added(view, self._profile)

    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        """Return the capacity of nodes whose usage is known."""
        return capacity(view, names) * readings_of(view, names, self.key(pod)).is_measured

    def key(self, pod: Pod) -> UsageSource:
        """Return by which usage a pod is scored."""
        args = self._args
        return args.production_source if _by_production(args, pod) else args.score_source

    def unknown(self, view: ClusterView, now: Micros) -> NDArray[np.intp]:
        """Return the nodes whose report is too old."""
        return expired_rows(view, self._args, now)


def _by_production(args: LoadAwareArgs, pod: Pod) -> bool:
    return args.score_according_prod_usage and pod.shape.is_prod
