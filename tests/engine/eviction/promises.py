"""What is promised of every plan, checked against the cluster itself.

Each takes the planner to check, so that broken copies of it can be shown to break a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from engine.eviction import NoPlanReason, Plan
from engine.eviction.guards import LEAST_REST
from engine.model.pod import Pod
from engine.model.time import SECOND
from engine.pipeline import decide
from engine.view import counted_requests
from tests.engine.eviction.worlds import PreemptionWorld, ReclaimWorld, total, without

Planner: TypeAlias = Callable[..., Any]
"""`plan_reclaim` or `plan_preemption`, or that of a copy of the package."""

_AT_MOST = 10


def victims_in(world: ReclaimWorld, plan: Plan) -> list[Pod]:
    """Return the pods that a plan evicts."""
    pods = {each.key: each for each in world.pods}
    victims = [pods[victim.key] for victim in plan.victims]
    assert len({each.key for each in victims}) == len(victims)
    assert [victim.uid for victim in plan.victims] == [each.uid for each in victims]
    return victims


def planned(world: ReclaimWorld, planner: Planner) -> Plan | None:
    """Return the plan for a world, None if there is none."""
    plan = planner(world.request, world.quotas, world.situation())
    return plan if hasattr(plan, "victims") else None


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
        gone = [*world.leaving_pods, *victims_in(world, plan)]
        assert plan.node_name in nodes_for(world, gone)
        assert has_cohort_room(world, gone)


def no_victim_can_be_spared(world: ReclaimWorld, planner: Planner) -> None:
    """Without one of them, or a gang of them, there is no room on the node or in the cohort."""
    plan = planned(world, planner)
    if plan is None:
        return
    assert plan.victims
    gone = world.leaving_pods
    victims = victims_in(world, plan)
    for victim in victims:
        spared = {each.key for each in world.gang_of(victim)}
        others = [*gone, *(each for each in victims if each.key not in spared)]
        assert plan.node_name not in nodes_for(world, others) or not has_cohort_room(world, others)


def nothing_is_evicted_where_there_is_room(world: ReclaimWorld, planner: Planner) -> None:
    """Room that there is, or will be once the pods that are leaving are gone, is used."""
    if has_room(world, world.leaving_pods):
        assert planned(world, planner) is None


def budgets_hold(world: ReclaimWorld, planner: Planner) -> None:
    """No budget loses more pods than it allows, and no pod of several budgets is evicted."""
    plan = planned(world, planner)
    if plan is not None:
        assert are_within_budgets(world, victims_in(world, plan))


def are_within_budgets(world: ReclaimWorld, victims: Sequence[Pod]) -> bool:
    of_budget = [
        [each for each in victims if budget.selects(each.namespace, each.labels)]
        for budget in world.budgets
    ]
    return all(
        len(lost) <= budget.disruptions_allowed
        for budget, lost in zip(world.budgets, of_budget, strict=True)
    ) and all(sum(each in lost for lost in of_budget) <= 1 for each in victims)


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


def no_quota_is_pushed_below_its_min(world: ReclaimWorld, planner: Planner) -> None:
    """Of no resource a quota has less than its `min` that had not before."""
    plan = planned(world, planner)
    if plan is None:
        return
    stay = without(world, [each.key for each in world.leaving_pods])
    left = without(stay, [victim.key for victim in plan.victims])
    for space, least in world.minimums.items():
        before, after = stay.used(space), left.used(space)
        for name, amount in least.items():
            assert after.get(name, 0) >= amount or before.get(name, 0) < amount


def victims_borrow(world: ReclaimWorld, planner: Planner) -> None:
    """Each runs above the `min` of another quota, and neither guards nor others protect it."""
    plan = planned(world, planner)
    if plan is None:
        return
    stay = without(world, [each.key for each in world.leaving_pods])
    wanted = counted_requests(world.preemptor.shape).keys() & world.minimums["shop"].keys()
    for each in victims_in(world, plan):
        assert each not in world.leaving_pods
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


def one_pod_that_makes_room_is_found(world: ReclaimWorld, planner: Planner) -> None:
    """Where the eviction of one pod would keep all these promises, there is a plan."""
    if any("memory" in least for least in world.minimums.values()):
        return  # pods are not larger or smaller than each other then
    gone = world.leaving_pods
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
    for promise in (no_quota_is_pushed_below_its_min, victims_borrow, budgets_hold):
        promise(world, planner)


class NodePlan:
    """A plan to evict one pod.

    Attributes:
        victims: that pod.
    """

    def __init__(self, key: str, uid: str) -> None:
        self.victims = (SimpleNamespace(key=key, uid=uid),)


def victims_are_of_lower_priority(world: PreemptionWorld, planner: Planner) -> None:
    """Each has a lower priority, and nothing protects it."""
    plan = planned(world, planner)
    if plan is None:
        return
    assert len(plan.victims) <= _AT_MOST
    for each in victims_in(world, plan):
        assert may_be_evicted(world, each)


def may_be_evicted(world: PreemptionWorld, each: Pod) -> bool:
    """Return whether a pod may be evicted by itself, quotas and budgets aside."""
    hits = world.guards.owners.get(each.owner_uid)
    assert each.scheduled_at is not None
    return (
        each not in world.leaving_pods
        and each.priority < world.preemptor.priority
        and not each.is_daemon_set
        and not _tolerates(world, each)
        and (
            hits is None
            or each.scheduled_at <= hits.since
            or world.now >= hits.since + LEAST_REST * (1 + hits.returns)
        )
    )


def _tolerates(world: PreemptionWorld, each: Pod) -> bool:
    """Say in other words what classes say: see `CLASSES`."""
    assert each.scheduled_at is not None
    if each.priority_class_name == "for-ever":
        return True
    is_young = world.now - each.scheduled_at < 4000 * SECOND
    return each.priority_class_name == "patient" and is_young


def no_quota_has_less_than_its_min(world: PreemptionWorld, planner: Planner) -> None:
    """Of what the victims request: it would be taken back."""
    plan = planned(world, planner)
    if plan is not None:
        assert _are_spare(world, victims_in(world, plan))


def _are_spare(world: PreemptionWorld, victims: Sequence[Pod]) -> bool:
    stay = [each for each in world.pods if each not in world.leaving_pods]
    for space, least in world.minimums.items():
        lost = [each for each in victims if each.namespace == space]
        left = replace(world, pods=[each for each in stay if each not in lost]).used(space)
        is_own = space == world.preemptor.namespace
        if lost and not is_own and left.get("cpu", 0) < least["cpu"]:
            return False
    return True


def two_pods_that_make_room_are_found(world: PreemptionWorld, planner: Planner) -> None:
    """Where the eviction of one or two single pods would keep all these promises, there is a plan.

    Its most important victim is no more important than theirs.
    """
    plan = planned(world, planner)
    if nodes_for(world, world.leaving_pods):
        return
    single = [each for each in world.pods if len(world.gang_of(each)) == 1]
    possible = [each for each in single if may_be_evicted(world, each)]
    for count in (1, 2) if plan is None else (1,):
        for victims in combinations(possible, count):
            if not (_are_spare(world, victims) and are_within_budgets(world, victims)):
                continue
            if nodes_for(world, [*world.leaving_pods, *victims]):
                assert plan is not None
                most = max(each.priority for each in victims)
                assert max(each.priority for each in victims_in(world, plan)) <= most


def who_is_in_the_way_is_said(world: PreemptionWorld, planner: Planner) -> None:
    """Where nobody is protected, no budget and no class is blamed."""
    free = replace(world, budgets=(), classes={**world.classes, "patient": world.classes["plain"]})
    free = replace(free, classes={**free.classes, "for-ever": world.classes["plain"]})
    plan = planner(free.request, (), free.situation())
    if not hasattr(plan, "victims"):
        assert plan.reason not in {NoPlanReason.BLOCKED_BY_PDB, NoPlanReason.TOLERATED}


_ALWAYS: tuple[Callable[[ReclaimWorld, Planner], None], ...] = (
    replayed_plans_fit,
    no_victim_can_be_spared,
    nothing_is_evicted_where_there_is_room,
    budgets_hold,
    gangs_run_as_a_whole_or_not,
    the_order_of_pods_does_not_matter,
)

OF_RECLAIM: tuple[Callable[[ReclaimWorld, Planner], None], ...] = (
    *_ALWAYS,
    no_quota_is_pushed_below_its_min,
    victims_borrow,
    one_pod_that_makes_room_is_found,
)

OF_PREEMPTION: tuple[Callable[[PreemptionWorld, Planner], None], ...] = (
    *_ALWAYS,
    victims_are_of_lower_priority,
    no_quota_has_less_than_its_min,
    two_pods_that_make_room_are_found,
    who_is_in_the_way_is_said,
)
