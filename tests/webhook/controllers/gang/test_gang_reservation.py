from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.model.hold import RESERVED_AT_ANNOTATION
from tests.engine.binding.worlds import request
from tests.webhook.controllers.gang.members import members, message
from tests.webhook.controllers.release.controller_world import PODS, Replica, World
from webhook.controllers.gang import GangOutcome, GangState

NAMES = ("one", "two", "three")
LATER = "2026-01-02T03:05:00Z"


def busy(world: World, *nodes: str) -> None:
    """Let a pod run on each node that leaves no room for another."""
    for node in nodes:
        world.create(f"run-{node}", "shop", "3", nodeName=node)


def nominated(world: World, *names: str) -> list[str]:
    """Return where pods are nominated to, in the order of the nodes."""
    return sorted(filter(None, map(world.nominated, names or NAMES)))


async def reserving(world: World, replica: Replica | None = None) -> Replica:
    """Let a gang of three wait beside busy nodes until it reserves room."""
    members(world, *NAMES)
    busy(world, "a", "b", "c")
    replica = replica or world.replica()
    await replica.cycle()
    world.seconds += 60
    await replica.cycle()
    return replica


def events(world: World) -> list[str]:
    """Return what was told of reservations."""
    found = world.server.objects("events").values()
    return [each["message"] for each in found if each["reason"] == "GangReserving"]


async def test_a_gang_gets_room_member_by_member_and_starts_as_a_whole(world: World) -> None:
    replica = await reserving(world)
    assert replica.gangs.counts[GangState.RESERVING] == 1
    assert nominated(world) == []  # there is none yet
    for count, node in enumerate("ab", 1):
        world.delete(f"run-{node}")
        await replica.cycle()
        assert nominated(world) == list("abc")[:count]
        assert replica.counted() == dict.fromkeys("abc"[:count], 1)
        assert not world.releases()
    world.delete("run-c")
    await replica.cycle()
    assert {world.released(name) for name in NAMES} == {"a", "b", "c"}
    await replica.cycle()
    assert replica.gangs.counts[GangState.RESERVING] == 0


async def test_a_member_that_finds_no_room_keeps_none_from_others_of_its_gang(
    world: World,
) -> None:
    world.node("large", cpu="8")
    world.gang("train", 4)
    names = ("launcher", *NAMES)
    for name in names:
        world.member(name, "train", cpu="7" if name == "launcher" else "3")
    busy(world, "a", "b", "c")
    world.create("run-large", "shop", "6", nodeName="large")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 60
    await replica.cycle()
    for count, node in enumerate("abc", 1):
        world.delete(f"run-{node}")
        await replica.cycle()
        assert nominated(world, *names) == list("abc")[:count]
        assert replica.counted() == dict.fromkeys("abc"[:count], 1)
        assert not world.releases()
    world.delete("run-large")
    await replica.cycle()
    assert world.released("launcher") == "large"
    assert {world.released(name) for name in NAMES} == {"a", "b", "c"}


async def test_single_pods_get_nothing_of_it_and_no_other_room_before(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    world.create("single", "shop", "3", gated=True, created=LATER)
    await replica.cycle()
    assert world.released("single") is None
    assert replica.pods.by_key("shop/single") is not None
    world.delete("run-b")
    world.seconds += 3
    await replica.cycle()
    assert nominated(world) == ["a", "b"]
    assert world.released("single") is None
    world.node("d")
    world.node("e")
    world.seconds += 3
    await replica.cycle()  # one for the last member, one for the pod after it
    assert {world.released(name) for name in NAMES} <= {"a", "b", "d", "e"}
    assert world.released("single")


async def test_pods_of_higher_priority_do_not_wait_for_it(world: World) -> None:
    replica = await reserving(world)
    world.create("urgent", "shop", "3", gated=True, created=LATER, priority=1)
    await replica.cycle()
    assert world.released("urgent")


def taken_from(replica: Replica, node_name: str, cpu: str = "3", **spec: Any) -> str:  # noqa: ANN401 (parts of a pod)
    """Return whose room a pod would take that is not held and about to be bound."""
    replica.see()
    asking = request("web", cpu=cpu, **spec).pod
    view = replica.state.view()
    return replica.gangs.reserved_room(view)(asking, view.rows[node_name])


async def test_pods_of_the_scheduler_leave_it_the_room_that_has_just_come_free(
    world: World,
) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    gang = "gang `shop/train` until 2026-01-02T03:06:05Z"  # from 03:05:05, for as long as it waited
    assert taken_from(replica, "a") == gang
    assert taken_from(replica, "a", cpu="1") == ""  # 4 - 1 leave 3, enough for a member
    assert taken_from(replica, "a", priority=1) == ""
    await replica.cycle()
    assert nominated(world) == ["a"]
    assert taken_from(replica, "a") == gang
    assert taken_from(replica, "a", cpu="1") == ""
    assert taken_from(replica, "a", priority=1) == ""


async def test_what_is_too_little_for_a_member_is_kept_where_the_least_is_missing(
    world: World,
) -> None:
    replica = await reserving(world)
    world.node("d")
    busy(world, "d")
    assert taken_from(replica, "a", cpu="1") == ""  # on b, c and d as much is missing: 2 of 3 cores
    world.create("other", "shop", "1", nodeName="a")
    world.create("another", "shop", "1", nodeName="b")
    world.delete("run-a")
    world.delete("run-b")
    world.create("more", "shop", "1", nodeName="b")  # 3 free on a, 2 on b, 1 on c and d
    assert taken_from(replica, "a", cpu="1")
    assert taken_from(replica, "b", cpu="1")
    assert taken_from(replica, "b", cpu="1", priority=1) == ""
    assert taken_from(replica, "c", cpu="1") == ""


async def test_pods_of_the_scheduler_get_what_it_does_not_need(world: World) -> None:
    replica = await reserving(world)
    for node in ("d", "e", "f", "g"):
        world.node(node)
    assert taken_from(replica, "g") == ""  # three others are left for three members
    world.server.delete("nodes", "", "g")
    replica.state.delete_node("g")
    assert taken_from(replica, "f").startswith("gang `shop/train`")
    world.node("outside", pool="other")  # where its policy lets no member go
    assert taken_from(replica, "outside") == ""


async def test_a_pod_for_which_the_scheduler_evicted_others_gets_its_room(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    status = {"nominatedNodeName": "a"}
    assert taken_from(replica, "a", status=status) == ""
    assert taken_from(replica, "a", status={"nominatedNodeName": "b"})


async def test_pods_of_the_scheduler_get_what_is_given_back(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    world.seconds += 61
    await replica.cycle()
    assert taken_from(replica, "a") == ""


async def test_what_a_pod_is_denied_is_reserved_at_once(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    for node, is_woken in (("b", False), ("a", True)):
        replica.see()
        replica.held.changed.clear()
        view = replica.state.view()
        assert replica.gangs.reserved_room(view)(request(cpu="3").pod, view.rows[node])
        assert replica.held.changed.is_set() is is_woken


async def test_pods_that_wait_behind_it_are_not_taken_for_stuck(world: World) -> None:
    replica = await reserving(world)
    world.create("single", "shop", "3", gated=True, created=LATER)
    for _ in range(20):
        world.seconds += 1
        await replica.cycle()
    assert world.released("single") is None
    assert replica.annotations.get("stowplan.dev/releasing") == "true"


async def test_it_says_for_how_many_members_there_is_room(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    text = "gang `shop/train`: reserves room for 1 of 3 members, waits for room for 2: "
    assert message(replica, "one").startswith(text)
    held = replica.held.get("shop/one")
    assert held is not None
    wait = replica.gangs.wait(held)
    assert wait is not None
    assert wait.reason == "ReservingForGang"
    (event,) = events(world)
    assert event.startswith("there was no room for all 3 members for 60 s, so it is reserved as")


async def test_a_gang_that_found_no_room_for_a_moment_reserves_none(world: World) -> None:
    members(world, *NAMES)
    busy(world, "a", "b")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 59
    await replica.cycle()
    assert nominated(world) == []
    assert replica.gangs.counts[GangState.RESERVING] == 0


async def test_room_is_given_back_after_as_long_as_the_gang_has_waited(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    world.seconds += 59
    await replica.cycle()
    assert nominated(world) == ["a"]
    world.seconds += 2
    await replica.cycle()
    assert nominated(world) == []
    assert replica.counted() == {}
    assert "room for 1 of 3 members was reserved and is given back: not all" in events(world)[-1]
    # Then others have theirs for as long.
    world.seconds += 50
    await replica.cycle()
    assert nominated(world) == []
    world.seconds += 12
    await replica.cycle()
    assert nominated(world) == ["a"]


async def test_gangs_of_another_namespace_have_the_next_turn(world: World) -> None:
    replica = await reserving(world)
    members(world, "x1", "x2", "x3", gang="second")
    members(world, "y1", "y2", "y3", gang="other", namespace="lab")
    await replica.cycle()
    world.delete("run-a")
    await replica.cycle()
    assert nominated(world) == ["a"]
    world.seconds += 61
    await replica.cycle()
    await replica.cycle()
    assert nominated(world) == []
    assert nominated(world, "x1", "x2", "x3") == []
    assert nominated(world, "y1", "y2", "y3") == ["a"]
    assert replica.counted() == {"a": 1}


async def test_a_member_whose_node_goes_is_nominated_to_another(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    world.server.delete("nodes", "", "a")
    replica.state.delete_node("a")
    world.delete("run-b")
    for _ in range(2):  # first it is taken back
        await replica.cycle()
    assert nominated(world) == ["b"]
    assert replica.counted() == {"b": 1}


async def test_room_that_a_pod_of_higher_priority_takes_is_given_back(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    busy(world, "a")
    await replica.cycle()
    assert nominated(world) == []
    assert replica.counted() == {}
    world.delete("run-b")
    await replica.cycle()
    assert nominated(world) == ["b"]


def takes(world: World, replica: Replica, node_name: str) -> None:
    """Let a pod take a node as soon as all members are nominated."""

    def take() -> None:
        if len(nominated(world)) == len(NAMES):
            world.create("rival", "shop", "3", nodeName=node_name)
            replica.on_sleep = lambda: None

    replica.on_sleep = take


async def test_a_gang_that_loses_room_at_the_last_moment_keeps_the_rest_and_its_turn(
    world: World,
) -> None:
    replica = await reserving(world)
    for node in "ab":
        world.delete(f"run-{node}")
        await replica.cycle()
    world.delete("run-c")
    takes(world, replica, "c")
    for _ in range(2):
        await replica.cycle()
    assert replica.gang_outcomes == [GangOutcome.CHANGED]
    assert nominated(world) == ["a", "b"]
    assert replica.counted() == {"a": 1, "b": 1}
    assert replica.gangs.counts[GangState.RESERVING] == 1
    assert not world.releases()
    assert events(world)[-1].startswith("room for 1 of 3 members was lost: node `c` has no room")
    world.delete("rival")
    await replica.cycle()
    assert {world.released(name) for name in NAMES} == {"a", "b", "c"}


async def test_a_gang_that_loses_room_when_its_time_is_over_keeps_nothing(world: World) -> None:
    replica = await reserving(world)
    for node in "abc":
        world.delete(f"run-{node}")
    world.seconds += 59.9
    takes(world, replica, "c")
    for _ in range(2):
        await replica.cycle()
    assert nominated(world) == []
    assert replica.counted() == {}
    assert "is given back: not all of it came free within 60 s" in events(world)[-1]


async def test_a_gang_that_loses_a_member_at_the_last_moment_keeps_nothing(world: World) -> None:
    replica = await reserving(world)
    for node in "abc":
        world.delete(f"run-{node}")

    def delete() -> None:
        if len(nominated(world)) == len(NAMES):
            world.delete("three")
            replica.on_sleep = lambda: None

    replica.on_sleep = delete
    for _ in range(2):
        await replica.cycle()
    assert nominated(world, "one", "two") == []
    assert replica.counted() == {}
    assert replica.gangs.counts[GangState.RESERVING] == 0


async def test_a_gang_that_is_not_complete_any_more_keeps_nothing(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    (kept,) = [name for name in NAMES if world.nominated(name)]
    world.delete(next(name for name in NAMES if name != kept))
    await replica.cycle()
    assert world.nominated(kept) == ""
    assert replica.counted() == {}


async def test_a_gang_whose_quota_is_full_by_now_keeps_nothing(world: World) -> None:
    world.quota("shop", 18, 18)
    members(world, *NAMES, reasons="gang,quota")
    busy(world, "a", "b", "c")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 60
    await replica.cycle()
    world.delete("run-a")
    await replica.cycle()
    assert nominated(world) == ["a"]
    world.quota("shop", 8, 8, version=2)
    for _ in range(8):
        world.seconds += 1
        await replica.cycle()
    assert nominated(world) == []
    assert replica.counted() == {}
    assert replica.gangs.counts[GangState.RESERVING] == 0


async def test_the_next_leader_takes_back_what_was_reserved(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    await replica.controller.end()
    assert replica.counted() == {"a": 1}  # as the pods say
    second = world.replica()
    for _ in range(3):
        await second.cycle()
    assert nominated(world) == []
    replica.see()
    assert replica.counted() == second.counted() == {}


async def test_a_scheduler_that_was_restarted_hears_of_it_again(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    await replica.cycle()
    await replica.controller._touch()  # noqa: SLF001 (when the Lease has another holder)
    touched = [
        name
        for name in NAMES
        if RESERVED_AT_ANNOTATION in world.stored(name)["metadata"]["annotations"]
    ]
    assert touched == [name for name in NAMES if world.nominated(name)] != []


async def test_a_gang_that_is_larger_than_the_cluster_reserves_nothing(world: World) -> None:
    members(world, *NAMES, "four", "five", minimum=5)
    replica = world.replica()
    await replica.cycle()
    for _ in range(3):
        world.seconds += 61
        await replica.cycle()
    assert nominated(world) == []


async def test_a_gang_with_a_member_that_no_node_could_take_reserves_nothing(world: World) -> None:
    world.node("d", cpu="40")
    members(world, *NAMES, minimum=4)
    world.member("vast", "train", cpu="41")
    replica = world.replica()
    await replica.cycle()
    for _ in range(3):
        world.seconds += 61
        await replica.cycle()
    assert nominated(world) == []
    world.node("e", cpu="41")
    busy(world, "e")
    await replica.cycle()
    world.seconds += 61
    await replica.cycle()
    assert len(nominated(world)) == 3


async def test_a_gang_with_a_member_that_no_node_may_take_leaves_the_turn_to_others(
    world: World,
) -> None:
    members(world, *NAMES[:2])
    world.member("three", "train", nodeSelector={"disk": "fast"})
    members(world, "x1", "x2", "x3", gang="zeta")
    busy(world, "a", "b", "c")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 61
    await replica.cycle()
    world.delete("run-a")
    await replica.cycle()
    assert nominated(world) == []
    assert nominated(world, "x1", "x2", "x3") == ["a"]
    world.node("d", disk="fast")
    busy(world, "d")
    world.seconds += 61
    await replica.cycle()  # then its namespace reserves nothing for as long
    assert nominated(world, "x1", "x2", "x3") == []
    world.seconds += 61
    for _ in range(2):
        await replica.cycle()
    assert nominated(world, "x1", "x2", "x3") == []
    assert nominated(world) == ["a"]


@pytest.mark.parametrize(
    ("others", "holder"), [(7, "gang `shop/train` until 2026-01-02T03:06:05Z"), (8, "")]
)
async def test_what_has_just_come_free_is_left_to_members_of_the_first_eight_shapes(
    world: World, others: int, holder: str
) -> None:
    world.gang("train", others + 1)
    for number in range(others):
        world.member(f"m-{number}", "train", cpu=f"{3000 + number}m")
        world.node(f"of-{number}")
        busy(world, f"of-{number}")
    busy(world, "a", "b", "c")
    world.member("small", "train", cpu="2")
    world.node("d", cpu="2")
    world.create("run-d", "shop", "2", nodeName="d")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 60
    await replica.cycle()
    world.delete("run-d")
    assert taken_from(replica, "d", cpu="2") == holder


async def test_a_namespace_with_many_gangs_leaves_others_as_much_time_as_it_takes(
    world: World,
) -> None:
    for name in ("train", "upper", "zeta"):
        members(world, *(f"{name}-{number}" for number in range(3)), gang=name)
    busy(world, "a", "b", "c")
    replica = world.replica()
    await replica.cycle()
    holders = []
    for _ in range(22):
        world.seconds += 60
        await replica.cycle()
        holders.append(taken_from(replica, "a")[len("gang `shop/") :].split("`")[0])
    # After 60 s for 60 s, and none for as long; the next has waited for 180 s, the third for 540.
    expected = [("train", 1), ("", 1), ("upper", 3), ("", 3), ("zeta", 9), ("", 5)]
    assert holders == [name for name, minutes in expected for _ in range(minutes)]


async def test_a_gang_whose_min_resources_exceed_the_cluster_reserves_nothing(
    world: World,
) -> None:
    world.gang("train", 2, resources={"cpu": "13"})
    for name in ("one", "two"):
        world.member(name, "train")
    replica = world.replica()
    await replica.cycle()
    for _ in range(3):
        world.seconds += 61
        await replica.cycle()
    assert nominated(world) == []


async def test_a_gang_of_one_domain_reserves_nothing(world: World) -> None:
    for name, rack in (("d", "r1"), ("e", "r1")):
        world.node(name, rack=rack)
    world.gang("train", 2, gang_topology="rack")
    for name in ("one", "two"):
        world.member(name, "train")
    busy(world, "d")
    replica = world.replica()
    await replica.cycle()
    world.seconds += 61
    await replica.cycle()
    assert replica.gangs.counts[GangState.RESERVING] == 0


async def test_a_nomination_without_an_answer_is_written_again(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    world.server.fail_next(1, 503, method="PATCH", path_prefix=PODS)
    await replica.cycle()
    assert nominated(world) == []
    assert replica.counted() == {"a": 1}  # it may have arrived
    world.seconds += 16
    for _ in range(2):
        await replica.cycle()
    assert nominated(world) == ["a"]


async def test_a_gang_whose_nomination_is_refused_leaves_its_turn(world: World) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    denial = "denied the request: not now"
    world.server.fail_next(1, 403, method="PATCH", path_prefix=PODS, message=denial)
    await replica.cycle()
    await replica.cycle()
    assert replica.gangs.counts[GangState.RESERVING] == 0
    assert replica.counted() == {}
    assert denial in events(world)[-1]


async def test_one_namespace_has_half_of_the_gangs_that_are_released_at_a_time(
    world: World,
) -> None:
    for number in range(14):
        world.node(f"node-{number}")
    for number in range(7):
        members(world, f"m{number}", gang=f"gang-{number}", minimum=1)
        members(world, f"n{number}", gang=f"gang-{number}", minimum=1, namespace="lab")
    replica = world.replica()
    replica.see()
    await replica.controller.cycle()
    counts = Counter(held.pod.namespace for held in replica.gangs.prepared())
    assert set(counts) == {"shop", "lab"}
    assert max(counts.values()) <= 5
    for _ in range(3):
        await replica.cycle()
    assert len(world.releases()) == 14


async def test_a_leader_that_ends_before_its_nominations_are_written_can_lead_again(
    world: World,
) -> None:
    replica = await reserving(world)
    world.delete("run-a")
    replica.see()
    await replica.controller.cycle()
    await replica.gangs.end()  # their tasks have not begun
    await replica.controller.end()
    world.delete("run-b")
    world.delete("run-c")
    for _ in range(3):
        await replica.cycle()
    assert {world.released(name) for name in NAMES} == {"a", "b", "c"}
