from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.webhook.controllers.release.controller_world import World, running_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        world.node("a", cpu="4")
        yield world


async def test_the_wait_is_said_in_the_condition_of_the_pod(world: World) -> None:
    world.quota("shop", maximum=1)
    for name in ("p", "q", "r"):
        world.queue(name)
    replica = world.replica()
    await replica.cycle()
    world.seconds += 2
    await replica.cycle()
    said = {
        name: condition
        for name in ("p", "q", "r")
        for condition in (world.stored(name).get("status") or {}).get("conditions", ())
    }
    assert {each["reason"] for each in said.values()} == {"WaitingForQuota"}
    assert sorted(each["message"] for each in said.values()) == [
        "1st of 2 in shop/quota; needs cpu 1, 0 free",
        "2nd of 2 in shop/quota; needs cpu 1, 0 free",
    ]
