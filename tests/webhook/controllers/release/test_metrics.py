from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from engine.model.elastic_quota import ReclaimMode
from engine.model.time import SECOND, Micros
from engine.quota.queueing import QueueRules
from engine.view import ClusterState
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.release.controller_world import Replica, running_world
from tests.webhook.controllers.release.releases import pod
from webhook.cluster.client.connection import ApiError, connected
from webhook.controllers.release.metrics import ReleaseCollector, ReleaseMetrics
from webhook.controllers.release.pod_writer import WriteKind
from webhook.controllers.release.quota_queue import QuotaQueue
from webhook.controllers.release.refusals import Refusals
from webhook.controllers.release.unbound_releases import Release, UnboundReleases
from webhook.controllers.release.write_error import WriteFailure
from webhook.placement.held_pods import HeldPods


@pytest.fixture
async def refusals(tmp_path: Path) -> AsyncIterator[Refusals]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield Refusals(connection, identity="replica-1")


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


async def test_the_moment_is_read_at_each_scrape(refusals: Refusals) -> None:
    held, unbound = HeldPods(lambda: Micros(0)), UnboundReleases()
    registry = CollectorRegistry()
    registry.register(
        ReleaseCollector(
            held=held,
            unbound=unbound,
            refusals=refusals,
            now=lambda: Micros(90 * SECOND),
            quota_queue=QuotaQueue(
                ClusterState(), held, unbound, QueueRules(), now=lambda: Micros(0)
            ),
            is_leader=lambda: True,
        )
    )
    assert registry.get_sample_value("stowplan_held_pods") == 0
    assert registry.get_sample_value("stowplan_held_pods_overdue_seconds") == 0
    unbound.add(Release(key="shop/a", uid="uid-a", scheduler_name="default-scheduler"))
    refusals.refused(pod("b"), ApiError(403, "", "no"))
    assert registry.get_sample_value("stowplan_released_pods_unbound") == 1
    assert registry.get_sample_value("stowplan_held_pods_refused") == 1


def _waits_within_min(replica: Replica, *, leads: bool = True) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(
        ReleaseCollector(
            held=replica.held,
            unbound=replica.unbound,
            refusals=replica.refusals,
            now=replica.world.now,
            quota_queue=replica.quota_queue,
            is_leader=lambda: leads,
        )
    )
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
        world.quota("shop", minimum=2, reclaim=ReclaimMode.ON)
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
