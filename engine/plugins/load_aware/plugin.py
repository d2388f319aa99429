"""LoadAware: keep pods off nodes that are busy by measurement, and prefer idle ones.

Source: Koordinator, pkg/scheduler/plugins/loadaware/load_aware.go (plugin LoadAwareScheduling). The
usage of a node is its last report, plus the expected usage of pods that the report does not cover
yet, plus that of the incoming pod. Anything malformed on a node is ignored. If an annotation has a
key twice the last value counts; Koordinator merges both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.model.measure import Measure, NodeThreshold
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.rule_input import RuleInputs
from engine.model.rule_outcomes import Codes, FilterResult
from engine.model.time import Micros
from engine.plugins.base import (
    PASS,
    NeverFaults,
    Plugin,
    Score,
)
from engine.plugins.lib.arithmetic import (
    any_of_rows,
    least_reaching,
)
from engine.plugins.lib.inputs import report_age
from engine.plugins.load_aware.args import LoadAwareArgs
from engine.plugins.load_aware.estimation import estimate
from engine.plugins.load_aware.expected import (
    NODE_SIDE,
    UNREACHABLE,
    expected_usage,
    expired_rows,
    usage_inputs,
)
from engine.plugins.load_aware.score import LoadAwareBalance, LoadAwareScore
from engine.plugins.load_aware.thresholds import NodeChecks
from engine.plugins.load_aware.usage import Readings, readings_of
from engine.view import (
    LOAD_DOMAINS,
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    RowWise,
)

_EXPIRED = 1
_FIRST_EXCEEDED = 2
"""Codes from here on: two for each known resource in order, the second one for a percentile."""

_NO_ROWS = np.zeros(0, np.intp)


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


class LoadAwareFilter(NeverFaults):
    """Rejects nodes whose estimated usage would exceed a threshold."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._checks = NodeChecks(args)
        self._of_expired = PASS if args.enable_schedule_when_node_metrics_expired else _EXPIRED
        self._key = args.model_dump_json()  # reloaded policies share columns

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:
        """Return PASS, _EXPIRED or the code of the first resource over its threshold."""
        if pod.is_daemon_set:
            return FilterResult.passing(len(view))
        side = self._side(view, is_prod=pod.shape.is_prod)
        added = side.readings.added(view, self._profile)
        exceeds = added + expected_usage(pod.shape, self._profile) >= side.slack
        rejects, expired = any_of_rows(exceeds), _NO_ROWS
        if self._args.filter_expired_node_metrics:
            expired = expired_rows(view, self._args, now)
            if expired.size:
                expired = expired[side.is_judged[expired]]
                rejects[expired] = self._of_expired != PASS

        def codes() -> Codes:
            found = side.codes + 2 * _positions(exceeds)
            found *= rejects
            found[expired] = self._of_expired
            return found

        return FilterResult(rejects, codes)

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
        usages = usage_inputs(self._profile, readings, part, pod, totals[:, 0])
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
            slack[:, ~readings.is_measured] = UNREACHABLE
            first = is_aggregated.astype(np.int16) + np.int16(_FIRST_EXCEEDED)
            return _FilterSide(readings, slack, readings.is_reported & has_threshold, first)

        return view.node_aggregate(("LoadAware filter side", self._key, is_prod), NODE_SIDE, make)

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
            view.node_column(("LoadAware filter readings", self._key, is_prod), NODE_SIDE, compute)
        )


def _positions(marks: BoolColumn) -> NDArray[np.int16]:
    """Return how many marks of each column come before the first that is set, shape (n,)."""
    positions = np.zeros(marks.shape[-1], np.int16)
    unset = ~marks[0]
    for i in range(1, len(marks)):
        positions += unset
        unset &= ~marks[i]
    return positions


def _estimator(args: LoadAwareArgs) -> Callable[[Pod], Amounts]:
    profile = args.load_profile
    return lambda pod: estimate(pod.shape, profile)


def _score(args: LoadAwareArgs) -> Score:
    return LoadAwareBalance(args) if args.strategy == "Balanced" else LoadAwareScore(args)


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
    score=_score,
    sum_profiles=lambda args: (args.load_profile,),
    estimator=_estimator,
    thresholds=_thresholds,
    reads=LOAD_DOMAINS,
)
