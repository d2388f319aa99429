from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model.elastic_quota import ReclaimMode
from engine.model.hold import RECLAIM_PLAN_ANNOTATION, RELEASING_ANNOTATION
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from tests.webhook.controllers.release.controller_world import (
    BEGIN,
    PODS,
    Replica,
    World,
    running_world,
)

OVER_QUOTA = (
    'admission webhook "quota.stowplan.dev" denied the request: exceeded quota: quota,'
    " requested: cpu=1, used: cpu=4, limited: cpu=4"
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        world.node("a", cpu="4")
        yield world


def bind_released(world: World, replica: Replica) -> None:
    """Bind what was released to the node that it is nominated to."""
    for name in world.releases():
        if world.nominated(name):
            world.bind(name, world.nominated(name))
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


async def test_a_nomination_that_is_not_bound_counts_once(world: World) -> None:
    world.quota("batch")
    world.queue("b0", "batch", cpu="2")
    replica = world.replica()
    await replica.cycle()
    assert replica.counted() == {"a": 1}
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


async def test_in_mode_dry_run_a_pod_without_a_node_is_told_of_later(world: World) -> None:
    world.quota("shop", minimum=4, reclaim=ReclaimMode.DRY_RUN)
    world.create("other", "elsewhere", "3", nodeName="a")
    world.queue("p", cpu="2")
    replica = world.replica()
    replica.reclaims.begin()
    await replica.cycle()
    assert world.releases() == {"p"}
    assert replica.reclaims.take_unplaced("quota", Micros(BEGIN - 1)) == []
    (told,) = replica.reclaims.take_unplaced("quota", BEGIN)
    assert told.key == "shop/p"
    assert replica.reclaims.take_unplaced("quota", BEGIN) == []


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
    assert len(replica.refusals) == 0
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
    replica = world.replica(most=1)
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


@pytest.mark.parametrize("mode", list(ReclaimMode))
async def test_within_min_a_pod_without_a_node_stays_only_where_pods_are_evicted_for_it(
    world: World, mode: ReclaimMode
) -> None:
    world.quota("shop", minimum=4, reclaim=mode)
    world.create("other", "elsewhere", "3", nodeName="a")
    world.queue("p", cpu="2")
    replica = world.replica()
    await replica.cycle()
    if mode is not ReclaimMode.ON:
        assert world.releases() == {"p"}
        assert world.nominated("p") == ""
        return
    assert world.releases() == set()
    for _ in range(2):
        wait = replica.quota_queue.waits["shop/p"]
        assert (wait.reason, wait.is_within_min) == (QueuedReason.WAITING_FOR_CAPACITY, True)
        assert replica.quota_queue.within_min_since == {"shop/p": BEGIN}
        world.seconds += 1
        await replica.cycle()
    world.server.delete("pods", "elsewhere", "other")
    replica.applier.delete_pod("elsewhere", "other")
    world.seconds += 2
    await replica.cycle()
    assert world.releases() == {"p"}
    await replica.cycle()
    assert replica.quota_queue.within_min_since == {}


async def test_what_borrows_and_finds_no_node_is_released_for_autoscalers(world: World) -> None:
    world.node("b", cpu="4")
    world.create("one", "elsewhere", "3", nodeName="a")
    world.create("other", "elsewhere", "3", nodeName="b")
    world.quota("batch", reclaim=ReclaimMode.ON)
    world.queue("p", "batch", cpu="2")  # 2 cores are free, on two nodes
    await world.replica().cycle()
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


async def test_pods_that_wait_for_no_quota_keep_their_places(world: World) -> None:
    world.quota("shop", minimum=1)
    world.quota("batch")
    world.queue("b", "batch", priority=9)
    world.create("held", "elsewhere", "1", gated=True, priority=5)
    world.queue("p", priority=1)
    replica = world.replica(most=1)
    order: list[str] = []
    for _ in range(3):
        await replica.cycle()
        order += sorted(world.releases() - set(order))
        bind_released(world, replica)
    assert order == ["p", "b", "held"]  # p is within min, and takes the place of b


async def test_two_pods_within_min_that_no_policy_places_are_not_released_for_the_same_room(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, policy=None) as world:
        world.node("a", cpu="4")
        world.quota("shop", minimum=4, reclaim=ReclaimMode.ON)
        world.create("other", "elsewhere", "3", nodeName="a")
        for name in ("p", "q"):
            world.queue(name)
        replica = world.replica()
        for _ in range(2):
            await replica.cycle()
            assert world.releases() == {"p"}
            assert world.nominated("p") == ""  # the scheduler chooses
            assert replica.quota_queue.waits["shop/q"].reason is QueuedReason.WAITING_FOR_CAPACITY
            world.seconds += 2
        world.bind("p", "a")
        await replica.cycle()
        assert world.releases() == {"p"}
