"""LoadAware's sums per node: what reports and estimates say its pods use.

Source: Koordinator, pkg/scheduler/plugins/loadaware (pod_assign_cache.go). What a single pod is
expected to use is in `engine.view.estimation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.model.time import SECOND
from engine.view.axis import GREATEST_AMOUNT
from engine.view.cluster_view import Domain
from engine.view.estimation import NO_DEADLINE, deadlines, estimate_vector, windows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.model.pod import PodShape
    from engine.model.usage import NodeUsage, PodUsage
    from engine.view.axis import BoolColumn, IntColumn
    from engine.view.pod_table import PodTable

_SUMS = 4  # the fields of LoadSums, in their order
_LONG_AGO = -(2**62)
"""Stands for the time of a report that has none: every pod is younger."""

_LONGEST_INTERVAL = 10**10  # seconds; keeps moments within int64


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProfile:
    """The arguments of LoadAware that its sums depend on; rules with equal ones share the sums.

    Attributes:
        known: resource names, sorted; the first axis of every sum.
        factors: estimation factor in percent by resource name.
        seconds_after_scheduled: forced estimation window, 0 for none.
        seconds_after_initialized: forced estimation window, 0 for none.
        customize: whether a pod's own annotations are honoured.
        include_system: whether usage outside pods counts as production usage.
    """

    known: tuple[str, ...]
    factors: tuple[tuple[str, int], ...]
    seconds_after_scheduled: int = 0
    seconds_after_initialized: int = 0
    customize: bool = False
    include_system: bool = False


@dataclass(frozen=True, slots=True)
class LoadSums:
    """Per known resource and node, shape (n_known, n) each, base units.

    Rows without a report hold zeros: upstream keeps no sums there and nothing reads them.

    Attributes:
        node_delta: what estimates add to the reported usage of the node.
        node_estimated: the full estimates of all its pods.
        prod_usage: reported usage of its production pods.
        prod_delta: what estimates add to that.
    """

    node_delta: IntColumn
    node_estimated: IntColumn
    prod_usage: IntColumn
    prod_delta: IntColumn

    def take(self, rows: NDArray[np.intp]) -> LoadSums:
        """Return the sums of some rows."""
        return LoadSums(
            self.node_delta[:, rows],
            self.node_estimated[:, rows],
            self.prod_usage[:, rows],
            self.prod_delta[:, rows],
        )


class LoadTracker:
    """Keeps the sums of one profile up to date."""

    def __init__(self, profile: LoadProfile) -> None:
        self.profile = profile
        self._shapes = _ShapeFacts(profile)
        self._stacked = np.zeros((_SUMS, len(profile.known), 0), np.int64)
        self._version = -1
        self.sums = LoadSums(*self._stacked)

    def refresh(
        self,
        pods: PodTable,
        usages: Sequence[NodeUsage | None],
        changed: IntColumn,
        version: int,
    ) -> None:
        """Bring `sums` up to `version`: redo the rows whose pods or report changed since.

        Arrays given out before are never written again.
        """
        since, self._version = self._version, version
        outdated = (changed[Domain.PODS] > since) | (changed[Domain.METRICS] > since)
        rows = np.flatnonzero(outdated)
        old, n = self._stacked.shape[-1], changed.shape[-1]
        if not rows.size and old == n:
            return
        stacked = np.zeros((*self._stacked.shape[:-1], n), np.int64)
        stacked[..., :old] = self._stacked
        stacked[..., rows] = 0
        reports = {row: report for row in rows.tolist() if (report := usages[row]) is not None}
        if reports:
            reported = np.fromiter(reports, np.intp, len(reports))
            stacked[..., reported] = self._sums_of(reported, list(reports.values()), pods)
        self._stacked = stacked
        self.sums = LoadSums(*stacked)

    def _sums_of(
        self, rows: NDArray[np.intp], reports: Sequence[NodeUsage], pods: PodTable
    ) -> IntColumn:
        """Return the sums of some rows and their reports, shape (4, n_known, rows)."""
        known = self.profile.known
        on = pods.on_rows(rows)
        shapes = self._shapes
        shapes.learn(pods.shapes, on.shape)
        estimate = shapes.estimate[:, on.shape]
        own_reports = [
            reports[at].pods.get(key) for at, key in zip(on.position.tolist(), on.keys, strict=True)
        ]
        usage, is_reported, is_reported_prod = _reported(own_reports, known)

        # An estimate stands beside the measurement while that may not know the pod yet.
        updated, interval = _times(reports)
        deadline = deadlines(
            on.assigned_at,
            on.initialized_at,
            shapes.after_scheduled[on.shape],
            shapes.after_initialized[on.shape],
        )
        is_fresh = ~is_reported
        is_fresh |= on.assigned_at > (updated - interval)[on.position]
        is_fresh |= (deadline != NO_DEADLINE) & (deadline > updated[on.position])
        excess = np.where(is_fresh, np.maximum(estimate - usage, 0), 0)

        # A pod counts as measured production only where it and its report agree that it is; one
        # that is reported as something else keeps its full estimate, however old it is.
        is_prod = shapes.is_prod[on.shape]
        is_misreported = is_prod & is_reported & ~is_reported_prod
        prod_usage = np.where(is_prod & is_reported_prod, usage, 0)
        prod_delta = np.where(is_misreported, np.maximum(estimate, 0), np.where(is_prod, excess, 0))

        parts = np.stack([excess, estimate, prod_usage, prod_delta])
        sums = _by_row(parts, on.position, rows.size)
        if self.profile.include_system:
            sums[2] += _projected([report.system_usage for report in reports], known)
        return sums


class _ShapeFacts:
    """What a profile makes of each pod shape, in columns by shape number.

    Attributes:
        estimate: (n_known, n_shapes), base units; zeros for reserve pods.
        is_prod: (n_shapes,), never so for reserve pods.
        after_scheduled: (n_shapes,), forced window in microseconds, 0 for none.
        after_initialized: (n_shapes,), the same.
    """

    def __init__(self, profile: LoadProfile) -> None:
        self._profile = profile
        self._of: list[PodShape | None] = []
        self.estimate = np.zeros((len(profile.known), 0), np.int64)
        self.is_prod = np.zeros(0, np.bool_)
        self.after_scheduled = np.zeros(0, np.int64)
        self.after_initialized = np.zeros(0, np.int64)

    def learn(self, shapes: Sequence[PodShape | None], numbers: NDArray[np.int32]) -> None:
        """Make the facts right for `numbers`; a number may stand for another shape than before."""
        if len(shapes) > len(self._of):
            self._grow(max(len(shapes), 2 * len(self._of)))
        for number in set(numbers.tolist()):
            shape = shapes[number]
            if shape is not None and shape is not self._of[number]:
                self._of[number] = shape
                self._set(number, shape)

    def _set(self, number: int, shape: PodShape) -> None:
        counts = not shape.reserve_pod
        scheduled, initialized = windows(self._profile, shape)
        self.estimate[:, number] = estimate_vector(self._profile, shape) if counts else 0
        self.is_prod[number] = counts and shape.is_prod
        self.after_scheduled[number] = scheduled
        self.after_initialized[number] = initialized

    def _grow(self, size: int) -> None:
        more = size - len(self._of)
        self._of += [None] * more
        self.estimate = np.pad(self.estimate, ((0, 0), (0, more)))
        self.is_prod = np.pad(self.is_prod, (0, more))
        self.after_scheduled = np.pad(self.after_scheduled, (0, more))
        self.after_initialized = np.pad(self.after_initialized, (0, more))


def _times(reports: Sequence[NodeUsage]) -> tuple[IntColumn, IntColumn]:
    """Return when each report was measured and how often it comes, microseconds."""
    updated = [_LONG_AGO if one.update_time is None else one.update_time for one in reports]
    interval = [min(one.report_interval_seconds, _LONGEST_INTERVAL) * SECOND for one in reports]
    return np.array(updated, np.int64), np.array(interval, np.int64)


def _reported(
    reports: Sequence[PodUsage | None], known: Sequence[str]
) -> tuple[IntColumn, BoolColumn, BoolColumn]:
    """Return usage per known resource and pod, which pods have any, and which as production.

    Usage is zero where there is none.
    """
    is_reported = np.array([one is not None for one in reports], np.bool_)
    is_prod = np.array([one is not None and one.is_prod for one in reports], np.bool_)
    usage = np.zeros((len(known), len(reports)), np.int64)
    usage[:, is_reported] = _projected([one.amounts for one in reports if one is not None], known)
    return usage, is_reported, is_prod


def _projected(amounts: Sequence[Mapping[str, int]], known: Sequence[str]) -> IntColumn:
    """Return amounts by known resource, shape (n_known, len(amounts)), capped."""
    by_name = [[one.get(name, 0) for one in amounts] for name in known]
    return np.clip(np.array(by_name, np.int64), -GREATEST_AMOUNT, GREATEST_AMOUNT)


def _by_row(parts: IntColumn, position: NDArray[np.intp], rows: int) -> IntColumn:
    """Return the parts of pods, (..., m), summed per row, (..., rows); positions ascend."""
    sums = np.zeros((*parts.shape[:-1], rows), np.int64)
    pods = np.bincount(position, minlength=rows)
    occupied = pods > 0
    starts = (np.cumsum(pods) - pods)[occupied]
    if starts.size:
        sums[..., occupied] = np.add.reduceat(parts, starts, axis=-1)
    return sums
