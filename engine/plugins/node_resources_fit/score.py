"""The score of NodeResourcesFit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import numpy as np

from engine.model.pod import Pod
from engine.model.resource_names import CPU, MEMORY, NATIVE, is_scalar
from engine.model.rule_input import RuleInputs
from engine.model.time import Micros
from engine.plugins.base import MAX_SCORE, Scores
from engine.plugins.lib.arithmetic import trunc_div
from engine.plugins.lib.balance import BalancedScore, Weighed
from engine.plugins.lib.broken_line import broken_line
from engine.plugins.lib.inputs import requests_with_pod
from engine.plugins.node_resources_fit.args import (
    GREATEST_SHAPE_SCORE,
    NodeResourcesFitArgs,
    ResourceSpec,
    ShapePoint,
)
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, Sum
from engine.view.axis import GREATEST_AMOUNT

_NODES_AND_PODS = (Domain.NODES, Domain.PODS)
_NO_RESOURCES = "resources not found"

_ScoreOf: TypeAlias = Callable[[IntColumn, IntColumn], IntColumn]
"""Gives 0..MAX_SCORE for what would be requested and what is allocatable, which is above 0."""


class NodeResourcesFitBalance(BalancedScore):
    """Prefers nodes where a pod makes the share of requests most even over nodes."""

    measure = "requests"
    domains = (Domain.NODES,)

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        self._resources = args.scoring_strategy.resources

    def weighed(self, pod: Pod) -> Weighed:
        """Return the resources that count for a pod."""
        counted = _counted(self._resources, pod)
        own = np.array([amount for _, _, amount in counted], np.int64)
        return Weighed(
            tuple([name for name, _, _ in counted]),
            tuple([float(weight) for _, weight, _ in counted]),
            own.reshape(len(counted), 1),
        )

    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:  # noqa: ARG002 (all)
        """Return the requests of nodes."""
        found = [view.amount(view.sums[_sums_of(name)], name) for name in names]
        return np.array(found, np.int64).reshape(len(names), len(view))

    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:  # noqa: ARG002 (all)
        """Return what nodes offer."""
        return view.amounts(view.allocatable, names)

    def key(self, pod: Pod) -> Hashable:  # noqa: ARG002 (all)
        """Return the same for all pods."""
        return "NodeResourcesFit"

    def faults(self, view: ClusterView) -> BoolColumn | None:
        """Return all nodes if there is nothing to score by."""
        return None if self._resources else np.ones(len(view), np.bool_)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return why there is no score."""
        return _NO_RESOURCES


class NodeResourcesFitScore:
    """Scores nodes by the share of each resource that would be requested with the pod on them."""

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        strategy = args.scoring_strategy
        self._resources = strategy.resources
        self._ratio = strategy.requested_to_capacity_ratio
        self._score_of: _ScoreOf = (
            _least_allocated if strategy.type == "LeastAllocated" else _allocated
        )
        if self._ratio is not None:
            self._score_of = _along(self._ratio.shape)

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:  # noqa: ARG002 (protocol)
        """Return 0..MAX_SCORE per node; a fault everywhere if there is nothing to score by."""
        if not self._resources:
            return Scores(np.zeros(len(view), np.int64), np.ones(len(view), np.bool_))
        counted = _counted(self._resources, pod)
        means = view.pod_column(
            (self, counted), _NODES_AND_PODS, lambda rows: self._means(rows, counted)
        )
        return Scores(means)

    def _means(self, view: ClusterView, counted: Sequence[tuple[str, int, int]]) -> IntColumn:
        """Return the scores by the resources that count, as `_counted` gives them."""
        total = np.zeros(len(view), np.int64)
        weights = np.zeros(len(view), np.int64)
        for name, weight, amount in counted:
            # A pod that is still to be validated may request less than nothing.
            requested = np.maximum(view.amount(view.sums[_sums_of(name)], name) + amount, 0)
            allocatable = view.amount(view.allocatable, name)
            score = self._score_of(requested, np.maximum(allocatable, 1))
            share = weight * self._counts(allocatable, score)
            total += share * score
            weights += share
        return self._mean(total, np.maximum(weights, 1))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores as they are."""
        return scores

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return why there is no score."""
        return _NO_RESOURCES

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the requests with the pod, of allocatable; a default stands for a missing one."""
        return tuple(
            requested
            for name, _, amount in _counted(self._resources, pod)
            for requested in requests_with_pod(view, _sums_of(name), row, {name: amount})
        )

    def _counts(self, allocatable: IntColumn, score: IntColumn) -> BoolColumn:
        """Return on which nodes a resource takes part in the mean."""
        offered = allocatable > 0
        return offered if self._ratio is None else offered & (score > 0)

    def _mean(self, total: IntColumn, weights: IntColumn) -> IntColumn:
        """Return the weighted mean, truncated, or rounded half up where it follows a shape."""
        if self._ratio is None:
            return trunc_div(total, weights)
        return trunc_div(2 * total + weights, 2 * weights)


def _counted(resources: Sequence[ResourceSpec], pod: Pod) -> tuple[tuple[str, int, int], ...]:
    """Return name, weight and the pod's own amount of the resources that count for a pod.

    Scalar resources that it does not request do not: nodes with idle devices are neither better nor
    worse for it.
    """
    requests = pod.shape.non_zero_container_requests
    return tuple(
        (spec.name, spec.weight, min(requests.get(spec.name, 0), GREATEST_AMOUNT))
        for spec in resources
        if spec.name in NATIVE or (requests.get(spec.name) and is_scalar(spec.name))
    )


def _sums_of(name: str) -> Sum:
    """Return which sum over pods counts for a resource."""
    return Sum.NON_ZERO_REQUESTS if name in (CPU, MEMORY) else Sum.REQUESTS


def _least_allocated(requested: IntColumn, allocatable: IntColumn) -> IntColumn:
    """Return how much would be left, in percent; 0 if more is requested than there is."""
    return trunc_div(np.maximum(allocatable - requested, 0) * MAX_SCORE, allocatable)


def _allocated(requested: IntColumn, allocatable: IntColumn) -> IntColumn:
    """Return how much would be taken, in percent; 100 if more is requested than there is."""
    return trunc_div(np.minimum(requested, allocatable) * MAX_SCORE, allocatable)


def _along(shape: Sequence[ShapePoint]) -> _ScoreOf:
    """Return the score that a shape gives for the percentage taken."""
    step = MAX_SCORE // GREATEST_SHAPE_SCORE
    points = [(point.utilization, point.score * step) for point in shape]
    table = np.array([broken_line(points, percent) for percent in range(101)], np.int64)
    return lambda requested, allocatable: table.take(_allocated(requested, allocatable))
