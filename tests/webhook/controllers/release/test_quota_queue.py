from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model.hold import RECLAIM_PLAN_ANNOTATION, RELEASING_ANNOTATION, QueuedReason
from tests.webhook.controllers.release.controller_world import Replica, World, running_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        world.node("a", cpu="4")
        yield world


def bind_released(world: World, replica: Replica) -> None:
    """Bind what was released."""
    for name in world.releases():
        world.bind(name, "a")
    replica.see()


async def test_what_max_allows_is_released_and_the_rest_waits(world: World) -> None:
    world.quota("shop", maximum=2)
    for name in ("p", "q", "r"):
        world.queue(name)
    replica = world.replica()
    for _ in range(3):
        await replica.cycle()
        assert len(world.releases()) == 2
    (waits,) = replica.quota_queue.waits.values()
    assert waits.reason is QueuedReason.WAITING_FOR_QUOTA
    assert waits.message == "needs cpu 1, 0 free"
    bind_released(world, replica)
    await replica.cycle()
    assert len(world.releases()) == 2


@pytest.mark.parametrize(
    ("namespace", "asks", "expected"),
    [("shop", True, True), ("shop", False, False), ("batch", True, False)],
)
async def test_a_quota_reclaims_hard_where_it_asks_for_it_and_its_namespace_may(
    world: World, namespace: str, *, asks: bool, expected: bool
) -> None:
    world.quota(namespace, minimum=1, maximum=0, asks_for_hard_reclaim=asks)
    world.queue("p", namespace)
    world.queue("q", "without-quota")
    replica = world.replica()
    await replica.cycle()
    reclaims_hard = replica.quota_queue.reclaims_hard
    hard = {held.pod.name: reclaims_hard(held.pod) for held in replica.held}
    assert hard["p"] is expected
    assert not hard.get("q")


async def test_room_that_becomes_free_goes_to_the_next_at_once(world: World) -> None:
    world.quota("shop", maximum=1)
    world.queue("p", priority=1)
    world.queue("q")
    replica = world.replica()
    await replica.cycle()
    assert world.releases() == {"p"}
    world.server.delete("pods", "shop", "p")
    replica.applier.delete_pod("shop", "p")
    await replica.cycle()
    assert world.releases() == {"q"}
    assert replica.quota_queue.waits == {}


async def test_a_quota_borrows_only_what_others_do_not_use(world: World) -> None:
    # 4 cores; somebody beside all quotas uses 2
    world.create("other", "elsewhere", "2", nodeName="a")
    world.quota("shop", minimum=1)
    world.quota("batch")
    for number in range(3):
        world.queue(f"b{number}", "batch", priority=1)
    world.queue("p")
    replica = world.replica()
    await replica.cycle()
    assert world.releases() == {"p", "b0"}  # p is within min; one more fits
    wait = replica.quota_queue.waits["batch/b1"]
    assert wait.message == "needs cpu 1, 0 free"
    for _ in range(2):
        bind_released(world, replica)
        await replica.cycle()
        assert world.releases() == {"p", "b0"}


async def test_a_released_pod_that_is_not_bound_counts_once(world: World) -> None:
    world.quota("batch")
    world.queue("b0", "batch", cpu="2")
    replica = world.replica()
    await replica.cycle()
    world.queue("b1", "batch", cpu="2")
    await replica.cycle()
    assert world.releases() == {"b0", "b1"}


async def test_a_nomination_of_an_earlier_leader_keeps_no_pod_from_its_own_room(
    world: World,
) -> None:
    world.quota("batch")
    world.queue("b0", "batch", cpu="3")
    pod = world.stored("b0")
    world.server.replace({**pod, "status": {"nominatedNodeName": "a"}})
    await world.replica().cycle()
    assert world.releases() == {"b0"}


async def test_a_nomination_of_an_earlier_leader_ends_when_the_pod_has_to_wait(
    world: World,
) -> None:
    world.quota("shop", maximum=4)
    world.queue("p", cpu="3")
    pod = world.stored("p")
    world.server.replace({**pod, "status": {"nominatedNodeName": "a"}})
    world.create("other", "shop", "2")  # was first
    replica = world.replica()
    await replica.cycle()
    assert world.releases() == set()
    assert world.nominated("p") == ""
    assert replica.counted() == {}
    sent = len(world.server.requests)
    await replica.cycle()
    assert len(world.server.requests) == sent
    replica.applier.delete_pod("shop", "other")
    world.server.delete("pods", "shop", "other")
    await replica.cycle()
    assert world.releases() == {"p"}


async def test_a_nomination_within_min_ends_too_unless_pods_are_evicted_for_it(
    world: World,
) -> None:
    # Of the 8Gi of the node 4 are free. The min of `shop` names cpu alone.
    world.quota("shop", minimum=4)
    requests = {"cpu": "1", "memory": "4Gi"}
    world.create("other", "elsewhere", "1", nodeName="a", containers=[_container(requests)])
    for name in ("p", "q"):
        world.queue(name, containers=[_container({"cpu": "1", "memory": "6Gi"})])
        pod = world.stored(name)
        world.server.replace({**pod, "status": {"nominatedNodeName": "a"}})
    kept = world.stored("q")
    kept["metadata"]["annotations"][RECLAIM_PLAN_ANNOTATION] = "a: `batch/b`"
    world.server.replace(kept)
    replica = world.replica()
    await replica.cycle()
    assert world.releases() == set()
    assert (world.nominated("p"), world.nominated("q")) == ("", "a")


def _container(requests: dict[str, str]) -> dict[str, object]:
    return {"name": "main", "resources": {"requests": requests}}


async def test_without_a_quota_or_its_mode_a_queued_pod_goes_at_once(world: World) -> None:
    world.quota("audited", maximum=0)
    world.queue("p")
    world.queue("q", "audited")
    replica = world.replica()
    replica.state.set_namespace("audited", {}, quota_mode="Audit")
    await replica.cycle()
    assert world.releases() == {"p", "q"}


async def test_in_mode_enforce_what_waits_already_goes_as_max_allows(world: World) -> None:
    world.quota("shop", maximum=1)
    world.queue("p", priority=1)
    world.queue("q")
    replica = world.replica()
    replica.state.set_namespace("shop", {}, quota_mode="Enforce")
    await replica.cycle()
    assert world.releases() == {"p"}


async def test_a_leader_whose_pods_all_wait_for_quota_still_releases(world: World) -> None:
    world.quota("shop", maximum=0)
    world.queue("p")
    replica = world.replica()
    for _ in range(3):
        await replica.cycle()
        world.seconds += 100
    assert replica.annotations[RELEASING_ANNOTATION] == "true"
    assert world.releases() == set()


async def test_pods_that_wait_for_no_quota_keep_their_places(world: World) -> None:
    world.quota("shop", minimum=1)
    world.quota("batch")
    for name, namespace, reasons, priority in (
        ("b", "batch", "quota,order", 9),
        ("held", "elsewhere", "order", 5),
        ("p", "shop", "quota,order", 1),
    ):
        world.create(name, namespace, "1", reasons=reasons, gated=True, priority=priority)
    replica = world.replica()
    order: list[str] = []
    for _ in range(3):
        await replica.cycle()
        (name,) = world.releases() - set(order)
        order.append(name)
        world.bind(name, "a")
    assert order == ["p", "b", "held"]  # p is within min, and takes the place of b
