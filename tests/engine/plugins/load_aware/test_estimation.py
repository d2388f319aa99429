from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.model.time import SECOND
from engine.model.usage import AggregatedUsage, PodUsage
from engine.plugins.load_aware.estimation import (
    RAW_ALLOCATABLE,
    WHOLE_NODE,
    Estimation,
    LoadProfile,
    LoadSums,
    Readings,
    UsageSource,
    capacity,
    deadline,
    estimate,
    estimate_vector,
    windows,
)
from engine.view import ClusterState
from engine.view.axis import GREATEST_AMOUNT
from tests.builders import pod_from
from tests.engine.measured_cluster import GI, NOW, cluster, node, pod, report, seconds_ago

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.model.time import Micros
    from engine.model.usage import NodeUsage
    from engine.view import ClusterView


PROFILE = Estimation(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70)))
CUSTOM = Estimation(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70)), customize=True)
FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
DEFAULT = {"cpu": 250, "memory": 200 * 1024 * 1024}


def _annotated(**annotations: str) -> Pod:
    return pod(requests={"cpu": "10", "memory": "10Gi"}, metadata={"annotations": annotations})


def _expected(a_pod: Pod, profile: Estimation = PROFILE) -> dict[str, int]:
    return dict(estimate(a_pod.shape, profile))


def test_the_greater_of_limit_and_request_is_scaled_and_rounded() -> None:
    # cpu: 85 % of 3 cores = 2550m; memory: 70 % of 1Gi = 751,619,276.8 -> 751,619,277
    both = pod(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "3"})
    assert _expected(both) == {"cpu": 2550, "memory": 751_619_277}


def test_a_half_rounds_away_from_zero() -> None:
    # 85 % of 250m = 212.5m -> 213m
    assert _expected(pod(requests={"cpu": "250m"}))["cpu"] == 213


def test_a_resize_in_place_has_no_say_before_the_specification_has() -> None:
    resized = {
        "spec": {
            "containers": [
                {"name": "app", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
            ]
        },
        "status": {
            "containerStatuses": [
                {"name": "app", "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "8"}}}
            ]
        },
    }
    a_pod = pod_from(resized)
    assert a_pod.shape.limits["cpu"] == 8000
    assert _expected(a_pod)["cpu"] == 1700  # 85 % of 2 cores


def test_an_estimate_never_exceeds_the_limit() -> None:
    # 85 % of the 8 cores requested = 6800m, but the limit is 2 cores.
    assert _expected(pod(requests={"cpu": "8"}, limits={"cpu": "2"}))["cpu"] == 2000


def test_a_pod_that_asks_for_nothing_is_expected_to_use_the_unscaled_default() -> None:
    assert _expected(pod()) == DEFAULT
    assert _expected(pod(requests={"cpu": "0", "memory": "0"})) == DEFAULT


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (5500, {"cpu": 1700, "memory": 751_619_277}),  # batch: 85 % of 2000 batch milli-cores
        (7500, {"cpu": 0, "memory": 0}),  # mid asks for mid resources; it has no default
        (3500, {"cpu": 0, "memory": 0}),  # free has no resources to ask for at all
        (9500, {"cpu": 3400, "memory": 1_503_238_554}),  # prod: 85 % of 4 cores, 70 % of 2Gi
    ],
)
def test_each_priority_class_asks_under_its_own_names(
    priority: int, expected: dict[str, int]
) -> None:
    requests = {
        "cpu": "4",
        "memory": "2Gi",
        "kubernetes.io/batch-cpu": "2k",
        "kubernetes.io/batch-memory": "1Gi",
    }
    assert _expected(pod(requests=requests, priority=priority)) == expected


def test_a_pods_own_factors_win_where_they_are_honoured() -> None:
    own = _annotated(**{FACTORS: '{"cpu":20,"x.com/gpu":100}'})
    assert _expected(own) == {"cpu": 8500, "memory": 7 * GI}
    assert _expected(own, CUSTOM) == {"cpu": 2000, "memory": 7 * GI, "x.com/gpu": 0}
    # What is not known has no place in the vector.
    assert estimate_vector(own.shape, CUSTOM) == (2000, 7 * GI)


@pytest.mark.parametrize(
    "text", ["", "{}", "bad", '{"cpu":"20"}', '{"cpu":1e400}', f'{{"cpu":{9**999}}}']
)
def test_malformed_or_empty_factors_are_ignored(text: str) -> None:
    own = _annotated(**{FACTORS: text})
    assert _expected(own, CUSTOM) == {"cpu": 8500, "memory": 7 * GI}


def test_wild_factors_stay_within_bounds() -> None:
    own = _annotated(**{FACTORS: f'{{"cpu":{2**63 - 1},"memory":-{2**63}}}'})
    assert _expected(own, CUSTOM) == {"cpu": GREATEST_AMOUNT, "memory": -GREATEST_AMOUNT}


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-200, 300))
def test_an_estimate_lies_between_nothing_and_the_limit(
    request: int, limit: int, factor: int
) -> None:
    profile = Estimation(known=("cpu",), factors=(("cpu", factor),))
    amount = _expected(pod(requests={"cpu": f"{request}m"}, limits={"cpu": f"{limit}m"}), profile)
    if request == limit == 0:
        assert amount["cpu"] == 250
    elif limit and factor >= 0:
        assert 0 <= amount["cpu"] <= limit
    else:
        # Within half a millicore of the exact share.
        assert abs(100 * amount["cpu"] - max(request, limit) * factor) <= 50


def _windows(**annotations: str) -> tuple[int, int]:
    profile = Estimation(
        known=("cpu",),
        factors=(),
        seconds_after_scheduled=600,
        seconds_after_initialized=-5,
        customize=True,
    )
    after_scheduled, after_initialized = windows(profile, _annotated(**annotations).shape)
    return after_scheduled // SECOND, after_initialized // SECOND


def test_a_pods_own_window_replaces_that_of_the_cluster() -> None:
    assert _windows() == (600, 0)  # a negative window is none
    assert _windows(**{AFTER_SCHEDULED: "30", AFTER_INITIALIZED: "7"}) == (30, 7)
    assert _windows(**{AFTER_SCHEDULED: "0"}) == (0, 0)
    assert _windows(**{AFTER_SCHEDULED: "-1"}) == (600, 0)
    assert _windows(**{AFTER_SCHEDULED: "soon"}) == (600, 0)


def test_a_window_of_ages_does_not_wrap() -> None:
    after_scheduled, _ = _windows(**{AFTER_SCHEDULED: "9" * 18})
    assert after_scheduled == 10**10


def test_initialization_begins_the_last_window() -> None:
    assert deadline(10, 0, 100, 5) == 110  # not initialized
    assert deadline(10, 50, 100, 5) == 55
    assert deadline(10, 50, 100, 0) == 110  # no such window
    assert deadline(10, 50, 0, 0) is None


USAGE_PROFILE = LoadProfile(known=("cpu", "memory"), factors=(("cpu", 100), ("memory", 100)))
MINUTE = 60 * 10**9
WINDOWS = (
    AggregatedUsage(5 * MINUTE, {"p95": {"cpu": 300}, "avg": {"cpu": 100}}),
    AggregatedUsage(30 * MINUTE, {"avg": {"cpu": 200}}),
)


def _used_cpu(source: UsageSource) -> int:
    """Return the cpu in use on a node with one measured and one unmeasured pod of 2 cores each."""
    measured = report(
        "a",
        {"cpu": 1000},
        pods={"p": PodUsage({"cpu": 400}, is_prod=True)},
        aggregated=WINDOWS,
        system_usage={"cpu": 70},
    )
    pods = [pod(name, "a", requests={"cpu": "2"}) for name in ("p", "q")]
    view = cluster([node("a")], pods, [measured], [USAGE_PROFILE])
    readings = Readings.of(view, USAGE_PROFILE.known, [source])
    assert (readings.is_reported.tolist(), readings.is_measured.tolist()) == ([True], [True])
    return int((readings.amounts + readings.added(view, USAGE_PROFILE))[0, 0])


@pytest.mark.parametrize(
    ("source", "cpu"),
    [
        (WHOLE_NODE, 1000 + 2000),  # and the unmeasured pod's estimate
        (UsageSource(aggregation="p95"), 300 + 2000),
        (UsageSource(aggregation="avg"), 200 + 2000),  # of the longest window that has it
        (UsageSource(aggregation="avg", duration_ns=5 * MINUTE), 100 + 2000),
        (UsageSource(aggregation="p99"), 1000 + 2000),  # of no window: the usage at the moment
        (UsageSource(aggregation="p95", duration_ns=30 * MINUTE), 4000),  # the estimates alone
        (UsageSource(production=True), 400 + 2000),
        (UsageSource(production=True, with_system=True), 400 + 70 + 2000),
    ],
)
def test_usage_is_a_reading_and_what_estimates_add_to_it(source: UsageSource, cpu: int) -> None:
    assert _used_cpu(source) == cpu


def test_a_report_may_lack_what_is_asked_for() -> None:
    view = cluster(
        [node("a"), node("b"), node("c")], [], [report("a", {}), report("b", None)], [USAGE_PROFILE]
    )
    readings = Readings.of(view, USAGE_PROFILE.known, [WHOLE_NODE] * 3)
    assert readings.is_reported.tolist() == [True, True, False]
    assert readings.is_measured.tolist() == [True, False, False]
    assert not (readings.amounts + readings.added(view, USAGE_PROFILE)).any()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, [8000, 1024]),
        ('{"cpu":"4"}', [4000, 1024]),
        ('{"cpu":4,"memory":"2Ki"}', [4000, 2048]),
        ('{"cpu":null}', [0, 1024]),
        ("{}", [8000, 1024]),
        ("null", [8000, 1024]),
        ('{"cpu":"abc","memory":"2Ki"}', [8000, 1024]),
        ('{"cpu":true}', [8000, 1024]),
        ("{", [8000, 1024]),
        ('{"cpu":"1e30"}', [2**48, 1024]),
    ],
)
def test_capacity_is_what_a_node_offers_before_amplification(
    raw: str | None, expected: list[int]
) -> None:
    a_node = node("a", {} if raw is None else {RAW_ALLOCATABLE: raw}, cpu="8", memory="1Ki")
    assert capacity(cluster([a_node]), USAGE_PROFILE.known)[:, 0].tolist() == expected


SUMS_PROFILE = LoadProfile(known=("cpu", "memory"), factors=(("cpu", 100), ("memory", 100)))
KINDS = ("node_delta", "node_estimated", "prod_usage", "prod_delta")
RESERVE = {"annotations": {"scheduling.koordinator.sh/reserve-pod": "true"}}
BATCH = {"labels": {"koordinator.sh/priority-class": "koord-batch"}}


def _scheduled(seconds: int) -> list[dict[str, str]]:
    """Return the conditions of a pod that was scheduled so many seconds ago."""
    return [_condition("PodScheduled", seconds)]


def _condition(kind: str, seconds: int) -> dict[str, str]:
    time = np.datetime64(seconds_ago(seconds), "us")
    return {"type": kind, "status": "True", "lastTransitionTime": f"{time}Z"}


def _used(cpu: int, memory: int = 0, *, prod: bool = True) -> PodUsage:
    return PodUsage({"cpu": cpu, "memory": memory}, prod)


def _cpu(
    pods: list[Pod], the_report: NodeUsage, profile: LoadProfile = SUMS_PROFILE
) -> dict[str, int]:
    """Return the four sums of node `a`, in millicores."""
    return _sums(cluster([], pods, [the_report], [profile]), "a", profile)


def _sums(view: ClusterView, name: str, profile: LoadProfile = SUMS_PROFILE) -> dict[str, int]:
    sums, row = LoadSums.of(view, profile), view.rows[name]
    return {kind: int(getattr(sums, kind)[0, row]) for kind in KINDS}


def _on(name: str, seconds: int = 1000, cpu: str = "2", **more: Any) -> Pod:  # noqa: ANN401 (any part of a pod)
    return pod(name, "a", requests={"cpu": cpu}, conditions=_scheduled(seconds), **more)


def test_a_pod_without_a_measurement_counts_in_full() -> None:
    sums = _cpu([_on("p")], report("a", {}))
    assert sums == {"node_delta": 2000, "node_estimated": 2000, "prod_usage": 0, "prod_delta": 2000}


@pytest.mark.parametrize(("age", "delta"), [(60, 0), (59, 2000)])
def test_where_pods_are_not_measured_the_usage_of_the_node_holds_all_but_the_new_ones(
    age: int, delta: int
) -> None:
    alone = report("a", {"cpu": 700}, age=100, pods_measured=False)
    sums = _cpu([_on("p", 100 + age)], alone)
    assert (sums["node_delta"], sums["node_estimated"]) == (delta, 2000)
    # What production uses of it can only be estimated.
    assert (sums["prod_usage"], sums["prod_delta"]) == (0, 2000)


def test_an_old_pod_counts_by_its_measurement_alone() -> None:
    sums = _cpu([_on("p")], report("a", {}, pods={"p": _used(500)}))
    assert sums == {"node_delta": 0, "node_estimated": 2000, "prod_usage": 500, "prod_delta": 0}


@pytest.mark.parametrize(("age", "delta"), [(60, 0), (59, 1500)])
def test_a_pod_is_fresh_within_one_interval_before_the_report(age: int, delta: int) -> None:
    # The report is 100 s old, so the pod was scheduled 60 s or 59 s before it.
    sums = _cpu([_on("p", 100 + age)], report("a", {}, age=100, pods={"p": _used(500)}))
    assert (sums["node_delta"], sums["prod_delta"]) == (delta, delta)


def test_a_fresh_pod_adds_only_what_it_is_expected_to_use_beyond_its_measurement() -> None:
    pods = [_on("under", 10), _on("over", 10)]
    usage = {"under": _used(1900), "over": _used(2500)}
    # 2000 - 1900 = 100 and never less than nothing for the other one.
    assert _cpu(pods, report("a", {}, pods=usage))["node_delta"] == 100


def test_a_report_without_a_time_makes_every_pod_fresh() -> None:
    sums = _cpu([_on("p")], report("a", {}, age=None, pods={"p": _used(500)}))
    assert sums["node_delta"] == 1500


@pytest.mark.parametrize(("window", "delta"), [(900, 0), (901, 1500)])
def test_a_forced_window_is_compared_with_the_time_of_the_report(window: int, delta: int) -> None:
    # Scheduled 1000 s ago, reported 100 s ago: the window must reach beyond 900 s.
    profile = LoadProfile(
        known=SUMS_PROFILE.known, factors=SUMS_PROFILE.factors, seconds_after_scheduled=window
    )
    sums = _cpu([_on("p")], report("a", {}, age=100, pods={"p": _used(500)}), profile)
    assert sums["node_delta"] == delta


def test_initialization_ends_a_long_window_early() -> None:
    profile = LoadProfile(
        known=SUMS_PROFILE.known,
        factors=SUMS_PROFILE.factors,
        seconds_after_scheduled=10_000,
        seconds_after_initialized=10,
    )
    waiting = pod("p", "a", requests={"cpu": "2"}, conditions=_scheduled(1000))
    begun = pod(
        "p",
        "a",
        requests={"cpu": "2"},
        conditions=[*_scheduled(1000), _condition("Initialized", 500)],
    )
    measured = report("a", {}, pods={"p": _used(500)})
    assert _cpu([waiting], measured, profile)["node_delta"] == 1500
    assert _cpu([begun], measured, profile)["node_delta"] == 0


def test_only_pods_that_are_and_are_reported_as_production_count_as_such() -> None:
    pods = [_on("agreed"), _on("misreported"), _on("batch", metadata=BATCH)]
    usage = {
        "agreed": _used(100),
        "misreported": _used(200, prod=False),
        "batch": _used(400),
        "unknown": _used(800),
    }
    sums = _cpu(pods, report("a", {}, pods=usage))
    assert (sums["prod_usage"], sums["prod_delta"]) == (100, 2000)  # the misreported in full


def test_reserve_pods_finished_pods_and_pods_elsewhere_add_nothing() -> None:
    pods = [
        _on("reserve", metadata=RESERVE),
        pod("elsewhere", "b", requests={"cpu": "1"}),
        pod("pending", requests={"cpu": "1"}),
    ]
    usage = {"reserve": _used(300)}
    assert set(_cpu(pods, report("a", {}, pods=usage)).values()) == {0}


def test_a_node_without_a_report_holds_zeros() -> None:
    view = cluster([], [_on("p")], [], [SUMS_PROFILE])
    assert set(_sums(view, "a").values()) == {0}


def test_a_pod_without_a_scheduled_time_counts_from_when_it_was_first_seen() -> None:
    # `cluster` sees its pods an hour ago: not fresh for a report of now, fresh for one as old.
    unscheduled = pod("p", "a", requests={"cpu": "2"})
    usage = {"p": _used(500)}
    assert _cpu([unscheduled], report("a", {}, pods=usage))["node_delta"] == 0
    assert _cpu([unscheduled], report("a", {}, age=3600, pods=usage))["node_delta"] == 1500


def test_hostile_amounts_are_capped_and_sum_up_exactly() -> None:
    pods = [pod(f"p{i}", "a", requests={"cpu": "9e15"}) for i in range(200)]
    assert _cpu(pods, report("a", {}))["node_estimated"] == 200 * 2**48


def test_sums_of_a_view_never_change() -> None:
    state = ClusterState()
    state.track_sums([SUMS_PROFILE])
    state.set_usage(report("a", {}))
    state.set_pod(_on("p"), seen_at=NOW)
    view = state.view()
    kept = LoadSums.of(view, SUMS_PROFILE).node_delta.copy()
    state.set_pod(_on("q"), seen_at=NOW)
    assert _sums(state.view(), "a")["node_delta"] == 4000
    assert (LoadSums.of(view, SUMS_PROFILE).node_delta == kept).all()


def test_more_pods_than_are_worth_remembering_one_by_one_are_counted_all_the_same() -> None:
    state = ClusterState()
    state.track_sums([SUMS_PROFILE])
    state.set_usage(report("a", {}))
    assert _sums(state.view(), "a")["node_estimated"] == 0
    for i in range(2000):
        state.set_pod(_on(f"p{i}", cpu="1m"), seen_at=NOW)
    assert _sums(state.view(), "a")["node_estimated"] == 2000
    state.delete_pod("default/p7")
    assert _sums(state.view(), "a")["node_estimated"] == 1999


def test_a_number_of_a_shape_that_is_gone_may_mean_another_one() -> None:
    state = ClusterState()
    state.track_sums([SUMS_PROFILE])
    state.set_usage(report("a", {}))
    for cpu in (1, 2, 3):
        state.set_pod(_on("p", cpu=str(cpu)), seen_at=NOW)
        assert _sums(state.view(), "a")["node_estimated"] == cpu * 1000


# Properties, over random lives of a small cluster.

PROFILES = (
    SUMS_PROFILE,
    LoadProfile(
        known=("cpu", "memory", "x.com/gpu"),
        factors=(("cpu", 85), ("memory", 70)),
        seconds_after_scheduled=120,
        seconds_after_initialized=40,
        customize=True,
    ),
)


@dataclass(frozen=True)
class Event:
    """Something that happens to a pod or a node of a small cluster."""

    kind: str
    number: int
    what: Any = None


_nodes = st.integers(0, 2)
_ages = st.integers(0, 200)
_pods = st.builds(
    lambda on, cpu, scheduled, begun, label, annotations: {
        "on": f"n{on}",
        "requests": {"cpu": f"{cpu}m", "memory": "1Gi"},
        "conditions": [
            *([] if scheduled is None else _scheduled(scheduled)),
            *([] if begun is None else [_condition("Initialized", begun)]),
        ],
        "metadata": {"labels": label, "annotations": annotations},
    },
    _nodes,
    st.integers(0, 3000),
    st.none() | _ages,
    st.none() | _ages,
    st.sampled_from([{}, BATCH["labels"], {"koordinator.sh/priority-class": "koord-free"}]),
    st.sampled_from(
        [
            {},
            RESERVE["annotations"],
            {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu":-50}'},
            {"scheduling.koordinator.sh/load-estimated-seconds-after-initialized": "5"},
        ]
    ),
)
_usages = st.dictionaries(
    st.integers(0, 5).map(lambda i: f"p{i}"),
    st.builds(lambda cpu, prod: _used(cpu, GI, prod=prod), st.integers(0, 3000), st.booleans()),
)
_reports = st.fixed_dictionaries(
    {"age": st.none() | _ages, "pods": _usages},
    optional={"report_interval_seconds": st.integers(1, 90), "system_usage": st.just({"cpu": 33})},
)
_lives = st.lists(
    st.builds(Event, st.just("pod"), st.integers(0, 5), _pods)
    | st.builds(Event, st.just("gone"), st.integers(0, 5))
    | st.builds(Event, st.just("report"), _nodes, _reports)
    | st.builds(Event, st.just("silence"), _nodes),
    max_size=14,
)


def _apply(state: ClusterState, event: Event) -> None:
    match event.kind:
        case "pod":
            state.set_pod(pod(f"p{event.number}", **event.what), seen_at=seconds_ago(90))
        case "gone":
            state.delete_pod(f"default/p{event.number}")
        case "report":
            state.set_usage(report(f"n{event.number}", {"cpu": 1}, **event.what))
        case _:
            state.delete_usage(f"n{event.number}")


def _tracking() -> ClusterState:
    state = ClusterState()
    state.track_sums(PROFILES)
    return state


def _all_sums(view: ClusterView) -> dict[tuple[str, LoadProfile], list[Any]]:
    return {
        (name, profile): [
            getattr(LoadSums.of(view, profile), kind)[:, row].tolist() for kind in KINDS
        ]
        for profile in PROFILES
        for name, row in view.rows.items()
    }


@settings(max_examples=100)
@given(_lives, st.data())
def test_sums_kept_step_by_step_are_those_counted_at_once(
    life: list[Event], data: st.DataObject
) -> None:
    looked_at, at_once = _tracking(), _tracking()
    for event in life:
        _apply(looked_at, event)
        _apply(at_once, event)
        if data.draw(st.booleans()):
            looked_at.view()
    assert _all_sums(looked_at.view()) == _all_sums(at_once.view())


@settings(max_examples=100)
@given(_lives)
def test_sums_are_those_of_the_pods_taken_one_by_one(life: list[Event]) -> None:
    state = _tracking()
    pods: dict[str, Pod] = {}
    reports: dict[str, NodeUsage] = {}
    for event in life:
        _apply(state, event)
        key, on = f"default/p{event.number}", f"n{event.number}"
        match event.kind:
            case "pod":
                a_pod = pod(f"p{event.number}", **event.what)
                pods[key] = replace(a_pod, scheduled_at=_assigned_at(a_pod, pods.get(key)))
            case "gone":
                pods.pop(key, None)
            case "report":
                reports[on] = report(on, {"cpu": 1}, **event.what)
            case _:
                reports.pop(on, None)
    view = state.view()
    for (name, profile), found in _all_sums(view).items():
        total = np.zeros((4, len(profile.known)), np.int64)
        if name in reports:
            for a_pod in pods.values():
                if a_pod.node_name == name:
                    total += _part(a_pod, reports[name], profile)
        assert found == total.tolist()


def _assigned_at(a_pod: Pod, before: Pod | None) -> Micros | None:
    """Return since when a pod is on its node: by its condition, or else when it was first seen."""
    if a_pod.scheduled_at is None and before is not None and before.node_name == a_pod.node_name:
        return before.scheduled_at
    return seconds_ago(90) if a_pod.scheduled_at is None else a_pod.scheduled_at


def _part(a_pod: Pod, the_report: NodeUsage, profile: LoadProfile) -> list[list[int]]:
    """Return what a pod adds to each sum, by the rules as they are written down."""
    if a_pod.shape.reserve_pod:
        return [[0] * len(profile.known)] * 4
    expected = [estimate(a_pod.shape, profile).get(name, 0) for name in profile.known]
    reported = the_report.pods.get(a_pod.key)
    usage = [reported.amounts.get(name, 0) if reported else 0 for name in profile.known]
    beyond = [max(0, e - u) for e, u in zip(expected, usage, strict=True)]
    nothing = [0] * len(profile.known)
    fresh = reported is None or _is_fresh(a_pod, the_report, profile)
    active = a_pod.shape.is_prod and reported is not None and reported.is_prod
    prod_delta = nothing
    if a_pod.shape.is_prod and reported is not None and not active:
        prod_delta = [max(0, e) for e in expected]
    elif a_pod.shape.is_prod and fresh:
        prod_delta = beyond
    return [beyond if fresh else nothing, expected, usage if active else nothing, prod_delta]


def _is_fresh(a_pod: Pod, the_report: NodeUsage, profile: LoadProfile) -> bool:
    updated = the_report.update_time
    if updated is None:
        return True
    assigned = a_pod.scheduled_at
    assert assigned is not None
    if assigned > updated - the_report.report_interval_seconds * SECOND:
        return True
    after_scheduled, after_initialized = windows(profile, a_pod.shape)
    if after_initialized and a_pod.initialized_at is not None:
        return a_pod.initialized_at + after_initialized > updated
    return bool(after_scheduled) and assigned + after_scheduled > updated
