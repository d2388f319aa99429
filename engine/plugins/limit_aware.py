"""LimitAware: keep the limits of a node's pods within a multiple of what the node offers.

Source: Koordinator pull request 1486, pkg/scheduler/plugins/limitaware (filtering.go, scoring.go,
least_allocated.go). Only resources that a ratio is given for take part, node by node.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from engine.model.pod import Pod
from engine.model.resource_names import is_scalar
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.plugins.arithmetic import FloatColumn, free_percent, trunc_div
from engine.plugins.base import FAULT, MAX_SCORE, PASS, Args, Plugin, Scores
from engine.plugins.complaints import complaint_codes, complaint_texts
from engine.plugins.limit_ratios import NATIVE, NodeRatios
from engine.view import ClusterView, Domain, IntColumn, Sum
from engine.view.axis import capped

_NODES = (Domain.NODES,)
_UNCHECKED = 2**62
"""The capacity where a resource has no ratio: nothing exceeds it."""


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

    def _native(self, view: ClusterView) -> IntColumn:
        """Return the capacities of NATIVE and where the ratios of a node are unknown, (4, n)."""

        def compute(part: ClusterView) -> IntColumn:
            capacities = [self._capacity(part, name) for name in NATIVE]
            return np.vstack([*capacities, self._ratios.faulty(part)])

        return view.node_column(("LimitAware native", self._key), _NODES, compute)

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
        checked = _checked(pod.shape.effective_limits)
        *native, is_faulty = self._native(view)
        capacities = dict(zip(NATIVE, native, strict=True))
        if len(checked) > len(NATIVE):
            named = self._ratios.named(view)
            scalars = [name for name, _ in checked[len(NATIVE) :] if name in named]
            capacities |= {name: self._capacity(view, name) for name in scalars}
        allocated = view.sums[Sum.EFFECTIVE_LIMITS]
        complaints = [
            capacities[name] - view.amount(allocated, name) < amount
            if name in capacities
            else np.zeros(len(view), np.bool_)
            for name, amount in checked
        ]
        codes = complaint_codes(complaints) if complaints else np.zeros(len(view), np.int64)
        return np.where(is_faulty, FAULT, codes) if is_faulty.any() else codes

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the texts of the complaints in a code, cpu, memory, ephemeral-storage first."""
        checked = _checked(pod.shape.effective_limits)
        texts = [f"Insufficient {name} limit" for name, _ in checked]
        return complaint_texts(code, texts, "Insufficient extended resources limit")


class LimitAwareScore(_LimitAware):
    """Prefers nodes whose limits leave the most of their capacity; below 0 where they exceed it."""

    def __init__(self, args: LimitAwareArgs) -> None:
        super().__init__(args)
        self._weights = tuple(
            (name, weight)
            for name, weight in args.scoring_resource_weights.items()
            if name in NATIVE or is_scalar(name)
        )

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:  # noqa: ARG002 (protocol)
        """Return the weighted mean over the resources that have a ratio and a capacity."""
        own = pod.shape.effective_limits_non_zero
        allocated = view.sums[Sum.EFFECTIVE_LIMITS_NON_ZERO]
        terms, divisors = self._terms(view), self._divisors(view)
        total = np.zeros(len(view), np.int64)
        for at, (name, _) in enumerate(self._weights):
            weight, capacity = terms[2 * at], terms[2 * at + 1]
            free = capacity - view.amount(allocated, name) - capped(own.get(name, 0))
            total += weight * free_percent(divisors[at], free)
        is_faulty = self._native(view)[-1]
        return Scores(trunc_div(total, divisors[-1]), is_faulty != 0 if is_faulty.any() else None)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Stretch the scores over 0..MAX_SCORE in float64, truncated; all equal scores become 0."""
        if not scores.size:
            return scores
        least = scores.min()
        spread = scores.max() - least
        if not spread:
            return np.zeros_like(scores)
        share: NDArray[np.float64] = (scores - least) / spread
        return (MAX_SCORE * share).astype(np.int64)

    def _terms(self, view: ClusterView) -> IntColumn:
        """Return weight and capacity of each scored resource in turn, shape (2 * n_scored, n).

        Weight 0 and capacity 1 where a resource takes no part or the ratios of the node are
        unknown.
        """

        def compute(part: ClusterView) -> IntColumn:
            is_sound = self._native(part)[-1] == 0
            terms: list[IntColumn] = []
            for name, weight in self._weights:
                capacity = self._capacity(part, name)
                counts = is_sound & (capacity != _UNCHECKED) & (capacity != 0)
                terms += [np.where(counts, weight, 0), np.where(counts, capacity, 1)]
            return np.array(terms, np.int64).reshape(len(terms), len(part))

        return view.node_column(("LimitAware terms", self._key, self._weights), _NODES, compute)

    def _divisors(self, view: ClusterView) -> FloatColumn:
        """Return the capacities of `_terms`, and the sum of their weights, (n_scored + 1, n)."""

        def compute(part: ClusterView) -> FloatColumn:
            terms = self._terms(part)
            total_weight = np.maximum(terms[::2].sum(axis=0), 1)
            return np.vstack([terms[1::2], total_weight]).astype(np.float64)

        return view.node_column(("LimitAware divisors", self._key, self._weights), _NODES, compute)


def _checked(limits: Amounts) -> _Limits:
    """Return which resources a pod is checked for, and its own amounts; none if it limits nothing.

    Once it limits anything, cpu, memory and ephemeral-storage are checked even where its own amount
    is 0: a node that is over its capacity takes no such pod.
    """
    scalars = sorted(name for name in limits if name not in NATIVE)
    if not scalars and not any(limits.get(name) for name in NATIVE):
        return ()
    return tuple((name, capped(limits.get(name, 0))) for name in (*NATIVE, *scalars))


PLUGIN = Plugin(args=LimitAwareArgs, filter=LimitAwareFilter, score=LimitAwareScore)
