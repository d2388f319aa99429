"""Plans that override budgets: where nothing else makes room, and as little as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from engine.eviction import (
    NoPlan,
    Plan,
    Reclaim,
    Situation,
    completed,
    plan_for_gang,
    plan_for_pod,
)
from engine.eviction.guards import GuardState, OwnerHits
from engine.model.decision import PlacementRequest
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.model.pod import Pod
from engine.model.pod_classes import PreemptionToleration, PriorityClass
from engine.model.selectors import LabelSelector, Operator, Requirement
from engine.model.time import SECOND, Micros
from engine.policy import CompiledPolicy, PolicySet
from tests.engine.eviction import promises
from tests.engine.eviction.test_gang_search import members, needy
from tests.engine.eviction.worlds import (
    GANG_LABEL,
    OWN,
    ReclaimWorld,
    plan_reclaim,
    quota_key,
    running,
    worlds,
)
from tests.engine.measured_cluster import NOW, node

_X = {"app": "x"}
_Y = {"app": "y"}
_ANYWHERE = PolicySet([CompiledPolicy(name="anywhere")])


def hard(
    request: PlacementRequest, quotas: tuple[QuotaKey, ...], situation: Situation
) -> Plan | NoPlan:
    """Return a plan of reclaim, of a quota that asks for Hard."""
    strategy = Reclaim(quotas, overrides_budgets=True)
    return completed(plan_for_pod(request, strategy, situation))


def _budget(allowed: int = 0, name: str = "pdb", app: str = "x") -> DisruptionBudget:
    selector = LabelSelector((Requirement("app", Operator.IN, frozenset({app})),))
    return DisruptionBudget(
        namespace="batch", name=name, selector=selector, disruptions_allowed=allowed
    )


def _world(
    pods: Sequence[Pod],
    cpu: int = 2,
    *,
    nodes: Sequence[str] = ("a", "b"),
    size: int = 2,
    cohort: int = 100,
    budgets: Sequence[DisruptionBudget] = (_budget(),),
) -> ReclaimWorld:
    """Return nodes of some cores with pods of `batch`, whose min is nothing."""
    return ReclaimWorld(
        nodes=[node(name, cpu=str(size), memory="64Gi", pods="20") for name in nodes],
        pods=pods,
        preemptor=running("preemptor", "", cpu, namespace=OWN),
        minimums={OWN: {"cpu": 50_000}, "batch": {}},
        cohort={"cpu": cohort * 1000},
        policies=_ANYWHERE,
        budgets=budgets,
    )


def _plan(world: ReclaimWorld) -> tuple[str, ...]:
    """Return how a plan is, its node and the names of its victims; the reason for no plan."""
    plan = hard(world.request, world.quotas, world.situation())
    if isinstance(plan, NoPlan):
        return (plan.reason,)
    names = sorted(victim.key.partition("/")[2] for victim in plan.victims)
    return "overrides" if plan.overrides_budgets else "keeps", plan.node_name, *names


@given(world=worlds())
def test_budgets_are_kept_wherever_a_plan_can(world: ReclaimWorld) -> None:
    kept = plan_reclaim(world.request, world.quotas, world.situation())
    plan = hard(world.request, world.quotas, world.situation())
    if isinstance(kept, Plan):
        assert plan == kept
    elif isinstance(plan, Plan):
        assert plan.overrides_budgets
        assert kept.reason == "BlockedByPDB"
        assert not promises.are_within_budgets(world, promises.victims_in(world, plan))


@given(world=worlds())
def test_all_but_budgets_holds_as_ever(world: ReclaimWorld) -> None:
    for promise in promises.OF_RECLAIM:
        if promise not in {promises.budgets_hold, promises.one_pod_that_makes_room_is_found}:
            promise(world, hard)


def test_a_pod_without_a_budget_goes_though_it_is_more_important() -> None:
    pods = [running("a1", "a", 2, labels=_X), running("b1", "b", 2, priority=100)]
    assert _plan(_world(pods)) == ("keeps", "b", "b1")


def test_protected_pods_go_where_nothing_else_helps() -> None:
    pods = [running("a1", "a", 2, labels=_X), running("b1", "b", 2, labels=_X, priority=100)]
    assert _plan(_world(pods)) == ("overrides", "a", "a1")
    world = _world(pods)
    plan = hard(world.request, world.quotas, world.situation())
    assert plan.message.endswith("no other plan keeps to PodDisruptionBudgets")


def test_pods_of_two_budgets_go_too() -> None:
    pods = [running("a1", "a", 2, labels=_X), running("b1", "b", 2, labels=_X)]
    budgets = [_budget(5), _budget(5, "other")]
    assert _plan(_world(pods, budgets=budgets)) == ("overrides", "a", "a1")


def test_the_node_with_the_fewest_violations_wins() -> None:
    pods = [
        running("a1", "a", 1, labels=_X),
        running("a2", "a", 1, labels=_X),
        running("b1", "b", 1, labels=_X, priority=100),
        running("b2", "b", 1, priority=100),
    ]
    assert _plan(_world(pods)) == ("overrides", "b", "b1", "b2")


def test_what_a_budget_allows_is_no_violation() -> None:
    pods = [
        running("a1", "a", 1, labels=_X),
        running("a2", "a", 1, labels=_X),
        running("b1", "b", 1, labels=_X, priority=100),
        running("b2", "b", 1, labels=_Y, priority=100),
    ]
    budgets = [_budget(1), _budget(0, "y", "y")]
    # Of node a one violates the budget, of node b one the other: the priority decides.
    assert _plan(_world(pods, budgets=budgets)) == ("overrides", "a", "a1", "a2")
    # Now node b violates none.
    loose = [budgets[0], replace(budgets[1], disruptions_allowed=1)]
    assert _plan(_world(pods, budgets=loose)) == ("keeps", "b", "b1", "b2")


def test_each_budget_is_violated_by_its_first_pod_beyond_it() -> None:
    pods = [
        running("a1", "a", 1, labels=_X),
        running("a2", "a", 1, labels=_Y),
        running("b1", "b", 1, labels=_X, priority=100),
        running("b2", "b", 1, priority=100),
    ]
    assert _plan(_world(pods, budgets=[_budget(), _budget(0, "y", "y")]))[1:] == ("b", "b1", "b2")


@pytest.mark.parametrize("cohort", [100, 4])
def test_pods_beyond_what_a_budget_allows_go_last(cohort: int) -> None:
    pods = [
        *(running(f"x{number}", "a", 1, labels=_X, age=9 - number) for number in range(3)),
        running("free", "a", 1, priority=100),
    ]
    # Three of the four go. On the node or in the cohort: the budget allows one of its three.
    world = _world(pods, 3, nodes=["a"], size=4, budgets=[_budget(1)])
    if cohort < 100:
        world = _world(pods, 3, nodes=["a", "b"], size=9, cohort=cohort, budgets=[_budget(1)])
    assert _plan(world)[2:] == ("free", "x1", "x2")


def test_on_a_node_protected_pods_are_spared_first() -> None:
    pods = [
        running("new", "a", 1, labels=_X, age=400),
        running("old", "a", 1, labels=_X, priority=50),
        running("free", "a", 1, priority=100),
        running("guard", "b", 3, labels=_X, priority=200),
    ]
    # Two of the three go: the one without a budget, and the less important of the others.
    assert _plan(_world(pods, size=3)) == ("overrides", "a", "free", "new")


def test_in_the_cohort_protected_pods_go_last() -> None:
    pods = [
        running("a1", "a", 1, labels=_X),
        running("a2", "a", 2, labels=_X, priority=50),
        running("a3", "a", 1, priority=100),
    ]
    world = _world(pods, 2, nodes=["a", "b"], size=9, cohort=4)
    assert _plan(world)[2:] == ("a1", "a3")
    # One violation is enough: the pod that is not needed then is spared.
    world = _world(pods, 3, nodes=["a", "b"], size=9, cohort=4)
    assert _plan(world)[2:] == ("a2", "a3")


@pytest.mark.parametrize(
    ("pod", "change"),
    [
        (running("a1", "a", 2, labels=_X, priority=2_000_000_000), {}),
        (running("a1", "a", 2, labels=_X, kind="DaemonSet", owner="set"), {}),
        (
            running(
                "a1", "a", 2, labels={**_X, "quota.scheduling.koordinator.sh/preemptible": "false"}
            ),
            {},
        ),
        (
            running("a1", "a", 2, labels=_X, priority_class="patient"),
            {
                "classes": {
                    "patient": PriorityClass(
                        name="patient",
                        toleration=PreemptionToleration(100, -1),
                        is_preempting=True,
                    )
                }
            },
        ),
        (
            running("a1", "a", 2, labels=_X, owner="set", age=1),
            {"guards": GuardState(owners={"set": OwnerHits(Micros(NOW - 2 * SECOND))})},
        ),
        (running("a1", "a", 2, labels=_X), {"at_limit": frozenset({"batch"})}),
        (
            running("a1", "a", 2, labels=_X),
            {"minimums": {OWN: {"cpu": 50_000}, "batch": {"cpu": 1}}},
        ),
    ],
)
def test_whatever_else_protects_a_pod_holds(pod: Pod, change: dict[str, Any]) -> None:
    world = replace(_world([pod], nodes=["a"]), **change)
    plan = hard(world.request, world.quotas, world.situation())
    assert isinstance(plan, NoPlan)


def test_a_gang_of_victims_goes_as_a_whole() -> None:
    gang = {**_X, GANG_LABEL: "gang"}
    pods = [running("a1", "a", 2, labels=gang), running("b1", "b", 2, labels=gang)]
    world = replace(_world(pods), gangs=frozenset({"gang"}))
    assert _plan(world) == ("overrides", "a", "a1", "b1")


def test_gangs_of_victims_without_a_budget_go_first() -> None:
    pods = [
        running("a1", "a", 1, labels={**_X, GANG_LABEL: "x"}),
        running("a2", "a", 1, labels={**_X, GANG_LABEL: "x"}),
        running("b1", "b", 1, labels={GANG_LABEL: "y"}, priority=100),
        running("b2", "b", 1, labels={GANG_LABEL: "y"}, priority=100),
    ]
    world = replace(_world(pods), gangs=frozenset({"x", "y"}))
    assert _plan(world) == ("keeps", "b", "b1", "b2")


def test_of_gangs_that_must_go_together_protected_ones_are_spared_first() -> None:
    pods = [
        running(f"{gang}{number}", "a", 1, labels={**app, GANG_LABEL: gang}, priority=priority)
        for gang, app, priority in (("low", _X, 0), ("mid", _X, 50), ("free", {}, 100))
        for number in range(2)
    ]
    world = _world(pods, 4, nodes=["a"], size=6)
    world = replace(world, gangs=frozenset({"low", "mid", "free"}))
    assert _plan(world) == ("overrides", "a", "free0", "free1", "low0", "low1")


def test_room_is_made_for_a_gang_as_for_a_pod() -> None:
    pods = [running("a1", "a", 2, labels=_X), running("b1", "b", 2, labels=_X)]
    world = _world(pods)
    plans = [
        completed(
            plan_for_gang(
                [needy(members(2, 2))],
                Reclaim((quota_key(OWN),), overrides_budgets=overrides),
                world.situation(),
            )
        )
        for overrides in (False, True)
    ]
    assert isinstance(plans[0], NoPlan)
    assert plans[0].reason == "BlockedByPDB"
    assert isinstance(plans[1], Plan)
    assert plans[1].overrides_budgets
    assert {victim.key for victim in plans[1].victims} == {"batch/a1", "batch/b1"}
