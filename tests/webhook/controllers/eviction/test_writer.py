from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.controllers.eviction.worlds import quota_key
from webhook.cluster.client.connection import connected
from webhook.controllers.eviction.writer import EvictionMetrics, EvictionResult, EvictionWriter

PODS = "/api/v1/namespaces/shop/pods"


class World:
    """A server with a pod `web`, and who may evict it."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.leads = True
        self.counted: list[EvictionResult] = []
        self.evictions: EvictionWriter
        self.uid = self.create("web")

    def create(self, name: str, **spec: object) -> str:
        metadata = {"name": name, "namespace": "shop", "labels": {"app": "web"}}
        stored = self.server.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
        uid: str = stored["metadata"]["uid"]
        return uid

    def protect(self, name: str, allowed: int) -> None:
        budget: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": allowed},
        }
        self.server.create(budget)

    async def evict(self, *, is_dry_run: bool = False) -> tuple[EvictionResult, str]:
        eviction = await self.evictions.evict("shop", "web", self.uid, is_dry_run=is_dry_run)
        return eviction.result, eviction.message

    @property
    def pods(self) -> set[str]:
        return {name for _, name in self.server.objects("pods")}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server)
        made.evictions = EvictionWriter(
            connection, may_write=lambda: made.leads, count=made.counted.append
        )
        yield made


async def test_a_pod_is_evicted_and_counted(world: World) -> None:
    assert await world.evict() == (EvictionResult.EVICTED, "")
    assert world.pods == set()
    assert world.counted == [EvictionResult.EVICTED]


async def test_a_dry_run_evicts_and_counts_nothing(world: World) -> None:
    assert await world.evict(is_dry_run=True) == (EvictionResult.EVICTED, "")
    assert world.pods == {"web"}
    assert world.counted == []


@pytest.mark.parametrize("is_dry_run", [True, False])
async def test_a_budget_stands_against_it_and_others_go_on(
    world: World, *, is_dry_run: bool
) -> None:
    world.protect("web", 0)
    result, message = await world.evict(is_dry_run=is_dry_run)
    assert result is EvictionResult.BLOCKED
    assert "disruption budget" in message
    assert world.pods == {"web"}
    assert world.evictions.pause_seconds == 0


async def test_a_budget_with_room_lets_it_pass(world: World) -> None:
    world.protect("web", 1)
    assert await world.evict() == (EvictionResult.EVICTED, "")


async def test_two_budgets_block_for_good(world: World) -> None:
    world.protect("web", 1)
    world.protect("all", 1)
    assert (await world.evict())[0] is EvictionResult.BLOCKED
    assert world.evictions.pause_seconds == 0


async def test_a_pod_that_is_gone_is_no_failure(world: World) -> None:
    world.server.delete("pods", "shop", "web")
    assert (await world.evict())[0] is EvictionResult.GONE


async def test_another_pod_of_that_name_is_spared(world: World) -> None:
    world.server.delete("pods", "shop", "web")
    world.create("web")
    assert (await world.evict())[0] is EvictionResult.GONE
    assert world.pods == {"web"}


async def test_a_refusal_says_whose_it_is(world: World) -> None:
    world.server.fail_next(1, 403, path_prefix=PODS)
    assert await world.evict() == (EvictionResult.REFUSED, "failed by the test")


@pytest.mark.parametrize("status", [429, 500, 503, 0])
async def test_a_busy_server_is_left_alone_for_a_while(world: World, status: int) -> None:
    world.server.fail_next(1, status, path_prefix=PODS)
    assert (await world.evict())[0] is EvictionResult.UNREACHABLE
    assert world.evictions.pause_seconds > 0
    assert world.pods == {"web"}


async def test_nothing_is_sent_by_whom_does_not_lead(world: World) -> None:
    world.leads = False
    assert (await world.evict())[0] is EvictionResult.NOT_LEADING
    assert world.pods == {"web"}


def test_evicted_pods_are_counted_by_quota_for_as_many_quotas_as_there_may_be() -> None:
    registry = CollectorRegistry()
    metrics = EvictionMetrics(registry, lambda: False)
    for number in range(600):
        metrics.evicted_pod(quota_key(f"n{number}"))
    metrics.evicted_pod(quota_key("n0"))
    metrics.evicted_pod(None)  # of no quota

    def count(namespace: str) -> float | None:
        labels = {"quota_namespace": namespace, "quota": "team"}
        return registry.get_sample_value("stowplan_quota_evicted_pods_total", labels)

    assert [count("n0"), count("n499"), count("n500")] == [2, 1, None]


def test_a_pause_is_shown_while_it_lasts() -> None:
    registry, paused = CollectorRegistry(), True
    EvictionMetrics(registry, lambda: paused)
    assert registry.get_sample_value("stowplan_reclaim_paused") == 1
    paused = False
    assert registry.get_sample_value("stowplan_reclaim_paused") == 0
