"""LoadAware: keep pods off nodes that are busy by measurement, and prefer idle ones.

Source: Koordinator, pkg/scheduler/plugins/loadaware/load_aware.go (plugin LoadAwareScheduling).
The usage of a node is that of its last report, plus the expected usage of its newest pods beyond
that, plus the expected usage of the incoming pod. Anything malformed on a node is ignored. Of a
duplicate key in an annotation the last value counts, where Koordinator merges both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.model.decision import Codes, FilterResult
from engine.model.measure import Measure, NodeThreshold
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.resources import Amounts
from engine.model.rule_input import RuleInput, RuleInputs, unit_of
from engine.model.shape_cache import cached_by_shape
from engine.model.time import SECOND, Micros
from engine.plugins.base import MAX_SCORE, PASS, NeverFaults, Plugin, Scores
from engine.plugins.lib.arithmetic import (
    FloatColumn,
    free_percent,
    least_reaching,
    sum_of_rows,
)
from engine.plugins.lib.inputs import report_age
from engine.plugins.load_aware.args import LoadAwareArgs
from engine.plugins.load_aware.estimation import estimate, estimate_vector
from engine.plugins.load_aware.sums import LoadProfile
from engine.plugins.load_aware.thresholds import NodeChecks
from engine.plugins.load_aware.usage import Readings, UsageSource, capacity, readings_of
from engine.view import (
    LOAD_DOMAINS,
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    RowWise,
    extremes,
    stale_reports,
)

_EXPIRED = 1
_FIRST_EXCEEDED = 2
"""Codes from here on: two for each known resource in order, the second one for a percentile."""

_NO_ROWS = np.zeros(0, np.intp)
_NODE_SIDE = (Domain.NODES, Domain.METRICS)
_UNREACHABLE = 2**60
"""More than any node can use."""


@dataclass(frozen=True, slots=True)
class _FilterSide(RowWise):
    """The part of the filter that no pod changes.

    Attributes:
        readings: the usage that pods add to.
        slack: the least amount that is too much on top of each reading, (n_known, n).
        is_judged: where the age of a report counts, (n,).
        codes: the code of the first known resource, (n,).
    """

    readings: Readings
    slack: IntColumn
    is_judged: BoolColumn
    codes: Codes

    def take(self, rows: NDArray[np.intp]) -> _FilterSide:
        """Return some rows."""
        return _FilterSide(
            self.readings.take(rows),
            self.slack.take(rows, axis=1),
            self.is_judged.take(rows),
            self.codes.take(rows),
        )


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


class LoadAwareFilter(NeverFaults):
    """Rejects nodes whose estimated usage would exceed a threshold."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._checks = NodeChecks(args)
        self._key = args.model_dump_json()  # reloaded policies share columns

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:
        """Return PASS, _EXPIRED or the code of the first resource over its threshold."""
        if pod.is_daemon_set:
            return FilterResult.passing(len(view))
        side = self._side(view, is_prod=pod.shape.is_prod)
        expected = side.readings.added(view, self._profile) + _expected(pod.shape, self._profile)
        exceeds = expected >= side.slack
        rejects: BoolColumn = reduce(np.logical_or, exceeds)
        expired = _NO_ROWS
        instead = PASS if self._args.enable_schedule_when_node_metrics_expired else _EXPIRED
        if self._args.filter_expired_node_metrics:
            expired = _expired(view, self._args, now)
            if expired.size:
                expired = expired[side.is_judged[expired]]
                rejects[expired] = instead != PASS

        def codes() -> Codes:
            found = side.codes + 2 * _positions(exceeds)
            found *= rejects
            found[expired] = instead
            return found

        return FilterResult(rejects, codes)

    def rejects_every_pod(self, view: ClusterView, now: Micros) -> BoolColumn:
        """Return the nodes over a threshold before any pod is added, production pod or not."""
        rejects = np.ones(len(view), np.bool_)
        for is_prod in (False, True):
            side = self._side(view, is_prod=is_prod)
            rejects &= reduce(np.logical_or, side.readings.added(view, self._profile) >= side.slack)
        rejects[_expired(view, self._args, now)] = False
        return rejects

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the one reason of a code."""
        if code == _EXPIRED:
            return ("node(s) nodeMetric expired",)
        resource, is_aggregated = divmod(code - _FIRST_EXCEEDED, 2)
        usage = "aggregated usage" if is_aggregated else "usage"
        return (f"node(s) {self._profile.known[resource]} {usage} exceed threshold",)

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:
        """Return the expected usage with the pod, the capacity, and the threshold.

        Only of resources with a threshold, and nothing for a pod of a DaemonSet.
        """
        if pod.is_daemon_set:
            return ()
        is_prod, part = pod.shape.is_prod, view.take(np.array([row]))
        bounds, totals = self._checks.limits(part, is_prod=is_prod).by_resource
        readings = self._readings(part, is_prod=is_prod)
        usages = _usage_inputs(self._profile, readings, part, pod, totals[:, 0])
        # INVARIANT of bounds: without its fraction, a bound is the threshold.
        checked = (
            structs.replace(usage, allowed_percent=int(bound))
            for usage, bound in zip(usages.values(), bounds[:, 0].tolist(), strict=True)
            if np.isfinite(bound)
        )
        return (*checked, report_age(view, row, now))

    # Columns of nodes and reports alone, one for production pods and one for others.

    def _side(self, view: ClusterView, *, is_prod: bool) -> _FilterSide:
        def make(whole: ClusterView) -> _FilterSide:
            # Of columns of all nodes, which takes less time than of the rows that changed: a few of
            # them report between two reviews.
            readings = self._readings(whole, is_prod=is_prod)
            has_threshold, is_aggregated = self._flags(whole, is_prod=is_prod)
            slack = self._cutoffs(whole, is_prod=is_prod) - readings.amounts
            slack[:, ~readings.is_measured] = _UNREACHABLE
            first = is_aggregated.astype(np.int16) + np.int16(_FIRST_EXCEEDED)
            return _FilterSide(readings, slack, readings.is_reported & has_threshold, first)

        return view.node_aggregate(("LoadAware filter side", self._key, is_prod), _NODE_SIDE, make)

    def _flags(self, view: ClusterView, *, is_prod: bool) -> BoolColumn:
        """Return where there is any threshold, and where a percentile is checked, (2, n)."""

        def compute(part: ClusterView) -> BoolColumn:
            limits = self._checks.limits(part, is_prod=is_prod)
            return np.stack([limits.has_threshold, limits.is_aggregated])

        key = ("LoadAware filter flags", self._key, is_prod)
        return view.node_column(key, (Domain.NODES,), compute)

    def _cutoffs(self, view: ClusterView, *, is_prod: bool) -> IntColumn:
        """Return the least usage of each known resource that is too much, (n_known, n)."""

        def compute(part: ClusterView) -> IntColumn:
            bounds, totals = self._checks.limits(part, is_prod=is_prod).by_resource
            return least_reaching(totals, bounds)

        return view.node_column(
            ("LoadAware filter cutoffs", self._key, is_prod), (Domain.NODES,), compute
        )

    def _readings(self, view: ClusterView, *, is_prod: bool) -> Readings:
        source = self._checks.source_of_all(view, is_prod=is_prod)
        if source is not None:
            return readings_of(view, self._profile.known, source)

        def compute(part: ClusterView) -> IntColumn:
            sources = self._checks.sources(part, is_prod=is_prod)
            return Readings.of(part, self._profile.known, sources).table

        return Readings(
            view.node_column(("LoadAware filter readings", self._key, is_prod), _NODE_SIDE, compute)
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
        by_production = self._args.score_according_prod_usage and pod.shape.is_prod
        side = self._side(view, by_production=by_production)
        free = side.room - side.readings.added(view, self._profile)
        free -= _expected(pod.shape, self._profile)
        np.maximum(free, 0, out=free)
        percents = free_percent(side.totals, free)
        weighed = percents if self._are_alike else percents * self._weights
        total = sum_of_rows(weighed)
        if self._args.dominant_resource_weight:
            total += percents.min(axis=0) * self._args.dominant_resource_weight
        total /= self._total_weight
        score = total.astype(np.int64)
        expired = _expired(view, self._args, now)
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
        by_production = self._args.score_according_prod_usage and pod.shape.is_prod
        readings = self._readings(part, by_production=by_production)
        usages = _usage_inputs(self._profile, readings, part, pod, self._totals(part)[:, 0])
        weighted = self._args.resource_weights
        scored = (usage for name, usage in usages.items() if name in weighted)
        return (*scored, report_age(view, row, now))

    def _side(self, view: ClusterView, *, by_production: bool) -> _ScoreSide:
        def make(whole: ClusterView) -> _ScoreSide:
            readings = self._readings(whole, by_production=by_production)
            totals = capacity(whole, self._profile.known)
            room = totals - readings.amounts
            # Very negative where a node has none of a resource, or its usage is not known.
            room[(totals <= 0) | ~readings.is_measured] = -_UNREACHABLE
            return _ScoreSide(readings, room, self._totals(whole))

        key = ("LoadAware score", self._profile.known, self._source(by_production=by_production))
        return view.node_aggregate(key, _NODE_SIDE, make)

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


def _positions(marks: BoolColumn) -> NDArray[np.int16]:
    """Return how many marks of each column come before the first that is set, shape (n,)."""
    positions = np.zeros(marks.shape[-1], np.int16)
    unset = ~marks[0]
    for i in range(1, len(marks)):
        positions += unset
        unset &= ~marks[i]
    return positions


@cached_by_shape
def _expected(shape: PodShape, profile: LoadProfile) -> IntColumn:
    """Return the estimated usage of a pod by known resource, shape (n_known, 1)."""
    return np.array(estimate_vector(shape, profile), np.int64)[:, np.newaxis]


def _usage_inputs(
    profile: LoadProfile, readings: Readings, part: ClusterView, pod: Pod, totals: FloatColumn
) -> dict[str, RuleInput]:
    """Return the expected usage of each known resource on the one node of `part`."""
    others = (readings.amounts + readings.added(part, profile))[:, 0].tolist()
    expected = _expected(pod.shape, profile)[:, 0].tolist()
    return {
        name: RuleInput(f"{name} usage", used + more, unit_of(name), capacity=total, pod=more)
        for name, used, more, total in zip(
            profile.known, others, expected, totals.astype(np.int64).tolist(), strict=True
        )
    }


def _expired(view: ClusterView, args: LoadAwareArgs, now: Micros) -> NDArray[np.intp]:
    """Return the rows whose report is missing, has no time, or is too old."""
    last_expired = now - args.node_metric_expiration_seconds * SECOND
    return stale_reports(view).overdue(max(last_expired, 0)).rows


def _estimator(args: LoadAwareArgs) -> Callable[[Pod], Amounts]:
    profile = args.load_profile
    return lambda pod: estimate(pod.shape, profile)


def _thresholds(args: LoadAwareArgs) -> list[NodeThreshold]:
    """Return those for pods that are not production pods."""
    is_aggregated = args.aggregated.usage_thresholds and args.aggregated.usage_aggregation_type
    found = args.aggregated.usage_thresholds if is_aggregated else args.usage_thresholds
    return [
        NodeThreshold(Measure.LOAD, name, percent) for name, percent in found.items() if percent
    ]


PLUGIN = Plugin(
    args=LoadAwareArgs,
    filter=LoadAwareFilter,
    node_filter=LoadAwareFilter,
    score=LoadAwareScore,
    sum_profiles=lambda args: (args.load_profile,),
    estimator=_estimator,
    thresholds=_thresholds,
    reads=LOAD_DOMAINS,
)
