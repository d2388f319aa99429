from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.reflecting import eventually
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.reconciler import DesiredState, Reconciler, WriteLimits


@dataclass(frozen=True)
class Found:
    key: str
    version: int
    text: str


class Texts(DesiredState[Found, str]):
    """A text on ConfigMaps."""

    limits = WriteLimits(most_writes=1, apart_seconds=10.0)

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self.wanted = "new"
        self.observed: list[Found] = []

    def see(self) -> None:
        self.observed = [
            Found(name, int(each["metadata"]["resourceVersion"]), each["data"]["text"])
            for (_, name), each in self._server.objects("configmaps").items()
        ]

    async def objects(self) -> Iterable[Found]:
        return self.observed

    def current(self, found: Found) -> str:
        return found.text

    def desired(self, found: Found, current: str) -> str | None:  # noqa: ARG002
        return self.wanted or None

    async def read(self, found: Found, current: str) -> str:  # noqa: ARG002
        return "read"

    def merge_patch(
        self, found: Found, current: str, desired: str
    ) -> tuple[str, Mapping[str, object]]:
        assert current != desired
        return f"/api/v1/namespaces/shop/configmaps/{found.key}", {"data": {"text": desired}}

    def title(self, found: Found) -> str:
        return f"text of `{found.key}`"


class World:
    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.seconds = 0.0
        self.leads = True
        self.drift: list[int] = []
        self.texts = Texts(server)
        self.reconciler = Reconciler(
            connection,
            self.texts,
            may_write=lambda: self.leads,
            clock=MonotonicClock(now=lambda: self.seconds),
            show_drift=self.drift.append,
        )

    def create(self, name: str) -> None:
        metadata = {"name": name, "namespace": "shop"}
        self.server.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "old"}}
        )
        self.texts.see()

    async def round(self, *, after: float = 0.0) -> None:
        self.seconds += after
        await self.reconciler.round()

    def text(self, name: str) -> str:
        return str(self.server.objects("configmaps")["shop", name]["data"]["text"])

    @property
    def writes(self) -> int:
        return sum(request.method == "PATCH" for request in self.server.requests)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(folder), None) as connection,
    ):
        yield World(server, connection)


async def test_only_what_differs_is_written_and_never_twice(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        for _ in range(3):  # the watch does not show the write yet
            await now.round(after=15)
        assert (now.text("a"), now.writes) == ("new", 1)
        now.texts.see()
        await now.round(after=60)
        assert now.writes == 1


async def test_a_write_that_is_never_observed_counts_for_a_minute(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        await now.round()
        now.texts.observed = [Found("a", 1, "restored")]  # versions begin again
        await now.round(after=59)
        assert now.writes == 1
        await now.round(after=1)
        assert now.writes == 2


async def test_who_leads_again_remembers_no_failures(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        now.server.fail_next(1, 500, method="PATCH")
        await now.round()
        await now.round()
        assert now.text("a") == "old"  # it is tried again after five seconds
        task = asyncio.create_task(now.reconciler.run())
        await eventually(lambda: now.text("a") == "new")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_object_that_was_never_tried_comes_before_one_that_was(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        await now.round()
        now.create("b")
        now.texts.wanted = "newer"
        await now.round(after=60)
        assert (now.text("a"), now.text("b")) == ("new", "newer")
        await now.round()
        assert now.text("a") == "newer"


async def test_two_writes_of_one_object_are_apart(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        await now.round()
        now.texts.wanted = "newer"
        await now.round(after=9)
        assert now.text("a") == "new"
        await now.round(after=1)
        assert now.text("a") == "newer"


async def test_what_only_a_request_tells_is_read_when_it_is_due(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        now.texts.wanted = ""
        await now.round()
        assert now.text("a") == "read"
        await now.round(after=10)  # it is read again, and right
        assert now.writes == 1


async def test_pauses_after_failures_double_up_to_a_minute(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        now.server.fail_next(1_000, 500, method="PATCH")
        tried = []
        for second in range(200):
            before = now.writes
            await now.round(after=1)
            if now.writes > before:
                tried.append(second)
        assert tried == [0, 5, 15, 35, 75, 135, 195]
        now.server.recover()
        await now.round(after=60)
        now.texts.wanted = "newer"
        await now.round(after=10)  # as after any success
        assert now.text("a") == "newer"


async def test_who_does_not_lead_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        now.leads = False
        await now.round()
        assert now.writes == 0


async def test_a_former_leader_shows_no_drift(tmp_path: Path) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        now.leads = False
        task = asyncio.create_task(now.reconciler.run())
        await eventually(lambda: bool(now.drift))
        now.drift.clear()
        await now.round(after=69)
        assert now.drift == [0]
        now.drift.clear()
        await now.round(after=1)
        assert now.drift == [1]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert now.drift == [1, 0]


async def test_what_was_not_read_yet_is_no_drift_but_what_cannot_be_written_is(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as now:
        now.create("a")
        now.create("b")
        now.texts.wanted = ""
        now.server.fail_next(1_000, 500, method="PATCH")
        await now.round()  # one of them
        now.leads = False
        await now.round(after=200)
        assert now.drift == [0, 1]
