"""What is promised of every plan of reclaim, checked against the cluster itself.

Each takes the planner to check, so that broken copies of it can be shown to break a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from engine.model.disruption_budget import DisruptionBudget
from engine.model.pod import Pod
from engine.pipeline import decide
from engine.reclaim import Plan, plan_reclaim
from engine.reclaim.guards import LEAST_REST
from engine.view import counted_requests
from tests.engine.reclaim.worlds import ReclaimWorld, total, without

Planner: TypeAlias = Callable[..., Any]
"""`plan_reclaim`, or a copy of it."""


def victims_in(world: ReclaimWorld, plan: Plan) -> list[Pod]:
    """Return the pods that a plan evicts."""
    pods = {each.key: each for each in world.pods}
    victims = [pods[victim.key] for victim in plan.victims]
    assert len({each.key for each in victims}) == len(victims)
    assert [victim.uid for victim in plan.victims] == [each.uid for each in victims]
    return victims


def planned(world: ReclaimWorld, planner: Planner = plan_reclaim) -> Plan | None:
    """Return the plan for a world, None if there is none."""
    plan = planner(world.request, world.quotas, world.situation())
    return plan if hasattr(plan, "victims") else None


def leaving(world: ReclaimWorld) -> list[Pod]:
    """Return the pods of quotas that are leaving anyway; others count until they are gone."""
    of_quotas = [each for each in world.pods if each.namespace in world.minimums]
    return [each for each in of_quotas if each.deleting or each.name in world.leaving]


def nodes_for(world: ReclaimWorld, gone: Sequence[Pod]) -> set[str]:
    """Return the nodes that would take the preemptor with some pods gone."""
    state = without(world, [each.key for each in gone]).state()
    view = state.view()
    decision = decide(world.request, world.policies, view, world.now)
    return {view.names[row] for row in decision.candidates}


def has_cohort_room(world: ReclaimWorld, gone: Sequence[Pod]) -> bool:
    """Return whether all quotas together may use what the preemptor requests, with some gone."""
    left = without(world, [each.key for each in gone]).pods
    used = total([each for each in left if each.namespace in world.minimums])
    wanted = counted_requests(world.preemptor.shape)
    return all(
        used.get(name, 0) + wanted[name] <= most
        for name, most in world.cohort.items()
        if wanted.get(name, 0) > 0
    )


def has_room(world: ReclaimWorld, gone: Sequence[Pod]) -> bool:
    """Return whether the preemptor has a node and room in the cohort, with some pods gone."""
    return has_cohort_room(world, gone) and bool(nodes_for(world, gone))


def replayed_plans_fit(world: ReclaimWorld, planner: Planner) -> None:
    """With its victims gone, the node of a plan takes the preemptor, and the cohort does."""
    plan = planned(world, planner)
    if plan is not None:
        gone = [*leaving(world), *victims_in(world, plan)]
        assert plan.node_name in nodes_for(world, gone)
        assert has_cohort_room(world, gone)


def no_quota_is_pushed_below_its_min(world: ReclaimWorld, planner: Planner) -> None:
    """Of no resource a quota has less than its `min` that had not before."""
    plan = planned(world, planner)
    if plan is None:
        return
    stay = without(world, [each.key for each in leaving(world)])
    left = without(stay, [victim.key for victim in plan.victims])
    for space, least in world.minimums.items():
        before, after = stay.used(space), left.used(space)
        for name, amount in least.items():
            assert after.get(name, 0) >= amount or before.get(name, 0) < amount


def no_victim_can_be_spared(world: ReclaimWorld, planner: Planner) -> None:
    """Without one of them, or a gang of them, there is no room on the node or in the cohort."""
    plan = planned(world, planner)
    if plan is None:
        return
    assert plan.victims
    gone = leaving(world)
    victims = victims_in(world, plan)
    for victim in victims:
        spared = {each.key for each in world.gang_of(victim)}
        others = [*gone, *(each for each in victims if each.key not in spared)]
        assert plan.node_name not in nodes_for(world, others) or not has_cohort_room(world, others)


def nothing_is_evicted_where_there_is_room(world: ReclaimWorld, planner: Planner) -> None:
    """Room that there is, or will be once the pods that are leaving are gone, is used."""
    if has_room(world, leaving(world)):
        assert planned(world, planner) is None


def victims_may_be_evicted(world: ReclaimWorld, planner: Planner) -> None:
    """Each runs above the `min` of another quota, and neither guards nor others protect it."""
    plan = planned(world, planner)
    if plan is None:
        return
    stay = without(world, [each.key for each in leaving(world)])
    wanted = counted_requests(world.preemptor.shape).keys() & world.minimums["shop"].keys()
    for each in victims_in(world, plan):
        assert each not in leaving(world)
        assert each.namespace in world.minimums
        assert each.namespace != world.preemptor.namespace
        assert each.priority < 10**9
        assert not each.is_daemon_set
        assert not each.is_mirror
        used, least = stay.used(each.namespace), world.minimums[each.namespace]
        assert any(used.get(name, 0) > least.get(name, 0) for name in wanted)
        assert each.scheduled_at is not None
        hits = world.guards.owners.get(each.owner_uid)
        if hits is not None and each.scheduled_at > hits.since:  # it came back
            assert world.now >= hits.since + LEAST_REST * (1 + hits.returns)


def budgets_hold(world: ReclaimWorld, planner: Planner) -> None:
    """No budget loses more pods than it allows, and no pod of several budgets is evicted."""
    plan = planned(world, planner)
    if plan is None:
        return
    victims = victims_in(world, plan)

    def protects(budget: DisruptionBudget, each: Pod) -> bool:
        return (
            budget.namespace == each.namespace
            and budget.selector is not None
            and budget.selector.matches(each.labels)
        )

    for budget in world.budgets:
        assert sum(protects(budget, each) for each in victims) <= budget.disruptions_allowed
    for each in victims:
        assert sum(protects(budget, each) for budget in world.budgets) <= 1


def gangs_run_as_a_whole_or_not(world: ReclaimWorld, planner: Planner) -> None:
    """Whose gang loses a pod loses them all."""
    plan = planned(world, planner)
    if plan is not None:
        victims = {each.key for each in victims_in(world, plan)}
        for each in victims_in(world, plan):
            assert {member.key for member in world.gang_of(each)} <= victims


def the_order_of_pods_does_not_matter(world: ReclaimWorld, planner: Planner) -> None:
    """The same cluster, seen in another order, gives the same plan."""
    plan = planned(world, planner)
    other = planned(replace(world, pods=world.pods[::-1], nodes=world.nodes[::-1]), planner)
    assert (plan is None) == (other is None)
    if plan is not None and other is not None:
        assert plan.node_name == other.node_name
        assert plan.victims == other.victims


def one_pod_that_makes_room_is_found(world: ReclaimWorld, planner: Planner) -> None:
    """Where the eviction of one pod would keep all these promises, there is a plan."""
    if any("memory" in least for least in world.minimums.values()):
        return  # pods are not larger or smaller than each other then
    gone = leaving(world)
    plan = planner(world.request, world.quotas, world.situation())
    if hasattr(plan, "victims") or plan.reason in {"NotWithinMin", "NotNeeded"}:
        return
    situation = world.situation()
    for candidate in situation.candidates:
        alone = NodePlan(candidate.pod.key, candidate.pod.uid)
        victim = next(each for each in world.pods if each.key == candidate.pod.key)
        if len(world.gang_of(victim)) > 1 or not has_room(world, [*gone, victim]):
            continue
        with pytest.raises(AssertionError):
            _may_all_be_evicted(world, lambda *_, alone=alone: alone)


def _may_all_be_evicted(world: ReclaimWorld, planner: Planner) -> None:
    for promise in (no_quota_is_pushed_below_its_min, victims_may_be_evicted, budgets_hold):
        promise(world, planner)


class NodePlan:
    """A plan to evict one pod.

    Attributes:
        victims: that pod.
    """

    def __init__(self, key: str, uid: str) -> None:
        self.victims = (SimpleNamespace(key=key, uid=uid),)


PROMISES: tuple[Callable[[ReclaimWorld, Planner], None], ...] = (
    replayed_plans_fit,
    no_quota_is_pushed_below_its_min,
    no_victim_can_be_spared,
    nothing_is_evicted_where_there_is_room,
    victims_may_be_evicted,
    budgets_hold,
    gangs_run_as_a_whole_or_not,
    the_order_of_pods_does_not_matter,
    one_pod_that_makes_room_is_found,
)
