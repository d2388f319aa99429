from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from engine.model.usage import AggregatedUsage
from engine.plugins.base import PASS, Cycle
from engine.plugins.load_aware.estimation import RAW_ALLOCATABLE, LoadProfile
from engine.plugins.load_aware.plugin import (
    PLUGIN,
    USAGE_THRESHOLDS,
    LoadAwareArgs,
    LoadAwareBalance,
    LoadAwareFilter,
    LoadAwareScore,
)
from engine.view import ClusterState
from tests.engine.measured_cluster import GI, NOW, by_node, cluster, node, pod, report

if TYPE_CHECKING:
    from engine.model.node import Node
    from engine.model.pod import Pod
    from engine.model.usage import NodeUsage

EXPIRED = "node(s) nodeMetric expired"
CPU = "node(s) cpu usage exceed threshold"
BIG = node("a", cpu="100", memory="100Gi")
NOTHING = pod(priority=3500)  # a free pod is expected to use nothing


def _reason(
    the_report: NodeUsage | None,
    a_pod: Pod = NOTHING,
    on: Node = BIG,
    pods: list[Pod] | None = None,
    **args: Any,  # noqa: ANN401 (as written in YAML)
) -> str:
    """Return why a pod is kept off the only node, empty if it is not."""
    parsed = LoadAwareArgs.model_validate(args)
    reports = [] if the_report is None else [the_report]
    view = cluster([on], pods or [], reports, [parsed.load_profile])
    rule = LoadAwareFilter(parsed)
    code = int(rule.filter(Cycle(a_pod, view, NOW)).codes[0])
    return "" if code == PASS else ", ".join(rule.reasons(code, Cycle(a_pod, view, NOW)))


def _score(
    the_report: NodeUsage | None,
    a_pod: Pod = NOTHING,
    on: Node = BIG,
    pods: list[Pod] | None = None,
    **args: Any,  # noqa: ANN401 (as written in YAML)
) -> int:
    parsed = LoadAwareArgs.model_validate(args)
    reports = [] if the_report is None else [the_report]
    view = cluster([on], pods or [], reports, [parsed.load_profile])
    scores = LoadAwareScore(parsed).score(Cycle(a_pod, view, NOW))
    assert scores.faults is None
    return by_node(view, scores.values)["a"]


@pytest.mark.parametrize(("millicores", "reason"), [(65_499, ""), (65_500, CPU)])
def test_a_node_is_too_busy_once_the_rounded_percentage_exceeds_the_threshold(
    millicores: int, reason: str
) -> None:
    # Of 100 cores at a threshold of 65 %: 65.499 rounds to 65 and passes, 65.5 to 66.
    assert _reason(report("a", {"cpu": millicores})) == reason


def test_the_incoming_pod_counts_by_its_estimate() -> None:
    # 60 cores in use; 85 % of 7 cores is 5.95, 65.95 rounds to 66. Of 6 cores: 65.1 rounds to 65.
    busy = report("a", {"cpu": 60_000})
    assert _reason(busy, pod(requests={"cpu": "7"})) == CPU
    assert _reason(busy, pod(requests={"cpu": "6"})) == ""


def test_unmeasured_pods_count_by_their_estimates() -> None:
    # 85 % of 80 cores is 68.
    assert _reason(report("a", {"cpu": 0}), pods=[pod("p", "a", requests={"cpu": "80"})]) == CPU


def test_only_the_first_resource_by_name_is_told() -> None:
    full = report("a", {"cpu": 100_000, "memory": 100 * GI})
    assert _reason(full) == CPU
    assert _reason(full, usageThresholds={"memory": 50}) == "node(s) memory usage exceed threshold"


def test_a_percentile_is_told_as_such() -> None:
    p95 = {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95"}
    measured = report("a", {"cpu": 0}, aggregated=(AggregatedUsage(1, {"p95": {"cpu": 60_000}}),))
    assert _reason(measured, aggregated=p95) == "node(s) cpu aggregated usage exceed threshold"


@pytest.mark.parametrize(("age", "reason"), [(180, EXPIRED), (179, ""), (-60, ""), (None, EXPIRED)])
def test_a_report_expires_at_a_certain_age(age: int | None, reason: str) -> None:
    assert _reason(report("a", {"cpu": 1}, age=age)) == reason
    assert _reason(report("a", None, age=age)) == reason


def test_an_expired_report_may_be_waved_through_or_believed() -> None:
    old_and_busy = report("a", {"cpu": 99_000}, age=999)
    assert _reason(old_and_busy, enableScheduleWhenNodeMetricsExpired=True) == ""
    assert _reason(old_and_busy, filterExpiredNodeMetrics=False) == CPU
    assert _reason(report("a", {}, age=50), nodeMetricExpirationSeconds=50) == EXPIRED


def test_the_age_does_not_matter_where_nothing_is_checked() -> None:
    old = report("a", {"cpu": 99_000}, age=999)
    assert _reason(old, usageThresholds={"cpu": 0}) == ""
    unchecked = node("a", {USAGE_THRESHOLDS: '{"usageThresholds":{"x.com/gpu":5}}'}, cpu="1")
    assert _reason(old, on=unchecked) == ""
    assert _reason(None) == ""


def test_a_daemon_set_pod_passes() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}]
    daemon = pod(metadata={"ownerReferences": owners})
    assert _reason(report("a", {"cpu": 99_000}, age=999), daemon) == ""


def test_a_production_pod_is_held_to_production_usage_alone() -> None:
    busy = report("a", {"cpu": 99_000})
    assert _reason(busy, pod(requests={"cpu": "1"}), prodUsageThresholds={"cpu": 10}) == ""
    assert _reason(busy, NOTHING, prodUsageThresholds={"cpu": 10}) == CPU


def test_pods_of_one_estimate_and_two_classes_are_told_apart_on_one_view() -> None:
    args = LoadAwareArgs.model_validate(
        {"prodUsageThresholds": {"cpu": 10}, "scoreAccordingProdUsage": True}
    )
    view = cluster([BIG], [], [report("a", {"cpu": 99_000})], [args.load_profile])
    filtering, scoring = LoadAwareFilter(args), LoadAwareScore(args)
    codes: list[int] = []
    scores: list[int] = []
    for priority_class in ("koord-prod", "koord-batch"):  # 250m and 200Mi each
        a_pod = pod(metadata={"labels": {"koordinator.sh/priority-class": priority_class}})
        codes += filtering.filter(Cycle(a_pod, view, NOW)).codes.tolist()
        scores += scoring.score(Cycle(a_pod, view, NOW)).values.tolist()
    assert codes[0] == PASS != codes[1]
    assert scores[0] > scores[1]


def test_a_negative_threshold_rejects_even_an_idle_node() -> None:
    prod = pod(requests={"cpu": "1"})
    assert _reason(report("a", {}), prod, prodUsageThresholds={"cpu": -1}) == CPU


def test_the_score_is_the_mean_of_what_is_free_truncated() -> None:
    # cpu (100 - 33) / 100 = 67 %, memory (100 - 10) / 100 = 90 %: (67 + 90) / 2 = 78.5 -> 78
    idle = report("a", {"cpu": 33_000, "memory": 10 * GI})
    assert _score(idle) == 78
    # weighted 3 : 1: (201 + 90) / 4 = 72.75 -> 72
    assert _score(idle, resourceWeights={"cpu": 3, "memory": 1}) == 72
    # and the scarcer of the two once more: (67 + 90 + 67) / 3 = 74.67 -> 74
    weights = {"cpu": 1, "memory": 1}
    assert _score(idle, resourceWeights=weights, dominantResourceWeight=1) == 74
    # the scarcer one alone
    assert _score(idle, dominantResourceWeight=1) == 67


def test_a_known_resource_that_a_node_lacks_makes_its_dominant_score_zero() -> None:
    idle = report("a", {"cpu": 33_000})
    known: dict[str, Any] = {"supportedResources": ["x.com/gpu"]}
    assert _score(idle, dominantResourceWeight=1, **known) == 0
    assert _score(idle, resourceWeights={"cpu": 1}, **known) == 67


def test_what_is_used_beyond_capacity_scores_zero_and_keeps_its_weight() -> None:
    # cpu 0, memory 100 %: 50
    assert _score(report("a", {"cpu": 200_000})) == 50


@pytest.mark.parametrize(
    "the_report", [None, report("a", None), report("a", {}, age=180), report("a", {}, age=None)]
)
def test_a_node_without_a_recent_measurement_scores_zero(the_report: NodeUsage | None) -> None:
    allowances: dict[str, Any] = {
        "filterExpiredNodeMetrics": False,
        "enableScheduleWhenNodeMetricsExpired": True,
    }
    assert _score(the_report, **allowances) == 0


def test_production_pods_are_scored_on_production_usage_where_asked_for() -> None:
    busy = report("a", {"cpu": 50_000, "memory": 50 * GI})
    a_pod = pod(requests={"cpu": "20", "memory": "10Gi"})  # 17 cores and 7Gi: 83 and 93
    assert _score(busy, a_pod) == (33 + 43) // 2
    assert _score(busy, a_pod, scoreAccordingProdUsage=True) == (83 + 93) // 2


def test_capacity_is_what_there_was_before_amplification() -> None:
    amplified = node("a", {RAW_ALLOCATABLE: '{"cpu":"50"}'}, cpu="100", memory="100Gi")
    busy = report("a", {"cpu": 40_000})
    assert _reason(busy, on=amplified) == CPU
    assert _score(busy, on=amplified, resourceWeights={"cpu": 1}) == 20


def test_an_estimate_below_nothing_does_not_lift_a_normalized_score_above_the_rest() -> None:
    args = LoadAwareArgs.model_validate({"allowCustomizeEstimation": True})
    factors = {"scheduling.koordinator.sh/load-estimated-scaling-factors": f'{{"cpu":-{2**62}}}'}
    cheat = pod(requests={"cpu": "1"}, metadata={"annotations": factors})
    view = cluster([BIG], [], [report("a", {})], [args.load_profile])
    rule = LoadAwareScore(args)
    raw = rule.score(Cycle(cheat, view, NOW)).values
    assert raw[0] > 100
    assert rule.normalize(raw).tolist() == [100]


@given(st.lists(st.integers(-(2**60), 2**60)))
def test_normalized_scores_lie_within_bounds(raw: list[int]) -> None:
    normalized = LoadAwareScore(LoadAwareArgs()).normalize(np.array(raw, np.int64))
    assert ((normalized >= 0) & (normalized <= 100)).all()


def test_the_plugin_says_which_sums_it_needs() -> None:
    args = LoadAwareArgs.model_validate({"prodUsageIncludeSys": True})
    (profile,) = PLUGIN.sum_profiles(args)
    assert isinstance(profile, LoadProfile)
    assert profile == args.load_profile
    assert args.production_source.with_system


def test_balanced_spreads_what_is_measured() -> None:
    # x = 0.2 and 0.6, m = 0.4, of nothing added: 50 + 50 * 2 * 0.2 = 70 and 30. The third node has
    # no report and the fourth an old one: they take no part.
    parsed = LoadAwareArgs.model_validate({"strategy": "Balanced", "resourceWeights": {"cpu": 1}})
    nodes = [node(name, cpu="10", memory="10Gi") for name in "abcd"]
    reports = [
        report("a", {"cpu": 2_000}),
        report("b", {"cpu": 6_000}),
        report("d", {"cpu": 9_000}, age=181),
    ]
    view = cluster(nodes, [], reports, [parsed.load_profile])
    score = LoadAwareBalance(parsed)
    scores = score.score(Cycle(NOTHING, view, NOW))
    assert by_node(view, scores.values) == {"a": 70, "b": 30, "c": 0, "d": 0}
    assert scores.faults is None
    described = [
        f"{each.name} {each.describe()}" for each in score.inputs(Cycle(NOTHING, view, NOW), 0)
    ]
    assert described == [
        "cpu usage 2 of 10 cores, 0 cores of it this pod",
        "mean cpu usage 40 %",
    ]


def test_balanced_ignores_what_is_known_of_a_node_once_its_report_lacks_usage() -> None:
    # x = 0.2 and 0.6, m = 0.4: 70 and 30; of the first alone m = x: 50.
    parsed = LoadAwareArgs.model_validate({"strategy": "Balanced", "resourceWeights": {"cpu": 1}})
    state, score = ClusterState(), LoadAwareBalance(parsed)
    state.track_sums([parsed.load_profile])
    for name, used in {"a": 2_000, "b": 6_000}.items():
        state.set_node(node(name, cpu="10", memory="10Gi"))
        state.set_usage(report(name, {"cpu": used}))
    view = state.view()
    assert by_node(view, score.score(Cycle(NOTHING, view, NOW)).values) == {"a": 70, "b": 30}
    state.set_usage(report("b", None))
    view = state.view()
    assert by_node(view, score.score(Cycle(NOTHING, view, NOW)).values) == {"a": 50, "b": 0}


def test_balanced_tells_pods_apart_that_may_take_other_nodes() -> None:
    # x = 0.2, 0.6 and 1: m = 0.6 over all, 0.4 over the first two: 50 - 100 * (x - m).
    parsed = LoadAwareArgs.model_validate({"strategy": "Balanced", "resourceWeights": {"cpu": 1}})
    labels = {"size": "small"}
    nodes = [replace(node(name, cpu="10", memory="10Gi"), labels=labels) for name in "ab"]
    nodes.append(node("c", cpu="10", memory="10Gi"))
    used = {"a": 2_000, "b": 6_000, "c": 10_000}
    reports = [report(name, {"cpu": amount}) for name, amount in used.items()]
    view, score = cluster(nodes, [], reports, [parsed.load_profile]), LoadAwareBalance(parsed)
    selecting = structs.replace(NOTHING, node_selector=labels)
    for _ in range(2):
        assert score.score(Cycle(NOTHING, view, NOW)).values.tolist() == [90, 50, 10]
        assert score.score(Cycle(selecting, view, NOW)).values.tolist()[:2] == [70, 30]


def test_balanced_knows_no_dominant_resource() -> None:
    with pytest.raises(ValueError, match="only valid for `strategy: LeastAllocated`"):
        LoadAwareArgs.model_validate({"strategy": "Balanced", "dominantResourceWeight": 1})
