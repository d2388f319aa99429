from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from engine.quota import QuotaVerdict
from engine.quota.verdict import COHORT
from engine.view import ClusterState
from tests.builders import quota_from
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import connected
from webhook.quota import MonotonicClock, QuotaEventRecorder

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
