from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from engine.model import api
from engine.model.hold import HOLD_GATE, RESERVED_AT_ANNOTATION, WAIT_ANNOTATION
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.release import HeldPod, WriteFailure
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import connected
from webhook.controllers.release.pod_writer import PodWriter, WriteError

PODS = "/api/v1/namespaces/shop/pods"
TRIED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def held_of(pod: Pod, raw: bytes) -> HeldPod:
    return HeldPod(pod=pod, version=0, raw=raw, release_by=Micros(0), seen_at=Micros(0))


class World:
    """A server with held pods, and a writer."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.seconds = 100.0
        self.leads = True
        self.writer: PodWriter

    def held(self, name: str = "a", gates: tuple[str, ...] = (HOLD_GATE,)) -> HeldPod:
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"schedulingGates": [{"name": gate} for gate in gates], "containers": []},
        }
        self.server.create(manifest)
        return self.seen(name)

    def seen(self, name: str = "a") -> HeldPod:
        """Return a pod as a watch shows it now."""
        raw = msgspec.json.encode(self.stored(name))
        return held_of(pod_of(msgspec.json.decode(raw, type=api.Pod)), raw)

    def stored(self, name: str = "a") -> dict[str, Any]:
        return dict(self.server.objects("pods")["shop", name])

    def gates(self, name: str = "a") -> list[str]:
        return [gate["name"] for gate in self.stored(name)["spec"].get("schedulingGates", ())]

    @property
    def sent(self) -> list[tuple[str, str]]:
        return [(request.method, request.path) for request in self.server.requests]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server)
        made.writer = PodWriter(
            connection,
            may_write=lambda: made.leads,
            clock=lambda: made.seconds,
            now=lambda: NOW,
        )
        yield made


@contextmanager
def failing(failure: WriteFailure) -> Iterator[None]:
    with pytest.raises(WriteError) as raised:
        yield
    assert raised.value.failure is failure, raised.value


async def test_a_nomination_and_a_condition_take_one_write(world: World) -> None:
    condition = {"type": "stowplan.dev/Queued", "status": "False", "reason": "Nominated"}
    await world.writer.nominate(world.held(), "node-1", condition)
    status = world.stored()["status"]
    assert (status["nominatedNodeName"], status["conditions"]) == ("node-1", [condition])
    assert world.sent == [("PATCH", f"{PODS}/a/status")]


async def test_a_nomination_is_withdrawn(world: World) -> None:
    held = world.held()
    await world.writer.nominate(held, "node-1")
    await world.writer.withdraw(held)
    assert "nominatedNodeName" not in world.stored()["status"]


@pytest.mark.parametrize(
    ("status", "spec", "uid", "left"),
    [
        ({}, {}, None, ""),
        ({}, {"nodeName": "node-2"}, None, "node-1"),
        ({"nominatedNodeName": "node-2"}, {}, None, "node-2"),
        ({}, {}, "of-another", "node-1"),
        ({"conditions": [TRIED]}, {}, None, "node-1"),
        ({"conditions": [TRIED]}, {"preemptionPolicy": "Never"}, None, ""),
        ({"conditions": None}, {"preemptionPolicy": None}, None, ""),
    ],
)
async def test_an_unfollowed_nomination_is_withdrawn_from_the_pod_that_still_has_it(
    world: World, status: dict[str, Any], spec: dict[str, Any], uid: str | None, left: str
) -> None:
    held = world.held()
    stored = world.stored()
    status = {"nominatedNodeName": "node-1", **status}
    world.server.replace({**stored, "spec": {"containers": [], **spec}, "status": status})
    pod = replace(held.pod, uid=uid or held.pod.uid)
    await world.writer.withdraw_unfollowed(pod, "node-1")
    assert world.stored()["status"].get("nominatedNodeName", "") == left


async def test_a_condition_leaves_the_nomination(world: World) -> None:
    held = world.held()
    await world.writer.nominate(held, "node-1")
    await world.writer.set_condition(held, {"type": "stowplan.dev/Queued", "status": "True"})
    assert world.stored()["status"]["nominatedNodeName"] == "node-1"


async def test_what_kubectl_describes_says_what_a_true_condition_says(world: World) -> None:
    held = world.held()
    condition = {"type": "stowplan.dev/Queued", "reason": "WaitingForQuota", "message": "4th of 9"}
    await world.writer.set_condition(held, {**condition, "status": "True"})
    assert world.stored()["metadata"]["annotations"][WAIT_ANNOTATION] == "WaitingForQuota: 4th of 9"
    await world.writer.nominate(held, "node-1", {**condition, "status": "False"})
    assert WAIT_ANNOTATION not in world.stored()["metadata"].get("annotations", {})


async def test_a_touch_changes_an_annotation_alone(world: World) -> None:
    held = world.held()
    await world.writer.touch(held)
    assert world.stored()["metadata"]["annotations"] == {
        RESERVED_AT_ANNOTATION: "2026-01-02T03:04:05.000000Z"
    }
    assert world.gates() == [HOLD_GATE]


async def test_a_release_removes_our_gate_alone_and_annotates(world: World) -> None:
    held = world.held(gates=("other.example/gate", HOLD_GATE, "third.example/gate"))
    await world.writer.release(held, annotations={"stowplan.dev/released": "node-1"})
    assert world.gates() == ["other.example/gate", "third.example/gate"]
    assert world.stored()["metadata"]["annotations"] == {"stowplan.dev/released": "node-1"}
    assert world.sent == [("PATCH", f"{PODS}/a")]


async def test_annotations_that_somebody_added_meanwhile_stay(world: World) -> None:
    held = world.held()
    stored = world.stored()
    stored["metadata"] = {**stored["metadata"], "annotations": {"theirs": "1"}}
    world.server.replace(stored)
    await world.writer.release(held, annotations={"stowplan.dev/released": "node-1"})
    annotations = {"theirs": "1", "stowplan.dev/released": "node-1"}
    assert world.stored()["metadata"]["annotations"] == annotations


async def test_a_gate_that_moved_is_found(world: World) -> None:
    held = world.held(gates=("other.example/gate", HOLD_GATE))
    del world.stored()["spec"]["schedulingGates"][0]
    world.server.replace({**world.stored(), "spec": {"schedulingGates": [{"name": HOLD_GATE}]}})
    await world.writer.release(held)
    assert world.gates() == []


async def test_a_pod_without_our_gate_has_changed(world: World) -> None:
    held = world.held()
    await world.writer.release(held)
    with failing(WriteFailure.CHANGED):
        await world.writer.release(held)
    world.server.requests.clear()
    with failing(WriteFailure.CHANGED):
        await world.writer.release(world.seen())
    assert world.sent == []  # it was found out without a request


async def test_a_deleted_pod_is_gone(world: World) -> None:
    held = world.held()
    world.server.delete("pods", "shop", "a")
    with failing(WriteFailure.GONE):
        await world.writer.nominate(held, "node-1")
    with failing(WriteFailure.GONE):
        await world.writer.release(held)


async def test_a_pod_that_replaced_another_of_its_name_stays_as_it_is(world: World) -> None:
    held = world.held()
    world.server.delete("pods", "shop", "a")
    world.held()
    with failing(WriteFailure.GONE):
        await world.writer.release(held)
    assert world.gates() == [HOLD_GATE]


async def test_a_pod_too_large_to_keep_is_read_before_it_is_released(world: World) -> None:
    held = world.held()
    await world.writer.release(held_of(held.pod, b""))
    assert world.gates() == []
    assert world.sent == [("GET", f"{PODS}/a"), ("PATCH", f"{PODS}/a")]


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (403, WriteFailure.REFUSED),
        (400, WriteFailure.REFUSED),
        (422, WriteFailure.REFUSED),  # our patch applies to the pod as it is
        (409, WriteFailure.CHANGED),
        (404, WriteFailure.GONE),
        (0, WriteFailure.UNREACHABLE),
        (429, WriteFailure.UNREACHABLE),
        (500, WriteFailure.UNREACHABLE),
        (503, WriteFailure.UNREACHABLE),
    ],
)
async def test_failures_are_told_apart(world: World, status: int, failure: WriteFailure) -> None:
    held = world.held()
    world.server.fail_next(1, status, method="PATCH")
    with failing(failure):
        await world.writer.release(held)
    world.server.fail_next(1, status, method="PATCH")
    with failing(failure):
        await world.writer.nominate(held, "node-1")
    assert world.gates() == [HOLD_GATE]


async def test_a_pod_without_room_for_annotations_loses_the_gate_alone(world: World) -> None:
    held = world.held()
    world.server.fail_next(1, 422, method="PATCH")
    await world.writer.release(held, {"stowplan.dev/released": "node-1"})
    assert world.gates() == []
    assert "annotations" not in world.stored()["metadata"]
    assert [method for method, _ in world.sent] == ["PATCH", "GET", "PATCH"]


@pytest.mark.parametrize("status", [422, 500, 503])
async def test_a_pod_for_which_alone_the_server_fails_is_refused_and_nobody_waits_for_it(
    world: World, status: int
) -> None:
    held = world.held()
    world.server.fail_next(2, status, method="PATCH")
    with failing(WriteFailure.REFUSED):
        await world.writer.release(held, {"stowplan.dev/released": ""}, is_repeated=True)
    world.server.fail_next(1, status, method="PATCH")
    with failing(WriteFailure.REFUSED):
        await world.writer.set_condition(held, {"type": "stowplan.dev/Queued", "status": "True"})
    assert world.writer.pause_seconds == 0
    assert world.gates() == [HOLD_GATE]
    await world.writer.release(held, {"stowplan.dev/released": ""}, is_repeated=True)
    assert world.gates() == []


async def test_a_repeated_release_waits_for_a_server_that_is_out_of_reach(world: World) -> None:
    held = world.held()
    world.server.fail_next(1, 503)  # of the pod is asked first
    with failing(WriteFailure.UNREACHABLE):
        await world.writer.release(held, is_repeated=True)
    assert world.writer.pause_seconds > 0
    world.server.fail_next(1, 500, method="PATCH")
    world.server.fail_next(1, 500, method="GET")
    with failing(WriteFailure.UNREACHABLE):
        await world.writer.set_condition(held, {"type": "stowplan.dev/Queued", "status": "True"})
    assert world.gates() == [HOLD_GATE]


async def test_a_server_out_of_reach_has_a_pause_until_it_answers(world: World) -> None:
    held = world.held()
    world.server.fail_next(1, 429, headers={"Retry-After": "7"}, method="PATCH")
    with failing(WriteFailure.UNREACHABLE):
        await world.writer.nominate(held, "node-1")
    assert world.writer.pause_seconds == 7
    world.seconds += 7
    assert world.writer.pause_seconds == 0
    world.server.fail_next(1, 503, method="PATCH")
    with failing(WriteFailure.UNREACHABLE):
        await world.writer.nominate(held, "node-1")
    assert 0 < world.writer.pause_seconds <= 1
    await world.writer.nominate(held, "node-1")
    assert world.writer.pause_seconds == 0


async def test_who_no_longer_leads_sends_nothing(world: World) -> None:
    held = world.held()
    world.leads = False
    with failing(WriteFailure.NOT_LEADING):
        await world.writer.release(held)
    assert world.sent == []


async def test_writes_that_wait_for_their_turn_are_not_sent_after_the_lead_is_lost(
    world: World,
) -> None:
    held = [world.held(f"pod-{number}") for number in range(60)]
    world.server.pause()
    writes = [asyncio.create_task(world.writer.release(each)) for each in held]
    await world.server.until(lambda: len(world.server.requests) == 50)  # in flight at a time
    world.leads = False
    world.server.resume()
    results = await asyncio.gather(*writes, return_exceptions=True)
    refused = [result for result in results if isinstance(result, WriteError)]
    assert len(refused) == 10
    assert {error.failure for error in refused} == {WriteFailure.NOT_LEADING}
