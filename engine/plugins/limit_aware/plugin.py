"""LimitAware: keep the limits of a node's pods within a multiple of what the node offers.

Source: Koordinator pull request 1486, pkg/scheduler/plugins/limitaware (filtering.go, scoring.go,
least_allocated.go). Only resources that a ratio is given for take part, node by node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.measure import Measure, NodeThreshold
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.resource_names import NATIVE, is_scalar
from engine.model.rule_input import RuleInput, RuleInputs, unit_of
from engine.model.rule_outcomes import FilterResult, and_not
from engine.model.shape_cache import cached_by_shape
from engine.model.time import Micros
from engine.plugins.base import (
    FAULT,
    MAX_SCORE,
    BoolMatrix,
    Plugin,
    Scores,
    StackingFilter,
    StackingScore,
    result_of,
)
from engine.plugins.lib.arithmetic import FloatColumn, free_percent, sum_of_rows
from engine.plugins.lib.reason_codes import reason_texts, rejected_with
from engine.plugins.limit_aware.args import LimitAwareArgs
from engine.plugins.limit_aware.limit_ratios import (
    NodeRatios,
    read,
)
from engine.view import (
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    RowWise,
    Sum,
    capped,
    extremes,
)

_NODES = (Domain.NODES,)
_UNCHECKED = 2**62
"""The capacity where a resource has no ratio: nothing exceeds it."""

_Limits: TypeAlias = tuple[tuple[str, int], ...]


class _LimitAware:
    """The capacity for limits, which filter and score share, and where it is unknown."""

    def __init__(self, args: LimitAwareArgs) -> None:
        ratios = args.default_limit_to_allocatable_ratio
        self._ratios = NodeRatios(ratios)
        self._key = tuple(sorted(ratios.items()))

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return why the ratios of a node are unknown."""
        return self._ratios.fault_of(view.nodes[row])

    def _limits_with_pod(
        self, view: ClusterView, row: int, sums: Sum, limits: _Limits
    ) -> RuleInputs:
        """Return the sums of limits on a node with those of the pod, of the capacity for them."""
        part, inputs = view.take(np.array([row])), []
        for name, amount in limits:
            (capacity,) = self._capacity(part, name).tolist()
            if capacity != _UNCHECKED:
                (others,) = part.amount(part.sums[sums], name).tolist()
                total = others + amount
                inputs.append(RuleInput(f"{name} limits", total, unit_of(name), capacity=capacity))
        return tuple(inputs)

    def _is_faulty(self, view: ClusterView) -> BoolColumn:
        """Return where the ratios of a node are unknown."""
        return view.node_column(("LimitAware faulty", self._key), _NODES, self._ratios.faulty)

    def _capacity(self, view: ClusterView, name: str) -> IntColumn:
        """Return what limits of a resource may add up to per node, _UNCHECKED without a ratio."""
        covered, capacity = self._ratios.capacity(view, name)
        return np.where(covered, capacity, _UNCHECKED)


@dataclass(frozen=True, slots=True)
class _FilterSide(RowWise):
    """Columns of all nodes that do not depend on the pod.

    Attributes:
        capacities: of NATIVE up to the last one that any node has a ratio for, (n_rated, n).
        named: every resource that some node has a ratio for.
        faulty: where the ratios of a node are unknown, None if they are known of all.
    """

    capacities: IntColumn
    named: frozenset[str]
    faulty: BoolColumn | None

    def take(self, rows: NDArray[np.intp]) -> _FilterSide:
        """Return some rows; resources that only others have a ratio for reject none of them."""
        faulty = None if self.faulty is None else self.faulty.take(rows)
        return _FilterSide(self.capacities.take(rows, axis=1), self.named, faulty)


class LimitAwareFilter(_LimitAware, StackingFilter):
    """Rejects nodes whose limits would add up to more than their capacity."""

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:  # noqa: ARG002 (protocol)
        """Return PASS, FAULT, or reasons: one per insufficient resource."""
        if pod.is_daemon_set:
            return FilterResult.passing(len(view))
        side = view.node_aggregate(("LimitAware filter", self._key), _NODES, self._side)
        checked = _checked(pod.shape)
        own = _checked_amounts(pod.shape)
        complaints = self._complaints(view, own, [name for name, _ in checked], side)
        judged = rejected_with(complaints) if complaints else FilterResult.passing(len(view))
        if side.faulty is None:
            return judged
        return result_of(np.where(side.faulty, FAULT, judged.codes))

    def alike(self, pod: Pod) -> Hashable:
        """Return which resources a pod is checked for."""
        return () if pod.is_daemon_set else tuple([name for name, _ in _checked(pod.shape)])

    def amounts(self, pods: Sequence[Pod]) -> IntColumn:
        """Return the amounts of pods that are checked, (len(pods), n_checked, 1)."""
        return np.array([_checked_amounts(pod.shape) for pod in pods])

    def rejects_each(
        self,
        pod: Pod,
        amounts: IntColumn,
        view: ClusterView,
        now: Micros,  # noqa: ARG002 (protocol)
    ) -> BoolMatrix | None:
        """Return the nodes that `filter` rejects for each of some pods."""
        side = view.node_aggregate(("LimitAware filter", self._key), _NODES, self._side)
        if side.faulty is not None:
            return None
        names = [] if pod.is_daemon_set else [name for name, _ in _checked(pod.shape)]
        complaints = self._complaints(view, amounts, names, side)
        return reduce(np.logical_or, complaints, np.zeros(len(view), np.bool_))

    def rejects_every_pod(self, view: ClusterView, now: Micros) -> BoolColumn:  # noqa: ARG002 (protocol)
        """Return the nodes over a ratio already, which take no pod that limits anything."""
        side = view.node_aggregate(("LimitAware filter", self._key), _NODES, self._side)
        allocated = view.amounts(view.sums[Sum.EFFECTIVE_LIMITS], NATIVE[: len(side.capacities)])
        rejects = np.logical_or.reduce(side.capacities < allocated, axis=0)
        return rejects if side.faulty is None else and_not(rejects, side.faulty)

    def _complaints(
        self, view: ClusterView, own: IntColumn, names: Sequence[str], side: _FilterSide
    ) -> list[BoolColumn]:
        """Return where each of the resources that are checked falls short, (..., n) each.

        Args:
            view: the cluster.
            own: the amounts of a pod, (len(names), 1), or of several, (n_pods, len(names), 1).
            names: of the resources, those of NATIVE first; none if it is not checked.
            side: of the view.
        """
        if not names:
            return []
        allocated = view.sums[Sum.EFFECTIVE_LIMITS]
        n_rated = len(side.capacities)
        free = side.capacities - view.amounts(allocated, NATIVE[:n_rated])
        short = [*(free < own[..., :n_rated, :]).swapaxes(0, -2)]
        scalars = names[len(NATIVE) :]
        if scalars:
            nowhere = np.zeros(len(view), np.bool_)
            short += [nowhere] * (len(NATIVE) - n_rated)
            short += [
                self._capacity(view, name) - view.amount(allocated, name) < own[..., at, :]
                if name in side.named
                else nowhere
                for at, name in enumerate(scalars, len(NATIVE))
            ]
        return short

    def _side(self, view: ClusterView) -> _FilterSide:
        def capacities(part: ClusterView) -> IntColumn:
            return np.stack([self._capacity(part, name) for name in NATIVE])

        native = view.node_column(("LimitAware native", self._key), _NODES, capacities)
        is_rated = (native != _UNCHECKED).any(axis=1).tolist()
        n_rated = max((i + 1 for i, rated in enumerate(is_rated) if rated), default=0)
        faulty = self._is_faulty(view)
        return _FilterSide(
            native[:n_rated], frozenset(self._ratios.named(view)), faulty if faulty.any() else None
        )

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the sums of limits with the pod, of the capacity for them."""
        checked = () if pod.is_daemon_set else _checked(pod.shape)
        return self._limits_with_pod(view, row, Sum.EFFECTIVE_LIMITS, checked)

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the texts of the reasons in a code, cpu, memory, ephemeral-storage first."""
        checked = _checked(pod.shape)
        texts = [f"Insufficient {name} limit" for name, _ in checked]
        return reason_texts(code, texts, "Insufficient extended resources limit")


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


class LimitAwareScore(_LimitAware, StackingScore):
    """Prefers nodes whose limits leave the most of their capacity; below 0 where they exceed it."""

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

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:  # noqa: ARG002 (protocol)
        """Return the weighted mean over the resources that have a ratio and a capacity."""
        return self._score(_own(pod.shape, self._names), view)

    def alike(self, pod: Pod) -> Hashable:  # noqa: ARG002 (protocol)
        """Return the same for all pods."""
        return None

    def amounts(self, pods: Sequence[Pod]) -> IntColumn:
        """Return the amounts of pods that are scored, (len(pods), n_scored, 1)."""
        return np.array([_own(pod.shape, self._names) for pod in pods])

    def score_each(
        self,
        pod: Pod,  # noqa: ARG002 (protocol)
        amounts: IntColumn,
        view: ClusterView,
        now: Micros,  # noqa: ARG002 (protocol)
    ) -> Scores:
        """Return raw scores as `score` gives them for each of some pods."""
        return self._score(amounts, view)

    def _score(self, own: IntColumn, view: ClusterView) -> Scores:
        """Return the scores, (..., n).

        Args:
            own: the amounts of a pod, (n_scored, 1), or of several, (n_pods, n_scored, 1).
            view: the cluster.
        """
        side = view.node_aggregate(self._side_key, _NODES, self._side)
        taken = view.amounts(view.sums[Sum.EFFECTIVE_LIMITS_NON_ZERO], self._names) + own
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

    def normalize_each(self, scores: IntColumn, least: IntColumn, greatest: IntColumn) -> IntColumn:
        """Return what `normalize` gives for each row of a matrix of scores between two ends."""
        share: FloatColumn = (scores - least).astype(np.float64)
        share /= np.where(least == greatest, 1, greatest - least)
        share *= MAX_SCORE
        return share.astype(np.int64)

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the sums of limits with the pod, of the capacity, with defaults for missing."""
        limits = pod.shape.effective_limits_non_zero
        scored = tuple((name, capped(limits.get(name, 0))) for name in self._names)
        return self._limits_with_pod(view, row, Sum.EFFECTIVE_LIMITS_NON_ZERO, scored)

    def _capacities(self, view: ClusterView) -> IntColumn:
        """Return the capacities of the scored resources, (n_scored, n).

        0 where a resource takes no part, or the ratios of the node are unknown.
        """

        def compute(part: ClusterView) -> IntColumn:
            capacities = np.array([self._capacity(part, name) for name in self._names], np.int64)
            counts = (capacities != _UNCHECKED) & ~self._is_faulty(part)
            return np.where(counts, capacities, 0).reshape(len(self._names), len(part))

        return view.node_column(("LimitAware scored", self._key, self._names), _NODES, compute)

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


@cached_by_shape
def _checked(shape: PodShape) -> _Limits:
    """Return which resources a pod is checked for, and its own amounts; none if it limits nothing.

    Once it limits anything, cpu, memory and ephemeral-storage are checked even where its own amount
    is 0: a node that is over its capacity takes no such pod.
    """
    limits = shape.effective_limits
    scalars = sorted(limits.keys() - NATIVE)
    if not scalars and not any(map(limits.get, NATIVE)):
        return ()
    return tuple([(name, capped(limits.get(name, 0))) for name in (*NATIVE, *scalars)])


@cached_by_shape
def _checked_amounts(shape: PodShape) -> IntColumn:
    """Return a pod's own amounts of the resources that it is checked for, (n_checked, 1)."""
    amounts = [amount for _, amount in _checked(shape)]
    return np.array(amounts, np.int64)[:, np.newaxis]


def _thresholds(args: LimitAwareArgs) -> list[NodeThreshold]:
    ratios = read(args.default_limit_to_allocatable_ratio).percents
    return [NodeThreshold(Measure.LIMITS, name, percent) for name, percent in ratios.items()]


PLUGIN = Plugin(
    args=LimitAwareArgs,
    filter=LimitAwareFilter,
    node_filter=LimitAwareFilter,
    score=LimitAwareScore,
    thresholds=_thresholds,
    reads=(Domain.NODES, Domain.PODS),
)
