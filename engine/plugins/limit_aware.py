"""LimitAware: keep the limits of a node's pods within a multiple of its capacity.

Source: Koordinator pull request 1486, pkg/scheduler/plugins/limitaware (filtering.go, scoring.go,
least_allocated.go). Only resources that a ratio is given for take part, node by node.

Differences from upstream:

- **`strategy`**: `Balanced` is not upstream's.
"""

# Koordinator's limit ratios: the sum of limits that a node allows, in percent of allocatable.
#
# Source: Koordinator pull request 1486, apis/extension/limitaware.go and
# pkg/scheduler/plugins/limitaware/util.go. A ratio is a number of percent, written as an integer
# or as `"N%"`. A node's annotation replaces the cluster's ratios as a whole, an empty one with
# none.

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from engine.documents import mistake, warn
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape, cached_by_shape
from engine.model.quantity import NATIVE, is_scalar
from engine.model.rule_outcomes import (
    FilterResult,
    Measure,
    NodeThreshold,
    RuleInput,
    RuleInputs,
    unit_of,
)
from engine.plugins.base import (
    FAULT,
    MAX_SCORE,
    Args,
    Cycle,
    Filter,
    Plugin,
    ReadBy,
    ResourceName,
    Score,
    Scores,
    result_of,
)
from engine.plugins.lib.args import read_annotation
from engine.plugins.lib.arithmetic import FloatColumn, free_percent, percent_of, sum_of_rows
from engine.plugins.lib.balance import BalancedScore, Weighed
from engine.plugins.lib.reporting import reason_texts, rejected_with
from engine.view import (
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    RowWise,
    Sum,
    annotation_column,
    capped,
    extremes,
)

LIMIT_TO_ALLOCATABLE = "node.koordinator.sh/limit-to-allocatable"
"""A node's own ratios, in JSON."""

MOST_PERCENT = 2_000_000
"""The greatest ratio; more than this counts as this."""

MOST_CAPACITY = 2**53
"""The greatest capacity, 9 PB; a hundred times what is free of it fits int64."""

_ANNOTATIONS_REMEMBERED = 4096
_PERCENTAGE = re.compile(r"([+-]?[0-9]{1,18})%", re.ASCII)

Written: TypeAlias = Mapping[str, int | str]
"""Ratios as they are written, by resource name."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios that were read, good or not."""

    # by resource name, those that could be read
    percents: Mapping[str, int] = field(default_factory=dict)
    # by resource name, why one could not be read
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""  # why none could be read at all, empty if they could

    @property
    def is_sound(self) -> bool:
        """Whether all of them could be read."""
        return not (self.fault or self.faults)

    def fault_on(self, node: Node) -> str:
        """Return why a node cannot be judged by these ratios, empty if it can.

        Upstream reads those of NATIVE always, and others only for nodes that offer the resource.
        """
        scalars = sorted(name for name in node.allocatable if is_scalar(name))
        unread = (self.faults[name] for name in (*NATIVE, *scalars) if name in self.faults)
        return self.fault or next(unread, "")


class NodeRatios:
    """The ratios of each node: its own, or else the cluster's."""

    def __init__(self, of_cluster: Written) -> None:
        self._of_cluster = read(of_cluster)

    def named(self, view: ClusterView) -> set[str]:
        """Return every resource that some node has a ratio for."""
        column = annotation_column(view, LIMIT_TO_ALLOCATABLE)
        present = np.flatnonzero(column.counts).tolist()
        return set().union(*(self._of(column.values[number]).percents for number in present))

    def capacity(self, view: ClusterView, name: str) -> tuple[BoolColumn, IntColumn]:
        """Return where a resource has a ratio, and what limits of it may add up to, (n,) each.

        That is all of what a node offers where there is no ratio.
        """

        def percent(text: str | None) -> tuple[int, int]:
            percents = self._of(text).percents
            return name in percents, percents.get(name, 100)

        covered, percents = read_annotation(view, LIMIT_TO_ALLOCATABLE, 2, percent)
        amounts = percent_of(view.amount(view.allocatable, name), percents)
        return covered != 0, np.clip(amounts, -MOST_CAPACITY, MOST_CAPACITY)

    def faulty(self, view: ClusterView) -> BoolColumn:
        """Return which nodes cannot be judged by their ratios, shape (n,)."""
        (is_sound,) = read_annotation(
            view, LIMIT_TO_ALLOCATABLE, 1, lambda text: [self._of(text).is_sound]
        )
        faulty: BoolColumn = is_sound == 0
        for row in np.flatnonzero(faulty).tolist():
            faulty[row] = bool(self.fault_of(view.nodes[row]))
        return faulty

    def fault_of(self, node: Node | None) -> str:
        """Return why a node cannot be judged by its ratios, empty if it can."""
        if node is None:
            return ""
        return self._of(node.annotations.get(LIMIT_TO_ALLOCATABLE)).fault_on(node)

    def _of(self, text: str | None) -> Ratios:
        return self._of_cluster if text is None else _annotated(text)


def is_percentage(text: str) -> bool:
    """Return whether a text is a whole number of percent, such as `150%`."""
    return _PERCENTAGE.fullmatch(text) is not None


def read(written: Written) -> Ratios:
    """Return ratios as they are meant."""
    percents: dict[str, int] = {}
    faults: dict[str, str] = {}
    for name, value in written.items():
        match = None if isinstance(value, int) else _PERCENTAGE.fullmatch(value)
        if isinstance(value, int) or match:
            percent = int(match[1] if match else value)
            percents[name] = max(-MOST_PERCENT, min(percent, MOST_PERCENT))
        else:
            faults[name] = f"the ratio of {name}, `{value}`, is neither an integer nor a percentage"
    return Ratios(percents, faults)


_Annotation: TypeAlias = (
    dict[str, Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] | str | None] | None
)


@lru_cache(maxsize=_ANNOTATIONS_REMEMBERED)
def _annotated(text: str) -> Ratios:
    try:
        ratios = msgspec.json.decode(text, type=_Annotation) or {}
    except (msgspec.DecodeError, RecursionError):
        return Ratios(fault=f"annotation `{LIMIT_TO_ALLOCATABLE}` is not a JSON map of ratios")
    return read({name: 0 if value is None else value for name, value in ratios.items()})


_PLAUSIBLE = 20
"""Percent: below this a number is more likely a factor."""


def _one_for_zero(weight: int) -> int:
    return weight or 1


_Weight: TypeAlias = Annotated[
    int, Field(strict=True, ge=0, le=MAX_SCORE), AfterValidator(_one_for_zero)
]


def _readable(value: object) -> object:
    """Refuse what `limit_ratios.read` cannot read; on a node it would be a fault."""
    is_whole = type(value) is int and -(2**31) <= value < 2**31
    if is_whole or (isinstance(value, str) and is_percentage(value)):
        return value
    percent = _meant(str(value))
    hint = 'such as 150 or "150%"' if percent is None else f'write {percent} or "{percent}%"'
    raise mistake("expected a whole number of percent", hint)


def _meant(text: str) -> int | None:
    """Return the percent that a text most likely stands for: `1.5` is a factor."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        return None
    is_factor = abs(number) < _PLAUSIBLE and "%" not in text
    percent = 100 * number if is_factor else number
    return round(percent) if abs(percent) <= MOST_PERCENT else None


_Ratio: TypeAlias = Annotated[int | str, BeforeValidator(_readable)]
_WEIGHTS = {"cpu": 1, "memory": 1}


def _default_weights(weights: dict[str, int]) -> dict[str, int]:
    return weights or _WEIGHTS


class LimitAwareArgs(Args):
    """LimitAwareArgs, with upstream's defaults.

    Attributes:
        scoring_resource_weights: weight of each resource's score; 0 counts as 1.
        default_limit_to_allocatable_ratio: percent of its allocatable that a node's limits may
            add up to, an integer or `"N%"`, by resource name.
        strategy: what is preferred; upstream has LeastAllocated alone. Balanced prefers nodes
            where the pod makes the share of limits most even over nodes, whatever their sizes.
    """

    scoring_resource_weights: Annotated[
        dict[ResourceName, _Weight], AfterValidator(_default_weights), ReadBy.SCORE
    ] = Field(default=_WEIGHTS)
    default_limit_to_allocatable_ratio: dict[ResourceName, _Ratio] = Field(
        default_factory=dict, validate_default=True
    )

    strategy: Annotated[Literal["LeastAllocated", "Balanced"], ReadBy.SCORE] = "LeastAllocated"

    @field_validator("default_limit_to_allocatable_ratio")
    @classmethod
    def _ratios_are_plausible(
        cls, ratios: dict[str, int | str], info: ValidationInfo
    ) -> dict[str, int | str]:
        """Warn of ratios that were meant as factors, and of none at all."""
        for name, percent in read(ratios).percents.items():
            if 0 < percent < _PLAUSIBLE:
                warn(
                    info,
                    f"`defaultLimitToAllocatableRatio` of {name} is {percent} %",
                    f"for {percent} times what a node offers write {percent * 100}",
                )
        if not ratios:
            warn(
                info,
                "without `defaultLimitToAllocatableRatio` it has an effect only on nodes with the"
                f" annotation `{LIMIT_TO_ALLOCATABLE}`",
            )
        return ratios


_NODES = (Domain.NODES,)

UNCHECKED: Final = 2**62
"""The capacity where a resource has no ratio: nothing exceeds it."""

Limits: TypeAlias = tuple[tuple[str, int], ...]
"""Names of resources with amounts."""


class LimitCapacity:
    """The capacity for limits, which filter and score share, and where it is unknown."""

    def __init__(self, args: LimitAwareArgs) -> None:
        ratios = args.default_limit_to_allocatable_ratio
        self._ratios = NodeRatios(ratios)
        self._key = tuple(sorted(ratios.items()))

    def fault(self, cycle: Cycle, row: int) -> str:
        return self._ratios.fault_of(cycle.view.nodes[row])

    def _limits_with_pod(
        self, view: ClusterView, row: int, sums: Sum, limits: Limits
    ) -> RuleInputs:
        """Return the sums of limits on a node with those of the pod, of the capacity for them."""
        part, inputs = view.take(np.array([row])), []
        for name, amount in limits:
            (capacity,) = self._capacity(part, name).tolist()
            if capacity != UNCHECKED:
                (others,) = part.amount(part.sums[sums], name).tolist()
                total = others + amount
                inputs.append(RuleInput(f"{name} limits", total, unit_of(name), capacity=capacity))
        return tuple(inputs)

    def _is_faulty(self, view: ClusterView) -> BoolColumn:
        """Return where the ratios of a node are unknown."""
        return view.node_column(("LimitAware faulty", self._key), _NODES, self._ratios.faulty)

    def _capacity(self, view: ClusterView, name: str) -> IntColumn:
        """Return what limits of a resource may add up to per node, UNCHECKED without a ratio."""
        covered, capacity = self._ratios.capacity(view, name)
        return np.where(covered, capacity, UNCHECKED)


@dataclass(frozen=True, slots=True)
class _FilterSide(RowWise):
    """Columns of all nodes that do not depend on the pod."""

    capacities: IntColumn  # of NATIVE, (3, n)
    named: frozenset[str]  # every resource that some node has a ratio for
    # where the ratios of a node are unknown, None if they are known of all
    faulty: BoolColumn | None


class LimitAwareFilter(LimitCapacity, Filter):
    """Rejects nodes whose limits would add up to more than their capacity."""

    def filter(self, cycle: Cycle) -> FilterResult:
        view = cycle.view
        if cycle.pod.is_daemon_set:
            return FilterResult.passing(len(view))
        side = view.node_aggregate(("LimitAware filter", self._key), _NODES, self._side)
        complaints = self._complaints(cycle.pod, view, side)
        judged = rejected_with(complaints) if complaints else FilterResult.passing(len(view))
        if side.faulty is None:
            return judged
        return result_of(np.where(side.faulty, FAULT, judged.codes))

    def _complaints(self, pod: Pod, view: ClusterView, side: _FilterSide) -> list[BoolColumn]:
        """Return where each of the resources that are checked falls short, those of NATIVE first.

        Empty for a pod that limits nothing.
        """
        names = [name for name, _ in _checked(pod.shape)]
        if not names:
            return []
        own = _checked_amounts(pod.shape)
        allocated = view.sums[Sum.EFFECTIVE_LIMITS]
        free = side.capacities - view.amounts(allocated, NATIVE)
        short = [*(free < own[: len(NATIVE)])]
        nowhere = np.zeros(len(view), np.bool_)
        for at, name in enumerate(names[len(NATIVE) :], len(NATIVE)):
            if name in side.named:
                left = self._capacity(view, name) - view.amount(allocated, name)
                short.append(left < own[at])
            else:
                short.append(nowhere)
        return short

    def _side(self, view: ClusterView) -> _FilterSide:
        def capacities(part: ClusterView) -> IntColumn:
            return np.stack([self._capacity(part, name) for name in NATIVE])

        native = view.node_column(("LimitAware native", self._key), _NODES, capacities)
        faulty = self._is_faulty(view)
        named = frozenset(self._ratios.named(view))
        return _FilterSide(native, named, faulty if faulty.any() else None)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        checked = () if cycle.pod.is_daemon_set else _checked(cycle.pod.shape)
        return self._limits_with_pod(cycle.view, row, Sum.EFFECTIVE_LIMITS, checked)

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        checked = _checked(cycle.pod.shape)
        texts = [f"Insufficient {name} limit" for name, _ in checked]
        return reason_texts(code, texts, "Insufficient extended resources limit")


@cached_by_shape
def _checked(shape: PodShape) -> Limits:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoreSide(RowWise):
    """What is known of all nodes before a pod is; without a ratio a resource takes no part."""

    capacities: IntColumn  # of the scored resources, 0 where one takes no part, (n_scored, n)
    divisors: FloatColumn  # the same, but 1 there
    weights: FloatColumn  # 0 there, (n_scored, n)
    total_weight: FloatColumn  # at least 1, (n,)
    # where the ratios of a node are unknown, None if they are known of all
    faulty: BoolColumn | None


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

    def weighed(self, pod: Pod) -> Weighed:
        """Return the scored resources, with the pod's limits, with defaults for missing."""
        weights = tuple(map(float, self._weights[:, 0].tolist()))
        return Weighed(self._names, weights, _own(pod.shape, self._names))

    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        """Return the sums of limits, with defaults for missing."""
        return view.amounts(view.sums[Sum.EFFECTIVE_LIMITS_NON_ZERO], names)

    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        return self._capacities(view)

    def key(self, pod: Pod) -> Hashable:
        return self._side_key

    def faults(self, view: ClusterView) -> BoolColumn | None:
        faulty = self._is_faulty(view)
        return faulty if faulty.any() else None


class LimitAwareScore(_LimitScore, Score):
    """Prefers nodes whose limits leave the most of their capacity; below 0 where they exceed it."""

    def score(self, cycle: Cycle) -> Scores:
        """Return the weighted mean over the resources that have a ratio and a capacity."""
        view = cycle.view
        side = view.node_aggregate(self._side_key, _NODES, self._side)
        limits = view.amounts(view.sums[Sum.EFFECTIVE_LIMITS_NON_ZERO], self._names)
        taken = limits + _own(cycle.pod.shape, self._names)
        free = np.subtract(side.capacities, taken, out=taken)
        percents = free_percent(side.divisors, free)
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

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        limits = cycle.pod.shape.effective_limits_non_zero
        scored = tuple((name, capped(limits.get(name, 0))) for name in self._names)
        return self._limits_with_pod(cycle.view, row, Sum.EFFECTIVE_LIMITS_NON_ZERO, scored)

    def _side(self, view: ClusterView) -> _ScoreSide:
        capacities, faulty = self._capacities(view), self._is_faulty(view)
        counts = capacities != 0
        weights = (counts * self._weights).astype(np.float64)
        return _ScoreSide(
            capacities=capacities,
            divisors=np.where(counts, capacities, 1).astype(np.float64),
            weights=weights,
            total_weight=np.maximum(weights.sum(axis=0), 1),
            faulty=faulty if faulty.any() else None,
        )


@cached_by_shape
def _own(shape: PodShape, names: tuple[str, ...]) -> IntColumn:
    """Return the amounts of a pod of these resources, (len(names), 1)."""
    amounts = [capped(shape.effective_limits_non_zero.get(name, 0)) for name in names]
    return np.array(amounts, np.int64).reshape(len(names), 1)


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
