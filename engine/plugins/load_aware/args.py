"""Arguments of LoadAware: Koordinator's LoadAwareSchedulingArgs.

Source: Koordinator, pkg/scheduler/apis/config (v1/defaults.go, validation/
validation_pluginargs.go). Defaults are filled in before anything is validated, and a map that is
given replaces its default as a whole, except the scaling factors, which are completed.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, TypeAlias
from weakref import WeakValueDictionary

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from engine.documents import warn
from engine.model.quantity import INT64_MAX, INT64_MIN
from engine.model.time import parse_duration
from engine.plugins.base import Args
from engine.plugins.lib.args import Flag, Percent, Seconds, Share, WholePercent
from engine.plugins.load_aware.estimation import LoadProfile, UsageSource

AggregationType: TypeAlias = Literal["", "avg", "p50", "p90", "p95", "p99"]
"""The statistic of a window; empty for none."""


def _not_negative(text: str) -> str:
    if parse_duration(text) < 0:
        raise ValueError(f"`{text}` is negative")
    return text


_Int64: TypeAlias = Annotated[int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX)]
_ProdThreshold: TypeAlias = Annotated[WholePercent, Field(ge=INT64_MIN, le=INT64_MAX)]
_Duration: TypeAlias = Annotated[str, AfterValidator(_not_negative)]

_TOO_LITTLE = 5
"""Percent: an idle node uses more, so a fraction or a number of cores was meant."""

_PROFILES: Final[WeakValueDictionary[str, LoadProfile]] = WeakValueDictionary()
_WHOLE = 100
_WEIGHTS = {"cpu": 1, "memory": 1}
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

    usage_thresholds: dict[str, Percent] = Field(default_factory=dict)
    usage_aggregation_type: AggregationType = ""
    usage_aggregated_duration: _Duration = ""
    score_aggregation_type: AggregationType = ""
    score_aggregated_duration: _Duration = ""


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

    filter_expired_node_metrics: Flag = True
    node_metric_expiration_seconds: Annotated[_Int64, Field(gt=0), Seconds] = 180
    enable_schedule_when_node_metrics_expired: Flag = False
    dominant_resource_weight: Percent = 0
    resource_weights: dict[str, Share] = Field(default_factory=dict, validate_default=True)
    usage_thresholds: dict[str, Percent] = Field(default=_THRESHOLDS)
    prod_usage_thresholds: dict[str, _ProdThreshold] = Field(default_factory=dict)
    prod_usage_include_sys: Flag = False
    score_according_prod_usage: Flag = False
    estimator: str = ""
    estimated_scaling_factors: dict[str, Share] = Field(default=_FACTORS)
    estimated_seconds_after_pod_scheduled: _Int64 = 0
    estimated_seconds_after_initialized: _Int64 = 0
    allow_customize_estimation: Flag = False
    aggregated: AggregatedArgs = AggregatedArgs()
    supported_resources: tuple[str, ...] = ()
    strategy: Literal["LeastAllocated", "Balanced"] = "LeastAllocated"

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
                if 0 < percent <= _TOO_LITTLE:
                    warn(info, f"`{key}` of {name} is {percent}: {percent} % of what a node has")
                elif not 0 <= percent <= _WHOLE:
                    warn(info, f"`{key}` of {name} is {percent}, which is not within 0..100 %")
        if self.aggregated.usage_thresholds and not self.aggregated.usage_aggregation_type:
            warn(info, "`aggregated.usageThresholds` need a `usageAggregationType`, such as `p95`")
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
