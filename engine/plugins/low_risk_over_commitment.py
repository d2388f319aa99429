"""LowRiskOverCommitment: prefer nodes where limits beyond capacity are unlikely to be used.

Source: scheduler-plugins, pkg/trimaran/lowriskovercommitment. The risk of a node has two parts: how
far the limits of its pods exceed what it offers, and how likely its load, fitted with a beta
distribution, exceeds what its pods request. The riskier of cpu and memory counts.
`engine.plugins.lib.trimaran` says which measurements these are.

The load is that of the pods on the node without the incoming one, so it is cached per node.

Differences from upstream:

- **Steady load**: a deviation close to 0, such as 2.5e-10 %, is no risk. Upstream's arithmetic
  breaks down there and reports a great one.
- **Empty reports**: a report without any measurement counts as none.
- **Source of measurements**: `metricProvider` and `watcherAddress` are checked and not used: usage
  comes from the sources of the cluster view.
"""

# The beta distribution, on whole columns: what load between nothing and all is fitted with.
#
# The distribution function is the regularised incomplete beta function, evaluated by its continued
# fraction (NIST Digital Library of Mathematical Functions, 8.17.22) with the modified method of
# Lentz, on the side where that converges fast.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, ValidationInfo

from engine.documents import warn
from engine.model.pod_shape import PodShape
from engine.model.quantity import INT64_MAX, INT64_MIN
from engine.model.rule_outcomes import RuleInput, RuleInputs, unit_of
from engine.model.usage import NodeUsage
from engine.plugins.base import MAX_SCORE, Cycle, Plugin, Score, Scores
from engine.plugins.lib.arithmetic import FloatColumn, rounded
from engine.plugins.lib.trimaran import (
    RESOURCES,
    LoadStats,
    TrimaranArgs,
    is_recent,
    is_reported,
    load_inputs,
    load_stats,
    share,
)
from engine.view import LOAD_DOMAINS, ClusterView, IntColumn, PodEntry, capped

_PRECISION = 1e-10
_MOST_TERMS = 2_000
_TINY = 1e-300
_SHARPEST = 1e6
"""The greatest alpha + beta. Narrower than a deviation of 0.0005 nothing is measured, and the
continued fraction takes as many terms as the root of this."""


def greatest_variance(mean: FloatColumn) -> FloatColumn:
    """Return what the variance of a distribution on 0..1 stays below, 0 for a mean at its ends."""
    return np.where((mean > 0) & (mean < 1), mean * (1 - mean), 0.0)


def fitted(mean: FloatColumn, variance: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """Return alpha and beta of the distributions with these moments, 0 where there is none."""
    most = greatest_variance(mean)
    exists = (variance >= 0) & (variance < most)
    least = most / (_SHARPEST + 1)
    ratio = np.divide(most, np.maximum(variance, least), out=np.ones_like(most), where=exists)
    total = ratio - 1
    return mean * total, (1 - mean) * total


def distribution(x: FloatColumn, alpha: FloatColumn, beta: FloatColumn) -> FloatColumn:
    """Return the probability of at most `x`; 0 where alpha or beta is none, or x not in 0..1."""
    probability = np.where((alpha > 0) & (beta > 0) & (x >= 1), 1.0, 0.0)
    probability[x > 1] = 0
    (inside,) = np.nonzero((alpha > 0) & (beta > 0) & (x > 0) & (x < 1))
    if not inside.size:
        return probability
    x, alpha, beta = x[inside], alpha[inside], beta[inside]
    # Beyond its mean the function of x is 1 less that of 1 - x, whose fraction converges fast.
    mirrored = x > (alpha + 1) / (alpha + beta + 2)
    x = np.where(mirrored, 1 - x, x)
    alpha, beta = np.where(mirrored, (beta, alpha), (alpha, beta))
    lower = np.exp(_log_front(x, alpha, beta)) * _continued_fraction(x, alpha, beta)
    probability[inside] = np.clip(np.where(mirrored, 1 - lower, lower), 0, 1)
    return probability


def _log_front(x: FloatColumn, alpha: FloatColumn, beta: FloatColumn) -> FloatColumn:
    return (
        alpha * np.log(x)
        + beta * np.log1p(-x)
        - np.log(alpha)
        + _log_gamma(alpha + beta)
        - _log_gamma(alpha)
        - _log_gamma(beta)
    )


def _log_gamma(values: FloatColumn) -> FloatColumn:
    return np.array([math.lgamma(value) for value in values.tolist()], np.float64)


def _continued_fraction(x: FloatColumn, alpha: FloatColumn, beta: FloatColumn) -> FloatColumn:
    """Return the continued fraction of the incomplete beta function."""
    total = alpha + beta
    numerator = np.ones_like(x)
    inverse = 1 / _not_zero(1 - total * x / (alpha + 1))
    value = inverse.copy()
    for term in range(1, _MOST_TERMS):
        at = alpha + 2 * term
        even = term * (beta - term) * x / ((at - 1) * at)
        odd = -(alpha + term) * (total + term) * x / (at * (at + 1))
        step = np.ones_like(x)
        for coefficient in (even, odd):
            inverse = 1 / _not_zero(1 + coefficient * inverse)
            numerator = _not_zero(1 + coefficient / numerator)
            step *= inverse * numerator
        value *= step
        if np.abs(step - 1).max() < _PRECISION:
            break
    return value


def _not_zero(values: FloatColumn) -> FloatColumn:
    return np.where(np.abs(values) < _TINY, _TINY, values)


_DEFAULT_WINDOWS = 5
_DEFAULT_WEIGHT = 0.5
_VARIANCE_ALLOWED = 0.99  # of the greatest, beyond which no beta distribution can be fitted


def _windows(count: int, info: ValidationInfo) -> int:
    if count > 0:
        return count
    warn(info, f"`smoothingWindowSize` {count} counts as {_DEFAULT_WINDOWS}")
    return _DEFAULT_WINDOWS


def _weight(weight: float, info: ValidationInfo) -> float:
    if 0 <= weight <= 1:
        return weight
    text = f"a weight of {weight:g} in `riskLimitWeights`"
    share = f"for {weight:g} % write {weight / 100:g}" if 1 < weight <= 100 else ""  # noqa: PLR2004
    warn(info, f"{text} is not within 0..1, and counts as {_DEFAULT_WEIGHT}", share)
    return _DEFAULT_WEIGHT


class LowRiskOverCommitmentArgs(TrimaranArgs):
    """LowRiskOverCommitmentArgs, with upstream's defaults.

    Attributes:
        smoothing_window_size: over how many windows measurements are smoothed, which hides that
            much of their deviation; 0 or less means 5.
        risk_limit_weights: what part of the risk the limits are, 0 to 1, by resource name; 0.5 for
            what is not listed or out of range.
    """

    smoothing_window_size: Annotated[
        int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX), AfterValidator(_windows)
    ] = _DEFAULT_WINDOWS
    risk_limit_weights: dict[str, Annotated[float, Field(strict=True), AfterValidator(_weight)]] = (
        Field(default_factory=dict)
    )


class Totals(NamedTuple):
    """Requests and limits on each node, (n_resources, n) each, in millicores and bytes."""

    offered: IntColumn  # allocatable
    requests: IntColumn  # with the incoming pod, at most what is offered
    limits: IntColumn  # with the incoming pod
    requests_before: IntColumn  # without it, at most what is offered
    limits_before: IntColumn  # without it


@dataclass(frozen=True, slots=True)
class Committed:
    """Requests and limits of pods, summed up: cpu and memory of one, then of the other."""

    width: ClassVar[int] = 2 * len(RESOURCES)
    reads_reports: ClassVar[bool] = False

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:
        """Return requests and limits of a pod."""
        return self.of(pod.shape)

    def of(self, shape: PodShape) -> tuple[int, ...]:
        """Return requests and limits of a pod, limits at least as high as requests."""
        requests = [capped(shape.peak_requests.get(name, 0)) for name in RESOURCES]
        limits = [capped(shape.peak_limits.get(name, 0)) for name in RESOURCES]
        return (*requests, *map(max, requests, limits))


COMMITTED = Committed()
_NOTHING = (0,) * COMMITTED.width


class LowRiskOverCommitmentScore(Score):
    """Prefers nodes where little is promised beyond what there is, and little of it is used."""

    def __init__(self, args: LowRiskOverCommitmentArgs) -> None:
        self._windows = args.smoothing_window_size
        weights = [args.risk_limit_weights.get(name, _DEFAULT_WEIGHT) for name in RESOURCES]
        self._weights = np.array([[weight] for weight in weights])

    def score(self, cycle: Cycle) -> Scores:
        """Return the points of the riskier resource; 0 without metrics, or for a pod without wants.

        Upstream leaves best-effort pods alone: such a pod gets 0 everywhere.
        """
        view = cycle.view
        added = COMMITTED.of(cycle.pod.shape)
        if not any(added):
            return Scores(np.zeros(len(view), np.int64))
        committed = totals(added, view)
        risk = combined(limit_risk(committed), self._load_risk(view), self._weights)
        safe = rounded((1 - risk.max(axis=0)) * MAX_SCORE)
        return Scores(np.where(is_reported(view) & is_recent(view, cycle.now), safe, 0))

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        added, part = COMMITTED.of(cycle.pod.shape), cycle.view.take(np.array([row]))
        if not any(added):
            return ()
        committed = totals(added, part)
        inputs = (
            RuleInput(f"{name} {what}", int(amount), unit_of(name), capacity=int(offered))
            for what, amounts in (("requests", committed.requests), ("limits", committed.limits))
            for name, amount, offered in zip(
                RESOURCES, amounts[:, 0].tolist(), committed.offered[:, 0].tolist(), strict=True
            )
        )
        return (*inputs, *load_inputs(cycle.view, row, cycle.now))

    def _load_risk(self, view: ClusterView) -> FloatColumn:
        def compute(part: ClusterView) -> FloatColumn:
            return load_risk(totals(_NOTHING, part), load_stats(part), self._windows)

        return view.node_column(("LowRiskOverCommitment", self._windows), LOAD_DOMAINS, compute)


def totals(added: tuple[int, ...], view: ClusterView) -> Totals:
    """Return requests and limits on each node, with and without those of a pod."""
    offered = view.amounts(view.allocatable, RESOURCES)
    requests, limits = np.split(view.pod_sums[COMMITTED], 2)
    own_requests, own_limits = np.split(np.array(added)[:, np.newaxis], 2)
    return Totals(
        offered=offered,
        requests=np.minimum(requests + own_requests, offered),
        limits=limits + own_limits,
        requests_before=np.minimum(requests, offered),
        limits_before=limits,
    )


def limit_risk(committed: Totals) -> FloatColumn:
    """Return what part of all that may be used beyond requests is not there, (n_resources, n)."""
    excess = (committed.limits - committed.offered).astype(np.float64)
    burst = committed.limits - committed.requests
    risk: FloatColumn = np.zeros_like(excess)
    np.divide(excess, burst, out=risk, where=(excess > 0) & (burst != 0))
    return risk


def load_risk(committed: Totals, stats: LoadStats, windows: int) -> FloatColumn:
    """Return how likely load exceeds requests, (n_resources, n); 0 where it is not measured.

    Where all limits are less than what is offered, load beyond them is ruled out: the probability
    is one given that load stays within the limits.
    """
    offered = committed.offered.astype(np.float64)
    mean = share(stats.average, offered)
    deviation = share(stats.deviation, offered) * np.sqrt(windows)
    deviation = np.minimum(deviation, np.sqrt(greatest_variance(mean) * _VARIANCE_ALLOWED))
    requested = share(committed.requests_before.astype(np.float64), offered)
    limited = share(committed.limits_before.astype(np.float64), offered)

    is_steady = (mean == 0) | (deviation == 0)
    alpha, beta = fitted(mean, deviation**2)
    alpha[is_steady] = 0
    within_requests = _distribution(requested, alpha, beta)
    within_requests[is_steady] = ((mean == 0) | (mean <= requested))[is_steady]

    is_limited = (committed.limits_before < committed.offered) & (
        committed.requests_before <= committed.limits_before
    )
    within_limits = _distribution(np.where(is_limited & ~is_steady, limited, 0), alpha, beta)
    divisor = np.where(within_limits > 0, within_limits, 1)
    within_requests = np.clip(within_requests / divisor, 0, 1)
    within_requests[is_limited & (committed.limits_before == 0)] = 1
    return np.where(stats.is_measured, 1 - within_requests, 0)


def combined(limits: FloatColumn, load: FloatColumn, weights: FloatColumn) -> FloatColumn:
    """Return the risk that both parts make, 0 to 1; `weights` are those of the limits."""
    return np.clip(weights * limits + (1 - weights) * load, 0, 1)


def _distribution(x: FloatColumn, alpha: FloatColumn, beta: FloatColumn) -> FloatColumn:
    flat = distribution(x.ravel(), alpha.ravel(), beta.ravel())
    return flat.reshape(x.shape)


PLUGIN = Plugin(
    args=LowRiskOverCommitmentArgs,
    score=LowRiskOverCommitmentScore,
    sum_profiles=lambda _: (COMMITTED,),
    reads=LOAD_DOMAINS,
)
