from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.webhook.controllers.release.controller_world import PODS, World, running_world

OVER_QUOTA = (
    'admission webhook "quota.stowplan.dev" denied the request: exceeded quota: quota,'
    " requested: cpu=1, used: cpu=4, limited: cpu=4"
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        world.node("a", cpu="4")
        yield world


async def test_a_release_that_exceeds_quota_waits_for_a_change_and_is_no_refusal(
    world: World,
) -> None:
    world.quota("shop", maximum=4)
    world.queue("p")
    pod = world.stored("p")
    world.server.replace({**pod, "status": {"nominatedNodeName": "a"}})
    replica = world.replica()
    world.server.fail_next(1, 403, method="PATCH", path_prefix=f"{PODS}/p", message=OVER_QUOTA)
    await replica.cycle()
    assert world.releases() == set()
    assert not replica.release.pods.refused()
    assert replica.counted() == {}
    assert world.nominated("p") == ""
    sent = len(world.server.requests)
    await replica.cycle()
    assert len(world.server.requests) == sent  # it is not tried again
    assert replica.quota_queue.waits["shop/p"].message == OVER_QUOTA
    world.quota("shop", maximum=4, version=2)  # what was reserved on it has ended
    await replica.cycle()
    assert world.releases() == {"p"}


async def test_after_a_release_that_exceeded_quota_a_smaller_pod_is_tried(world: World) -> None:
    world.quota("shop", maximum=4)
    world.queue("p", cpu="2", priority=1)
    replica = world.replica()
    world.server.fail_next(1, 403, method="PATCH", path_prefix=f"{PODS}/p", message=OVER_QUOTA)
    await replica.cycle()
    world.queue("same", cpu="2")
    world.queue("small", cpu="1")
    await replica.cycle()
    assert world.releases() == {"small"}


async def test_a_refused_release_is_tried_again_though_nothing_is_seen_to_change(
    world: World,
) -> None:
    world.quota("shop", maximum=4)
    world.queue("p")
    replica = world.replica()
    world.server.fail_next(1, 403, method="PATCH", path_prefix=f"{PODS}/p", message=OVER_QUOTA)
    await replica.cycle()
    world.seconds += 5
    await replica.cycle()
    assert world.releases() == {"p"}
