from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.batch import BatchOutcome
from engine.model import api
from engine.model.hold import HOLD_GATE, QUEUED_CONDITION, RELEASING_ANNOTATION
from engine.model.request import PlacementRequest
from engine.policy import PolicySet
from engine.view import ClusterView
from tests.webhook.controllers.release.controller_world import (
    HOLD_SECONDS,
    PODS,
    World,
    running_world,
)
from webhook.cluster.client.connection import ApiError
from webhook.controllers.release import (
    PodWriter,
)
from webhook.controllers.release.pacing import Landing, Release
from webhook.controllers.release.write_error import WriteError, WriteFailure
from webhook.placement.held_pods import HeldPod
from webhook.placement.placer import Placer


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        yield world


# The way of a pod.


async def test_a_held_pod_is_nominated_then_released(world: World) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    replica.see()
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("a", "a")
    writes = [request.path for request in world.server.requests if request.method == "PATCH"]
    assert writes == [f"{PODS}/p/status", f"{PODS}/p"]


async def test_decisions_are_counted_for_each_pod_and_explained_for_each_template(
    world: World,
) -> None:
    world.node("a", cpu="8")
    for name in ("p", "q"):
        world.hold(name)
    replica = world.replica()
    await replica.cycle()
    (policy,) = replica.policies.policies
    assert replica.counts.decisions(replica.policies)[policy.name, "Enforce", "placed"] == 2
    assert len(replica.explanations) == 1


async def test_what_filters_promise_of_labels_is_written_with_the_release(world: World) -> None:
    world.node("a")
    world.hold("p")
    world.hold("nowhere", cpu="5")
    await world.replica().cycle()
    expected = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["main"]}]}]
    for name in ("p", "nowhere"):
        affinity = world.stored(name)["spec"]["affinity"]["nodeAffinity"]
        (required,) = affinity.values()  # and nothing is preferred
        assert required["nodeSelectorTerms"] == expected


async def test_no_node_is_given_to_more_pods_than_fit(world: World) -> None:
    for name in "ab":
        world.node(name)
    for name in ("p", "q", "r"):
        world.hold(name)
    await world.replica().cycle()
    released = [world.released(name) or "" for name in ("p", "q", "r")]
    assert sorted(released)[1:] == ["a", "b"]
    assert min(released).startswith("0 of 2 nodes fit")


async def test_a_pod_with_another_gate_is_left_alone(world: World) -> None:
    world.node("a")
    world.hold("p", schedulingGates=[{"name": HOLD_GATE}, {"name": "other.example/gate"}])
    replica = world.replica()
    world.seconds = 2 * HOLD_SECONDS
    await replica.cycle()
    assert world.released("p") is None


async def test_only_so_many_are_released_before_they_are_bound(world: World) -> None:
    world.node("a", cpu="64")
    for number in range(5):
        world.hold(f"p{number}", cpu="1")
    replica = world.replica(most=2)
    for released in (2, 4, 5):
        for _ in range(2):  # a second cycle releases no more
            await replica.cycle()
            assert sum(world.released(f"p{n}") is not None for n in range(5)) == released
        for number in range(5):
            if world.released(f"p{number}") is not None:
                world.bind(f"p{number}", "a")


async def test_the_first_in_order_are_released_first(world: World) -> None:
    world.node("a")
    world.hold("low", priority=1)
    world.hold("high", priority=2)
    await world.replica(most=1).cycle()
    assert (world.released("high"), world.released("low")) == ("a", None)


async def test_a_pod_that_is_not_bound_in_time_counts_no_longer(world: World) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    await replica.cycle()
    assert replica.counted() == {"a": 1}
    world.seconds = 61
    await replica.cycle()
    assert replica.counted() == {}
    assert len(replica.unbound) == 0


async def test_the_nomination_of_a_pod_that_is_not_bound_is_withdrawn(world: World) -> None:
    world.node("a")
    world.hold("p", preemptionPolicy="Never")  # of such a pod the scheduler withdraws none
    replica = world.replica()
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("a", "a")
    world.seconds = 59
    await replica.cycle()
    assert world.nominated("p") == "a"
    world.seconds = 61
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("", "a")


async def test_a_new_leader_withdraws_the_nominations_that_the_last_one_left(world: World) -> None:
    world.node("a")
    world.hold("p", preemptionPolicy="Never")
    first, second = world.replica(), world.replica()
    await first.cycle()
    second.see()
    world.seconds = 61
    await second.cycle()
    assert world.nominated("p") == ""


async def test_the_room_that_the_scheduler_makes_for_a_pod_stays_nominated(world: World) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    await replica.cycle()
    stored = world.stored("p")
    tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    world.server.replace({**stored, "status": {**stored["status"], "conditions": [tried]}})
    world.seconds = 61
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
    world.hold("p")
    pod = world.stored("p")
    world.server.replace({**pod, "status": {"nominatedNodeName": "a"}})
    world.seconds = HOLD_SECONDS
    await world.replica().cycle()
    assert (world.nominated("p"), world.released("p")) == ("a", "a")


async def test_a_refused_pod_backs_off_and_gives_its_room_back(world: World) -> None:
    world.node("a")
    world.hold("p", priority=1)
    replica = world.replica()
    world.server.fail_next(3, status=403, method="PATCH", path_prefix=f"{PODS}/p")
    for _ in range(3):
        await replica.cycle()
        world.seconds += 5
    assert replica.counted() == {}
    assert len(replica.refusals) == 1
    world.hold("q")  # takes the room
    replica.see()
    world.seconds += 30
    await replica.cycle()
    assert {world.released("p"), world.released("q")} >= {"a"}
    assert len(replica.refusals) == 0


async def test_a_refused_release_does_not_end_the_condition_of_a_pod(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("a")
    world.hold("p")
    waits = {"type": QUEUED_CONDITION, "status": "True", "reason": "WaitingInOrder"}
    world.server.replace({**world.stored("p"), "status": {"conditions": [waits]}})
    replica = world.replica()
    release = PodWriter.release

    attempts = count()

    async def refuse(*_: object) -> None:
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


async def test_while_the_api_server_is_away_pods_stay_reserved(world: World) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    world.server.fail_next(1, status=503, method="PATCH")
    await replica.cycle()
    assert world.released("p") is None
    assert replica.counted() == {"a": 1}
    await replica.cycle()  # within the pause nothing is sent
    assert world.released("p") is None
    world.seconds = 2
    await replica.cycle()
    assert world.released("p") == "a"


async def test_a_release_that_is_not_answered_is_not_decided_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    replica.see()
    release, behind = PodWriter.release, list(world.server.objects("pods").values())

    async def unanswered(
        writer: PodWriter,
        held: HeldPod,
        operations: Sequence[Mapping[str, Any]],
        annotations: Mapping[str, str],
    ) -> None:
        await release(writer, held, operations, annotations)
        raise WriteError(WriteFailure.UNREACHABLE, ApiError(0, "", "no answer in time"))

    monkeypatch.setattr(PodWriter, "release", unanswered)
    await replica.cycle()
    monkeypatch.setattr(PodWriter, "release", release)
    world.node("b", cpu="3")  # better by now
    for pod in behind:  # and the watch is behind
        raw = msgspec.Raw(msgspec.json.encode(pod))
        replica.applier.prepare_pod(msgspec.json.decode(raw, type=api.Pod), raw)()
    world.seconds = 8
    for _ in range(3):
        await replica.controller.cycle()
        await replica.writes()
        world.seconds += 1
    assert (world.nominated("p"), world.released("p")) == ("a", "a")
    assert len(replica.unbound) == 1


async def test_what_is_nominated_when_a_leader_ends_still_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()

    async def unreachable(*_arguments: object) -> None:
        raise WriteError(WriteFailure.UNREACHABLE, ApiError(0, "", "no answer in time"))

    monkeypatch.setattr(PodWriter, "release", unreachable)
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("a", None)
    await replica.controller.end()
    assert replica.counted() == {"a": 1}  # nothing new is seen: the watch had shown it before


@pytest.mark.parametrize("writes", range(7))
async def test_a_leader_may_end_between_any_two_writes(world: World, writes: int) -> None:
    for name in "abc":
        world.node(name)
    for name in ("p", "q", "r"):
        world.hold(name)
    first, second = world.replica(), world.replica()
    left = writes

    def may_write() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    first.controller._parts.writes.writer._paced._may_write = may_write  # noqa: SLF001 (its end)
    await first.cycle()
    await second.cycle()
    on_nodes = Counter(world.released(name) for name in ("p", "q", "r"))
    assert on_nodes == {"a": 1, "b": 1, "c": 1}
    nominated = Counter(world.nominated(name) for name in ("p", "q", "r"))
    assert nominated == on_nodes
    assert second.counted() == {"a": 1, "b": 1, "c": 1}


async def test_its_end_takes_back_what_was_not_written(world: World) -> None:
    world.node("a")
    world.hold("p")
    replica = world.replica()
    replica.leads = False
    replica.see()
    run = asyncio.create_task(replica.controller.run())
    await world.server.until(lambda: bool(world.server.requests))  # it has begun
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert world.released("p") is None
    assert replica.counted() == {}


async def test_a_scheduler_that_follows_no_nominations_gets_preferred_terms(world: World) -> None:
    world.node("a")
    world.node("b", cpu="3")  # full of it, as the policy likes it
    world.hold("p")
    replica = world.replica()
    replica.see()
    (held,) = replica.held
    elsewhere = msgspec.structs.replace(held.pod, node_name="b")
    release = Release(key="shop/x", uid="x", scheduler_name=held.pod.scheduler_name, node_name="a")
    for _ in range(50):
        replica.outcomes.count(Landing(release, elsewhere), lambda _pod, _node_name: True)
    await replica.cycle()
    assert (world.nominated("p"), world.released("p")) == ("", "b")
    affinity = world.stored("p")["spec"]["affinity"]["nodeAffinity"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" in affinity
    assert replica.counted() == {"b": 1}


async def test_a_pod_that_is_too_large_is_released_without_a_decision(world: World) -> None:
    world.node("a")
    world.hold("p", containers=[{"name": f"c{number}"} for number in range(200)])
    await world.replica().cycle()
    assert world.released("p") == "the pod is too large for a decision"


async def test_a_bug_in_a_decision_keeps_no_pod(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node("a", cpu="64")
    for name in "pqr":
        world.hold(name)
    decide_batch = Placer.decide_batch

    def failing(
        placer: Placer, requests: Sequence[PlacementRequest], policies: PolicySet
    ) -> tuple[list[BatchOutcome], ClusterView]:
        if any(request.pod.name == "q" for request in requests):
            raise AssertionError
        return decide_batch(placer, requests, policies)

    monkeypatch.setattr(Placer, "decide_batch", failing)
    await world.replica().cycle()
    released = [world.released(name) for name in "pqr"]
    assert released == ["a", "the decision failed by an internal error", "a"]


# What it says of itself.


async def test_it_says_that_it_releases_while_nothing_waits(world: World) -> None:
    replica = world.replica()
    await replica.cycle()
    assert replica.annotations == {RELEASING_ANNOTATION: "true"}
    world.node("a")
    world.hold("p")
    replica.leads = False
    for seconds, said in ((1, "true"), (10, "true"), (12, "false")):
        world.seconds = seconds
        await replica.cycle()
        assert replica.annotations == {RELEASING_ANNOTATION: said}
    replica.leads = True
    world.seconds = 14
    await replica.cycle()
    await replica.cycle()
    assert replica.annotations == {RELEASING_ANNOTATION: "true"}
