from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from engine.model import api
from engine.model.elastic_quota import ElasticQuota, QuotaKey, quota_of
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.quota_figures import QuotaFigureController
from webhook.quota import MonotonicClock

GROUP = "scheduling.x-k8s.io"
QUEUED, PACE, BORROWED = (
    f"stowplan.dev/{name}" for name in ("queued", "seconds-per-release", "borrowed")
)


class World:
    """A server, its quotas as they were seen last, the figures they should have, the controller."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.seconds = 0.0
        self.leads = True
        self.seen: list[ElasticQuota] = []
        self.wanted: dict[QuotaKey, Mapping[str, str]] = {}
        self.controller = QuotaFigureController(
            connection,
            quotas=lambda: self.seen,
            figures=lambda: self.wanted,
            clock=MonotonicClock(now=lambda: self.seconds),
            may_write=lambda: self.leads,
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
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server(without=()) as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield World(server, connection)


async def test_what_has_changed_is_written_and_nothing_else_is_touched(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        shop.create("team", owner="ann", **{BORROWED: '{"cpu":"1"}', PACE: "4"})
        shop.want("team", queued="3")
        await shop.round()
        assert shop.annotations("team") == {"owner": "ann", QUEUED: "3"}
        await shop.round()  # what it has written counts, though nobody has seen it
        shop.see()
        await shop.round()
        assert shop.writes == 1


async def test_a_quota_that_does_not_queue_keeps_no_figures(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        shop.create("team", **{QUEUED: "3"})
        await shop.round()
        assert shop.annotations("team") == {}


async def test_of_one_quota_there_is_a_write_each_ten_seconds_at_most(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
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
    async with world(tmp_path) as shop:
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
    async with world(tmp_path) as shop:
        for number in range(25):
            shop.create(f"team-{number:02}")
            shop.want(f"team-{number:02}", queued="1")
        await shop.round()
        assert shop.writes == 10
        await shop.round(after=1)
        await shop.round(after=1)
        assert shop.writes == 25


async def test_who_leads_no_longer_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        shop.create("team")
        shop.want("team", queued="1")
        shop.leads = False
        await shop.round()
        assert shop.writes == 0


async def test_a_quota_of_the_same_name_that_is_another_one_is_left_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as shop:
        shop.create("team")
        shop.want("team", queued="1")
        shop.server.delete(f"elasticquotas.{GROUP}", "shop", "team")
        await shop.round()
        assert shop.writes == 1  # refused
        shop.create("team")
        await shop.round()
        assert shop.annotations("team") == {QUEUED: "1"}
