"""LimitAware: keep the limits of a node's pods within a multiple of what the node offers.

Source: Koordinator pull request 1486, pkg/scheduler/plugins/limitaware (filtering.go, scoring.go,
least_allocated.go). Only resources that a ratio is given for take part, node by node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field

from engine.model.pod import Pod, PodShape
from engine.model.resource_names import NATIVE, is_scalar
from engine.model.time import Micros
from engine.plugins.arithmetic import FloatColumn, bounded_percent, free_percent
from engine.plugins.base import FAULT, MAX_SCORE, PASS, Args, Plugin, Scores
from engine.plugins.complaints import complaint_codes, complaint_texts
from engine.plugins.limit_ratios import NodeRatios
from engine.plugins.words import part_words
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, Sum
from engine.view.axis import capped

_NODES = (Domain.NODES,)
_UNCHECKED = 2**62
"""The capacity where a resource has no ratio: nothing exceeds it."""

_SHAPES_REMEMBERED = 4096


def _one_for_zero(weight: int) -> int:
    return weight or 1


_Limits: TypeAlias = tuple[tuple[str, int], ...]

_Weight: TypeAlias = Annotated[
    int, Field(strict=True, ge=0, le=MAX_SCORE), AfterValidator(_one_for_zero)
]
_Ratio: TypeAlias = (
    Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)] | Annotated[str, Field(strict=True)]
)
_WEIGHTS = {"cpu": 1, "memory": 1}


def _default_weights(weights: dict[str, int]) -> dict[str, int]:
    return weights or _WEIGHTS


class LimitAwareArgs(Args):
    """LimitAwareArgs, with upstream's defaults.

    Attributes:
        scoring_resource_weights: weight of each resource's score; 0 counts as 1.
        default_limit_to_allocatable_ratio: percent of its allocatable that a node's limits may
            add up to, an integer or `"N%"`, by resource name. One that cannot be read is a fault
            of every node it applies to.
    """

    scoring_resource_weights: Annotated[dict[str, _Weight], AfterValidator(_default_weights)] = (
        Field(default=_WEIGHTS)
    )
    default_limit_to_allocatable_ratio: dict[str, _Ratio] = Field(default_factory=dict)


class _LimitAware:
    """What filter and score have in common: the capacity for limits, and where it is unknown."""

    def __init__(self, args: LimitAwareArgs) -> None:
        ratios = args.default_limit_to_allocatable_ratio
        self._ratios = NodeRatios(ratios)
        self._key = tuple(sorted(ratios.items()))

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return why the ratios of a node are unknown."""
        return self._ratios.fault_of(view.nodes[row])

    def _taken(self, view: ClusterView, row: int, sums: Sum, own: _Limits) -> dict[str, str]:
        """Return what limits on a node add up to with a pod's own, of what they may."""
        part = view.take(np.array([row]))
        taken = {}
        for name, amount in own:
            (capacity,) = self._capacity(part, name).tolist()
            if capacity != _UNCHECKED:
                (others,) = part.amount(part.sums[sums], name).tolist()
                taken[f"{name} limits"] = part_words(name, others + amount, capacity)
        return taken

    def _native(self, view: ClusterView) -> IntColumn:
        """Return the capacities of NATIVE, (3, n)."""

        def compute(part: ClusterView) -> IntColumn:
            return np.stack([self._capacity(part, name) for name in NATIVE])

        return view.node_column(("LimitAware native", self._key), _NODES, compute)

    def _is_faulty(self, view: ClusterView) -> BoolColumn:
        """Return where the ratios of a node are unknown."""
        return view.node_column(("LimitAware faulty", self._key), _NODES, self._ratios.faulty)

    def _capacity(self, view: ClusterView, name: str) -> IntColumn:
        """Return what limits of a resource may add up to per node, _UNCHECKED without a ratio."""
        covered, capacity = self._ratios.capacity(view, name)
        return np.where(covered, capacity, _UNCHECKED)


class LimitAwareFilter(_LimitAware):
    """Rejects nodes whose limits would add up to more than their capacity."""

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> IntColumn:  # noqa: ARG002 (protocol)
        """Return PASS, FAULT, or complaints: one per resource that falls short."""
        if pod.is_daemon_set:
            return np.full(len(view), PASS, np.int64)
        checked = _checked(pod.shape)
        complaints = self._complaints(view, checked)
        codes = complaint_codes(complaints) if complaints else np.zeros(len(view), np.int64)
        is_faulty = self._is_faulty(view)
        return np.where(is_faulty, FAULT, codes) if is_faulty.any() else codes

    def _complaints(self, view: ClusterView, checked: _Limits) -> list[BoolColumn]:
        """Return where each of the resources that are checked falls short."""
        if not checked:
            return []
        allocated = view.sums[Sum.EFFECTIVE_LIMITS]
        native, scalars = checked[: len(NATIVE)], checked[len(NATIVE) :]
        free = self._native(view) - view.amounts(allocated, NATIVE)
        short = [*(free < np.array([[amount] for _, amount in native]))]
        named = self._ratios.named(view) if scalars else ()
        short += [
            self._capacity(view, name) - view.amount(allocated, name) < amount
            if name in named
            else np.zeros(len(view), np.bool_)
            for name, amount in scalars
        ]
        return short

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> dict[str, str]:  # noqa: ARG002 (protocol)
        """Return what limits would add up to, of what they may."""
        checked = () if pod.is_daemon_set else _checked(pod.shape)
        return self._taken(view, row, Sum.EFFECTIVE_LIMITS, checked)

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the texts of the complaints in a code, cpu, memory, ephemeral-storage first."""
        checked = _checked(pod.shape)
        texts = [f"Insufficient {name} limit" for name, _ in checked]
        return complaint_texts(code, texts, "Insufficient extended resources limit")


class LimitAwareScore(_LimitAware):
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

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:  # noqa: ARG002 (protocol)
        """Return the weighted mean over the resources that have a ratio and a capacity."""
        own, n_scored = pod.shape.effective_limits_non_zero, len(self._names)
        free = self._capacities(view) - view.amounts(
            view.sums[Sum.EFFECTIVE_LIMITS_NON_ZERO], self._names
        )
        free -= np.array([[capped(own.get(name, 0))] for name in self._names])
        terms = self._terms(view)
        percents = free_percent(terms[:n_scored], free)
        percents *= terms[n_scored:-1]
        mean = percents.sum(axis=0)
        mean /= terms[-1]
        is_faulty = self._is_faulty(view)
        return Scores(bounded_percent(mean), is_faulty if is_faulty.any() else None)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Stretch the scores over 0..MAX_SCORE in float64, truncated; all equal scores become 0."""
        if not scores.size:
            return scores
        least = scores.min()
        spread = scores.max() - least
        if not spread:
            return np.zeros_like(scores)
        share: FloatColumn = (scores - least).astype(np.float64)
        share /= spread
        share *= MAX_SCORE
        return share.astype(np.int64)

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> dict[str, str]:  # noqa: ARG002 (protocol)
        """Return what limits would add up to, of what they may; without one some are assumed."""
        own = pod.shape.effective_limits_non_zero
        scored = tuple((name, capped(own.get(name, 0))) for name in self._names)
        return self._taken(view, row, Sum.EFFECTIVE_LIMITS_NON_ZERO, scored)

    def _capacities(self, view: ClusterView) -> IntColumn:
        """Return the capacities of the scored resources, (n_scored, n).

        0 where a resource takes no part, or the ratios of the node are unknown.
        """

        def compute(part: ClusterView) -> IntColumn:
            capacities = np.array([self._capacity(part, name) for name in self._names], np.int64)
            counts = (capacities != _UNCHECKED) & ~self._is_faulty(part)
            return np.where(counts, capacities, 0).reshape(len(self._names), len(part))

        return view.node_column(("LimitAware scored", self._key, self._names), _NODES, compute)

    def _terms(self, view: ClusterView) -> FloatColumn:
        """Return what to divide by, what to weigh with, and its sum, (2 * n_scored + 1, n).

        That is 1 and 0 where a resource takes no part.
        """

        def compute(part: ClusterView) -> FloatColumn:
            capacities = self._capacities(part)
            counts = capacities != 0
            weights = counts * self._weights
            total_weight = np.maximum(weights.sum(axis=0), 1)
            terms = np.vstack([np.where(counts, capacities, 1), weights, total_weight])
            return terms.astype(np.float64)

        key = ("LimitAware terms", self._key, self._names, self._weights.tobytes())
        return view.node_column(key, _NODES, compute)


@lru_cache(maxsize=_SHAPES_REMEMBERED)
def _checked(shape: PodShape) -> _Limits:
    """Return which resources a pod is checked for, and its own amounts; none if it limits nothing.

    Once it limits anything, cpu, memory and ephemeral-storage are checked even where its own amount
    is 0: a node that is over its capacity takes no such pod.
    """
    limits = shape.effective_limits
    scalars = sorted(name for name in limits if name not in NATIVE)
    if not scalars and not any(limits.get(name) for name in NATIVE):
        return ()
    return tuple((name, capped(limits.get(name, 0))) for name in (*NATIVE, *scalars))


PLUGIN = Plugin(
    args=LimitAwareArgs,
    filter=LimitAwareFilter,
    score=LimitAwareScore,
    reads=(Domain.NODES, Domain.PODS),
)
