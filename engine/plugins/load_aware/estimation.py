"""The usage one pod is expected to have, and how long that is believed over its measurements.

Source: Koordinator, pkg/scheduler/plugins/loadaware (estimator/default_estimator.go,
pod_assign_cache.go).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec
import numpy as np

from engine.errors import QuantityError
from engine.model import api, resources
from engine.model.caches import ByteLimitedCache
from engine.model.pod_shape import PodShape, PriorityClass, cached_by_shape
from engine.model.resources import Amounts
from engine.model.time import SECOND
from engine.model.usage import NodeUsage
from engine.plugins.lib.args import read_annotation
from engine.view import GREATEST_AMOUNT as _MOST
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, PodEntry, RowWise, capped

_TRANSLATED: Mapping[PriorityClass, Mapping[str, str]] = {
    PriorityClass.MID: {"cpu": "kubernetes.io/mid-cpu", "memory": "kubernetes.io/mid-memory"},
    PriorityClass.BATCH: {
        "cpu": "kubernetes.io/batch-cpu",
        "memory": "kubernetes.io/batch-memory",
    },
    PriorityClass.FREE: {},
}
"""The name under which a class requests a resource; production uses the plain name."""

_DEFAULTS = {
    "cpu": 250,
    "memory": 200 * 1024 * 1024,
    "kubernetes.io/batch-cpu": 250,
    "kubernetes.io/batch-memory": 200 * 1024 * 1024,
}
"""The estimate of a pod without request and limit: millicores and bytes, not scaled."""

_LONGEST_WINDOW = 10**10  # seconds; keeps moments within int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimation:
    """The arguments of LoadAware that estimates depend on."""

    known: tuple[str, ...]  # resource names, sorted
    factors: tuple[tuple[str, int], ...]  # estimation factor in percent by resource name
    seconds_after_scheduled: int = 0  # forced estimation window, 0 for none
    seconds_after_initialized: int = 0  # forced estimation window, 0 for none
    customize: bool = False  # whether a pod's own annotations are honoured
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.known, self.factors)))

    def __hash__(self) -> int:
        return self._hash  # needed several times in each decision


@cached_by_shape
def estimate(shape: PodShape, estimation: Estimation) -> Amounts:
    """Return the expected usage of a pod of this shape, for every resource with a factor.

    The greater of limit and request, scaled and never above the limit; of a pod that is being
    resized in place, by its specification alone. The pod's own factors, where honoured, win over
    the arguments and may add resources.
    """
    factors = dict(estimation.factors)
    if estimation.customize and shape.scaling_factors:
        factors.update(shape.scaling_factors)
    translated = _TRANSLATED.get(shape.priority_class)
    return {
        name: _estimated(shape, name if translated is None else translated.get(name, ""), factor)
        for name, factor in factors.items()
    }


@cached_by_shape
def estimate_vector(shape: PodShape, estimation: Estimation) -> tuple[int, ...]:
    """Return the estimate of the known resources, in their order."""
    estimated = estimate(shape, estimation)
    return tuple(estimated.get(name, 0) for name in estimation.known)


def windows(estimation: Estimation, shape: PodShape) -> tuple[int, int]:
    """Return the forced estimation windows after PodScheduled and Initialized, microseconds.

    0 stands for none. A window of the pod's own replaces that of the arguments, also by none.
    """
    scheduled, initialized = (
        estimation.seconds_after_scheduled,
        estimation.seconds_after_initialized,
    )
    if estimation.customize and shape.seconds_after_scheduled is not None:
        scheduled = shape.seconds_after_scheduled
    if estimation.customize and shape.seconds_after_initialized is not None:
        initialized = shape.seconds_after_initialized
    return _window(scheduled), _window(initialized)


def deadline(
    assigned_at: int, initialized_at: int, after_scheduled: int, after_initialized: int
) -> int | None:
    """Return the moment until which a pod's estimate is believed, None when no window applies.

    A window after Initialized, once it has begun, makes that after PodScheduled void: the latter
    may be long, to wait for slow init containers.

    Args:
        assigned_at: microseconds since the epoch.
        initialized_at: microseconds since the epoch, 0 if the pod is not initialized.
        after_scheduled: window in microseconds, 0 for none.
        after_initialized: window in microseconds, 0 for none.
    """
    if after_initialized > 0 and initialized_at:
        return initialized_at + after_initialized
    return assigned_at + after_scheduled if after_scheduled > 0 else None


def _window(seconds: int) -> int:
    return min(max(seconds, 0), _LONGEST_WINDOW) * SECOND


def _estimated(shape: PodShape, name: str, factor: int) -> int:
    """Return the estimate of one resource, requested under `name`."""
    limit = shape.spec_limits.get(name, 0)
    wanted = max(limit, shape.spec_requests.get(name, 0))
    if wanted == 0:
        return _DEFAULTS.get(name, 0)
    scaled = _rounded(float(wanted) * float(factor) / 100)
    if 0 < limit < scaled:
        scaled = limit
    return capped(scaled)


def _rounded(value: float) -> int:
    """Return Go's `math.Round`: half away from zero."""
    whole = math.trunc(value)
    return whole + int(math.copysign(abs(value - whole) >= 0.5, value))  # noqa: PLR2004 (a half)


# LoadAware's sums per node: measured and estimated usage of its pods.
#
# Source: Koordinator, pkg/scheduler/plugins/loadaware (pod_assign_cache.go).


_SUMS = 4  # node delta, node estimate, production usage, production delta
_CACHE_BYTES = 64 * 2**20  # some 23,000 shapes of everyday pods
_FACTS_BYTES = 768  # of one shape

_Amounts: TypeAlias = tuple[int, ...]
"""By known resource."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class LoadProfile(Estimation):
    """The profile of the sums (`PodSumProfile`); rules with equal estimates share them.

    Compared by identity, as it is looked up several times in each decision: `LoadAwareArgs` give
    one object for equal arguments.
    """

    reads_reports: ClassVar[bool] = True
    _facts: ByteLimitedCache[PodShape, _ShapeFacts] = field(
        init=False,
        repr=False,
        compare=False,
        default_factory=lambda: ByteLimitedCache(
            _CACHE_BYTES, lambda shape, _: shape.size + _FACTS_BYTES
        ),
    )

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def width(self) -> int:
        """The number of sums; those of one kind stand side by side, by known resource."""
        return _SUMS * len(self.known)

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:
        """Return the summands of one pod; zeros without a report, as upstream keeps no sums."""
        nothing = (0,) * len(self.known)
        if report is None:
            return nothing * _SUMS
        facts = self._facts_of(pod.shape)
        own = report.pods.find(key, self.known)
        # An estimate is added to the measurement while that may not include the pod yet. Where a
        # report measures the node alone, its usage includes all pods but the new ones, and the
        # part of production is known only by estimates.
        if own is None:
            is_added = pod.assumed or report.pods_measured or _is_fresh(facts, pod, report)
            return facts.unreported_and_added if is_added else facts.unreported
        usage, own_is_prod = own
        if min(usage) < -_MOST or max(usage) > _MOST:
            usage = tuple(map(capped, usage))

        # Most pods are measured and not new: those add no part of their estimate.
        estimate, excess = facts.estimate, nothing
        if pod.assumed or _is_fresh(facts, pod, report):
            excess = tuple([e - u if e > u else 0 for e, u in zip(estimate, usage, strict=True)])
        if not facts.is_prod:
            return excess + estimate + nothing + nothing
        if own_is_prod:
            return excess + estimate + usage + excess
        # A pod counts as measured production only where it and its report agree that it is; one
        # that is reported as something else keeps its full estimate, however old it is.
        return excess + facts.unreported[len(nothing) :]

    def _facts_of(self, shape: PodShape) -> _ShapeFacts:
        facts = self._facts.get(shape)
        if facts is None:
            facts = _ShapeFacts.of(self, shape)
            self._facts.put(shape, facts)
        return facts


class LoadSums(msgspec.Struct, frozen=True, eq=False):
    """The sums of a profile, named; all in base units, (n_known, n), zeros without a report."""

    table: IntColumn  # (4 * n_known, n), as the view keeps it

    @classmethod
    def of(cls, view: ClusterView, profile: LoadProfile) -> LoadSums:
        """Return the sums of a view that keeps those of `profile`."""
        return cls(view.pod_sums[profile])

    @property
    def node_delta(self) -> IntColumn:
        """The excess of estimates over the reported usage of the node."""
        return self._kind(0)

    @property
    def node_estimated(self) -> IntColumn:
        """The full estimates of all its pods."""
        return self._kind(1)

    @property
    def prod_usage(self) -> IntColumn:
        """The reported usage of its production pods."""
        return self._kind(2)

    @property
    def prod_delta(self) -> IntColumn:
        """The excess of estimates over that."""
        return self._kind(3)

    def _kind(self, number: int) -> IntColumn:
        n_known = len(self.table) // _SUMS
        return self.table[number * n_known : (number + 1) * n_known]


class _ShapeFacts(NamedTuple):
    """Everything about a pod shape that its summands depend on."""

    estimate: _Amounts  # by known resource, base units; zeros for reserve pods
    is_prod: bool  # False for reserve pods
    after_scheduled: int  # forced window in microseconds, 0 for none
    after_initialized: int  # the same
    unreported: _Amounts  # the summands of a pod that a report does not name and that is not new
    # the same of one whose estimate is added to the usage of its node
    unreported_and_added: _Amounts

    @classmethod
    def of(cls, estimation: Estimation, shape: PodShape) -> _ShapeFacts:
        nothing = (0,) * len(estimation.known)
        estimate, is_prod, after = nothing, False, (0, 0)
        if not shape.reserve_pod:
            estimate, is_prod = estimate_vector(shape, estimation), shape.is_prod
            after = windows(estimation, shape)
        excess = tuple([max(each, 0) for each in estimate])
        others = estimate + nothing + (excess if is_prod else nothing)
        return cls(estimate, is_prod, *after, nothing + others, excess + others)


def _is_fresh(facts: _ShapeFacts, pod: PodEntry, report: NodeUsage) -> bool:
    """Return whether a pod is so new that its measurement in a report may be of its beginning."""
    updated = report.update_time
    if updated is None:
        return True
    if pod.assigned_at > updated - report.report_interval_seconds * SECOND:
        return True
    if not (facts.after_scheduled or facts.after_initialized):
        return False
    until = deadline(
        pod.assigned_at, pod.initialized_at, facts.after_scheduled, facts.after_initialized
    )
    return until is not None and until > updated


# Usage and capacity of nodes as LoadAware compares them, from reports and sums.
#
# Source: Koordinator, pkg/scheduler/plugins/loadaware (pod_assign_cache.go, helper.go) and
# estimator/default_estimator.go, EstimateNode.


RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
"""The allocatable of a node before amplification: a JSON resource list."""

_ANNOTATIONS_REMEMBERED = 4096
_MEASURED, _ESTIMATED, _PRODUCTION = 0, 1, 2


@dataclass(frozen=True, slots=True)
class UsageSource:
    """A kind of usage of a node; by default that of the whole node at the moment."""

    production: bool = False  # that of production pods alone, whatever the last two say
    with_system: bool = False  # adds the usage outside pods to that of production pods
    aggregation: str = ""  # a percentile or average instead, such as `p95`
    duration_ns: int = 0  # the window of that, 0 for the longest one reported


WHOLE_NODE = UsageSource()


def capacity(view: ClusterView, known: tuple[str, ...]) -> IntColumn:
    """Return the allocatable of the known resources before amplification, (n_known, n)."""
    key = ("LoadAware capacity", known)
    return view.node_column(key, (Domain.NODES,), lambda part: _capacity(part, known))


@dataclass(frozen=True)
class Readings(RowWise):
    """The reported usage of each node, by its source."""

    # (n_known + 3, n), one array so that it can be remembered: the amounts of the known resources
    # in base units, the kind of sum that is `added` to them, and two flags
    table: IntColumn

    @classmethod
    def of(
        cls, view: ClusterView, known: Sequence[str], sources: Sequence[UsageSource]
    ) -> Readings:
        """Return the readings of a view, given the source to read on each row."""
        nothing = (0,) * len(known)
        rows = [
            _row(report, source, known, nothing)
            for report, source in zip(view.usages, sources, strict=True)
        ]
        width = len(known) + 3
        flat = np.fromiter(chain.from_iterable(rows), np.int64, width * len(rows))
        return cls(np.ascontiguousarray(flat.reshape(len(rows), width).T))

    @property
    def is_reported(self) -> BoolColumn:
        """Nodes with a report, (n,)."""
        flags: BoolColumn = self.table[-2] != 0
        return flags

    @property
    def is_measured(self) -> BoolColumn:
        """Nodes with a report that has the usage of the node, (n,)."""
        flags: BoolColumn = self.table[-1] != 0
        return flags

    @cached_property
    def _kind(self) -> IntColumn | None:
        """The kind of sum added on each row, None if it is _MEASURED on all."""
        kind = self.table[-3]
        return kind if kind.any() else None

    @property
    def amounts(self) -> IntColumn:
        """The reported amounts, (n_known, n)."""
        return self.table[:-3]

    def added(self, view: ClusterView, profile: LoadProfile) -> IntColumn:
        """Return the estimates or sums over pods to add to `amounts`, (n_known, n)."""
        sums, kind = LoadSums.of(view, profile), self._kind
        if kind is None:
            return sums.node_delta
        added = np.where(kind == _ESTIMATED, sums.node_estimated, sums.node_delta)
        return np.where(kind == _PRODUCTION, sums.prod_usage + sums.prod_delta, added)


def readings_of(view: ClusterView, known: tuple[str, ...], source: UsageSource) -> Readings:
    """Return the readings of one source on every node, remembered: filter and score share them."""
    table = view.node_column(
        ("LoadAware readings", known, source),
        (Domain.METRICS,),
        lambda part: Readings.of(part, known, [source] * len(part)).table,
    )
    return Readings(table)


_duration = attrgetter("duration_ns")


def _capacity(view: ClusterView, known: Sequence[str]) -> IntColumn:
    def read(text: str | None) -> list[int]:
        raw = _raw_allocatable(text)
        return [name in raw for name in known] + [capped(raw.get(name, 0)) for name in known]

    is_raw, raw = np.split(read_annotation(view, RAW_ALLOCATABLE, 2 * len(known), read), 2)
    allocatable = np.stack([view.amount(view.allocatable, name) for name in known])
    return np.where(is_raw, raw, allocatable)


@lru_cache(maxsize=_ANNOTATIONS_REMEMBERED)
def _raw_allocatable(text: str | None) -> Amounts:
    """Return the amounts in an annotation, none if it is absent or malformed."""
    if text is None:
        return {}
    try:
        return resources.amounts(msgspec.json.decode(text, type=api.ResourceList | None))
    except (msgspec.DecodeError, QuantityError, RecursionError):
        return {}


def _row(
    report: NodeUsage | None, source: UsageSource, known: Sequence[str], nothing: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the column of `Readings.table` of one node; `nothing` is of each known resource."""
    if report is None:
        return (*nothing, _MEASURED, False, False)
    is_measured = report.usage is not None
    if source.production:
        system = _capped(report.system_usage, known) if source.with_system else nothing
        return (*system, _PRODUCTION, True, is_measured)
    amounts = _reading(report, source)
    if amounts is None:
        return (*nothing, _ESTIMATED, True, is_measured)
    return (*_capped(amounts, known), _MEASURED, True, is_measured)


def _capped(amounts: Amounts, known: Sequence[str]) -> Iterable[int]:
    found = map(amounts.get, known, repeat(0))
    return [amount if -_MOST <= amount <= _MOST else capped(amount) for amount in found]


def _reading(report: NodeUsage, source: UsageSource) -> Amounts | None:
    """Return the reading of a source, None where the report has no window of its duration.

    Without a duration it is that of the longest window, or the usage at the moment without one.
    """
    momentary = report.usage or {}
    if not source.aggregation:
        return momentary
    windows = [window for window in report.aggregated if source.aggregation in window.by_type]
    if source.duration_ns:
        windows = [window for window in windows if window.duration_ns == source.duration_ns]
        return windows[-1].by_type[source.aggregation] if windows else None
    if not windows:
        return momentary
    return max(reversed(windows), key=_duration).by_type[source.aggregation]
