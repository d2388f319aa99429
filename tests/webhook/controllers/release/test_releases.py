from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine.model.time import SECOND, Micros, micros
from engine.release import HeldPodRegistry
from tests.engine.release.pods import pod
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, connected
from webhook.controllers.release.releases import write_refusals

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DENIED = 'admission webhook "guard" denied the request: no'


class World:
    """Refusals, and a server for their Events."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.connection = connection
        self.seconds = 0.0
        self.pods = HeldPodRegistry()

    def refuse(self, *, times: int = 1, name: str = "a") -> None:
        for _ in range(times):
            now = Micros(micros(BEGIN) + int(self.seconds * SECOND))
            self.pods.of_pod(pod(name)).write_refused(DENIED, None, now, self.seconds)

    async def events(self) -> list[dict[str, Any]]:
        await write_refusals(self.pods, self.connection, "replica-1", self.seconds)
        return list(self.server.objects("events").values())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        yield World(server, connection)


async def test_a_lasting_refusal_is_an_event_on_the_pod(world: World) -> None:
    world.refuse(times=2)
    assert await world.events() == []
    world.seconds = 3
    world.refuse()
    (event,) = await world.events()
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "shop",
        "name": "a",
        "uid": "uid-a",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "ReleaseRefused", 3)
    assert event["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["lastTimestamp"] == "2026-01-01T00:00:03Z"
    assert event["message"] == (
        "the pod stays held, its release is refused: "
        'admission webhook "guard" denied the request: no'
    )


async def test_events_are_repeated_seldom(world: World) -> None:
    world.refuse(times=3)
    assert len(await world.events()) == 1
    world.refuse()
    world.seconds = 599
    assert len(await world.events()) == 1
    world.seconds = 600
    assert len(await world.events()) == 2


async def test_an_event_that_was_not_written_is_tried_again_in_a_minute(world: World) -> None:
    world.refuse(times=3)
    world.server.fail_next(1, 403, method="POST")
    assert await world.events() == []
    world.seconds = 59
    assert await world.events() == []
    world.seconds = 60
    assert len(await world.events()) == 1


async def test_events_of_many_pods_are_written_some_at_a_time(world: World) -> None:
    for number in range(30):
        world.refuse(times=3, name=f"pod-{number}")
    assert len(await world.events()) == 20
    assert len(await world.events()) == 30
