from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.release import WriteFailure
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import connected
from webhook.controllers.release.pod_writer import PacedConnection, WriteError

PODS = "/api/v1/namespaces/shop/pods"
CALL_SECONDS = 20.0


class World:
    """A server with two pods, a connection to it, and a clock."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.seconds = 0.0
        self.paced: PacedConnection
        for name in ("slow", "other"):
            metadata = {"name": name, "namespace": "shop"}
            server.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

    async def failure_of(self, name: str, *, is_large: bool) -> WriteFailure:
        with pytest.raises(WriteError) as failed:
            await self.paced.request("GET", f"{PODS}/{name}", is_large=is_large)
        return failed.value.failure

    async def failure_of_unanswered(self, name: str, *, is_large: bool) -> WriteFailure:
        """Return the failure of a request for which nobody waits any longer."""
        asking = asyncio.create_task(self.failure_of(name, is_large=is_large))
        await self.server.until(lambda: len(self.server.requests) == 1)
        let_pass(CALL_SECONDS)
        return await asking


def let_pass(seconds: float) -> None:
    """Let time pass by for whatever waits in the event loop."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server)
        made.paced = PacedConnection(
            connection,
            may_write=lambda: True,
            clock=lambda: made.seconds,
            call_seconds=CALL_SECONDS,
        )
        yield made
        server.recover()


async def test_a_server_that_does_not_answer_is_out_of_reach(world: World) -> None:
    world.server.pause()
    assert await world.failure_of_unanswered("other", is_large=False) is WriteFailure.UNREACHABLE
    assert world.paced.pause_seconds > 0


async def test_a_large_pod_that_takes_too_long_is_refused_for_itself(world: World) -> None:
    world.server.delay(3_600, f"{PODS}/slow")
    assert await world.failure_of_unanswered("slow", is_large=True) is WriteFailure.REFUSED
    assert world.paced.pause_seconds == 0


async def test_large_pods_leave_the_connection_to_others(world: World) -> None:
    world.server.delay(3_600, f"{PODS}/slow")
    slow = [asyncio.create_task(world.failure_of("slow", is_large=True)) for _ in range(60)]
    await world.server.until(lambda: len(world.server.requests) == 2)  # in flight at a time
    await world.paced.request("GET", f"{PODS}/other", is_large=False)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_a_pod_that_takes_too_long_while_others_are_answered_is_refused_for_itself(
    world: World,
) -> None:
    world.server.delay(3_600, f"{PODS}/slow")
    slow = asyncio.create_task(world.failure_of("slow", is_large=False))
    await world.server.until(lambda: len(world.server.requests) == 1)
    world.seconds = CALL_SECONDS / 2
    await world.paced.request("GET", f"{PODS}/other", is_large=False)
    let_pass(CALL_SECONDS)
    assert await slow is WriteFailure.REFUSED
    assert world.paced.pause_seconds == 0
