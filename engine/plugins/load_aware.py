"""LoadAware: keep pods off nodes that are busy by measurement, and prefer idle ones.

Source: Koordinator, pkg/scheduler/plugins/loadaware/load_aware.go (plugin LoadAwareScheduling).
A node's usage is what its last report says, plus what its newest pods are expected to use beyond
that, plus what the incoming pod is expected to use.
"""

from __future__ import annotations

import numpy as np

from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.plugins.arithmetic import free_percent, percent_reaches, trunc_div
from engine.plugins.base import MAX_SCORE, PASS, Plugin, Scores
from engine.plugins.load_aware_args import LoadAwareArgs
from engine.plugins.load_aware_thresholds import Limits, NodeChecks
from engine.plugins.load_aware_usage import PRODUCTION, Readings, capacity
from engine.view import ALL_DOMAINS, BoolColumn, ClusterView, Domain, IntColumn
from engine.view.estimation import estimate_vector

_EXPIRED = 1
_FIRST_EXCEEDED = 2
"""Codes from here on: two for each known resource in order, the second one for a percentile."""

_NODE_SIDE = (Domain.NODES, Domain.METRICS)
_NO_ROOM = -(2**60)
"""The room for a resource that a node does not have."""


class LoadAwareFilter:
    """Rejects nodes whose estimated usage would exceed a threshold."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._checks = NodeChecks(args)

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> IntColumn:
        """Return PASS, _EXPIRED or the code of the first resource over its threshold."""
        if pod.is_daemon_set:
            return np.full(len(view), PASS, np.int64)
        is_prod = pod.shape.is_prod
        expected = estimate_vector(self._profile, pod.shape)
        codes = view.pod_column(
            (self, is_prod, expected),
            ALL_DOMAINS,
            lambda part: self._codes(part, expected, is_prod=is_prod),
        )
        if not self._args.filter_expired_node_metrics:
            return codes
        expired = _is_expired(view, self._args, now)
        expired &= self._readings(view, is_prod=is_prod).is_reported
        expired &= self._limits(view, is_prod=is_prod).has_threshold
        if not expired.any():
            return codes
        instead = PASS if self._args.enable_schedule_when_node_metrics_expired else _EXPIRED
        return np.where(expired, instead, codes)

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the one reason of a code."""
        if code == _EXPIRED:
            return ("node(s) nodeMetric expired",)
        resource, is_aggregated = divmod(code - _FIRST_EXCEEDED, 2)
        usage = "aggregated usage" if is_aggregated else "usage"
        return (f"node(s) {self._profile.known[resource]} {usage} exceed threshold",)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return nothing: whatever is malformed on a node is ignored, so no row ever faults."""
        return ""

    def _codes(self, view: ClusterView, expected: tuple[int, ...], *, is_prod: bool) -> IntColumn:
        """Return the codes while no report has expired."""
        limits = self._limits(view, is_prod=is_prod)
        readings = self._readings(view, is_prod=is_prod)
        in_use = readings.used(view, self._profile)
        first_code = limits.is_aggregated + np.int64(_FIRST_EXCEEDED)
        codes = np.full(len(view), PASS, np.int64)
        for at, (bounds, totals) in enumerate(zip(*limits.by_resource, strict=True)):
            if np.isfinite(bounds).any():  # some node checks it
                exceeds = percent_reaches(in_use[at] + expected[at], totals, bounds)
                codes = np.where((codes == PASS) & exceeds, first_code + 2 * at, codes)
        return np.where(readings.is_measured, codes, PASS)

    # What depends on nodes and reports alone, remembered for production and other pods each.

    def _limits(self, view: ClusterView, *, is_prod: bool) -> Limits:
        return Limits(
            view.node_column(
                (self, "limits", is_prod),
                (Domain.NODES,),
                lambda part: self._checks.limits(part, is_prod=is_prod).table,
            )
        )

    def _readings(self, view: ClusterView, *, is_prod: bool) -> Readings:
        def compute(part: ClusterView) -> IntColumn:
            sources = self._checks.sources(part, is_prod=is_prod)
            return Readings.of(part, self._profile.known, sources).table

        return Readings(view.node_column((self, "readings", is_prod), _NODE_SIDE, compute))


class LoadAwareScore:
    """Prefers nodes with much of their capacity unused, by estimate."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._weights = [args.resource_weights.get(name, 0) for name in self._profile.known]
        # INVARIANT: not 0, for weights are filled in unless there is a dominant one.
        self._total_weight = sum(self._weights) + args.dominant_resource_weight

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:
        """Return the weighted share of each node that is free, 0 where its report is too old."""
        by_production = self._args.score_according_prod_usage and pod.shape.is_prod
        expected = estimate_vector(self._profile, pod.shape)
        scores = view.pod_column(
            (self, by_production, expected),
            ALL_DOMAINS,
            lambda part: self._scores(part, expected, by_production=by_production),
        )
        return Scores(np.where(_is_expired(view, self._args, now), 0, scores))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores, which are percentages unless estimates are negative."""
        return np.clip(scores, 0, MAX_SCORE)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return nothing: whatever is malformed on a node is ignored, so no row ever faults."""
        return ""

    def _scores(
        self, view: ClusterView, expected: tuple[int, ...], *, by_production: bool
    ) -> IntColumn:
        """Return the scores while no report has expired."""
        dominant_weight = self._args.dominant_resource_weight
        rooms, totals = self._rooms(view)
        readings = self._readings(view, by_production=by_production)
        free = rooms - readings.used(view, self._profile)
        score = np.zeros(len(view), np.int64)
        least = np.full(len(view), MAX_SCORE, np.int64)
        for at, weight in enumerate(self._weights):
            if weight or dominant_weight:
                percent = free_percent(totals[at], np.maximum(free[at] - expected[at], 0))
                score += percent * weight
                if dominant_weight:
                    np.minimum(least, percent, out=least)
        score = trunc_div(score + least * dominant_weight, self._total_weight)
        return np.where(readings.is_measured, score, 0)

    def _rooms(self, view: ClusterView) -> IntColumn:
        """Return each known capacity, to subtract from and to divide by, (2, n_known, n).

        Where a node has none of it, the former leaves nothing free.
        """
        known = self._profile.known

        def compute(part: ClusterView) -> IntColumn:
            totals = capacity(part, known)
            return np.stack([np.where(totals > 0, totals, _NO_ROOM), np.maximum(totals, 1)])

        return view.node_column(("LoadAware rooms", known), (Domain.NODES,), compute)

    def _readings(self, view: ClusterView, *, by_production: bool) -> Readings:
        source = PRODUCTION if by_production else self._args.score_source
        known = self._profile.known
        table = view.node_column(
            ("LoadAware readings", known, source),
            (Domain.METRICS,),
            lambda part: Readings.of(part, known, [source] * len(part)).table,
        )
        return Readings(table)


def _is_expired(view: ClusterView, args: LoadAwareArgs, now: Micros) -> BoolColumn:
    """Return where a report has no time or one too long ago; true where there is none."""
    last_expired = now - args.node_metric_expiration_seconds * SECOND
    return view.metric_time <= max(last_expired, 0)


PLUGIN = Plugin(
    args=LoadAwareArgs,
    filter=LoadAwareFilter,
    score=LoadAwareScore,
    load_profiles=lambda args: (args.load_profile,),
)
