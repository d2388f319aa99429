from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path

import pytest

from engine.eviction import Victim
from engine.model.elastic_quota import EvictionMode
from engine.model.hold import RECLAIM_PLAN_ANNOTATION
from engine.model.time import date
from engine.release import Phase
from tests.fake_api_server import fake_api_server
from tests.webhook.controllers.eviction.worlds import Leader, World
from webhook.cluster.client.connection import connected
from webhook.controllers.eviction.context import EndedError
from webhook.controllers.eviction.execution import EvictionRound
from webhook.controllers.eviction.writer import EvictionOutcome, EvictionResult


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two nodes of 4 cores, full of pods of `batch`, whose min is 2; the min of `shop` is 4."""
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        made = World(server, connection)
        for node in ("a", "b"):
            made.node(node)
            for number in (1, 2):
                made.run(f"{node}{number}", "2", node=node)
        yield made


def bind_when_ready(leader: Leader, name: str = "web") -> None:
    """Play release controller and scheduler for a pod of `shop`."""

    def bind() -> None:
        held = leader.held.get(f"shop/{name}")
        if held is not None and leader.pods.of(held).phase is Phase.RESERVED:
            leader.world.bind(name, held.pod.nominated_node_name)

    leader.on_sleep = bind


async def test_room_is_reserved_then_made_then_used(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()
    bind_when_ready(leader)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert leader.evictions == [EvictionResult.EVICTED]
    assert len(world.pods("batch")) == 3
    victim = next(iter({"a1", "a2", "b1", "b2"} - world.pods("batch")))
    assert world.stored("shop", "web")["spec"]["nodeName"] == victim[0]
    assert world.events() == [("web", "Reclaiming"), (victim, "Reclaimed")]
    assert not leader.context.guards.state.outcomes


async def test_both_sides_are_told_who_takes_what(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()
    bind_when_ready(leader)
    await leader.lead_until(lambda: bool(leader.ended))
    messages = [event["message"] for event in world.server.objects("events").values()]
    assert "evicts `batch/" in messages[0]
    assert "evicted for pod `shop/web`" in messages[1]
    assert all("batch/team borrows cpu 6" in message for message in messages)


async def test_nobody_is_evicted_before_the_pod_has_waited(world: World) -> None:
    world.queue("web", "2", creationTimestamp="2026-01-02T04:04:05Z")  # now
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 58)
    assert len(world.pods("batch")) == 4
    await leader.lead_until(lambda: len(world.pods("batch")) < 4)
    assert world.seconds >= 60


async def test_a_new_leader_counts_the_wait_from_the_creation(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()
    await leader.lead_until(lambda: len(world.pods("batch")) < 4)
    assert world.seconds < 60


async def test_a_dry_run_tells_the_plan_and_evicts_nobody(world: World) -> None:
    world.modes["shop"] = EvictionMode.DRY_RUN
    world.queue("web", "2")
    leader = world.leader()
    notes: set[str] = set()

    def is_late() -> bool:
        notes.add(leader.note("web"))
        return world.seconds > 500

    await leader.lead_until(is_late)
    assert leader.ended == [EvictionOutcome.REPORTED]
    assert world.events() == [("web", "WouldReclaim")]
    assert any("would evict `batch/" in note for note in notes)
    assert len(world.pods("batch")) == 4
    assert not world.nominated("web")


async def test_a_dry_run_tells_the_plan_for_a_pod_that_was_released_and_found_no_node(
    world: World,
) -> None:
    world.modes["shop"] = EvictionMode.DRY_RUN
    world.queue("web", "2")
    leader = world.leader()
    leader.see()
    held = leader.held.get("shop/web")
    assert held is not None
    pod = world.stored("shop", "web")
    pod["spec"].pop("schedulingGates")
    world.server.replace(pod)

    def release() -> None:
        if world.seconds < 1:
            leader.pods.released_without_node(held, "quota", world.now())

    leader.on_sleep = release
    await leader.lead_until(lambda: bool(world.events()))
    assert world.seconds >= 60
    assert leader.ended == [EvictionOutcome.REPORTED]
    assert world.events() == [("web", "WouldReclaim")]
    assert len(world.pods("batch")) == 4


async def test_nothing_is_told_of_a_pod_that_found_a_node_meanwhile(world: World) -> None:
    world.modes["shop"] = EvictionMode.DRY_RUN
    world.queue("web", "2")
    leader = world.leader()
    leader.see()
    held = leader.held.get("shop/web")
    assert held is not None
    world.bind("web", "a")

    def release() -> None:
        if world.seconds < 1:
            leader.pods.released_without_node(held, "quota", world.now())

    leader.on_sleep = release
    await leader.lead_until(lambda: world.seconds > 100)
    assert (leader.ended, world.events()) == ([], [])


async def test_a_quota_that_is_off_gets_no_plan(world: World) -> None:
    world.modes["shop"] = EvictionMode.OFF
    world.queue("web", "2")
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 300)
    assert (leader.ended, world.events(), len(world.pods("batch"))) == ([], [], 4)


async def test_nobody_falls_below_min(world: World) -> None:
    # Of the 8 cores `batch` is guaranteed 2: of its 4 pods of 2 cores one stays, come what may.
    world.minimums["shop"] = 8_000
    for name in ("web-1", "web-2", "web-3", "web-4"):
        world.queue(name, "2")
    leader = world.leader()
    in_vain = set()

    def bind() -> None:
        for held in leader.held:
            if leader.pods.of(held).is_reclaim_in_vain:
                in_vain.add(held.pod.name)
            if leader.pods.of(held).phase is Phase.RESERVED:
                world.bind(held.pod.name, held.pod.nominated_node_name)

    leader.on_sleep = bind
    await leader.lead_until(
        lambda: leader.ended == [EvictionOutcome.BOUND] * 3 and world.seconds > 300
    )
    assert len(world.pods("batch")) == 1
    assert len(_bound(world)) == 3
    # The fourth waits for nothing that reclaim can do: it may go, for autoscalers to see.
    assert in_vain == {held.pod.name for held in leader.held}


def _bound(world: World) -> set[str]:
    return {
        name for name in world.pods("shop") if world.stored("shop", name)["spec"].get("nodeName")
    }


async def test_a_pod_beyond_min_takes_nothing_back(world: World) -> None:
    world.queue("web", "5")  # its quota guarantees 4
    leader = world.leader()
    await leader.lead_until(lambda: world.seconds > 300)
    assert (leader.ended, len(world.pods("batch"))) == ([], 4)


async def test_the_room_is_kept_while_victims_end(world: World) -> None:
    for name in ("a1", "a2", "b1", "b2"):
        world.server.delete("pods", "batch", name)
        world.run(name, "2", node=name[0], grace=30)
    world.queue("web", "2")
    leader = world.leader()
    await leader.lead_until(lambda: len(world.pods("batch")) == 3)
    assert world.nominated("web")
    (victim,) = {name for of, name in world.server.objects("pods") if of == "batch"} - world.pods(
        "batch"
    )
    # Another leader finds it so: it evicts nobody, and goes on when the victim is gone.
    successor = world.leader()
    bind_when_ready(successor)
    until = world.seconds + 100
    await successor.lead_until(lambda: world.seconds > until)
    assert (successor.evictions, successor.ended) == ([], [])
    world.server.delete("pods", "batch", victim)
    await successor.lead_until(lambda: bool(successor.ended))
    assert successor.ended == [EvictionOutcome.BOUND]
    assert len(world.pods("batch")) == 3


async def test_a_victim_that_should_be_gone_is_waited_for_no_longer(world: World) -> None:
    # Its node does not answer: 30 s after its time it still runs, and nobody waits for 600 s.
    for name in ("a1", "a2", "b1", "b2"):
        world.server.delete("pods", "batch", name)
        world.run(name, "2", node=name[0], grace=30)
    world.queue("web", "2")

    def delete_as_of_now() -> None:
        for (namespace, name), pod in world.server.objects("pods").items():
            known = pod["metadata"]
            if "deletionTimestamp" in known and "deletionGracePeriodSeconds" not in known:
                moment = f"{date(world.now()).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
                times = {"deletionTimestamp": moment, "deletionGracePeriodSeconds": 30}
                stored = world.server.read("pods", namespace, name)
                world.server.replace({**stored, "metadata": {**stored["metadata"], **times}})

    leader = world.leader()
    leader.on_sleep = delete_as_of_now
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.NO_ROOM]
    assert world.seconds < 300


async def test_a_nomination_is_taken_back_where_nobody_leaves_its_node(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()

    def end_when_nominated() -> None:
        leader.leads = not world.nominated("web")

    leader.on_sleep = end_when_nominated
    await leader.lead_until(lambda: not leader.leads)
    other = "b" if world.nominated("web") == "a" else "a"
    world.server.delete("pods", "batch", f"{other}1")  # there is room now, but on the other node
    successor = world.leader()
    await successor.lead_until(lambda: bool(successor.ended))
    assert successor.ended == [EvictionOutcome.CHANGED]
    assert not world.nominated("web")
    assert len(world.pods("batch")) == 3
    assert successor.context.guards.state.outcomes == {}  # nobody was evicted


async def test_a_budget_stands_against_it(world: World) -> None:
    world.protect(0)
    world.queue("web", "2")
    leader = world.leader()
    await leader.lead_until(lambda: "PodDisruptionBudget" in leader.note("web"))
    assert len(world.pods("batch")) == 4
    assert not world.nominated("web")


async def test_a_quota_that_reclaims_hard_takes_pods_against_their_budget(world: World) -> None:
    world.protect(0)
    world.hard.add("shop")
    world.queue("web", "2")
    leader = world.leader()
    bind_when_ready(leader)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert leader.evictions == [EvictionResult.BLOCKED, EvictionResult.DELETED]
    assert len(world.pods("batch")) == 3
    message = next(
        event["message"]
        for event in world.server.objects("events").values()
        if event["reason"] == "Reclaimed"
    )
    assert message.endswith("no other plan keeps to PodDisruptionBudgets")
    assert [each.method for each in world.server.requests].count("DELETE") == 2  # one a dry run


async def test_what_the_budget_allows_is_evicted_and_the_rest_deleted(world: World) -> None:
    world.protect(1)
    world.hard.add("shop")
    world.minimums["batch"] = 0
    world.queue("web", "4")
    leader = world.leader()
    bind_when_ready(leader)
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.BOUND]
    assert leader.evictions == [
        EvictionResult.EVICTED,
        EvictionResult.BLOCKED,
        EvictionResult.DELETED,
    ]


async def test_the_right_to_delete_is_found_missing_before_anybody_is_evicted(
    world: World,
) -> None:
    world.protect(0)
    world.hard.add("shop")
    world.queue("web", "2")
    leader = world.leader()
    world.server.fail_next(1, 403, method="DELETE")
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended[0] is EvictionOutcome.REFUSED
    assert leader.evictions == []
    assert len(world.pods("batch")) == 4


async def test_a_budget_that_comes_after_the_plan_holds_unless_the_plan_overrides_budgets(
    world: World,
) -> None:
    world.protect(0)
    leader = world.leader()
    victim = Victim(
        key="batch/a1",
        uid=world.stored("batch", "a1")["metadata"]["uid"],
        quota=None,
        owner="",
        assigned_at=0,
        node_name="a",
        requests={},
    )

    async def tell(_victim: Victim) -> None:
        pass

    evictions = EvictionRound([victim], leader.context, is_evicted=tell)
    with pytest.raises(EndedError):
        await evictions.dry_run()
    with pytest.raises(EndedError):
        await evictions.evict()
    assert "a1" in world.pods("batch")
    hard = EvictionRound([victim], leader.context, is_evicted=tell, overrides_budgets=True)
    await hard.dry_run()
    assert "a1" in world.pods("batch")
    await hard.evict()
    assert "a1" not in world.pods("batch")


async def test_a_pod_is_deleted_as_it_was_read_or_not_at_all(world: World) -> None:
    uid = world.stored("batch", "a1")["metadata"]["uid"]
    evictions = world.leader().context.evictions
    gone = await evictions.delete("batch", "a1", "another")
    assert gone.result is EvictionResult.GONE
    world.server.fail_next(2, 409, method="DELETE")  # it has changed in between
    assert (await evictions.delete("batch", "a1", uid)).result is EvictionResult.DELETED
    uid = world.stored("batch", "a2")["metadata"]["uid"]
    world.server.fail_next(3, 409, method="DELETE")
    assert (await evictions.delete("batch", "a2", uid)).result is EvictionResult.REFUSED
    assert world.pods("batch") == {"a2", "b1", "b2"}
    gone = await evictions.delete("batch", "a1", uid)
    assert gone.result is EvictionResult.GONE


async def test_whoever_refuses_the_dry_run_saves_all(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()
    world.server.fail_next(1, 403, method="POST", path_prefix="/api/v1/namespaces/batch/pods")
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.REFUSED]
    assert len(world.pods("batch")) == 4
    assert not world.nominated("web")
    assert RECLAIM_PLAN_ANNOTATION not in world.stored("shop", "web")["metadata"]["annotations"]
    assert leader.context.guards.state.outcomes == {}  # nobody was evicted


async def test_a_pod_is_kept_until_the_end_of_its_nomination_is_seen(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()
    world.server.fail_next(1, 403, method="POST", path_prefix="/api/v1/namespaces/batch/pods")
    lagged: list[bool] = []

    def is_behind() -> bool:
        held = leader.held.get("shop/web")
        assert held is not None
        is_lagging = bool(held.pod.nominated_node_name) and not world.nominated("web")
        if is_lagging:
            lagged.append(leader.pods.of(held).is_reclaiming)
        return is_lagging and len(lagged) < 20  # 2 s

    leader.is_behind = is_behind
    await leader.lead_until(lambda: bool(leader.ended))
    assert len(lagged) == 20
    assert all(lagged)


async def test_a_quota_that_is_switched_off_stops_it_at_once(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()

    def switch_off() -> None:
        if world.nominated("web"):
            world.modes["shop"] = EvictionMode.OFF

    leader.on_sleep = switch_off
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.CHANGED]
    assert len(world.pods("batch")) == 4


async def test_a_pod_that_goes_away_ends_it(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()

    def delete() -> None:
        if world.nominated("web"):
            world.server.delete("pods", "shop", "web")
            leader.on_sleep = lambda: None

    leader.on_sleep = delete
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.ABANDONED]


async def test_room_that_is_not_used_counts_as_a_failure(world: World) -> None:
    world.queue("web", "2")
    leader = world.leader()
    await leader.lead_until(lambda: bool(leader.ended))
    assert leader.ended == [EvictionOutcome.LOST]
    assert leader.context.guards.state.outcomes == {"shop": (False,)}
    assert not world.nominated("web")


async def test_plans_at_a_time_take_no_more_from_a_budget_than_it_allows(world: World) -> None:
    world.protect(1)
    for name in ("web-1", "web-2"):
        world.queue(name, "2")
    leader = world.leader()
    await leader.lead_until(lambda: "budgets allow no" in leader.note("web-2").lower())
    assert EvictionResult.BLOCKED not in leader.evictions
    assert world.seconds < 10


async def test_two_that_find_the_victims_of_each_other_leaving_do_not_wait_for_each_other(
    world: World,
) -> None:
    # One node of 6 cores with three pods of 2. Once each of two has claimed one of them, the third
    # ends by itself: now the victim of either alone makes room for both.
    for name in world.pods("batch"):
        world.server.delete("pods", "batch", name)
    world.server.delete("nodes", "", "b")
    world.server.delete("nodes", "", "a")
    world.node("a", "6")
    for name in ("a1", "a2", "a3"):
        world.run(name, "2", node="a")
    for name in ("web-1", "web-2"):
        world.queue(name, "2")
    leader = world.leader()

    def end_the_third() -> None:
        claimed = leader.context.planned.of_others("")
        running = {each.uid: each.key for each in leader.running if each.namespace == "batch"}
        if len(claimed) == 2 and len(running) == 3:
            (third,) = running.keys() - claimed
            world.server.delete("pods", *running[third].split("/"))
        for held in leader.held:
            if leader.pods.of(held).phase is Phase.RESERVED:
                world.bind(held.pod.name, held.pod.nominated_node_name)

    leader.on_sleep = end_the_third
    await leader.lead_until(lambda: len(leader.ended) == 2)
    assert _bound(world) == {"web-1", "web-2"}
    assert world.seconds < 30
    assert sorted(each.value for each in leader.ended) == ["bound", "needless"]
    assert len(world.pods("batch")) == 1


async def test_guards_outlive_a_leader(world: World) -> None:
    for name in world.pods("batch"):
        world.server.delete("pods", "batch", name)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set"}
        world.run(name, "2", node=name[0], ownerReferences=[owner])
    world.queue("web", "2")
    leader = world.leader()
    await leader.lead_until(lambda: bool(leader.ended))
    before = leader.context.guards.state
    assert before.owners
    assert before.outcomes == {"shop": (False,)}
    leader = world.leader()
    await leader.lead_until(lambda: leader.context.guards.state == before)


@pytest.mark.parametrize("last", range(1, 8))
async def test_a_leader_may_end_before_any_write(world: World, last: int) -> None:
    world.queue("web", "2")
    leader = world.leader()
    bind_when_ready(leader)
    leader.end_after(last)
    await leader.lead_until(lambda: not leader.leads or bool(leader.ended))
    successor = world.leader()
    bind_when_ready(successor)
    await successor.lead_until(lambda: "web" in _bound(world))
    assert len(world.pods("batch")) == 3
