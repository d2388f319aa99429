from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from engine.model import api
from engine.model.elastic_quota import RESERVATIONS_ANNOTATION, quota_of
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.view import ClusterState, ClusterView
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.patience import PATIENCE_SECONDS
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.quota_status import ControllerRules, QuotaController
from webhook.quota import MonotonicClock, QuotaConfig

GROUP, OTHER_GROUP = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"


class World:
    """A server, a view of its quotas that is read when the test says so, and the controller."""

    def __init__(self, server: FakeApiServer, connection: Connection, most_writes: int) -> None:
        self.server = server
        self.state = ClusterState()
        self.seconds = 0.0
        self.pruned = 0
        self.leads = True
        self.drift: dict[str, int] = {}
        self.controller = QuotaController(
            connection,
            view=self._view,
            prune=self._prune,
            config=QuotaConfig(
                clock=MonotonicClock(now=lambda: self.seconds), call_seconds=PATIENCE_SECONDS
            ),
            may_write=lambda: self.leads,
            show_drift=self.drift.__setitem__,
            rules=ControllerRules(most_writes=most_writes),
        )

    def quota(self, name: str = "team", group: str = GROUP, **more: object) -> None:
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
        for group in (GROUP, OTHER_GROUP):
            for stored in self.server.objects(f"elasticquotas.{group}").values():
                self.state.set_quota(quota_of(msgspec.convert(stored, api.ElasticQuota)))

    async def round(self, *, after: float = 0.0) -> None:
        self.seconds += after
        await self.controller.round()

    def used(self, name: str = "team", group: str = GROUP) -> dict[str, str]:
        stored = self.server.objects(f"elasticquotas.{group}")["shop", name]
        return dict(stored.get("status", {}).get("used", {}))

    @property
    def writes(self) -> int:
        return sum(request.method == "PATCH" for request in self.server.requests)

    def _view(self) -> ClusterView:
        return self.state.view()

    async def _prune(self) -> None:
        self.pruned += 1


@asynccontextmanager
async def world(tmp_path: Path, most_writes: int = 20) -> AsyncIterator[World]:
    async with (
        fake_api_server(without=()) as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield World(server, connection, most_writes)


async def test_a_status_is_written_once_it_has_been_wrong_for_a_moment(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
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
    async with world(tmp_path) as shop:
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
    async with world(tmp_path) as shop:
        shop.quota()
        for second in range(20):
            shop.pod(f"pod-{second}")
            shop.see()
            await shop.round(after=1)
        # At 2, 7, 12 and 17: wrong for a second, and five seconds apart.
        assert shop.writes == 4


async def test_usage_that_changes_all_the_time_is_no_drift(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        shop.quota()
        for second in range(90):
            shop.pod(f"pod-{second}")
            shop.see()
            await shop.round(after=1)
            assert shop.drift.get("status", 0) == 0


async def test_few_statuses_are_written_at_a_time(tmp_path: Path) -> None:
    async with world(tmp_path, most_writes=2) as shop:
        for number in range(3):
            shop.quota(f"quota-{number}")
        await shop.round()
        await shop.round(after=1)
        assert shop.writes == 2
        await shop.round(after=1)
        assert shop.writes == 3


async def test_the_status_of_koordinators_quotas_is_left_to_koordinator(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        shop.quota(group=OTHER_GROUP)
        shop.pod("a")
        await shop.round()
        await shop.round(after=9)
        assert shop.writes == 0


async def test_a_replica_that_no_longer_leads_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        shop.quota()
        await shop.round()
        shop.leads = False
        await shop.round(after=9)
        assert shop.writes == 0


async def test_a_status_that_cannot_be_written_is_tried_again_and_called_drift(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "webhook.controllers.quota_status")
    async with world(tmp_path) as shop:
        shop.quota()
        shop.server.fail_next(1000, 500, method="PATCH")
        for _ in range(60):
            await shop.round(after=1)
        assert shop.drift["status"] == 0
        assert shop.writes == 12  # from 2 on, every five seconds
        await shop.round(after=1)
        await shop.round(after=1)
        assert shop.drift["status"] == 1
        shop.server.recover()
        await shop.round(after=5)
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
    async with world(tmp_path) as shop:
        shop.quota()
        stored = shop.server.objects("elasticquotas")["shop", "team"]
        annotation = {"quota": stored["metadata"]["uid"], "seenUpTo": 0, "reserved": [entry]}
        text = msgspec.json.encode(annotation).decode()
        stored["metadata"]["annotations"] = {RESERVATIONS_ANNOTATION: text}
        shop.server.replace(stored)
        shop.see()
        for _ in range(5):
            await shop.round(after=1)
        assert shop.pruned == 1
        assert shop.drift["reservations"] == 0
        # 75 s to be observed or found missing, and a minute until that is drift.
        await shop.round(after=75 + 60)
        await shop.round(after=5)
        assert shop.drift["reservations"] == 1
        assert "reservations of quota `shop/team` stay, or cannot be read" in caplog.text


async def test_reservations_that_nobody_can_read_are_drift(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        annotations = {RESERVATIONS_ANNOTATION: "{"}
        shop.quota(metadata={"name": "t", "namespace": "shop", "annotations": annotations})
        await shop.round()
        assert shop.drift["reservations"] == 1
