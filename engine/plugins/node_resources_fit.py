"""NodeResourcesFit: what a pod requests must be free; score how full the node would be.

Source: pkg/scheduler/framework/plugins/noderesources/{fit,resource_allocation,least_allocated,
most_allocated,requested_to_capacity_ratio}.go, .../helper/shape_score.go.

Pod-level resources count in the filter, and on the node once the pod runs there. The score of an
incoming pod uses its containers, as in Kubernetes 1.36.

Differences from upstream:

- **Written args** are validated as they are written: an explicit weight of 0 is refused, and with
  an explicit empty list of resources nothing is scored. Upstream's configuration inserts its
  defaults.
- **Devices**: a resource below `deviceclass.resource.kubernetes.io/` is left to devices without any
  DeviceClass: one may come.
- **`scoringStrategy.type`**: `Balanced` is not upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal, Self, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from engine.documents import mistake
from engine.model import quantity
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape, cached_by_shape
from engine.model.quantity import CPU, MEMORY, NATIVE, is_extended, is_scalar
from engine.model.rule_outcomes import FilterResult, RuleInputs, and_not
from engine.model.selectors import is_label_key
from engine.plugins.base import (
    MAX_SCORE,
    Args,
    Cycle,
    Filter,
    Plugin,
    ReadBy,
    ResourceName,
    Score,
    Scores,
)
from engine.plugins.lib.arithmetic import broken_line, trunc_div
from engine.plugins.lib.balance import BalancedScore, Weighed
from engine.plugins.lib.reporting import reason_texts, rejected_with, requests_with_pod
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, Sum, left_to_devices
from engine.view.axis import GREATEST_AMOUNT, PODS

_RATIO: Final = "RequestedToCapacityRatio"

GREATEST_SHAPE_SCORE: Final = 10
"""What a point of a shape may be worth at most."""


def _resource_name(name: str) -> str:
    if not is_label_key(name):
        raise ValueError(f"`{name}` is not the name of a resource")
    return name


def _resource_group(group: str) -> str:
    if "/" in group:
        raise ValueError("resource group name can't contain '/'")
    return _resource_name(group)


_Integer: TypeAlias = Annotated[int, Field(strict=True)]


def _from_zero_to(greatest: int) -> AfterValidator:
    """Return the validator of a range; a value beyond it may be of 100 instead."""

    def check(value: int) -> int:
        if not 0 <= value <= greatest:
            is_of_100 = 0 < value <= MAX_SCORE
            hint = f"for {value} of {MAX_SCORE} write {round(value * greatest / MAX_SCORE)}"
            raise mistake(f"not in valid range [0, {greatest}]", hint if is_of_100 else "")
        return value

    return AfterValidator(check)


class ResourceSpec(Args):
    """A resource that counts, and how much."""

    name: ResourceName
    weight: _Integer = 1

    @field_validator("weight")
    @classmethod
    def _in_range(cls, weight: int, info: ValidationInfo) -> int:
        if not 0 < weight <= MAX_SCORE:
            name = info.data.get("name")
            raise ValueError(f"resource weight of {name} not in valid range (0, {MAX_SCORE}]")
        return weight


class ShapePoint(Args):
    """The score, of 10, of a node with a utilization in percent."""

    utilization: Annotated[_Integer, _from_zero_to(100)]
    score: Annotated[_Integer, _from_zero_to(GREATEST_SHAPE_SCORE)]


class RatioArgs(Args):
    """The points between which RequestedToCapacityRatio draws straight lines."""

    shape: tuple[ShapePoint, ...]

    @field_validator("shape")
    @classmethod
    def _increases(cls, shape: tuple[ShapePoint, ...]) -> tuple[ShapePoint, ...]:
        if not shape:
            raise ValueError("at least one point must be specified")
        at = [point.utilization for point in shape]
        if any(left >= right for left, right in pairwise(at)):
            raise ValueError("utilization values must be sorted in increasing order")
        return shape


class ScoringStrategy(Args):
    """The preferred utilization of nodes, and the resources that count.

    Attributes:
        type: the scheduler's, or Balanced: where the pod makes the share of requests most even over
            nodes, whatever their sizes.
        resources: that count.
        requested_to_capacity_ratio: for the type of that name.
    """

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", "Balanced"] = (
        "LeastAllocated"
    )
    resources: tuple[ResourceSpec, ...] = (ResourceSpec(name=CPU), ResourceSpec(name=MEMORY))
    requested_to_capacity_ratio: RatioArgs | None = None

    @model_validator(mode="after")
    def _has_a_shape_for_the_ratio_alone(self) -> Self:
        if self.type == _RATIO and self.requested_to_capacity_ratio is None:
            raise ValueError(f"`requestedToCapacityRatio` is required for type {_RATIO}")
        if self.type != _RATIO and self.requested_to_capacity_ratio is not None:
            raise ValueError(f"`requestedToCapacityRatio` is only for type {_RATIO}")
        return self


class NodeResourcesFitArgs(Args):
    """NodeResourcesFitArgs; the first two concern the filter alone.

    Attributes:
        ignored_resources: extended resources that are not looked at.
        ignored_resource_groups: the same by the part of their name before the slash.
        scoring_strategy: how full a node should be, judged by which resources.
    """

    ignored_resources: Annotated[
        tuple[Annotated[str, AfterValidator(_resource_name)], ...], ReadBy.FILTER
    ] = ()
    ignored_resource_groups: Annotated[
        tuple[Annotated[str, AfterValidator(_resource_group)], ...], ReadBy.FILTER
    ] = ()
    scoring_strategy: Annotated[ScoringStrategy, ReadBy.SCORE] = ScoringStrategy()


class NodeResourcesFitFilter(Filter):
    """Rejects nodes on which something the pod requests is not free, or that hold enough pods.

    An extended resource that devices may provide rejects no node but those that offer some of it.
    """

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or reasons: too many pods, then one per insufficient resource."""
        return rejected_with(_complaints(self._wanted(cycle.pod), cycle.view))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        short = (f"Insufficient {name}" for name, _ in self._wanted(cycle.pod))
        return reason_texts(code, ["Too many pods", *short], "Insufficient extended resources")

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        requests = {quantity.PODS: 1, **dict(self._wanted(cycle.pod))}
        return requests_with_pod(cycle.view, Sum.REQUESTS, row, requests)

    def _wanted(self, pod: Pod) -> tuple[tuple[str, int], ...]:
        return _wanted(pod.shape, self._ignored, self._ignored_groups)


def _complaints(wanted: Iterable[tuple[str, int]], view: ClusterView) -> list[BoolColumn]:
    """Return where there are too many pods, then where each resource falls short."""
    requested, allocatable = view.sums[Sum.REQUESTS], view.allocatable
    complaints = [requested[PODS] >= allocatable[PODS]]
    for name, amount in wanted:
        at = view.axis.find(name)
        lacks = (
            np.ones(len(view), np.bool_) if at is None else requested[at] > allocatable[at] - amount
        )
        by_devices = left_to_devices(name, view)
        complaints.append(lacks if by_devices is None else and_not(lacks, by_devices))
    return complaints


@cached_by_shape
def _wanted(
    shape: PodShape, ignored: frozenset[str], ignored_groups: frozenset[str]
) -> tuple[tuple[str, int], ...]:
    """Return what must be free for a pod, in upstream's order, scalar resources by name."""
    requests = shape.requests
    scalars = sorted(
        name
        for name in requests.keys() - NATIVE
        if is_scalar(name)
        and not (
            is_extended(name) and (name in ignored or name.partition("/")[0] in ignored_groups)
        )
    )
    amounts = [(name, requests.get(name, 0)) for name in (*NATIVE, *scalars)]
    return tuple([(name, min(amount, GREATEST_AMOUNT)) for name, amount in amounts if amount > 0])


_NODES_AND_PODS = (Domain.NODES, Domain.PODS)
_NO_RESOURCES = "resources not found"

_ScoreOf: TypeAlias = Callable[[IntColumn, IntColumn], IntColumn]
"""Gives 0..MAX_SCORE for what would be requested and what is allocatable, which is above 0."""


class NodeResourcesFitBalance(BalancedScore):
    """Prefers nodes where a pod makes the share of requests most even over nodes."""

    measure = "requests"

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

    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        found = [view.amount(view.sums[_sums_of(name)], name) for name in names]
        return np.array(found, np.int64).reshape(len(names), len(view))

    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        return view.amounts(view.allocatable, names)

    def key(self, pod: Pod) -> Hashable:
        return "NodeResourcesFit"

    def faults(self, view: ClusterView) -> BoolColumn | None:
        return None if self._resources else np.ones(len(view), np.bool_)

    def fault(self, cycle: Cycle, row: int) -> str:
        return _NO_RESOURCES


class NodeResourcesFitScore(Score):
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

    def score(self, cycle: Cycle) -> Scores:
        """Return 0..MAX_SCORE per node; a fault everywhere if there is nothing to score by."""
        view = cycle.view
        if not self._resources:
            return Scores(np.zeros(len(view), np.int64), np.ones(len(view), np.bool_))
        counted = _counted(self._resources, cycle.pod)
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

    def fault(self, cycle: Cycle, row: int) -> str:
        return _NO_RESOURCES

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return tuple(
            requested
            for name, _, amount in _counted(self._resources, cycle.pod)
            for requested in requests_with_pod(cycle.view, _sums_of(name), row, {name: amount})
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


def _score(args: NodeResourcesFitArgs) -> Score:
    is_balanced = args.scoring_strategy.type == "Balanced"
    return NodeResourcesFitBalance(args) if is_balanced else NodeResourcesFitScore(args)


PLUGIN = Plugin(
    args=NodeResourcesFitArgs,
    filter=NodeResourcesFitFilter,
    score=_score,
    reads=(Domain.NODES, Domain.PODS),
)
