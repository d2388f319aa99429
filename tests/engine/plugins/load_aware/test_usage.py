from __future__ import annotations

import pytest

from engine.model.usage import AggregatedUsage, PodUsage
from engine.plugins.load_aware.sums import LoadProfile
from engine.plugins.load_aware.usage import (
    RAW_ALLOCATABLE,
    WHOLE_NODE,
    Readings,
    UsageSource,
    capacity,
)
from tests.engine.measured_cluster import cluster, node, pod, report

PROFILE = LoadProfile(known=("cpu", "memory"), factors=(("cpu", 100), ("memory", 100)))
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
    view = cluster([node("a")], pods, [measured], [PROFILE])
    readings = Readings.of(view, PROFILE.known, [source])
    assert (readings.is_reported.tolist(), readings.is_measured.tolist()) == ([True], [True])
    return int((readings.amounts + readings.added(view, PROFILE))[0, 0])


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
        [node("a"), node("b"), node("c")], [], [report("a", {}), report("b", None)], [PROFILE]
    )
    readings = Readings.of(view, PROFILE.known, [WHOLE_NODE] * 3)
    assert readings.is_reported.tolist() == [True, True, False]
    assert readings.is_measured.tolist() == [True, False, False]
    assert not (readings.amounts + readings.added(view, PROFILE)).any()


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
    assert capacity(cluster([a_node]), PROFILE.known)[:, 0].tolist() == expected
