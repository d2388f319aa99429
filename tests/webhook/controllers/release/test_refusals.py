from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.controllers.release.releases import pod
from webhook.cluster.client.connection import ApiError, connected
from webhook.controllers.release.refusals import Refusals

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DENIED = ApiError(403, "Forbidden", 'admission webhook "guard" denied the request: no')


class World:
    """Refusals, and a server for their Events."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.seconds = 0.0
        self.refusals: Refusals

    def refuse(self, *, times: int = 1, name: str = "a", error: ApiError = DENIED) -> bool:
        for _ in range(times):
            gives_back = self.refusals.refused(pod(name), error)
        return gives_back

    def wait_of(self, name: str = "a") -> int:
        """Return the whole seconds after which a pod is due."""
        begin = self.seconds
        while not self.refusals.is_due(pod(name)):
            self.seconds += 1
        waited, self.seconds = self.seconds - begin, begin
        return int(waited)

    async def events(self) -> list[dict[str, Any]]:
        await self.refusals.write_events()
        return list(self.server.objects("events").values())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server)
        made.refusals = Refusals(
            connection,
            identity="replica-1",
            clock=lambda: made.seconds,
            now=lambda: BEGIN + timedelta(seconds=made.seconds),
        )
        yield made


async def test_a_refused_pod_waits_longer_each_time(world: World) -> None:
    assert world.refusals.is_due(pod())
    waits = []
    for _ in range(7):
        world.refuse()
        waits.append(world.wait_of())
    # Between half and all of 1, 2, 4, 8, 16, 30, 30, rounded up.
    bounds = [(1, 1), (1, 2), (2, 4), (4, 8), (8, 16), (15, 30), (15, 30)]
    assert all(low <= wait <= high for wait, (low, high) in zip(waits, bounds, strict=True)), waits
    assert world.refusals.is_due(pod("b"))


async def test_a_wait_that_was_asked_for_is_kept(world: World) -> None:
    world.refuse(error=ApiError(0, "", "takes too long", 60))
    assert world.wait_of() == 60


async def test_what_is_reserved_is_given_back_after_three(world: World) -> None:
    assert [world.refuse() for _ in range(4)] == [False, False, True, True]


async def test_an_accepted_write_ends_it(world: World) -> None:
    world.refuse(times=3)
    assert world.refusals.message(pod()) == DENIED.message
    world.refusals.forget(pod())
    assert (world.refusals.is_due(pod()), world.refusals.message(pod())) == (True, "")
    assert not world.refuse()


async def test_another_pod_of_the_name_is_not_concerned(world: World) -> None:
    world.refuse(times=3)
    assert world.refusals.is_due(pod(uid="other"))


async def test_pods_that_are_not_held_any_more_are_forgotten(world: World) -> None:
    world.refuse(name="a")
    world.refuse(name="b")
    world.refusals.retain({"uid-b"})
    assert len(world.refusals) == 1
    assert world.refusals.is_due(pod("a"))


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
