from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from engine.plugins.load_aware.estimation import WHOLE_NODE, UsageSource
from engine.plugins.load_aware.plugin import USAGE_THRESHOLDS, LoadAwareArgs, NodeChecks
from tests.engine.measured_cluster import cluster, node

P95 = {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95"}
DEFAULTS = (WHOLE_NODE, [65, 95])
PRODUCTION = UsageSource(production=True)


def _check(
    own: Any = None,  # noqa: ANN401 (anything may stand in an annotation)
    *,
    is_prod: bool = False,
    **args: Any,  # noqa: ANN401 (as written in YAML)
) -> tuple[UsageSource, list[int | None]]:
    """Return which usage is checked, and the greatest percentage of cpu and memory that passes."""
    text = own if isinstance(own, str) else json.dumps(own)
    annotations = {} if own is None else {USAGE_THRESHOLDS: text}
    view = cluster([node("a", annotations, cpu="1", memory="1")])
    checks = NodeChecks(LoadAwareArgs.model_validate(args))
    bounds, _ = checks.limits(view, is_prod=is_prod).by_resource
    (source,) = checks.sources(view, is_prod=is_prod)
    passing = [None if bound == float("inf") else int(bound) for bound in bounds[:, 0].tolist()]
    return source, passing


def test_the_arguments_hold_where_a_node_says_nothing() -> None:
    assert _check() == DEFAULTS
    assert _check(usageThresholds={"cpu": 0, "memory": 7}) == (WHOLE_NODE, [None, 7])


def test_each_part_of_an_annotation_replaces_that_part_as_a_whole() -> None:
    assert _check({"usageThresholds": {"cpu": 30}}) == (WHOLE_NODE, [30, None])
    assert _check({"usageThresholds": {"cpu": 130}}) == (WHOLE_NODE, [130, None])
    assert _check({"usageThresholds": {"x.com/gpu": 30}}) == (WHOLE_NODE, [None, None])
    assert _check({"prodUsageThresholds": {"cpu": 30}}) == DEFAULTS
    assert _check({"prodUsageThresholds": {"cpu": 30}}, is_prod=True) == (PRODUCTION, [30, None])


def test_production_thresholds_of_zero_leave_production_pods_to_the_others() -> None:
    assert _check(is_prod=True, prodUsageThresholds={"cpu": 0}) == DEFAULTS
    assert _check(is_prod=True, prodUsageThresholds={"cpu": 9}) == (PRODUCTION, [9, None])
    zero = {"prodUsageThresholds": {"cpu": 0}}
    assert _check(zero, is_prod=True, prodUsageThresholds={"cpu": 9}) == DEFAULTS


def test_an_aggregated_check_wins_over_usage_thresholds_wherever_they_are_from() -> None:
    p95 = UsageSource(aggregation="p95")
    assert _check(aggregated=P95) == (p95, [50, None])
    assert _check({"usageThresholds": {"cpu": 30}}, aggregated=P95) == (p95, [50, None])
    assert _check({"aggregatedUsage": P95 | {"usageAggregatedDuration": "5m"}}) == (
        UsageSource(aggregation="p95", duration_ns=300 * 10**9),
        [50, None],
    )
    # Even one without any threshold, which then checks nothing.
    assert _check(aggregated=P95 | {"usageThresholds": {"cpu": 0}}) == (p95, [None, None])
    assert _check(aggregated=P95, is_prod=True, prodUsageThresholds={"cpu": 9})[0] == PRODUCTION


def test_an_aggregated_check_needs_thresholds_and_a_type() -> None:
    assert _check(aggregated={"usageAggregationType": "p95"}) == DEFAULTS
    assert _check(aggregated={"usageThresholds": {"cpu": 50}}) == DEFAULTS
    assert _check({"aggregatedUsage": {"usageThresholds": {"cpu": 50}}}) == DEFAULTS
    assert _check({"aggregatedUsage": {"usageAggregationType": "p95"}}) == DEFAULTS


def test_case_does_not_matter_in_the_keys_of_an_annotation_but_in_names_of_resources() -> None:
    assert _check('{"UsageThresholds":{"cpu":7}}') == (WHOLE_NODE, [7, None])
    assert _check('{"USAGETHRESHOLDS":{"CPU":7}}') == (WHOLE_NODE, [None, None])
    aggregated = {"UsageThresholds": {"cpu": 50}, "usageaggregationtype": "p95"}
    assert _check({"AggregatedUsage": aggregated}) == (UsageSource(aggregation="p95"), [50, None])


def test_of_a_key_that_is_given_twice_the_last_value_counts() -> None:
    twice = '{"usageThresholds":{"cpu":7},"usageThresholds":{"memory":8}}'
    assert _check(twice) == (WHOLE_NODE, [None, 8])


@pytest.mark.parametrize(
    "own",
    [
        "",
        "{",
        "null",
        [],
        {},
        {"aggregatedUsage": [1]},
        {"usageThresholds": None},
        {"usageThresholds": {"cpu": "30"}},
        {"usageThresholds": {"cpu": 30.5}},
        {"usageThresholds": {"cpu": 2**63}},
        {"usageThresholds": {"cpu": 30}, "aggregatedUsage": {"usageAggregatedDuration": "soon"}},
        {"usageThresholds": {"cpu": 30}, "aggregatedUsage": {"usageAggregatedDuration": ""}},
    ],
)
def test_a_malformed_or_empty_annotation_is_ignored_as_a_whole(own: object) -> None:
    assert _check(own) == DEFAULTS


def test_a_resource_that_a_node_does_not_have_is_not_checked_but_its_threshold_is_there() -> None:
    checks = NodeChecks(LoadAwareArgs.model_validate({"usageThresholds": {"memory": 50}}))
    limits = checks.limits(cluster([node("a", cpu="1")]), is_prod=False)
    bounds, totals = limits.by_resource
    assert bounds[:, 0].tolist() == [float("inf")] * 2
    assert totals[:, 0].tolist() == [1000, 1]
    assert limits.has_threshold.tolist() == [True]


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
