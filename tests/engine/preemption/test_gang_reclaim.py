"""Plans that take back what others borrow, for gangs within the `min` of their quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.disruption_budget import DisruptionBudget
from engine.model.pod import Pod
from engine.model.selectors import LabelSelector
from engine.policy import CompiledPolicy, PolicySet
from engine.preemption import plan_gang_reclaim
from engine.reclaim import NoPlan, NoPlanReason, Plan
from tests.engine.measured_cluster import node
from tests.engine.preemption.test_gang_planner import members, needy
from tests.engine.reclaim.worlds import ReclaimWorld, quota_key, running


def world(pods: Sequence[Pod], *, cohort: int = 40, minimum: int = 6) -> ReclaimWorld:
    """Return two nodes of 4 cores; `shop` is guaranteed some cores, `batch` 1."""
    return ReclaimWorld(
        nodes=[node(name, cpu="4", memory="64Gi", pods="20") for name in ("a", "b")],
        pods=pods,
        preemptor=members(1, 1)[0],
        minimums={"shop": {"cpu": 1000 * minimum}, "batch": {"cpu": 1000}},
        cohort={"cpu": 1000 * cohort},
        policies=PolicySet([CompiledPolicy(name="anywhere")]),
    )


def planned(of: ReclaimWorld, pods: Sequence[Pod]) -> Plan | NoPlan:
    return plan_gang_reclaim([needy(pods)], (quota_key("shop"),), of.situation())


def names(plan: Plan | NoPlan) -> set[str]:
    assert isinstance(plan, Plan), plan
    return {victim.key.partition("/")[2] for victim in plan.victims}


FULL = [
    running("a1", "a", 2),
    running("a2", "a", 2, priority=5),
    running("b1", "b", 2),
    running("b2", "b", 2, priority=5),
]


def test_each_member_gets_a_node_from_what_others_borrow() -> None:
    plan = planned(world(FULL), members(2, 2))
    assert len(names(plan)) == 2
    assert isinstance(plan, Plan)
    assert len(plan.node_names) == 2


def test_a_gang_beyond_the_min_gets_nothing() -> None:
    plan = planned(world(FULL, minimum=3), members(2, 2))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NOT_WITHIN_MIN


def test_nobody_is_pushed_below_its_min() -> None:
    # 8 are used; 7 of them are borrowed, and 4 pods of 2 would leave nothing.
    of = replace(world(FULL, minimum=8), minimums={"shop": {"cpu": 8000}, "batch": {"cpu": 1000}})
    plan = planned(of, members(4, 2))
    assert isinstance(plan, NoPlan)
    assert len(names(planned(of, members(3, 2)))) == 3


def test_what_the_cohort_lacks_is_freed_too() -> None:
    # Node b is free, but all quotas together may use 4 cores.
    pods = [running("a1", "a", 2), running("a2", "a", 2)]
    assert names(planned(world(pods, cohort=5), members(1, 3))) == {"a1"} or names(
        planned(world(pods, cohort=5), members(1, 3))
    ) == {"a2"}
    plan = planned(world(pods, cohort=7), members(1, 3))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.NOT_NEEDED


def test_a_budget_is_in_the_way() -> None:
    budget = DisruptionBudget(
        namespace="batch", name="pdb", selector=LabelSelector(), disruptions_allowed=1
    )
    plan = planned(replace(world(FULL), budgets=[budget]), members(2, 2))
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.BLOCKED_BY_PDB
    assert len(names(planned(replace(world(FULL), budgets=[budget]), members(1, 2)))) == 1
