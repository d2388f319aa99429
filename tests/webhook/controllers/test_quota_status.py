from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.elastic_quota import RESERVATIONS_ANNOTATION, ElasticQuota, QuotaKey, quota_of
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.quota import RESOURCE_QUOTA_RULES, quota_usages
from engine.view import ClusterState
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.quota_status import (
    QuotaAudit,
    QuotaFigures,
    QuotaStatuses,
    ReservationPruner,
)
from webhook.controllers.reconciler import Reconciler
from webhook.quota import QuotaConfig

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


GROUP = "scheduling.x-k8s.io"
QUEUED, PACE, BORROWED = (
    f"stowplan.dev/{name}" for name in ("queued", "seconds-per-release", "borrowed")
)


class QuotaFiguresWorld:
    """A server, its quotas as they were seen last, the figures they should have, the controller."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.seconds = 0.0
        self.seen: list[ElasticQuota] = []
        self.wanted: dict[QuotaKey, Mapping[str, str]] = {}
        self.controller = Reconciler(
            connection,
            QuotaFigures(lambda: self.seen, lambda: self.wanted),
            clock=MonotonicClock(now=lambda: self.seconds),
            may_write=lambda: True,
        )

    def create(self, name: str, **annotations: str) -> None:
        self.server.create(
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
                "spec": {"max": {"cpu": "8"}},
            }
        )
        self.see()

    def see(self) -> None:
        stored = self.server.objects(f"elasticquotas.{GROUP}").values()
        self.seen = [quota_of(msgspec.convert(each, api.ElasticQuota)) for each in stored]

    def want(self, name: str, **figures: str) -> None:
        texts = {f"stowplan.dev/{key.replace('_', '-')}": text for key, text in figures.items()}
        self.wanted["shop", GROUP, name] = texts

    async def round(self, *, after: float = 10) -> None:
        self.seconds += after
        await self.controller.round()

    def annotations(self, name: str) -> dict[str, str]:
        stored = self.server.objects(f"elasticquotas.{GROUP}")["shop", name]
        return dict(stored["metadata"].get("annotations", {}))

    @property
    def writes(self) -> int:
        return sum(request.method == "PATCH" for request in self.server.requests)


@asynccontextmanager
async def quota_figures_world(tmp_path: Path) -> AsyncIterator[QuotaFiguresWorld]:
    async with (
        fake_api_server(without=()) as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield QuotaFiguresWorld(server, connection)


async def test_what_has_changed_is_written_and_nothing_else_is_touched(tmp_path: Path) -> None:
    async with quota_figures_world(tmp_path) as shop:
        shop.create("team", owner="ann", **{BORROWED: '{"cpu":"1"}', PACE: "4"})
        shop.want("team", queued="3")
        await shop.round()
        assert shop.annotations("team") == {"owner": "ann", QUEUED: "3"}
        await shop.round()  # what it has written counts, though nobody has seen it
        shop.see()
        await shop.round()
        assert shop.writes == 1


async def test_a_quota_that_does_not_queue_keeps_no_figures(tmp_path: Path) -> None:
    async with quota_figures_world(tmp_path) as shop:
        shop.create("team", **{QUEUED: "3"})
        await shop.round()
        assert shop.annotations("team") == {}


async def test_of_one_quota_there_is_a_write_each_ten_seconds_at_most(tmp_path: Path) -> None:
    async with quota_figures_world(tmp_path) as shop:
        shop.create("team")
        shop.create("other")
        shop.want("team", queued="1")
        await shop.round()
        shop.want("team", queued="2")
        shop.want("other", queued="1")
        await shop.round(after=9)
        assert (shop.annotations("team")[QUEUED], shop.annotations("other")[QUEUED]) == ("1", "1")
        await shop.round(after=1)
        assert shop.annotations("team")[QUEUED] == "2"


async def test_a_guess_alone_is_written_when_it_has_changed_by_a_fifth(tmp_path: Path) -> None:
    async with quota_figures_world(tmp_path) as shop:
        shop.create("team")
        shop.want("team", queued="9", seconds_per_release="10")
        await shop.round()
        shop.want("team", queued="9", seconds_per_release="12")
        await shop.round()
        assert shop.annotations("team")[PACE] == "10"
        shop.want("team", queued="9", seconds_per_release="13")
        await shop.round()
        assert shop.annotations("team")[PACE] == "13"
        shop.want("team", queued="9")
        await shop.round()
        assert shop.annotations("team") == {QUEUED: "9"}


async def test_few_are_written_in_a_round_those_that_wait_for_longest_first(
    tmp_path: Path,
) -> None:
    async with quota_figures_world(tmp_path) as shop:
        for number in range(25):
            shop.create(f"team-{number:02}")
            shop.want(f"team-{number:02}", queued="1")
        await shop.round()
        assert shop.writes == 10
        await shop.round(after=1)
        await shop.round(after=1)
        assert shop.writes == 25


async def test_a_quota_of_the_same_name_that_is_another_one_is_left_alone(tmp_path: Path) -> None:
    async with quota_figures_world(tmp_path) as shop:
        shop.create("team")
        shop.want("team", queued="1")
        shop.server.delete(f"elasticquotas.{GROUP}", "shop", "team")
        await shop.round()
        assert shop.writes == 1  # refused
        shop.create("team")
        await shop.round()
        assert shop.annotations("team") == {QUEUED: "1"}


QUOTA_STATUS_GROUP, OTHER_GROUP = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"


class QuotaStatusWorld:
    """A server, a view of its quotas that is read when the test says so, and the controller."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.state = ClusterState()
        self.seconds = 0.0
        self.pruned = 0
        self.drift: dict[str, int] = {}
        clock = MonotonicClock(now=lambda: self.seconds)
        self.controller = Reconciler(
            connection,
            QuotaStatuses(self.state.view),
            may_write=lambda: True,
            clock=clock,
            show_drift=partial(self.drift.__setitem__, "status"),
        )
        self.pruner = ReservationPruner(
            self.state.view,
            self._prune,
            QuotaConfig(clock=clock),
            partial(self.drift.__setitem__, "reservations"),
        )

    def quota(self, name: str = "team", group: str = QUOTA_STATUS_GROUP, **more: object) -> None:
        self.server.create(
            {
                "apiVersion": f"{group}/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"max": {"cpu": "8"}},
                **more,
            }
        )
        self.see()

    def pod(self, name: str, cpu: str = "1", phase: str = "Running") -> None:
        container = {"name": "app", "resources": {"requests": {"cpu": cpu}}}
        wire = {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"nodeName": "node-a", "containers": [container]},
            "status": {"phase": phase},
        }
        self.state.set_pod(pod_of(msgspec.convert(wire, api.Pod)), seen_at=Micros(0))

    def see(self) -> None:
        """Let the view know what the server has."""
        for group in (QUOTA_STATUS_GROUP, OTHER_GROUP):
            for stored in self.server.objects(f"elasticquotas.{group}").values():
                self.state.set_quota(quota_of(msgspec.convert(stored, api.ElasticQuota)))

    async def round(self, *, after: float = 0.0) -> None:
        self.seconds += after
        await self.controller.round()

    def used(self, name: str = "team", group: str = QUOTA_STATUS_GROUP) -> dict[str, str]:
        stored = self.server.objects(f"elasticquotas.{group}")["shop", name]
        return dict(stored.get("status", {}).get("used", {}))

    @property
    def writes(self) -> int:
        return sum(request.method == "PATCH" for request in self.server.requests)

    async def _prune(self) -> None:
        self.pruned += 1


@asynccontextmanager
async def quota_status_world(tmp_path: Path) -> AsyncIterator[QuotaStatusWorld]:
    async with (
        fake_api_server(without=()) as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield QuotaStatusWorld(server, connection)


async def test_a_status_is_written_once_it_has_been_wrong_for_a_moment(tmp_path: Path) -> None:
    async with quota_status_world(tmp_path) as shop:
        shop.quota(status={"used": {"memory": "1Gi", "cpu": "9"}})
        shop.pod("a", "1500m")
        shop.pod("b", "2")
        shop.pod("c", "4", phase="Pending")
        await shop.round()
        assert shop.writes == 0  # more pods may come
        await shop.round(after=1)
        # 1.5 + 2 run; memory is in no bound and held by nobody.
        assert shop.used() == {"cpu": "3500m"}
        assert shop.server.objects("elasticquotas")["shop", "team"]["spec"] == {"max": {"cpu": "8"}}


async def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    async with quota_status_world(tmp_path) as shop:
        shop.quota(status={"used": {"cpu": "1000m"}})
        shop.pod("a", "1")
        for _ in range(10):
            await shop.round(after=10)
        assert shop.writes == 0  # 1000m is 1
        shop.pod("b", "1")
        await shop.round()
        await shop.round(after=1)
        for _ in range(10):  # the watch does not show the write yet
            await shop.round(after=1)
        assert shop.writes == 1
        shop.see()
        await shop.round(after=10)
        assert shop.writes == 1


async def test_statuses_of_busy_namespaces_are_written_now_and_then(tmp_path: Path) -> None:
    async with quota_status_world(tmp_path) as shop:
        shop.quota()
        for second in range(20):
            shop.pod(f"pod-{second}")
            shop.see()
            await shop.round(after=1)
        # At 2, 7, 12 and 17: wrong for a second, and five seconds apart.
        assert shop.writes == 4


async def test_usage_that_changes_all_the_time_is_no_drift(tmp_path: Path) -> None:
    async with quota_status_world(tmp_path) as shop:
        shop.quota()
        for second in range(90):
            shop.pod(f"pod-{second}")
            shop.see()
            await shop.round(after=1)
            assert shop.drift.get("status", 0) == 0


async def test_few_statuses_are_written_at_a_time(tmp_path: Path) -> None:
    async with quota_status_world(tmp_path) as shop:
        for number in range(23):
            shop.quota(f"quota-{number}")
        await shop.round()
        await shop.round(after=1)
        assert shop.writes == 20
        await shop.round(after=1)
        assert shop.writes == 23


async def test_the_status_of_koordinators_quotas_is_left_to_koordinator(tmp_path: Path) -> None:
    async with quota_status_world(tmp_path) as shop:
        shop.quota(group=OTHER_GROUP)
        shop.pod("a")
        await shop.round()
        await shop.round(after=9)
        assert shop.writes == 0


async def test_a_status_that_cannot_be_written_is_tried_again_and_called_drift(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "webhook.controllers.reconciler")
    async with quota_status_world(tmp_path) as shop:
        shop.quota()
        shop.server.fail_next(1000, 500, method="PATCH")
        for _ in range(65):
            await shop.round(after=1)
        assert shop.drift["status"] == 0
        assert shop.writes == 4  # at 2, and 5, 10 and 20 seconds later
        await shop.round(after=1)
        assert shop.drift["status"] == 1
        shop.server.recover()
        await shop.round(after=11)  # 40 seconds after the last attempt
        await shop.round(after=1)
        assert shop.drift["status"] == 0
        assert [record.message for record in caplog.records] == [
            "status of quota `shop/team` stays wrong",
            "status of quota `shop/team` is right again",
        ]


async def test_reservations_are_pruned_and_those_that_stay_are_called_drift(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"uid": "u", "name": "p", "amounts": {"cpu": 1}}
    async with quota_status_world(tmp_path) as shop:
        shop.quota()
        stored = shop.server.objects("elasticquotas")["shop", "team"]
        annotation = {"quota": stored["metadata"]["uid"], "seenUpTo": 0, "reserved": [entry]}
        text = msgspec.json.encode(annotation).decode()
        stored["metadata"]["annotations"] = {RESERVATIONS_ANNOTATION: text}
        shop.server.replace(stored)
        shop.see()
        await shop.pruner.round()
        assert shop.pruned == 1
        assert shop.drift["reservations"] == 0
        # 75 s to be observed or found missing, and a minute until that is drift.
        shop.seconds += 75 + 60
        await shop.pruner.round()
        assert shop.drift["reservations"] == 1
        assert "reservations of quota `shop/team` stay, or cannot be read" in caplog.text


async def test_reservations_that_nobody_can_read_are_drift(tmp_path: Path) -> None:
    async with quota_status_world(tmp_path) as shop:
        annotations = {RESERVATIONS_ANNOTATION: "{"}
        shop.quota(metadata={"name": "t", "namespace": "shop", "annotations": annotations})
        await shop.pruner.round()
        assert shop.drift["reservations"] == 1
