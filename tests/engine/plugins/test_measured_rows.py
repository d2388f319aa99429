"""What holds row by row for the rules that read limits, reports and annotations of nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.time import SECOND, Micros
from engine.model.usage import AggregatedUsage, PodUsage
from engine.plugins import (
    limit_aware,
    load_aware,
    load_variation_risk_balancing,
    low_risk_over_commitment,
    peaks,
    resource_limit_aware,
    target_load_packing,
)
from engine.plugins.limit_aware.limit_ratios import LIMIT_TO_ALLOCATABLE
from engine.plugins.load_aware.thresholds import USAGE_THRESHOLDS
from engine.plugins.load_aware.usage import RAW_ALLOCATABLE
from engine.view import ClusterState
from engine.view.memo import Memo
from tests.engine.measured_cluster import GI, NOW, node, pod, report, seconds_ago
from tests.engine.plugins.row_properties import (
    Rules,
    check_losers_sway_nobody,
    check_rows_stand_alone,
)

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.plugins.base import Plugin

GPU = "x.com/gpu"
P95 = {"usageThresholds": {"cpu": 40}, "usageAggregationType": "p95"}

_PLUGINS: list[tuple[Plugin, dict[str, Any]]] = [
    (limit_aware.PLUGIN, {"defaultLimitToAllocatableRatio": {"cpu": 120, GPU: "50%"}}),
    (limit_aware.PLUGIN, {"defaultLimitToAllocatableRatio": {"cpu": "?", "memory": 80}}),
    (load_aware.PLUGIN, {}),
    (load_aware.PLUGIN, {"aggregated": P95, "dominantResourceWeight": 3}),
    (
        load_aware.PLUGIN,
        {
            "prodUsageThresholds": {"cpu": 30},
            "prodUsageIncludeSys": True,
            "scoreAccordingProdUsage": True,
            "allowCustomizeEstimation": True,
            "estimatedSecondsAfterPodScheduled": 90,
            "aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"},
        },
    ),
    (load_variation_risk_balancing.PLUGIN, {"safeVarianceSensitivity": 2}),
    (low_risk_over_commitment.PLUGIN, {"riskLimitWeights": {"cpu": 0.2}}),
    (peaks.PLUGIN, {"nodePowerModel": {f"n{i}": {"k1": 1 + i, "k2": 0.1} for i in range(2)}}),
    (resource_limit_aware.PLUGIN, {}),
    (target_load_packing.PLUGIN, {}),
]


_every_plugin = pytest.mark.parametrize(
    ("plugin", "args"),
    [pytest.param(*one, id=f"{one[0].args.__name__}-{i}") for i, one in enumerate(_PLUGINS)],
)

_amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "1500m", "0", "4"]),
        "memory": st.sampled_from(["1Gi", "300Mi"]),
        GPU: st.sampled_from(["0", "1", "2"]),
    },
)
_annotations = st.fixed_dictionaries(
    {},
    optional={
        LIMIT_TO_ALLOCATABLE: st.sampled_from(["{}", "{", '{"cpu":"90%"}', f'{{"{GPU}":"?"}}']),
        RAW_ALLOCATABLE: st.sampled_from(["{", '{"cpu":"2"}']),
        USAGE_THRESHOLDS: st.sampled_from(
            [
                "{",
                '{"usageThresholds":{"cpu":10}}',
                '{"prodUsageThresholds":{"memory":20}}',
                json.dumps({"aggregatedUsage": P95 | {"usageAggregatedDuration": "5m"}}),
            ]
        ),
    },
)
_labels = st.sampled_from([{}, {"koordinator.sh/priority-class": "koord-batch"}])
_incoming = st.builds(
    lambda requests, limits, labels: pod(
        requests=requests, limits=limits, metadata={"labels": labels}
    ),
    _amounts,
    _amounts,
    _labels,
)
_names = st.integers(0, 3).map(lambda i: f"n{i}")
_windows = st.sampled_from([(), (AggregatedUsage(300 * 10**9, {"p95": {"cpu": 900}}),)])
_readings = st.builds(
    lambda on, cpu, age, own, prod, windows, history: report(
        on,
        None if cpu is None else {"cpu": cpu, "memory": GI},
        age=age,
        pods={"p0": PodUsage({"cpu": own}, prod)},
        aggregated=windows,
        system_usage={"cpu": 100},
        average=history,
        deviation={name: amount // 8 for name, amount in history.items()},
    ),
    _names,
    st.none() | st.integers(0, 5000),
    st.none() | st.integers(0, 200),
    st.integers(0, 2000),
    st.booleans(),
    _windows,
    st.sampled_from([{}, {"cpu": 3000, "memory": 5 * GI}, {"memory": GI}]),
)
_events = st.lists(
    st.tuples(
        st.just("node"),
        st.builds(
            lambda name, own, amounts: node(name, own, **amounts), _names, _annotations, _amounts
        ),
    )
    | st.tuples(st.just("gone"), _names)
    | st.tuples(
        st.just("pod"),
        st.builds(
            lambda i, on, limits, labels: pod(
                f"p{i}", on, limits=limits, metadata={"labels": labels}
            ),
            st.integers(0, 3),
            _names,
            _amounts,
            _labels,
        ),
    )
    | st.tuples(st.just("report"), _readings),
    min_size=1,
    max_size=10,
)


def _apply(state: ClusterState, event: tuple[str, Any]) -> None:
    kind, what = event
    match kind:
        case "node":
            state.set_node(what)
        case "gone":
            state.delete_node(what)
        case "pod":
            state.set_pod(what, seen_at=seconds_ago(100))
        case _:
            state.set_usage(what)


def _cluster(rules: Rules) -> ClusterState:
    state = ClusterState()
    state.track_sums(rules.profiles)
    for i in range(3):
        state.set_node(node(f"n{i}", cpu="4", memory="8Gi", **{GPU: "2"}))
    return state


@_every_plugin
@settings(max_examples=60)
@given(st.lists(_incoming, min_size=2, max_size=2), _events)
def test_what_is_remembered_is_what_would_be_computed_afresh(
    plugin: Plugin, args: dict[str, Any], pods: list[Pod], events: list[tuple[str, Any]]
) -> None:
    rules = Rules(plugin, args)
    state, fresh = _cluster(rules), _cluster(rules)
    for event in events:
        for one in pods:
            rules.answers(one, state.view())
        _apply(state, event)
        _apply(fresh, event)
    later = Micros(NOW + 60 * SECOND)  # reports grow old without any event
    for one in pods:
        for now in (NOW, later):
            forgetful = replace(fresh.view(), memo=Memo(), scratch={})
            assert rules.answers(one, state.view(), now) == rules.answers(one, forgetful, now)


@_every_plugin
@settings(max_examples=60)
@given(_incoming, _events, st.permutations(range(3)), st.integers(0, 3))
def test_the_order_and_the_number_of_rows_do_not_matter(
    plugin: Plugin,
    args: dict[str, Any],
    one: Pod,
    events: list[tuple[str, Any]],
    order: list[int],
    count: int,
) -> None:
    rules = Rules(plugin, args)
    state = _cluster(rules)
    for event in events:
        _apply(state, event)
    check_rows_stand_alone(rules.answers, one, state.view(), order[:count])


@_every_plugin
@settings(max_examples=60)
@given(_incoming, _events, st.sets(st.integers(0, 2), min_size=1))
def test_a_node_that_cannot_win_changes_nothing_and_points_are_on_the_scale(
    plugin: Plugin,
    args: dict[str, Any],
    one: Pod,
    events: list[tuple[str, Any]],
    winners: set[int],
) -> None:
    rules = Rules(plugin, args)
    assert rules.score
    state = _cluster(rules)
    for event in events:
        _apply(state, event)
    check_losers_sway_nobody(rules.score, one, state.view(), sorted(winners))
