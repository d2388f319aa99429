from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC
from itertools import count
from pathlib import Path

import pytest

from engine.eviction import NoPlan, NoPlanReason, Plan, Victim
from engine.model.elastic_quota import PREEMPTIBLE_LABEL
from engine.model.time import SECOND, Micros, date
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.eviction.worlds import Leader, World
from webhook.cluster.client.connection import connected
from webhook.cluster.watch.source_status import SourceStatus
from webhook.controllers.eviction.plans import PlanInputs


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    """Of two nodes of 4 cores, full of pods of `batch`, and a pod of `shop` that waits for 2."""
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        world = World(server, connection)
        for node in ("a", "b"):
            world.node(node)
            for number in (1, 2):
                world.run(f"{node}{number}", "2", node=node)
        world.queue("web", "2")
        made = world.leader()
        made.see()
        yield made


async def _plan(leader: Leader) -> Plan | NoPlan:
    held = leader.held.get("shop/web")
    assert held is not None
    return await leader.quotas.plan([held])


def _label(leader: Leader, name: str, labels: dict[str, str]) -> None:
    server = leader.world.server
    pod = server.read("pods", "batch", name)
    server.replace({**pod, "metadata": {**pod["metadata"], "labels": labels}})


def _names(plan: Plan | NoPlan) -> list[str]:
    assert isinstance(plan, Plan), plan
    return [victim.key for victim in plan.victims]


def _once(leader: Leader, act: Callable[[], None], *, at: int) -> None:
    """Let something happen after some steps of a plan."""
    left = [at]

    def step() -> None:
        left[0] -= 1
        if not left[0]:
            act()
            leader.see()

    leader.on_step = step


async def _steps(leader: Leader) -> int:
    """Return how many there are of a plan."""
    count = [0]

    def step() -> None:
        count[0] += 1

    leader.on_step = step
    await _plan(leader)
    leader.on_step = lambda: None
    return count[0]


async def test_others_run_while_it_is_made(leader: Leader) -> None:
    assert await _steps(leader) > 5


async def test_whatever_happens_meanwhile_the_plan_is_right_in_the_end(leader: Leader) -> None:
    expected = _names(await _plan(leader))
    world, gone = leader.world, expected[0].partition("/")[2]
    for at in range(1, await _steps(leader) + 1):
        _once(leader, lambda: world.server.delete("pods", "batch", gone), at=at)
        plan = await _plan(leader)
        assert isinstance(plan, NoPlan)
        assert plan.reason is NoPlanReason.NOT_NEEDED  # it made the room
        leader.on_step = lambda: None
        world.run(gone, "2", node=gone[0])
        leader.see()
        assert _names(await _plan(leader)) == expected


async def test_another_is_found_for_a_victim_that_is_protected_meanwhile(leader: Leader) -> None:
    (first,) = _names(await _plan(leader))
    name = first.partition("/")[2]
    for at in range(1, await _steps(leader) + 1):
        _once(leader, lambda: _label(leader, name, {PREEMPTIBLE_LABEL: "false"}), at=at)
        assert _names(await _plan(leader)) != [first]
        _label(leader, name, {})
        leader.see()


async def test_nobody_waits_for_a_pod_that_should_be_gone(leader: Leader) -> None:
    # It leaves room for the pod that waits; 30 s after its time it leaves none, and is no victim.
    world, (first,) = leader.world, _names(await _plan(leader))
    name = first.partition("/")[2]
    pod = world.server.read("pods", "batch", name)
    moment = date(world.now()).astimezone(UTC)
    times = {
        "deletionTimestamp": f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        "deletionGracePeriodSeconds": 30,
    }
    world.server.replace({**pod, "metadata": {**pod["metadata"], **times}})
    leader.see()
    plan = await _plan(leader)
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NOT_NEEDED
    world.seconds += 31
    leader.see()
    (second,) = _names(await _plan(leader))
    assert second != first


async def test_nobody_is_a_victim_twice(leader: Leader) -> None:
    (first,) = _names(await _plan(leader))
    uid = next(each.uid for each in leader.running if each.key == first)
    victim = Victim(
        key=first,
        uid=uid,
        quota=None,
        owner=uid,
        assigned_at=0,
        node_name=first[6],
        requests={"cpu": 2000},
    )
    for at in range(1, await _steps(leader) + 1):
        _once(leader, lambda: leader.context.planned.set("other", [victim]), at=at)
        plan = await _plan(leader)
        assert isinstance(plan, NoPlan)
        assert plan.reason is NoPlanReason.NOT_NEEDED  # the room that it leaves is enough
        leader.context.planned.remove("other")


def test_a_source_that_is_missing_for_long_is_told_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budgets = SourceStatus(name="budgets", domain=None, required=False, last_error="forbidden")
    seconds = count()
    inputs = PlanInputs(lambda: True, [budgets], lambda: Micros(next(seconds) * SECOND))
    for _ in range(661):
        assert not inputs.are_ready()
    text = "nobody is evicted for pods that wait: budgets cannot be read: forbidden"
    assert [record.message for record in caplog.records] == [text, text]  # after 60 and 660 s
    budgets.synced = True
    assert inputs.are_ready()


def test_nothing_is_planned_before_the_cluster_is_known(caplog: pytest.LogCaptureFixture) -> None:
    inputs = PlanInputs(lambda: False, [], lambda: Micros(0))
    assert not inputs.are_ready()
    assert not caplog.records
