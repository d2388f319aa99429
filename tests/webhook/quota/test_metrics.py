from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.time import Micros
from engine.quota import RESOURCE_QUOTA_RULES, QuotaMode, QuotaVerdict, Reservation, Reservations
from engine.quota.reservations import encode
from engine.quota.verdict import COHORT
from engine.view import ClusterState
from tests.builders import pod_from, quota_from
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import connected
from webhook.cluster.timing import MonotonicClock
from webhook.quota import ObservedCluster, QuotaCollector, QuotaEventRecorder


def quota(
    namespace: str, reservations: str = "", minimum: dict[str, str] | None = None, **maximum: str
) -> api.ElasticQuota:
    written: dict[str, Any] = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "metadata": {
            "namespace": namespace,
            "name": "team",
            "uid": "q",
            "annotations": {"stowplan.dev/reservations": reservations},
        },
        "spec": {"max": maximum, "min": minimum or {}},
    }
    return msgspec.convert(written, api.ElasticQuota)


def scraped(state: ClusterState, mode: QuotaMode = "Enforce") -> list[str]:
    observed = ObservedCluster(
        view=state.view, requests=lambda key, scheduled: state.requests(key, scheduled=scheduled)
    )
    registry = CollectorRegistry()
    registry.register(QuotaCollector(observed, RESOURCE_QUOTA_RULES, mode))
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_how_full_a_quota_is_can_be_graphed() -> None:
    state = ClusterState()
    waiting = Reservations(by_key={"u": Reservation("u", "b", {"cpu": 500, "memory": 7})})
    state.set_quota(quota_of(quota("shop", encode(waiting, "q"), cpu="4", memory="1Ki")))
    pod = {
        "metadata": {"namespace": "shop", "name": "a"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]},
    }
    state.set_pod(pod_from(pod), seen_at=Micros(0))
    of_cpu = '{quota="team",quota_namespace="shop",resource="cpu"}'
    of_memory = '{quota="team",quota_namespace="shop",resource="memory"}'
    assert set(scraped(state)) == {
        f"stowplan_quota_used{of_cpu} 1.5",
        f"stowplan_quota_reserved{of_cpu} 0.5",
        f"stowplan_quota_max{of_cpu} 4.0",
        f"stowplan_quota_used{of_memory} 0.0",
        f"stowplan_quota_reserved{of_memory} 7.0",
        f"stowplan_quota_max{of_memory} 1024.0",
    }


def test_the_number_of_series_is_bounded() -> None:
    state = ClusterState()
    for number in range(600):
        state.set_quota(quota_of(quota(f"shop-{number:03}", cpu="4")))
    many = {f"example.com/device-{number}": "1" for number in range(30)}
    state.set_quota(quota_of(quota("first", "", None, **many)))
    lines = scraped(state)
    assert len(lines) == 3 * (16 + 499)
    assert any("shop-498" in line for line in lines)


def test_what_a_quota_that_queues_borrows_and_lends_can_be_graphed() -> None:
    state = ClusterState()
    state.set_quota(quota_of(quota("shop", minimum={"cpu": "1"}, cpu="4", pods="9")))
    state.set_quota(quota_of(quota("mail", minimum={"cpu": "2"}, cpu="4")))
    for name, queued in (("a", False), ("b", True)):
        pod = {
            "metadata": {
                "namespace": "shop",
                "name": name,
                "annotations": {"stowplan.dev/hold-reasons": "quota"},
            },
            "spec": {
                "schedulingGates": [{"name": "stowplan.dev/hold"}] if queued else [],
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}],
            },
        }
        state.set_pod(pod_from(pod), seen_at=Micros(0))
    lines = set(scraped(state, "Queue"))
    of = 'quota="team",quota_namespace="{}"'
    shop, mail = of.format("shop"), of.format("mail")
    assert lines >= {
        f'stowplan_quota_min{{{shop},resource="cpu"}} 1.0',
        f'stowplan_quota_used{{{shop},resource="cpu"}} 1.5',
        # shop uses 1.5 of the 1 it is guaranteed; mail leaves all of its 2 unused.
        f'stowplan_quota_borrowed{{{shop},resource="cpu"}} 0.5',
        f'stowplan_quota_lent{{{shop},resource="cpu"}} 0.0',
        f'stowplan_quota_borrowed{{{mail},resource="cpu"}} 0.0',
        f'stowplan_quota_lent{{{mail},resource="cpu"}} 0.5',
        f"stowplan_quota_queued_pods{{{shop}}} 1.0",
        f"stowplan_quota_max_queued_pods{{{shop}}} 1000.0",
        f"stowplan_quota_queued_pods{{{mail}}} 0.0",
    }
    assert not any("runtime" in line for line in lines)
    assert not any("borrowed" in line for line in scraped(state))  # nothing queues there


NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
TEAM = QuotaVerdict(
    ("team",), "exceeded quota: team, requested: cpu=1, used: cpu=8, limited: cpu=8"
)


class World:
    """A server with quotas in `shop`, and a replica that refuses."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.state = ClusterState()
        self.seconds = 0.0

    def quota(self, name: str = "team") -> None:
        written = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": name, "namespace": "shop"},
        }
        stored = self.server.create(written)
        self.state.set_quota(quota_from(stored))

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    @property
    def events(self) -> list[dict[str, Any]]:
        events = self.server.objects("events").values()
        return sorted(events, key=lambda event: event["lastTimestamp"])


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[tuple[World, QuotaEventRecorder]]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        shop = World(server)
        shop.quota()
        yield (
            shop,
            QuotaEventRecorder(
                connection,
                view=shop.state.view,
                identity="replica-1",
                clock=MonotonicClock(now=lambda: shop.seconds),
                now=shop.now,
            ),
        )


async def test_an_event_says_how_many_requests_a_quota_has_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, recorder):
        await recorder.flush()
        assert not shop.events
        for shop.seconds in (0.0, 1.0, 2.0):
            recorder.record("shop", TEAM)
        await recorder.flush()
        (event,) = shop.events
        assert (
            event["message"] == f"refused 3 requests since 12:00:00, the last one: {TEAM.message}"
        )
        assert event["count"] == 3
        assert event["type"] == "Warning"
        quota = shop.server.objects("elasticquotas")["shop", "team"]
        assert event["involvedObject"]["uid"] == quota["metadata"]["uid"]
        assert event["firstTimestamp"] == "2026-01-05T12:00:00Z"
        assert event["lastTimestamp"] == "2026-01-05T12:00:02Z"
        assert event["reportingInstance"] == "replica-1"


async def test_there_is_at_most_one_event_a_minute(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, recorder):
        for _ in range(120):
            recorder.record("shop", TEAM)
            await recorder.flush()
            shop.seconds += 1
        await recorder.flush()
        assert [event["count"] for event in shop.events] == [1, 60, 59]


async def test_an_event_that_failed_is_written_a_minute_later(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, recorder):
        shop.server.fail_next(1, 500, method="POST")
        recorder.record("shop", TEAM)
        await recorder.flush()
        recorder.record("shop", TEAM)
        shop.seconds += 60
        await recorder.flush()
        assert [event["count"] for event in shop.events] == [2]


async def test_few_events_are_written_at_a_time(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, recorder):
        names = [f"quota-{number}" for number in range(25)]
        for name in names:
            shop.quota(name)
        recorder.record("shop", QuotaVerdict(tuple(names), "exceeded"))
        await recorder.flush()
        assert len(shop.events) == 20
        await recorder.flush()
        assert len(shop.events) == 25


async def test_a_deleted_quota_gets_no_event(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, recorder):
        recorder.record("shop", TEAM)
        recorder.record("mill", TEAM)  # has no quota
        shop.state.delete_quota("shop", "team", "scheduling.x-k8s.io")
        await recorder.flush()
        assert not shop.events


async def test_where_the_cohort_is_exceeded_the_quotas_of_the_namespace_get_an_event(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (shop, recorder):
        recorder.record("shop", QuotaVerdict((COHORT,), "exceeded"))
        await recorder.flush()
        assert shop.events[0]["involvedObject"]["name"] == "team"
