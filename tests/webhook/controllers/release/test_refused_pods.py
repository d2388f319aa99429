"""Pods that cannot be released, beside others whose affair that is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model.hold import (
    HOLD_GATE,
    QUEUED_CONDITION,
    REFUSED_IN_ANNOTATION,
    RELEASED_ANNOTATION,
    WAIT_ANNOTATION,
)
from tests.webhook.controllers.release.controller_world import (
    CREATED,
    Replica,
    World,
    running_world,
)
from webhook.placement.held_pods import HoldGuard, ObservedLease

PODS = "/api/v1/namespaces/evil/pods"
NOTES = "team.example/notes"
MOST_ANNOTATION_BYTES, MOST_BYTES = 256 * 1024, 1536 * 1024


def lease(leader: Replica) -> ObservedLease:
    """Return the Lease as a replica sees it that the leader writes."""
    return ObservedLease(holder="me", annotations=leader.annotations, age_seconds=1.0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as world:
        world.node("a", "64")
        yield world


def _create(world: World, name: str, *, namespace: str = "evil", **metadata: Any) -> None:  # noqa: ANN401 (parts of a pod)
    """Store a pod with our gate in its manifest."""
    world.server.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": CREATED,
                **metadata,
            },
            "spec": {
                "containers": [{"name": "main"}],
                "schedulingGates": [{"name": HOLD_GATE}],
            },
        }
    )


def _create_without_room_for_annotations(world: World) -> None:
    notes = {NOTES: "x" * (MOST_ANNOTATION_BYTES - len(NOTES))}
    _create(world, "fat", annotations=notes)


def _create_without_room_at_all(world: World) -> None:
    _create(world, "fat", labels={"a": ""})
    room = MOST_BYTES - len(msgspec.json.encode(world.stored("fat"))) - 20
    world.delete("fat", "evil")
    _create(world, "fat", labels={"a": "x" * room})


def _create_always_failing(world: World) -> None:
    _create(world, "fat")
    world.server.fail_next(100_000, 500, method="PATCH", path_prefix=f"{PODS}/fat")


def _create_always_refused(world: World) -> None:
    _create(world, "fat")
    world.server.fail_next(
        100_000, 403, method="PATCH", path_prefix=f"{PODS}/fat", message="denied the request: no"
    )


@pytest.mark.parametrize(
    "create", [_create_without_room_for_annotations, _create_without_room_at_all]
)
async def test_a_pod_that_takes_no_annotation_loses_its_gate_alone(
    world: World,
    create: Any,  # noqa: ANN401 (a function)
) -> None:
    create(world)
    replica = world.replica()
    await replica.lead(5)
    assert world.gates("fat") == []
    assert RELEASED_ANNOTATION not in world.stored("fat")["metadata"].get("annotations", {})
    assert len(replica.held) == 0
    assert not replica.release.pods.refused()


@pytest.mark.parametrize(
    "create",
    [
        _create_without_room_for_annotations,
        _create_without_room_at_all,
        _create_always_failing,
        _create_always_refused,
    ],
)
async def test_a_pod_that_cannot_be_released_keeps_no_other_from_being_held(
    world: World,
    create: Any,  # noqa: ANN401 (a function)
) -> None:
    replica = world.replica()
    guard = HoldGuard(lambda: lease(replica), replica.held)
    await replica.cycle()
    create(world)
    for minute in range(2):  # longer than a pod may be overdue
        for number in range(8):
            world.hold(f"honest-{minute}-{number}", "100m")
            _create(world, f"beside-{minute}-{number}")
        await replica.lead(2)
        assert {name for name in world.releases() if name.startswith("honest")} == {
            f"honest-{before}-{number}" for before in range(minute + 1) for number in range(8)
        }
        assert not any(world.gates(f"beside-{minute}-{number}") for number in range(8))
        for _ in range(12):  # nobody else is held, for a minute
            await replica.lead(5)
            for asks in ("shop", "evil"):
                assert not guard.refusal(world.now(), asks), f"after {world.seconds} s"


async def test_where_releases_are_refused_everywhere_no_more_pods_are_held(world: World) -> None:
    replica = world.replica()
    guard = HoldGuard(lambda: lease(replica), replica.held)
    world.server.fail_next(
        100_000, 403, method="PATCH", path_prefix="/api", message="denied the request: no"
    )
    for namespace in ("shop", "mail", "docs"):
        _create(world, namespace, namespace=namespace)
    await replica.lead(15)
    assert guard.refusal(world.now(), "shop") == "not_releasing"


async def test_where_the_leader_sees_no_pods_no_more_are_held(world: World) -> None:
    leader, follower = world.replica(), world.replica()
    guard = HoldGuard(lambda: lease(leader), follower.held)
    await leader.controller.cycle()
    world.hold("p")
    follower.see()
    for seconds, refusal in ((0, ""), (89, ""), (90, "overdue")):
        world.seconds = seconds
        await leader.controller.cycle()  # its watch is stuck
        assert guard.refusal(world.now(), "mail") == refusal


async def test_a_new_leader_names_the_pods_that_the_last_one_found_refused(world: World) -> None:
    _create(world, "p", annotations={WAIT_ANNOTATION: "ReleaseRefused: denied the request: no"})
    _create(world, "q")
    replica = world.replica()
    replica.see()
    await replica.controller.cycle()
    assert replica.annotations[REFUSED_IN_ANNOTATION] == "evil=1"
    await replica.writes()
    await replica.cycle()
    assert replica.annotations[REFUSED_IN_ANNOTATION] == ""
    await replica.controller.end()


async def test_the_condition_of_a_refused_pod_ends_though_its_release_is_seen_before_the_answer(
    world: World,
) -> None:
    _create(world, "p")
    refused = {"type": QUEUED_CONDITION, "status": "True", "reason": "ReleaseRefused"}
    world.server.replace({**world.stored("p"), "status": {"conditions": [refused]}})
    world.server.fail_next(1, 403, method="PATCH", path_prefix=PODS, message="denied the request")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 2
    await replica.controller.cycle()
    await world.server.until(lambda: not world.gates("p"))
    replica.see()
    replica.pods.retain(replica.held.holds)
    await replica.writes()
    (condition,) = world.stored("p")["status"]["conditions"]
    assert condition["status"] == "False"
