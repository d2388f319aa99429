"""Plans for gangs: room for all of their members by the fewest evictions, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import StartingGang, place_all
from engine.eviction import (
    NeedyGang,
    NoPlan,
    NoPlanReason,
    Plan,
    Preemption,
    Reclaim,
    completed,
    plan_for_gang,
)
from engine.gang import Gang, GangKey, GangTopology
from engine.model.decision import PlacementRequest
from engine.model.disruption_budget import DisruptionBudget
from engine.model.pod import Pod
from engine.model.selectors import LabelSelector
from engine.policy import CompiledPolicy, PolicySet
from tests.engine.eviction.worlds import (
    GANG_LABEL,
    PreemptionWorld,
    ReclaimWorld,
    quota_key,
    running,
    small,
    without,
)
from tests.engine.eviction.worlds import preemption_worlds as worlds
from tests.engine.measured_cluster import NOW, node

_GANG = GangKey("shop", "train")
_VICTIMS = {GANG_LABEL: "gang"}


def members(count: int, cpu: int, *, priority: int = 50) -> list[Pod]:
    return [running(f"m{i}", "", cpu, namespace="shop", priority=priority) for i in range(count)]


def needy(pods: Sequence[Pod], *, rack: str = "", minimum: int | None = None) -> NeedyGang:
    """Return a gang of some pods that are to start, in one rack if it says so."""
    topology = GangTopology("rack", required=rack == "required") if rack else None
    gang = Gang(
        key=_GANG,
        min_member=len(pods),
        total=len(pods),
        topology=topology,
        min_resources=None if minimum is None else {"cpu": 1000 * minimum},
    )
    requests = [PlacementRequest(pod=each, raw=b"{}") for each in pods]
    return NeedyGang(gang=gang, members=StartingGang(requests=requests, topology=topology))


def planned(world: PreemptionWorld, *gangs: NeedyGang) -> Plan | NoPlan:
    return completed(plan_for_gang(gangs, Preemption(world.quotas), world.situation()))


def names(plan: Plan | NoPlan) -> set[str]:
    assert isinstance(plan, Plan), plan
    return {victim.key.partition("/")[2] for victim in plan.victims}


def has_room(world: PreemptionWorld, gone: Sequence[Pod], pods: Sequence[Pod]) -> bool:
    left = without(world, [each.key for each in gone])
    requests = [PlacementRequest(pod=each, raw=b"{}") for each in pods]
    return place_all(requests, world.policies, left.state().view(), NOW).failed is None


def test_each_member_without_a_node_gets_the_cheapest() -> None:
    # Node c has room for one of three; b costs less than a.
    pods = [running("a1", "a", 4, priority=9), running("b1", "b", 4), running("c1", "c", 1)]
    world = small(pods, nodes=["a", "b", "c"])
    assert names(planned(world, needy(members(2, 3)))) == {"b1"}
    plan = planned(world, needy(members(3, 3)))
    assert names(plan) == {"a1", "b1"}
    assert isinstance(plan, Plan)
    assert sorted(plan.node_names) == ["a", "b", "c"]


def test_all_get_room_or_nobody_is_evicted() -> None:
    pods = [running("a1", "a", 4, priority=60), running("b1", "b", 4)]
    plan = planned(small(pods), needy(members(2, 3)))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NO_VICTIMS


def test_whoever_goes_is_below_the_least_important_member() -> None:
    pods = [running("a1", "a", 4, priority=20), running("b1", "b", 4, priority=20)]
    gang = [*members(1, 3), *members(1, 3, priority=20)]
    gang[1] = msgspec.structs.replace(gang[1], name="m1", uid="uid-m1")
    assert isinstance(planned(small(pods), needy(gang)), NoPlan)
    assert names(planned(small(pods), needy(members(2, 3)))) == {"a1", "b1"}


def test_a_gang_goes_as_a_whole_for_another() -> None:
    pods = [running(name, name, 4, labels=_VICTIMS) for name in ("a", "b")]
    assert names(planned(small(pods), needy(members(1, 3)))) == {"a", "b"}
    important = [pods[0], running("b", "b", 4, labels=_VICTIMS, priority=60)]
    assert isinstance(planned(small(important), needy(members(1, 3))), NoPlan)


def test_members_of_its_own_stay() -> None:
    own = {GANG_LABEL: "train"}
    pods = [running("m9", "a", 4, namespace="shop", labels=own), running("b1", "b", 4)]
    assert names(planned(small(pods), needy(members(1, 3)))) == {"b1"}


def test_a_budget_holds_for_all_victims_together() -> None:
    budget = DisruptionBudget(
        namespace="batch", name="pdb", selector=LabelSelector(), disruptions_allowed=1
    )
    pods = [running("a1", "a", 4), running("b1", "b", 4)]
    world = replace(small(pods), budgets=[budget])
    assert len(names(planned(world, needy(members(1, 3))))) == 1
    plan = planned(world, needy(members(2, 3)))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.BLOCKED_BY_PDB


def test_a_min_holds_for_all_victims_together() -> None:
    pods = [running("a1", "a", 4), running("b1", "b", 4)]
    world = replace(small(pods), minimums={"batch": {"cpu": 4000}})
    assert len(names(planned(world, needy(members(1, 3))))) == 1
    assert isinstance(planned(world, needy(members(2, 3))), NoPlan)


def test_no_more_than_ten_go_for_a_gang() -> None:
    nodes = [f"n{i:02}" for i in range(12)]
    world = small([running(name, name, 4) for name in nodes], nodes=nodes)
    assert len(names(planned(world, needy(members(10, 3))))) == 10
    assert isinstance(planned(world, needy(members(11, 3))), NoPlan)


def test_a_class_that_never_preempts_keeps_the_whole_gang() -> None:
    gang = members(2, 3)
    gang[1] = msgspec.structs.replace(
        gang[1], preemption_policy="Never", priority_class_name="never"
    )
    plan = planned(small([running("a1", "a", 4), running("b1", "b", 4)]), needy(gang))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NEVER_PREEMPTS


def test_room_that_is_there_is_not_made() -> None:
    plan = planned(small([running("a1", "a", 1)]), needy(members(2, 3)))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NOT_NEEDED


def _racks() -> PreemptionWorld:
    """Of two racks one needs two victims, the other one of higher priority, and a node is free."""
    pods = [
        running("a1", "a", 4),
        running("b1", "b", 4),
        running("c1", "c", 4, priority=9),
        running("d1", "d", 1),
    ]
    nodes = [
        replace(
            node(name, cpu="4", memory="64Gi", pods="20"), labels={"rack": rack} if rack else {}
        )
        for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"), ("e", ""))
    ]
    return replace(small(pods), nodes=nodes)


def test_room_is_made_in_one_rack() -> None:
    assert names(planned(_racks(), needy(members(2, 3), rack="required"))) == {"a1", "b1"}
    # Of those that only prefer one, two have room on d and e.
    plan = planned(_racks(), needy(members(2, 3), rack="preferred"))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NOT_NEEDED


def test_gangs_of_a_group_get_room_together() -> None:
    pods = [running("a1", "a", 4), running("b1", "b", 4)]
    other = needy([running("o0", "", 3, namespace="shop", priority=50)])
    plan = planned(small(pods), needy(members(1, 3)), other)
    assert names(plan) == {"a1", "b1"}
    assert isinstance(plan, Plan)
    assert len(plan.node_names) == 2


def test_what_the_gang_says_that_it_needs_is_made_free_too() -> None:
    pods = [running("a1", "a", 4), running("b1", "b", 2)]
    plan = planned(small(pods), needy(members(1, 1), minimum=6))
    assert isinstance(plan, NoPlan)
    assert names(planned(small(pods), needy(members(2, 3), minimum=6))) == {"a1", "b1"}


gangs = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(
    lambda cpus: [
        running(f"m{i}", "", cpu, namespace="shop", priority=50) for i, cpu in enumerate(cpus)
    ]
)


@given(world=worlds(), pods=gangs)
def test_a_plan_is_what_it_promises(world: PreemptionWorld, pods: list[Pod]) -> None:
    leaving = [each for each in world.pods if each.deleting or each.name in world.leaving]
    plan = planned(world, needy(pods))
    is_needed = not has_room(world, leaving, pods)
    if isinstance(plan, NoPlan):
        assert (plan.reason is NoPlanReason.NOT_NEEDED) is (
            not is_needed and plan.reason not in {NoPlanReason.PAUSED, NoPlanReason.BACKED_OFF}
        )
        return
    assert is_needed
    keys = {victim.key for victim in plan.victims}
    victims = [each for each in world.pods if each.key in keys]
    assert has_room(world, [*leaving, *victims], pods)
    assert all(each.priority < 50 for each in victims)
    for victim in victims:
        together = {each.key for each in world.gang_of(victim)}
        assert together <= keys  # a gang as a whole
        spared = [each for each in victims if each.key not in together]
        assert not has_room(world, [*leaving, *spared], pods)
    for budget in world.budgets:
        hit = sum(budget.selects(each.namespace, each.labels) for each in victims)
        assert hit <= max(budget.disruptions_allowed, 0)
    for space, least in world.minimums.items():
        if space == "shop":
            continue
        used = {each.key: each for each in world.pods if each.namespace == space}
        lost = sum(each.shape.requests.get("cpu", 0) for each in victims if each.key in used)
        gone = sum(each.shape.requests.get("cpu", 0) for each in leaving if each.key in used)
        total = sum(each.shape.requests.get("cpu", 0) for each in used.values())
        assert not lost or total - gone - lost >= least.get("cpu", 0)
    assert planned(world, needy(pods)) == plan


def reclaim_world(pods: Sequence[Pod], *, cohort: int = 40, minimum: int = 6) -> ReclaimWorld:
    """Return two nodes of 4 cores; `shop` is guaranteed some cores, `batch` 1."""
    return ReclaimWorld(
        nodes=[node(name, cpu="4", memory="64Gi", pods="20") for name in ("a", "b")],
        pods=pods,
        preemptor=members(1, 1)[0],
        minimums={"shop": {"cpu": 1000 * minimum}, "batch": {"cpu": 1000}},
        cohort={"cpu": 1000 * cohort},
        policies=PolicySet([CompiledPolicy(name="anywhere")]),
    )


def reclaimed(of: ReclaimWorld, pods: Sequence[Pod]) -> Plan | NoPlan:
    return completed(plan_for_gang([needy(pods)], Reclaim((quota_key("shop"),)), of.situation()))


FULL = [
    running("a1", "a", 2),
    running("a2", "a", 2, priority=5),
    running("b1", "b", 2),
    running("b2", "b", 2, priority=5),
]


def test_each_member_gets_a_node_from_what_others_borrow() -> None:
    plan = reclaimed(reclaim_world(FULL), members(2, 2))
    assert len(names(plan)) == 2
    assert isinstance(plan, Plan)
    assert len(plan.node_names) == 2


def test_a_gang_beyond_the_min_gets_nothing() -> None:
    plan = reclaimed(reclaim_world(FULL, minimum=3), members(2, 2))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NOT_WITHIN_MIN


def test_nobody_is_pushed_below_its_min() -> None:
    # 8 are used; 7 of them are borrowed, and 4 pods of 2 would leave nothing.
    of = replace(
        reclaim_world(FULL, minimum=8), minimums={"shop": {"cpu": 8000}, "batch": {"cpu": 1000}}
    )
    plan = reclaimed(of, members(4, 2))
    assert isinstance(plan, NoPlan)
    assert len(names(reclaimed(of, members(3, 2)))) == 3


def test_what_the_cohort_lacks_is_freed_too() -> None:
    # Node b is free, but all quotas together may use 4 cores.
    pods = [running("a1", "a", 2), running("a2", "a", 2)]
    assert names(reclaimed(reclaim_world(pods, cohort=5), members(1, 3))) == {"a1"} or names(
        reclaimed(reclaim_world(pods, cohort=5), members(1, 3))
    ) == {"a2"}
    plan = reclaimed(reclaim_world(pods, cohort=7), members(1, 3))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NOT_NEEDED


def test_a_budget_is_in_the_way_of_reclaim() -> None:
    budget = DisruptionBudget(
        namespace="batch", name="pdb", selector=LabelSelector(), disruptions_allowed=1
    )
    plan = reclaimed(replace(reclaim_world(FULL), budgets=[budget]), members(2, 2))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.BLOCKED_BY_PDB
    assert len(names(reclaimed(replace(reclaim_world(FULL), budgets=[budget]), members(1, 2)))) == 1
