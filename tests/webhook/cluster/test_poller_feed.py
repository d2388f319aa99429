from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.usage import NodeUsage
from engine.plugins.base import PASS, Cycle
from engine.plugins.load_aware.plugin import LoadAwareArgs, LoadAwareFilter
from engine.view import ClusterState, UsageHistory
from tests.engine.measured_cluster import NOW, node, pod, seconds_ago
from webhook.cluster.usage import UsageFeed


def reading(name: str, millicores: int, *, ago: int = 0) -> NodeUsage:
    return NodeUsage(
        node_name=name,
        update_time=seconds_ago(ago),
        usage={"cpu": millicores, "memory": 0},
        pods_measured=False,
    )


def feeding(
    *nodes: str, koordinator: frozenset[str] = frozenset()
) -> tuple[ClusterState, UsageFeed]:
    """Return a cluster of nodes of 10 cores, and what feeds it."""
    state = ClusterState()
    for name in nodes:
        state.set_node(node(name, cpu="10", memory="1Gi"))
    return state, UsageFeed(state, UsageHistory(15), by_koordinator=koordinator.__contains__)


def kept_off(state: ClusterState, **args: object) -> dict[str, str]:
    """Return why LoadAware keeps a pod that is expected to use nothing off nodes."""
    parsed = LoadAwareArgs.model_validate(args)
    state.track_sums([parsed.load_profile])
    view, rule, one = state.view(), LoadAwareFilter(parsed), pod(priority=3500)
    codes = dict(zip(view.names, rule.filter(Cycle(one, view, NOW)).codes.tolist(), strict=True))
    return {
        name: ", ".join(rule.reasons(code, Cycle(one, view, NOW)))
        for name, code in codes.items()
        if code != PASS
    }


def on_percentile(kind: str, duration: str = "5m") -> dict[str, object]:
    """Return arguments that keep pods off nodes where a percentile of cpu exceeds 65 %."""
    return {
        "aggregated": {
            "usageThresholds": {"cpu": 65},
            "usageAggregationType": kind,
            "usageAggregatedDuration": duration,
        }
    }


async def test_a_node_that_is_hot_now_and_then_is_kept_free_by_its_percentile() -> None:
    state, feed = feeding("calm", "spiky")
    # Both use 2 of 10 cores at last; `spiky` used 9 in 2 of the 20 samples of five minutes, so
    # that the 19th of them in order, the 95th percentile, is 9 and the 18th, the 90th, is 2.
    for number in range(20):
        spike = 9000 if number in (4, 11) else 2000
        ago = 15 * (19 - number)
        await feed.apply([reading("calm", 2000, ago=ago), reading("spiky", spike, ago=ago)])
    assert kept_off(state, usageThresholds={"cpu": 65}) == {}
    exceeded = {"spiky": "node(s) cpu aggregated usage exceed threshold"}
    assert kept_off(state, **on_percentile("p95")) == exceeded
    assert kept_off(state, **on_percentile("p99")) == exceeded
    assert kept_off(state, **on_percentile("p90")) == {}
    assert kept_off(state, **on_percentile("avg")) == {}


async def test_without_a_history_a_percentile_is_estimated_and_not_made_up() -> None:
    state, feed = feeding("a")
    await feed.apply([reading("a", 9000)])
    assert kept_off(state, usageThresholds={"cpu": 65}).keys() == {"a"}
    # As with NodeMetric: a window that is not reported leaves the estimates of its pods, here none.
    assert kept_off(state, **on_percentile("p95")) == {}
    # No window asked for: that of any length, or else the usage as of now.
    assert kept_off(state, **on_percentile("p95", "")).keys() == {"a"}


async def test_a_report_holds_what_the_history_tells() -> None:
    state, feed = feeding("a")
    await feed.apply([reading("a", 1000, ago=200)])
    await feed.apply([reading("a", 3000)])
    (usage,) = filter(None, state.view().usages)
    assert (usage.average, usage.deviation) == (
        {"cpu": 2000, "memory": 0},
        {"cpu": 1000, "memory": 0},
    )
    assert usage.aggregated[0].by_type["p50"] == {"cpu": 1000, "memory": 0}


async def test_a_reading_that_is_not_newer_changes_nothing() -> None:
    state, feed = feeding("a")
    assert await feed.apply([reading("a", 1000)]) == 1
    before = state.view()
    assert await feed.apply([reading("a", 9000), reading("a", 9000, ago=15)]) == 0
    assert state.view() is before


async def test_koordinators_report_outlives_a_node_that_the_feed_no_longer_sees() -> None:
    taken_over: set[str] = set()
    state = ClusterState()
    feed = UsageFeed(state, UsageHistory(15), by_koordinator=taken_over.__contains__)
    await feed.apply([reading("a", 1000)])
    taken_over.add("a")
    state.set_usage(NodeUsage(node_name="a", usage={"cpu": 7}))
    await feed.apply([])
    (usage,) = filter(None, state.view().usages)
    assert usage.usage == {"cpu": 7}
    assert len(feed) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda: NodeUsage(node_name="", update_time=NOW, usage={"cpu": 1, "memory": 1}),
        lambda: NodeUsage(node_name="a", update_time=None, usage={"cpu": 1, "memory": 1}),
        lambda: NodeUsage(node_name="a", update_time=NOW, usage={"cpu": 1}),
        lambda: NodeUsage(node_name="a", update_time=NOW),
    ],
)
async def test_a_reading_that_is_not_complete_is_left_out(change: Callable[[], NodeUsage]) -> None:
    state, feed = feeding("a")
    assert await feed.apply([change()]) == 0
    assert not any(state.view().usages)
