"""The score of LimitAware.

Source: Koordinator pull request 1486, pkg/scheduler/plugins/limitaware (scoring.go,
least_allocated.go).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.resource_names import NATIVE, is_scalar
from engine.model.rule_input import RuleInputs
from engine.model.shape_cache import cached_by_shape
from engine.model.time import Micros
from engine.plugins.base import MAX_SCORE, Scores
from engine.plugins.lib.arithmetic import FloatColumn, free_percent, sum_of_rows
from engine.plugins.lib.balance import BalancedScore, Weighed
from engine.plugins.limit_aware.args import LimitAwareArgs
from engine.plugins.limit_aware.capacity import UNCHECKED, LimitCapacity
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, RowWise, Sum, capped, extremes

_NODES = (Domain.NODES,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoreSide(RowWise):
    """What is known of all nodes before a pod is; a resource takes no part where it has no ratio.

    Attributes:
        capacities: of the scored resources, 0 where one takes no part, (n_scored, n).
        divisors: the same, but 1 there.
        weights: 0 there, (n_scored, n); None if all are 1.
        total_weight: at least 1, (n,) or for all nodes.
        faulty: where the ratios of a node are unknown, None if they are known of all.
    """

    capacities: IntColumn
    divisors: FloatColumn
    weights: FloatColumn | None
    total_weight: FloatColumn | float
    faulty: BoolColumn | None

    def take(self, rows: NDArray[np.intp]) -> _ScoreSide:
        """Return some rows."""
        total = self.total_weight
        return _ScoreSide(
            capacities=self.capacities.take(rows, axis=1),
            divisors=self.divisors.take(rows, axis=1),
            weights=None if self.weights is None else self.weights.take(rows, axis=1),
            total_weight=total if isinstance(total, float) else total.take(rows),
            faulty=None if self.faulty is None else self.faulty.take(rows),
        )


class _LimitScore(LimitCapacity):
    """The resources that are scored, and what their limits may add up to."""

    def __init__(self, args: LimitAwareArgs) -> None:
        super().__init__(args)
        scored = {
            name: weight
            for name, weight in args.scoring_resource_weights.items()
            if name in NATIVE or is_scalar(name)
        }
        self._names = tuple(scored)
        self._weights = np.array(list(scored.values()), np.int64)[:, np.newaxis]
        self._side_key = ("LimitAware score", repr((self._key, scored)))

    def _capacities(self, view: ClusterView) -> IntColumn:
        """Return the capacities of the scored resources, (n_scored, n).

        0 where a resource takes no part, or the ratios of the node are unknown.
        """

        def compute(part: ClusterView) -> IntColumn:
            capacities = np.array([self._capacity(part, name) for name in self._names], np.int64)
            counts = (capacities != UNCHECKED) & ~self._is_faulty(part)
            return np.where(counts, capacities, 0).reshape(len(self._names), len(part))

        return view.node_column(("LimitAware scored", self._key, self._names), _NODES, compute)


class LimitAwareBalance(_LimitScore, BalancedScore):
    """Prefers nodes where a pod makes the share of limits most even over nodes."""

    measure = "limits"
    domains = _NODES

    def weighed(self, pod: Pod) -> Weighed:
        """Return the scored resources, with the pod's limits, with defaults for missing."""
        weights = tuple(map(float, self._weights[:, 0].tolist()))
        return Weighed(self._names, weights, _own(pod.shape, self._names))

    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:  # noqa: ARG002 (all)
        """Return the sums of limits, with defaults for missing."""
        return view.amounts(view.sums[Sum.EFFECTIVE_LIMITS_NON_ZERO], names)

    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:  # noqa: ARG002 (all)
        """Return what limits may add up to."""
        return self._capacities(view)

    def key(self, pod: Pod) -> Hashable:  # noqa: ARG002 (all)
        """Return the ratios."""
        return self._side_key

    def faults(self, view: ClusterView) -> BoolColumn | None:
        """Return the nodes whose ratios are unknown."""
        faulty = self._is_faulty(view)
        return faulty if faulty.any() else None


class LimitAwareScore(_LimitScore):
    """Prefers nodes whose limits leave the most of their capacity; below 0 where they exceed it."""

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:  # noqa: ARG002 (protocol)
        """Return the weighted mean over the resources that have a ratio and a capacity."""
        side = view.node_aggregate(self._side_key, _NODES, self._side)
        limits = view.amounts(view.sums[Sum.EFFECTIVE_LIMITS_NON_ZERO], self._names)
        taken = limits + _own(pod.shape, self._names)
        free = np.subtract(side.capacities, taken, out=taken)
        percents = free_percent(side.divisors, free)
        if side.weights is not None:
            percents *= side.weights
        mean = sum_of_rows(percents)
        mean /= side.total_weight
        return Scores(mean.astype(np.int64), side.faulty)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Stretch the scores over 0..MAX_SCORE in float64, truncated; all equal scores become 0."""
        if not scores.size:
            return scores
        least, greatest = extremes(scores)
        if least == greatest:
            return np.zeros_like(scores)
        share: FloatColumn = (scores - least).astype(np.float64)
        share /= greatest - least
        share *= MAX_SCORE
        return share.astype(np.int64)

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the sums of limits with the pod, of the capacity, with defaults for missing."""
        limits = pod.shape.effective_limits_non_zero
        scored = tuple((name, capped(limits.get(name, 0))) for name in self._names)
        return self._limits_with_pod(view, row, Sum.EFFECTIVE_LIMITS_NON_ZERO, scored)

    def _side(self, view: ClusterView) -> _ScoreSide:
        capacities, faulty = self._capacities(view), self._is_faulty(view)
        counts = capacities != 0
        weights = (counts * self._weights).astype(np.float64)
        total_weight = np.maximum(weights.sum(axis=0), 1)
        return _ScoreSide(
            capacities=capacities,
            divisors=np.where(counts, capacities, 1).astype(np.float64),
            weights=None if (weights == 1).all() else weights,
            total_weight=_alike(total_weight),
            faulty=faulty if faulty.any() else None,
        )


def _alike(column: FloatColumn) -> FloatColumn | float:
    """Return a column as one number if all of it is the same: that need not be read again."""
    return float(column[0]) if column.size and (column == column[0]).all() else column


@cached_by_shape
def _own(shape: PodShape, names: tuple[str, ...]) -> IntColumn:
    """Return the amounts of a pod of these resources, (len(names), 1)."""
    amounts = [capped(shape.effective_limits_non_zero.get(name, 0)) for name in names]
    return np.array(amounts, np.int64).reshape(len(names), 1)
