"""LoadAware: keep pods off nodes that are busy by measurement, and prefer idle ones.

Source: Koordinator, pkg/scheduler/plugins/loadaware/load_aware.go (plugin LoadAwareScheduling). The
usage of a node is its last report, plus the expected usage of pods that the report does not cover
yet, plus that of the incoming pod. Anything malformed on a node is ignored.

Differences from upstream:

- **Keys**: of a key that an annotation has twice the last value counts. Upstream merges both.
- **`estimator`** is accepted and not used: there is one.
- **`strategy`**: `Balanced` is not upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Final, Literal, Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from engine.documents import warn
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape, cached_by_shape
from engine.model.quantity import INT64_MAX, INT64_MIN
from engine.model.resources import Amounts
from engine.model.rule_outcomes import (
    Codes,
    FilterResult,
    Measure,
    NodeThreshold,
    RuleInput,
    RuleInputs,
    unit_of,
)
from engine.model.time import SECOND, DurationError, Micros, parse_duration
from engine.plugins.base import MAX_SCORE, PASS, Args, Cycle, Filter, Plugin, ReadBy, Score, Scores
from engine.plugins.lib.args import (
    Flag,
    Percent,
    Seconds,
    Share,
    WholePercent,
    read_annotation,
)
from engine.plugins.lib.arithmetic import (
    FloatColumn,
    any_of_rows,
    free_percent,
    least_reaching,
    percent_bounds,
    sum_of_rows,
)
from engine.plugins.lib.balance import BalancedScore, Weighed
from engine.plugins.lib.reporting import report_age
from engine.plugins.load_aware.estimation import (
    WHOLE_NODE,
    LoadProfile,
    Readings,
    UsageSource,
    capacity,
    estimate,
    estimate_vector,
    readings_of,
)
from engine.view import (
    LOAD_DOMAINS,
    MISSING,
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    RowWise,
    annotation_column,
    extremes,
    stale_reports,
)

AggregationType: TypeAlias = Literal["", "avg", "p50", "p90", "p95", "p99"]
"""The statistic of a window; empty for none."""


def _not_negative(text: str) -> str:
    if parse_duration(text) < 0:
        raise ValueError(f"`{text}` is negative")
    return text


_Int64: TypeAlias = Annotated[int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX)]
_ProdThreshold: TypeAlias = Annotated[WholePercent, Field(ge=INT64_MIN, le=INT64_MAX)]
_Duration: TypeAlias = Annotated[str, AfterValidator(_not_negative)]

_USUAL_PERIOD: Final = 60  # seconds between reports, as koordlet is installed
_AN_HOUR: Final = 3600
_A_DAY: Final = 24 * _AN_HOUR
_TOO_LITTLE = 5
"""Percent: an idle node uses more, so a fraction or a number of cores was meant."""

_PROFILES: Final[WeakValueDictionary[str, LoadProfile]] = WeakValueDictionary()
_WHOLE = 100
_WEIGHTS = {"cpu": 1, "memory": 1}
_USUAL_THRESHOLD: Final = 95
_THRESHOLDS = {"cpu": 65, "memory": 95}
_FACTORS = {"cpu": 85, "memory": 70}


class AggregatedArgs(Args):
    """Percentiles over a window in place of the momentary usage.

    Attributes:
        usage_thresholds: for the filter, percent by resource name; needs the type as well.
        usage_aggregation_type: for the filter.
        usage_aggregated_duration: for the filter; empty or zero means the longest reported.
        score_aggregation_type: for the score.
        score_aggregated_duration: for the score; empty or zero means the longest reported.
    """

    usage_thresholds: Annotated[dict[str, Percent], ReadBy.FILTER] = Field(default_factory=dict)
    usage_aggregation_type: Annotated[AggregationType, ReadBy.FILTER] = ""
    usage_aggregated_duration: Annotated[_Duration, ReadBy.FILTER] = ""
    score_aggregation_type: Annotated[AggregationType, ReadBy.SCORE] = ""
    score_aggregated_duration: Annotated[_Duration, ReadBy.SCORE] = ""


class LoadAwareArgs(Args):
    """LoadAwareSchedulingArgs, with upstream's defaults.

    Attributes:
        filter_expired_node_metrics: whether the filter checks the age of reports.
        node_metric_expiration_seconds: age from which a report is expired.
        enable_schedule_when_node_metrics_expired: whether the filter passes nodes with an expired
            report unchecked instead of rejecting them.
        dominant_resource_weight: weight of the score of the scarcest resource.
        resource_weights: weight of each resource's score.
        usage_thresholds: percent of each node's capacity, by resource name.
        prod_usage_thresholds: the same for production pods against production usage alone.
        prod_usage_include_sys: whether usage outside pods counts as production usage.
        score_according_prod_usage: whether production pods are scored on production usage alone.
        estimator: accepted for compatibility; there is one.
        estimated_scaling_factors: expected usage of a pod in percent of its requests.
        estimated_seconds_after_pod_scheduled: forced estimation window from PodScheduled.
        estimated_seconds_after_initialized: forced estimation window from Initialized.
        allow_customize_estimation: whether annotations of pods may override these three.
        aggregated: percentiles in place of momentary usage.
        supported_resources: further known resources.
        strategy: what is preferred; Koordinator has LeastAllocated alone. Balanced prefers nodes
            where the pod makes the utilization of nodes most even, whatever their sizes.
    """

    filter_expired_node_metrics: Annotated[Flag, ReadBy.FILTER] = True
    node_metric_expiration_seconds: Annotated[_Int64, Field(gt=0), Seconds] = 180
    enable_schedule_when_node_metrics_expired: Annotated[Flag, ReadBy.FILTER] = False
    dominant_resource_weight: Annotated[Percent, ReadBy.SCORE] = 0
    resource_weights: Annotated[dict[str, Share], ReadBy.SCORE] = Field(
        default_factory=dict, validate_default=True
    )
    usage_thresholds: Annotated[dict[str, Percent], ReadBy.FILTER] = Field(default=_THRESHOLDS)
    prod_usage_thresholds: Annotated[dict[str, _ProdThreshold], ReadBy.FILTER] = Field(
        default_factory=dict
    )
    prod_usage_include_sys: Flag = False
    score_according_prod_usage: Annotated[Flag, ReadBy.SCORE] = False
    estimator: str = ""
    estimated_scaling_factors: dict[str, Share] = Field(default=_FACTORS)
    estimated_seconds_after_pod_scheduled: _Int64 = 0
    estimated_seconds_after_initialized: _Int64 = 0
    allow_customize_estimation: Flag = False
    aggregated: AggregatedArgs = AggregatedArgs()
    supported_resources: tuple[str, ...] = ()
    strategy: Annotated[Literal["LeastAllocated", "Balanced"], ReadBy.SCORE] = "LeastAllocated"

    @model_validator(mode="after")
    def _thresholds_are_plausible(self, info: ValidationInfo) -> Self:
        """Warn of thresholds that reject almost every node, or none."""
        given = {
            "usageThresholds": self.usage_thresholds,
            "prodUsageThresholds": self.prod_usage_thresholds,
            "aggregated.usageThresholds": self.aggregated.usage_thresholds,
        }
        for key, thresholds in given.items():
            for name, percent in thresholds.items():
                at = key.partition(".")[0]
                if 0 < percent <= _TOO_LITTLE:
                    what = f"`{key}` of {name} is {percent}: {percent} % of what a node has"
                    warn(info, what, key=at)
                elif percent == _WHOLE:
                    what = f"`{key}` of {name} is all that a node has: usage hardly reaches it"
                    warn(info, what, f"write {_THRESHOLDS.get(name, _USUAL_THRESHOLD)}", at)
                elif not 0 <= percent <= _WHOLE:
                    what = f"`{key}` of {name} is {percent}, which is not within 0..100 %"
                    warn(info, what, key=at)
        seconds, at = self.node_metric_expiration_seconds, "nodeMetricExpirationSeconds"
        if seconds < _USUAL_PERIOD:
            warn(info, f"`{at}` is {seconds}: reports come every minute", "write 180", at)
        elif seconds >= _A_DAY:
            hint = f"if these are milliseconds write {seconds // 1000}"
            warn(info, f"`{at}` is {seconds}: {seconds // _AN_HOUR} hours", hint, at)
        if self.aggregated.usage_thresholds and not self.aggregated.usage_aggregation_type:
            what = "`aggregated.usageThresholds` need a `usageAggregationType`, such as `p95`"
            warn(info, what, key="aggregated")
        return self

    @field_validator("resource_weights")
    @classmethod
    def _default_weights(cls, weights: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        """Fill in weights, unless the dominant resource alone is to be scored."""
        return weights if weights or info.data.get("dominant_resource_weight") else _WEIGHTS

    @field_validator("usage_thresholds")
    @classmethod
    def _default_thresholds(cls, thresholds: dict[str, int]) -> dict[str, int]:
        return thresholds or _THRESHOLDS

    @field_validator("estimated_scaling_factors")
    @classmethod
    def _complete_factors(cls, factors: dict[str, int]) -> dict[str, int]:
        return _FACTORS | factors

    @model_validator(mode="after")
    def _weights_have_factors(self) -> Self:
        for name in self.resource_weights:
            if name not in self.estimated_scaling_factors:
                raise ValueError(
                    f"`resourceWeights` has `{name}`, `estimatedScalingFactors` has not"
                )
        return self

    @model_validator(mode="after")
    def _balanced_has_no_dominant_resource(self) -> Self:
        if self.strategy == "Balanced" and self.dominant_resource_weight:
            raise ValueError(
                "`dominantResourceWeight` is only valid for `strategy: LeastAllocated`"
            )
        return self

    @property
    def known(self) -> tuple[str, ...]:
        """Every resource in these arguments, and cpu and memory, by name."""
        return tuple(
            sorted(
                {"cpu", "memory"}.union(
                    self.usage_thresholds,
                    self.prod_usage_thresholds,
                    self.aggregated.usage_thresholds,
                    self.resource_weights,
                    self.estimated_scaling_factors,
                    self.supported_resources,
                )
            )
        )

    @property
    def score_source(self) -> UsageSource:
        """The usage that pods are scored on, unless production usage is chosen for them."""
        aggregated = self.aggregated
        return UsageSource(
            aggregation=aggregated.score_aggregation_type,
            duration_ns=parse_duration(aggregated.score_aggregated_duration),
        )

    @property
    def production_source(self) -> UsageSource:
        """The usage of production pods."""
        return UsageSource(production=True, with_system=self.prod_usage_include_sys)

    @property
    def load_profile(self) -> LoadProfile:
        """The sums that the view must keep for these arguments."""
        profile = LoadProfile(
            known=self.known,
            factors=tuple(sorted(self.estimated_scaling_factors.items())),
            seconds_after_scheduled=self.estimated_seconds_after_pod_scheduled,
            seconds_after_initialized=self.estimated_seconds_after_initialized,
            customize=self.allow_customize_estimation,
        )
        return _PROFILES.setdefault(repr(profile), profile)


USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
"""A node's own thresholds, in JSON."""

_OVERLAYS_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Check:
    """A usage and its thresholds.

    Attributes:
        source: the usage.
        thresholds: percent by known resource, in their order; 0 for no threshold.
    """

    source: UsageSource
    thresholds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Checks:
    """The three checks that may apply to a node, depending on the pod."""

    usage: Check  # for every pod, unless one of the next two applies
    production: Check  # for production pods, once it has a threshold other than 0
    aggregated: Check | None  # for all other pods, if there is one, even one without any threshold

    def of(self, *, is_prod: bool) -> Check:
        """Return the check that applies to a pod; they neither merge nor fall through."""
        if is_prod and any(self.production.thresholds):
            return self.production
        return self.aggregated or self.usage


class NodeChecks:
    """The checks of each node, by the arguments and its annotation."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._known = args.known
        aggregated = args.aggregated
        self._of_cluster = Checks(
            Check(WHOLE_NODE, _on(self._known, args.usage_thresholds)),
            Check(args.production_source, _on(self._known, args.prod_usage_thresholds)),
            _aggregated(
                self._known,
                aggregated.usage_thresholds,
                aggregated.usage_aggregation_type,
                aggregated.usage_aggregated_duration,
            ),
        )

    def source_of_all(self, view: ClusterView, *, is_prod: bool) -> UsageSource | None:
        """Return the usage that a pod is checked against if no node says otherwise, else None."""
        column = annotation_column(view.whole, USAGE_THRESHOLDS)
        is_annotated = column.counts[MISSING + 1 :].any()
        return None if is_annotated else self._of(None, is_prod=is_prod).source

    def sources(self, view: ClusterView, *, is_prod: bool) -> list[UsageSource]:
        """Return the usage of each node that a pod is checked against."""
        column = annotation_column(view, USAGE_THRESHOLDS)
        present = np.flatnonzero(column.counts).tolist()
        sources = {
            number: self._of(column.values[number], is_prod=is_prod).source for number in present
        }
        return [sources[number] for number in column.codes.tolist()]

    def limits(self, view: ClusterView, *, is_prod: bool) -> Limits:
        """Return the limits of each node for a pod."""

        def read(text: str | None) -> tuple[int, ...]:
            check = self._of(text, is_prod=is_prod)
            return (*check.thresholds, bool(check.source.aggregation))

        width = len(self._known) + 1
        *by_resource, is_aggregated = read_annotation(view, USAGE_THRESHOLDS, width, read)
        thresholds, totals = np.stack(by_resource), capacity(view, self._known)
        bounds = percent_bounds(thresholds)
        bounds[(thresholds == 0) | (totals <= 0)] = np.inf
        has_threshold = thresholds.any(axis=0)
        return Limits(np.vstack([bounds, np.maximum(totals, 1), has_threshold, is_aggregated]))

    def _of(self, text: str | None, *, is_prod: bool) -> Check:
        """Return the check of a pod on a node with this annotation."""
        checks = self._of_cluster
        if text is not None:
            checks = _overlaid(checks, self._known, text)
        return checks.of(is_prod=is_prod)


@dataclass(frozen=True, slots=True)
class Limits:
    """The least usage that is too much on each node.

    Attributes:
        table: (2 * n_known + 2, n), one array so that it can be remembered: the least percentage
            of each known resource that is too much, infinity where it is not checked or the node
            has none; the capacity it is a percentage of, never 0; and two flags.
    """

    table: NDArray[np.float64]

    @property
    def by_resource(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The bounds and the totals, (n_known, n) each."""
        n_known = len(self.table) // 2 - 1
        return self.table[:n_known], self.table[n_known:-2]

    @property
    def has_threshold(self) -> BoolColumn:
        """Nodes with any threshold, even for a resource that the node lacks, (n,)."""
        flags: BoolColumn = self.table[-2] != 0
        return flags

    @property
    def is_aggregated(self) -> BoolColumn:
        """Nodes whose thresholds apply to a percentile, (n,)."""
        flags: BoolColumn = self.table[-1] != 0
        return flags


_Thresholds: TypeAlias = (
    dict[str, Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)] | None] | None
)


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _lower(name: str) -> str:
    return name.replace("_", "")


class _Aggregated(msgspec.Struct, rename=_lower):
    usage_thresholds: _Thresholds = None
    usage_aggregation_type: str | None = None
    usage_aggregated_duration: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class _Annotation(msgspec.Struct, rename=_lower):
    usage_thresholds: _Thresholds = None
    prod_usage_thresholds: _Thresholds = None
    aggregated_usage: msgspec.Raw = msgspec.Raw(b"null")


@lru_cache(maxsize=_OVERLAYS_REMEMBERED)
def _overlaid(checks: Checks, known: tuple[str, ...], text: str) -> Checks:
    """Return `checks` with those parts replaced that an annotation gives.

    A part that is given replaces the cluster's as a whole. A malformed annotation is ignored.
    """
    try:
        own = _read(text, _Annotation)
        usage = _read(own.aggregated_usage, _Aggregated)
        aggregated = _aggregated(
            known,
            usage.usage_thresholds,
            usage.usage_aggregation_type,
            usage.usage_aggregated_duration,
        )
    except (msgspec.DecodeError, DurationError, RecursionError):
        return checks
    if own.usage_thresholds:
        checks = replace(checks, usage=Check(WHOLE_NODE, _on(known, own.usage_thresholds)))
    if own.prod_usage_thresholds:
        production = Check(checks.production.source, _on(known, own.prod_usage_thresholds))
        checks = replace(checks, production=production)
    if aggregated:
        checks = replace(checks, aggregated=aggregated)
    return checks


def _read(text: str | msgspec.Raw, kind: type[_Struct]) -> _Struct:
    """Return a JSON object, in whose keys case does not matter, as Go reads them; null is empty.

    Of a key that is given twice the last value counts, where Go would merge the maps of both.
    """
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw] | None) or {}
    by_name = {name.casefold(): value for name, value in fields.items()}
    return msgspec.json.decode(msgspec.json.encode(by_name), type=kind)


def _aggregated(
    known: tuple[str, ...],
    thresholds: Mapping[str, int | None] | None,
    aggregation: str | None,
    duration: str | None,
) -> Check | None:
    """Return a check on a percentile, None unless both thresholds and a type are given."""
    duration_ns = parse_duration(duration or "")
    if not thresholds or not aggregation:
        return None
    source = UsageSource(aggregation=aggregation, duration_ns=duration_ns)
    return Check(source, _on(known, thresholds))


def _on(known: tuple[str, ...], thresholds: Mapping[str, int | None]) -> tuple[int, ...]:
    """Return thresholds by known resource; unknown ones are dropped."""
    return tuple(thresholds.get(name) or 0 for name in known)


NODE_SIDE: Final = (Domain.NODES, Domain.METRICS)
"""What the parts of filter and score are made from that no pod changes."""

UNREACHABLE: Final = 2**60
"""More than any node can use."""


@cached_by_shape
def expected_usage(shape: PodShape, profile: LoadProfile) -> IntColumn:
    """Return the estimated usage of a pod by known resource, shape (n_known, 1)."""
    return np.array(estimate_vector(shape, profile), np.int64)[:, np.newaxis]


def usage_inputs(
    profile: LoadProfile, readings: Readings, part: ClusterView, pod: Pod, totals: FloatColumn
) -> dict[str, RuleInput]:
    """Return the expected usage of each known resource on the one node of `part`."""
    others = (readings.amounts + readings.added(part, profile))[:, 0].tolist()
    expected = expected_usage(pod.shape, profile)[:, 0].tolist()
    return {
        name: RuleInput(f"{name} usage", used + more, unit_of(name), capacity=total, pod=more)
        for name, used, more, total in zip(
            profile.known, others, expected, totals.astype(np.int64).tolist(), strict=True
        )
    }


def expired_rows(view: ClusterView, args: LoadAwareArgs, now: Micros) -> NDArray[np.intp]:
    last_expired = now - args.node_metric_expiration_seconds * SECOND
    return stale_reports(view).overdue(max(last_expired, 0)).rows


@dataclass(frozen=True, slots=True)
class _ScoreSide(RowWise):
    """The part of the score that no pod changes."""

    readings: Readings  # the usage that pods add to
    room: IntColumn  # the rest of the known capacities beyond each reading, (n_known, n)
    totals: FloatColumn  # those capacities, 1 where a node has none, (n_known, n)


class LoadAwareScore(Score):
    """Prefers nodes with much of their capacity unused, by estimate."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._score_source = args.score_source
        weights = [args.resource_weights.get(name, 0) for name in self._profile.known]
        self._weights = np.array(weights, np.float64)[:, np.newaxis]
        # INVARIANT: not 0, for weights are filled in unless there is a dominant one.
        self._total_weight = sum(weights) + args.dominant_resource_weight

    def score(self, cycle: Cycle) -> Scores:
        """Return the weighted share of each node that is free, 0 where its report is too old."""
        view = cycle.view
        side = self._side(view, by_production=_by_production(self._args, cycle.pod))
        taken = side.readings.added(view, self._profile) + expected_usage(
            cycle.pod.shape, self._profile
        )
        free = np.subtract(side.room, taken, out=taken)
        np.maximum(free, 0, out=free)
        percents = free_percent(side.totals, free)
        total = sum_of_rows(percents * self._weights)
        if self._args.dominant_resource_weight:
            total += percents.min(axis=0) * self._args.dominant_resource_weight
        total /= self._total_weight
        score = total.astype(np.int64)
        expired = expired_rows(view, self._args, cycle.now)
        if expired.size:
            score[expired] = 0
        return Scores(score)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores, which are percentages unless estimates are negative."""
        if not scores.size:
            return scores
        least, greatest = extremes(scores)
        return scores if least >= 0 and greatest <= MAX_SCORE else np.clip(scores, 0, MAX_SCORE)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        part = cycle.view.take(np.array([row]))
        readings = self._readings(part, by_production=_by_production(self._args, cycle.pod))
        usages = usage_inputs(self._profile, readings, part, cycle.pod, self._totals(part)[:, 0])
        weighted = self._args.resource_weights
        scored = (usage for name, usage in usages.items() if name in weighted)
        return (*scored, report_age(cycle.view, row, cycle.now))

    def _side(self, view: ClusterView, *, by_production: bool) -> _ScoreSide:
        def make(whole: ClusterView) -> _ScoreSide:
            readings = self._readings(whole, by_production=by_production)
            totals = capacity(whole, self._profile.known)
            room = totals - readings.amounts
            # Very negative where a node has none of a resource, or its usage is not known.
            room[(totals <= 0) | ~readings.is_measured] = -UNREACHABLE
            return _ScoreSide(readings, room, self._totals(whole))

        key = ("LoadAware score", self._profile.known, self._source(by_production=by_production))
        return view.node_aggregate(key, NODE_SIDE, make)

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


class LoadAwareBalance(BalancedScore):
    """Prefers nodes where a pod makes the usage of nodes most even, by estimate.

    A node without a report, or with one that is too old, takes no part.
    """

    measure = "usage"

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._known = self._profile.known
        self._weights = tuple([float(args.resource_weights.get(name, 0)) for name in self._known])

    def weighed(self, pod: Pod) -> Weighed:
        """Return all known resources, with the expected usage of the pod."""
        return Weighed(self._known, self._weights, expected_usage(pod.shape, self._profile))

    def used(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        readings = readings_of(view, self._known, self.key(pod))
        return readings.amounts + readings.added(view, self._profile)

    def capacity(self, pod: Pod, view: ClusterView, names: tuple[str, ...]) -> IntColumn:
        return capacity(view, names)

    def key(self, pod: Pod) -> UsageSource:
        args = self._args
        return args.production_source if _by_production(args, pod) else args.score_source

    def unknown(self, cycle: Cycle) -> NDArray[np.intp]:
        """Return the rows of nodes whose report lacks their usage, or is too old."""
        view, source = cycle.view, self.key(cycle.pod)

        def unmeasured(whole: ClusterView) -> NDArray[np.intp]:
            return (~readings_of(whole, self._known, source).is_measured).nonzero()[0]

        key = ("LoadAware unmeasured", self._known, source)
        rows = view.node_aggregate(key, NODE_SIDE, unmeasured)
        expired = expired_rows(view, self._args, cycle.now)
        return np.union1d(expired, rows) if rows.size else expired


def _by_production(args: LoadAwareArgs, pod: Pod) -> bool:
    return args.score_according_prod_usage and pod.shape.is_prod


_EXPIRED = 1
_FIRST_EXCEEDED = 2
"""Codes from here on: two for each known resource in order, the second one for a percentile."""

_NO_ROWS = np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True)
class _FilterSide(RowWise):
    """The part of the filter that no pod changes."""

    readings: Readings  # the usage that pods add to
    slack: IntColumn  # the least amount that is too much on top of each reading, (n_known, n)
    is_judged: BoolColumn  # where the age of a report counts, (n,)
    codes: Codes  # the code of the first known resource, (n,)


class LoadAwareFilter(Filter):
    """Rejects nodes whose estimated usage would exceed a threshold."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._profile = args.load_profile
        self._checks = NodeChecks(args)
        self._of_expired = PASS if args.enable_schedule_when_node_metrics_expired else _EXPIRED
        self._key = args.model_dump_json()  # reloaded policies share columns

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, _EXPIRED or the code of the first resource over its threshold."""
        pod, view = cycle.pod, cycle.view
        if pod.is_daemon_set:
            return FilterResult.passing(len(view))
        side = self._side(view, is_prod=pod.shape.is_prod)
        added = side.readings.added(view, self._profile)
        exceeds = added + expected_usage(pod.shape, self._profile) >= side.slack
        rejects, expired = any_of_rows(exceeds), _NO_ROWS
        if self._args.filter_expired_node_metrics:
            expired = expired_rows(view, self._args, cycle.now)
            if expired.size:
                expired = expired[side.is_judged[expired]]
                rejects[expired] = self._of_expired != PASS

        def codes() -> Codes:
            found = side.codes + 2 * _positions(exceeds)
            found *= rejects
            found[expired] = self._of_expired
            return found

        return FilterResult(rejects, codes)

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        if code == _EXPIRED:
            return ("node(s) nodeMetric expired",)
        resource, is_aggregated = divmod(code - _FIRST_EXCEEDED, 2)
        usage = "aggregated usage" if is_aggregated else "usage"
        return (f"node(s) {self._profile.known[resource]} {usage} exceed threshold",)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        """Return the expected usage with the pod, the capacity, and the threshold.

        Only of resources with a threshold, and nothing for a pod of a DaemonSet.
        """
        pod = cycle.pod
        if pod.is_daemon_set:
            return ()
        is_prod, part = pod.shape.is_prod, cycle.view.take(np.array([row]))
        bounds, totals = self._checks.limits(part, is_prod=is_prod).by_resource
        readings = self._readings(part, is_prod=is_prod)
        usages = usage_inputs(self._profile, readings, part, pod, totals[:, 0])
        # INVARIANT of bounds: without its fraction, a bound is the threshold.
        checked = (
            structs.replace(usage, allowed_percent=int(bound))
            for usage, bound in zip(usages.values(), bounds[:, 0].tolist(), strict=True)
            if np.isfinite(bound)
        )
        return (*checked, report_age(cycle.view, row, cycle.now))

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
