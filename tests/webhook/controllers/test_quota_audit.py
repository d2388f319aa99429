from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.quota import RESOURCE_QUOTA_RULES, quota_usages
from engine.view import ClusterState
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import connected
from webhook.controllers.quota_audit import QuotaAudit
from webhook.quota import MonotonicClock

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


class World:
    """A namespace with a quota of 1 core and a pod of 2, and time."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.state = ClusterState()
        self.seconds = 0.0
        self.shown: list[int] = []
        self.leads = True
        written = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "namespace": "shop"},
            "spec": {"max": {"cpu": "1"}},
        }
        self.quota = quota_of(msgspec.convert(server.create(written), api.ElasticQuota))
        self.state.set_quota(self.quota)
        container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
        meta = {"namespace": "shop", "name": "a"}
        pod = msgspec.convert({"metadata": meta, "spec": {"containers": [container]}}, api.Pod)
        self.state.set_pod(pod_of(pod), seen_at=Micros(0))

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.server.objects("events").values())


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[tuple[World, QuotaAudit]]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        shop = World(server)
        yield (
            shop,
            QuotaAudit(
                connection,
                usages=lambda: quota_usages(shop.state.view(), RESOURCE_QUOTA_RULES),
                identity="replica-1",
                show=shop.shown.append,
                now=shop.now,
                clock=MonotonicClock(now=lambda: shop.seconds),
                may_write=lambda: shop.leads,
            ),
        )


async def test_a_quota_whose_pods_use_more_than_max_is_reported(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, audit):
        for shop.seconds in (0.0, 10.0, 30.0, 60.0):
            await audit.round()
        assert shop.shown == [0, 0, 1, 1]
        (event,) = shop.events
        assert event["reason"] == "QuotaOverMax"
        assert event["message"].startswith("pods use more than max")
        assert "used: cpu=2, limited: cpu=1" in event["message"]
        assert event["involvedObject"]["uid"] == shop.quota.uid
        assert event["firstTimestamp"] == "2026-01-05T12:00:00Z"
        assert event["lastTimestamp"] == "2026-01-05T12:00:30Z"


async def test_it_is_reported_again_after_an_hour_and_no_more_once_it_is_over(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (shop, audit):
        for shop.seconds in (0.0, 30.0, 3_000.0, 3_640.0):
            await audit.round()
        assert len(shop.events) == 2
        shop.state.set_quota(replace(shop.quota, version=99, max={"cpu": 2_000}))
        shop.seconds = 9_000.0
        await audit.round()
        assert shop.shown[-1] == 0
        assert len(shop.events) == 2


async def test_who_does_not_lead_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, audit):
        shop.leads = False
        for shop.seconds in (0.0, 30.0):
            await audit.round()
        assert not shop.events


async def test_an_event_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path) as (shop, audit):
        shop.server.fail_next(1, 500, path_prefix="/api/v1/namespaces/shop/events", method="POST")
        for shop.seconds in (0.0, 30.0, 85.0):
            await audit.round()
        assert not shop.events
        for shop.seconds in (90.0, 95.0):
            await audit.round()
        assert len(shop.events) == 1
