from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from engine.model.time import SECOND, Micros
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.release.releases import pod
from webhook.cluster.client.connection import ApiError, connected
from webhook.controllers.release.metrics import ReleaseCollector, ReleaseMetrics
from webhook.controllers.release.outcomes import Outcome, Outcomes
from webhook.controllers.release.pacing import Landing, Release, UnboundReleases
from webhook.controllers.release.pod_writer import WriteKind
from webhook.controllers.release.refusals import Refusals
from webhook.controllers.release.write_error import WriteFailure
from webhook.placement.held_pods import HeldPods


@pytest.fixture
async def refusals(tmp_path: Path) -> AsyncIterator[Refusals]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield Refusals(connection, identity="replica-1")


def test_writes_holds_and_landings_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = ReleaseMetrics(registry)
    metrics.written(WriteKind.RELEASE, None)
    metrics.written(WriteKind.RELEASE, WriteFailure.REFUSED)
    metrics.held_for(0.3)
    metrics.landed(Outcome.NO_ROOM)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("stowplan_held_pod_writes_total", write="release", result="accepted") == 1
    assert value("stowplan_held_pod_writes_total", write="release", result="refused") == 1
    assert value("stowplan_hold_seconds_bucket", le="0.25") == 0
    assert value("stowplan_hold_seconds_bucket", le="0.5") == 1
    assert value("stowplan_released_pods_total", outcome="no-room") == 1


async def test_the_moment_is_read_at_each_scrape(refusals: Refusals) -> None:
    held, unbound = HeldPods(lambda: Micros(0)), UnboundReleases()
    outcomes = Outcomes()
    registry = CollectorRegistry()
    registry.register(
        ReleaseCollector(held, unbound, outcomes, refusals, lambda: Micros(90 * SECOND))
    )
    assert registry.get_sample_value("stowplan_held_pods") == 0
    assert registry.get_sample_value("stowplan_held_pods_overdue_seconds") == 0
    release = Release(
        key="shop/a", uid="uid-a", scheduler_name="default-scheduler", node_name="node-1"
    )
    unbound.add(release)
    refusals.refused(pod("b"), ApiError(403, "", "no"))
    for _ in range(50):
        outcomes.count(Landing(release, pod(node="node-2")), lambda _pod, _node: True)
    assert registry.get_sample_value("stowplan_released_pods_unbound") == 1
    assert registry.get_sample_value("stowplan_held_pods_refused") == 1
    stock = {"scheduler": "default-scheduler"}
    assert registry.get_sample_value("stowplan_nomination_hit_rate", stock) == 0
    assert registry.get_sample_value("stowplan_nominations_suspended", stock) == 1
