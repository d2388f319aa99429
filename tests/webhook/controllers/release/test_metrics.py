from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from engine.model.elastic_quota import EvictionMode
from engine.release import WriteFailure
from tests.engine.release.pods import pod, sent
from tests.webhook.controllers.release.controller_world import Replica, running_world
from webhook.controllers.release.context import ReleaseCollector, ReleaseMetrics
from webhook.controllers.release.pod_writer import WriteKind


def test_writes_and_holds_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = ReleaseMetrics(registry)
    metrics.written(WriteKind.RELEASE, None)
    metrics.written(WriteKind.RELEASE, WriteFailure.REFUSED)
    metrics.held_for(0.3)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("stowplan_held_pod_writes_total", write="release", result="accepted") == 1
    assert value("stowplan_held_pod_writes_total", write="release", result="refused") == 1
    assert value("stowplan_hold_seconds_bucket", le="0.25") == 0
    assert value("stowplan_hold_seconds_bucket", le="0.5") == 1


async def test_the_moment_is_read_at_each_scrape(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        replica = world.replica()
        registry = CollectorRegistry()
        registry.register(ReleaseCollector(replica.release))
        assert registry.get_sample_value("stowplan_held_pods") == 0
        assert registry.get_sample_value("stowplan_held_pods_overdue_seconds") == 0
        pods = replica.release.pods
        sent(pods, pod("a"), at=0)
        pods.of_pod(pod("b")).write_refused("no", None, world.now(), at=0)
        assert registry.get_sample_value("stowplan_released_pods_unbound") == 1
        assert registry.get_sample_value("stowplan_held_pods_refused") == 1


def _waits_within_min(replica: Replica, *, leads: bool = True) -> dict[str, float]:
    registry = CollectorRegistry()
    replica.leads = leads
    registry.register(ReleaseCollector(replica.release))
    return {
        f"{sample.labels['quota_namespace']}/{sample.labels['quota']}": sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "stowplan_quota_within_min_wait_seconds"
    }


async def test_a_quota_that_waits_for_its_min_is_shown_by_the_leader(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        world.node("a", cpu="4")
        world.create("other", "elsewhere", "4", nodeName="a")
        world.quota("shop", minimum=2, reclaim=EvictionMode.ON)
        world.quota("batch")
        world.queue("within")
        world.queue("borrows", "batch")
        replica = world.replica()
        await replica.cycle()
        world.seconds += 90
        world.queue("younger")
        await replica.cycle()
        assert _waits_within_min(replica) == {"shop/quota": 90}
        assert _waits_within_min(replica, leads=False) == {}
