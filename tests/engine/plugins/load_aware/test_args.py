from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine.plugins.load_aware.args import LoadAwareArgs
from engine.plugins.load_aware.estimation import WHOLE_NODE, UsageSource


def _args(**args: Any) -> LoadAwareArgs:  # noqa: ANN401 (as written in YAML)
    return LoadAwareArgs.model_validate(args)


def test_maps_that_are_given_replace_their_defaults_but_factors_are_completed() -> None:
    args = _args(usageThresholds={"cpu": 1}, estimatedScalingFactors={"cpu": 2})
    assert args.usage_thresholds == {"cpu": 1}
    assert args.estimated_scaling_factors == {"cpu": 2, "memory": 70}


def test_empty_and_null_maps_are_defaulted() -> None:
    no_map: dict[str, int] = {}
    for nothing in (no_map, None):
        args = _args(usageThresholds=nothing, resourceWeights=nothing, aggregated=None)
        assert args.usage_thresholds == {"cpu": 65, "memory": 95}
        assert args.resource_weights == {"cpu": 1, "memory": 1}


def test_a_dominant_weight_takes_the_place_of_default_weights() -> None:
    assert _args(dominantResourceWeight=1).resource_weights == {}
    assert _args(dominantResourceWeight=1, resourceWeights={"cpu": 2}).resource_weights == {
        "cpu": 2
    }


def test_args_may_be_pasted_with_their_type() -> None:
    pasted = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "LoadAwareSchedulingArgs"}
    assert _args(**pasted) == _args()


@pytest.mark.parametrize(
    "args",
    [
        {"usageTresholds": {"cpu": 50}},
        {"usageThresholds": {"cpu": "50"}},
        {"usageThresholds": {"cpu": True}},
        {"aggregated": {"usageAggregatedDuration": "5 minutes"}},
        {"aggregated": {"usageAggregatedDuration": 300}},
        {"aggregated": {"scoreAggregationType": "P95"}},
        {"resourceWeights": {"x.com/gpu": 1}},
        {"prodUsageThresholds": {"cpu": 2**63}},
    ],
)
def test_nonsense_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _args(**args)


def test_every_resource_spoken_of_is_known_in_order_of_names() -> None:
    args = _args(
        usageThresholds={"d": 1},
        prodUsageThresholds={"c": 1},
        aggregated={"usageThresholds": {"b": 1}},
        estimatedScalingFactors={"e": 1},
        supportedResources=["a"],
    )
    assert args.known == ("a", "b", "c", "cpu", "d", "e", "memory")
    assert args.load_profile.known == args.known
    assert args.load_profile.factors == (("cpu", 85), ("e", 1), ("memory", 70))


def test_rules_that_differ_in_thresholds_alone_share_their_sums() -> None:
    assert _args(usageThresholds={"cpu": 1}).load_profile == _args().load_profile
    assert _args(prodUsageIncludeSys=True).load_profile == _args().load_profile
    assert _args(allowCustomizeEstimation=True).load_profile != _args().load_profile


def test_the_score_looks_at_a_percentile_if_one_is_named() -> None:
    assert _args().score_source == WHOLE_NODE
    aggregated = {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"}
    expected = UsageSource(aggregation="p95", duration_ns=300 * 10**9)
    assert _args(aggregated=aggregated).score_source == expected


def test_equal_profiles_are_one_object() -> None:
    profile = _args(usageThresholds={"cpu": 1}).load_profile
    assert _args().load_profile is profile
    assert _args(allowCustomizeEstimation=True).load_profile is not profile


def test_any_estimator_may_be_named_and_there_is_one() -> None:
    args = _args(estimator="defaultEstimator")
    assert args.load_profile == _args(estimator="anyOther").load_profile == _args().load_profile
