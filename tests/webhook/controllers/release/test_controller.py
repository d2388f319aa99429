from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.hold import HOLD_GATE, QUEUED_CONDITION, RELEASING_ANNOTATION
from engine.release import HeldPod, WriteFailure
from tests.webhook.controllers.release.controller_world import (
    HOLD_SECONDS,
    PODS,
    World,
    running_world,
)
from webhook.cluster.client.connection import ApiError
from webhook.controllers.release import PodWriter
from webhook.controllers.release.pod_writer import WriteError

FREE = "the scheduler finds a node"
"""What a pod is released with that has no room reserved."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        yield world


# The way of a pod.


async def test_a_held_pod_is_released_by_one_write(world: World) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    replica.see()
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("", FREE)
    writes = [request.path for request in world.server.requests if request.method == "PATCH"]
    assert writes == [f"{PODS}/p"]
    assert replica.counted() == {}  # it counts where it is bound


async def test_a_pod_with_another_gate_is_left_alone(world: World) -> None:
    world.node("a")
    world.hold("p", schedulingGates=[{"name": HOLD_GATE}, {"name": "other.example/gate"}])
    replica = world.replica()
    world.seconds = 2 * HOLD_SECONDS
    await replica.cycle()
    assert world.released("p") is None


async def test_pods_of_an_order_are_released_one_by_one(world: World) -> None:
    world.node("a", cpu="64")
    for name, priority in (("low", 1), ("high", 3), ("middle", 2)):
        world.order(name, priority=priority)
    replica = world.replica()
    released = []
    for name in ("high", "middle", "low"):
        for _ in range(2):  # a second cycle releases no more
            await replica.cycle()
        released.append(name)
        assert world.releases() == {*released}
        world.bind(name, "a")


async def test_the_next_of_an_order_goes_when_the_one_before_has_no_node(world: World) -> None:
    world.order("first", priority=2)
    world.order("second", priority=1)
    replica = world.replica()
    await replica.cycle()
    assert world.releases() == {"first"}
    _cannot_be_scheduled(world, "first")
    await replica.cycle()
    assert world.releases() == {"first", "second"}


async def test_an_order_keeps_no_pod_waiting_that_asks_for_none(world: World) -> None:
    for name in "pq":
        world.order(name)
        world.hold(f"free-{name}")
    world.order("of-another-scheduler", schedulerName="other")
    await world.replica().cycle()
    assert world.releases() == {"p", "free-p", "free-q", "of-another-scheduler"}


async def test_a_refused_pod_of_an_order_keeps_nobody_waiting(world: World) -> None:
    world.order("first", priority=2)
    world.order("second", priority=1)
    replica = world.replica()
    world.server.fail_next(1, status=403, method="PATCH", path_prefix=f"{PODS}/first")
    await replica.cycle()
    await replica.cycle()
    assert world.releases() == {"second"}


async def test_pods_that_wait_for_their_turn_are_not_due(world: World) -> None:
    world.order("first", priority=2)
    world.order("second", priority=1)
    replica = world.replica()
    await replica.cycle()
    world.seconds = 30
    await replica.cycle()
    assert replica.annotations[RELEASING_ANNOTATION] == "true"


async def test_a_pod_that_is_not_bound_in_time_is_lost(world: World) -> None:
    world.order("first", priority=2)
    replica = world.replica()
    await replica.cycle()
    world.seconds = 61
    world.order("second", created="2026-01-02T03:05:00Z")
    await replica.cycle()
    assert world.releases() == {"first", "second"}
    assert [each.pod.key for each in replica.release.pods.unbound()] == ["shop/second"]


async def test_the_nomination_of_a_pod_that_is_not_bound_is_withdrawn(world: World) -> None:
    world.node("a")
    _reserve(world, "p", preemptionPolicy="Never")  # of such a pod the scheduler withdraws none
    world.seconds = HOLD_SECONDS
    replica = world.replica()
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("a", "a")
    world.seconds = HOLD_SECONDS + 59
    await replica.cycle()
    assert world.nominated("p") == "a"
    world.seconds = HOLD_SECONDS + 61
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("", "a")


async def test_a_new_leader_withdraws_the_nominations_that_the_last_one_left(world: World) -> None:
    world.node("a")
    _reserve(world, "p", preemptionPolicy="Never")
    world.seconds = HOLD_SECONDS
    first, second = world.replica(), world.replica()
    await first.cycle()
    second.see()
    world.seconds += 61
    await second.cycle()
    assert world.nominated("p") == ""


async def test_the_room_that_the_scheduler_makes_for_a_pod_stays_nominated(world: World) -> None:
    world.node("a")
    _reserve(world, "p")
    world.seconds = HOLD_SECONDS
    replica = world.replica()
    await replica.cycle()
    _cannot_be_scheduled(world, "p")
    world.seconds += 61
    await replica.cycle()
    assert world.nominated("p") == "a"


# What goes wrong.


async def test_before_the_view_is_complete_only_overdue_pods_are_released(world: World) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    replica.is_ready = False
    world.seconds = HOLD_SECONDS - 1
    await replica.cycle()
    assert world.released("p") is None
    world.seconds = HOLD_SECONDS
    await replica.cycle()
    assert world.released("p") == "it was held for as long as a pod may be held"


async def test_an_overdue_pod_keeps_the_node_it_is_nominated_to(world: World) -> None:
    world.node("a")
    _reserve(world, "p")
    world.seconds = HOLD_SECONDS
    await world.replica().cycle()
    assert (world.nominated("p"), world.released("p")) == ("a", "a")


async def test_what_is_nominated_for_no_reason_is_taken_back_with_the_release(world: World) -> None:
    world.node("a")
    _reserve(world, "p")
    await world.replica().cycle()
    assert (world.nominated("p"), world.released("p")) == ("", FREE)


async def test_a_refused_pod_backs_off_and_keeps_nobody_waiting(world: World) -> None:
    world.hold("p", priority=1)
    world.hold("q")
    replica = world.replica()
    world.server.fail_next(3, status=403, method="PATCH", path_prefix=f"{PODS}/p")
    for _ in range(3):
        await replica.cycle()
        world.seconds += 5
    assert len(replica.release.pods.refused()) == 1
    assert (world.released("p"), world.released("q")) == (None, FREE)
    world.seconds += 30
    await replica.cycle()
    assert world.released("p") == FREE
    assert not replica.release.pods.refused()


async def test_a_refused_release_does_not_end_the_condition_of_a_pod(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("a")
    world.hold("p")
    waits = {"type": QUEUED_CONDITION, "status": "True", "reason": "WaitingInOrder"}
    world.server.replace({**world.stored("p"), "status": {"conditions": [waits]}})
    replica = world.replica()
    release = PodWriter.release

    attempts, attempts_before = count(), count()

    async def refuse(*_: object, is_repeated: bool) -> None:
        assert is_repeated is (next(attempts_before) > 0)
        next(attempts)
        raise WriteError(WriteFailure.REFUSED, ApiError(403, "Forbidden", "not now"))

    monkeypatch.setattr(PodWriter, "release", refuse)
    seen = []
    for _ in range(60):
        await replica.cycle()
        world.seconds += 2
        seen += [each["status"] for each in world.stored("p")["status"]["conditions"]]
    # The first attempts end it, as nobody refused the pod before; then it is told, and stays.
    assert next(attempts) > 3
    assert "False" not in seen[seen.index("True") :]
    monkeypatch.setattr(PodWriter, "release", release)
    world.seconds += 600
    await replica.cycle()
    (condition,) = world.stored("p")["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Released")
    assert world.released("p")


async def test_while_the_api_server_is_away_nothing_is_sent(world: World) -> None:
    world.hold("p")
    replica = world.replica()
    world.server.fail_next(1, status=503, method="PATCH")
    await replica.cycle()
    assert world.released("p") is None
    await replica.cycle()  # within the pause nothing is sent
    assert world.released("p") is None
    world.seconds = 2
    await replica.cycle()
    assert world.released("p") == FREE


async def test_a_release_that_is_not_answered_is_not_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.hold("p")
    replica = world.replica()
    replica.see()
    release, behind = PodWriter.release, list(world.server.objects("pods").values())

    async def unanswered(
        writer: PodWriter, held: HeldPod, annotations: Mapping[str, str], *, is_repeated: bool
    ) -> None:
        assert not is_repeated
        await release(writer, held, annotations)
        raise WriteError(WriteFailure.UNREACHABLE, ApiError(0, "", "no answer in time"))

    monkeypatch.setattr(PodWriter, "release", unanswered)
    await replica.cycle()
    monkeypatch.setattr(PodWriter, "release", release)
    for pod in behind:  # the watch is behind
        raw = msgspec.Raw(msgspec.json.encode(pod))
        replica.applier.prepare_pod(msgspec.json.decode(raw, type=api.Pod), raw)()
    world.seconds = 8
    for _ in range(3):
        await replica.controller.cycle()
        await replica.writes()
        world.seconds += 1
    assert world.released("p") == FREE
    assert len(replica.release.pods.unbound()) == 1


@pytest.mark.parametrize("writes", range(4))
async def test_a_leader_may_end_between_any_two_writes(world: World, writes: int) -> None:
    for name in ("p", "q", "r"):
        world.hold(name)
    first, second = world.replica(), world.replica()
    left = writes

    def may_write() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    first.release.writer._paced.may_write = may_write  # noqa: SLF001 (its end)
    await first.cycle()
    assert len(world.releases()) == writes
    await second.cycle()
    assert world.releases() == {"p", "q", "r"}


async def test_a_replica_that_does_not_lead_releases_nothing(world: World) -> None:
    world.hold("p")
    replica = world.replica()
    replica.leads = False
    replica.see()
    run = asyncio.create_task(replica.controller.run())
    await world.server.until(lambda: bool(world.server.requests))  # it has begun
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert world.released("p") is None


async def test_a_pod_that_is_too_large_is_released(world: World) -> None:
    world.hold("p", containers=[{"name": f"c{number}"} for number in range(200)])
    await world.replica().cycle()
    assert world.released("p") == FREE


# What it says of itself.


async def test_it_says_that_it_releases_while_nothing_waits(world: World) -> None:
    replica = world.replica()
    await replica.cycle()
    assert replica.annotations[RELEASING_ANNOTATION] == "true"
    world.node("a")
    world.hold("p")
    replica.leads = False
    for seconds, said in ((1, "true"), (10, "true"), (12, "false")):
        world.seconds = seconds
        await replica.cycle()
        assert replica.annotations[RELEASING_ANNOTATION] == said
    replica.leads = True
    world.seconds = 14
    await replica.cycle()
    await replica.cycle()
    assert replica.annotations[RELEASING_ANNOTATION] == "true"


def _reserve(world: World, name: str, **spec: Any) -> None:  # noqa: ANN401 (parts of a pod)
    """Store a held pod that is nominated to node a."""
    world.hold(name, **spec)
    world.server.replace({**world.stored(name), "status": {"nominatedNodeName": "a"}})


def _cannot_be_scheduled(world: World, name: str) -> None:
    """Have the scheduler try a pod in vain."""
    stored = world.stored(name)
    tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {**(stored.get("status") or {}), "conditions": [tried]}
    world.server.replace({**stored, "status": status})


async def test_nothing_of_held_pods_is_kept_where_nobody_leads(world: World) -> None:
    replica = world.replica()
    world.quota("shop", maximum=0)
    world.queue("q")
    await replica.cycle()
    assert list(replica.quota_queue.waits) == ["shop/q"]
    world.hold("a")
    replica.see()
    held = replica.held.get("shop/a")
    assert held is not None
    record = replica.release.pods.of(held)
    record.write_refused("denied", None, world.now(), at=0)
    await replica.controller.end()
    assert not list(replica.release.pods)
    assert not replica.quota_queue.waits
