from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.quota import QuotaVerdict
from engine.quota.verdict import POOL
from engine.view import ClusterState
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import connected
from webhook.quota.quota_events import QuotaEventRecorder

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
        self.state.set_quota(quota_of(msgspec.convert(stored, api.ElasticQuota)))

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    @property
    def events(self) -> list[dict[str, Any]]:
        return sorted(self.server.objects("events").values(), key=lambda one: one["lastTimestamp"])


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[tuple[World, QuotaEventRecorder]]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        one = World(server)
        one.quota()
        yield (
            one,
            QuotaEventRecorder(
                connection,
                view=one.state.view,
                identity="replica-1",
                clock=lambda: one.seconds,
                now=one.now,
            ),
        )


async def test_an_event_says_how_many_requests_a_quota_has_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as (one, refusals):
        await refusals.flush()
        assert not one.events
        for one.seconds in (0.0, 1.0, 2.0):
            refusals.record("shop", TEAM)
        await refusals.flush()
        (event,) = one.events
        assert (
            event["message"] == f"refused 3 requests since 12:00:00, the last one: {TEAM.message}"
        )
        assert event["count"] == 3
        assert event["type"] == "Warning"
        quota = one.server.objects("elasticquotas")["shop", "team"]
        assert event["involvedObject"]["uid"] == quota["metadata"]["uid"]
        assert event["firstTimestamp"] == "2026-01-05T12:00:00Z"
        assert event["lastTimestamp"] == "2026-01-05T12:00:02Z"
        assert event["reportingInstance"] == "replica-1"


async def test_there_is_at_most_one_event_a_minute(tmp_path: Path) -> None:
    async with world(tmp_path) as (one, refusals):
        for _ in range(120):
            refusals.record("shop", TEAM)
            await refusals.flush()
            one.seconds += 1
        await refusals.flush()
        assert [event["count"] for event in one.events] == [1, 60, 59]


async def test_what_was_not_told_is_told_a_minute_later(tmp_path: Path) -> None:
    async with world(tmp_path) as (one, refusals):
        one.server.fail_next(1, 500, method="POST")
        refusals.record("shop", TEAM)
        await refusals.flush()
        refusals.record("shop", TEAM)
        one.seconds += 60
        await refusals.flush()
        assert [event["count"] for event in one.events] == [2]


async def test_many_quotas_are_told_of_a_few_at_a_time(tmp_path: Path) -> None:
    async with world(tmp_path) as (one, refusals):
        names = [f"quota-{number}" for number in range(25)]
        for name in names:
            one.quota(name)
        refusals.record("shop", QuotaVerdict(tuple(names), "exceeded"))
        await refusals.flush()
        assert len(one.events) == 20
        await refusals.flush()
        assert len(one.events) == 25


async def test_a_quota_that_is_gone_is_told_of_no_more(tmp_path: Path) -> None:
    async with world(tmp_path) as (one, refusals):
        refusals.record("shop", TEAM)
        refusals.record("mill", TEAM)  # has no quota
        one.state.delete_quota("shop", "team", "scheduling.x-k8s.io")
        await refusals.flush()
        assert not one.events


async def test_where_the_pool_is_exceeded_the_quotas_of_the_namespace_say_so(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (one, refusals):
        refusals.record("shop", QuotaVerdict((POOL,), "exceeded"))
        await refusals.flush()
        assert one.events[0]["involvedObject"]["name"] == "team"
