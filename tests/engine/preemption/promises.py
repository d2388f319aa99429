"""What is promised of every plan of preemption, checked against the cluster itself.

Each takes the planner to check, so that broken copies of it can be shown to break a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

from engine.model.pod import Pod
from engine.model.time import SECOND
from engine.reclaim import NoPlanReason, Plan
from engine.reclaim.guards import LEAST_REST
from tests.engine.preemption.worlds import PreemptionWorld
from tests.engine.reclaim.promises import (
    Planner,
    gangs_run_as_a_whole_or_not,
    nodes_for,
    victims_in,
)

_AT_MOST = 10


def planned(world: PreemptionWorld, planner: Planner) -> Plan | None:
    """Return the plan for a world, None if there is none."""
    quotas = world.quotas if world.preemptor.namespace in world.minimums else ()
    plan = planner(world.request, quotas, world.situation())
    return plan if hasattr(plan, "victims") else None


def leaving(world: PreemptionWorld) -> list[Pod]:
    """Return the pods that are leaving anyway."""
    return [each for each in world.pods if each.deleting or each.name in world.leaving]


def replayed_plans_fit(world: PreemptionWorld, planner: Planner) -> None:
    """With its victims gone, the node of a plan takes the pod."""
    plan = planned(world, planner)
    if plan is not None:
        assert plan.node_name in nodes_for(world, [*leaving(world), *victims_in(world, plan)])


def no_victim_can_be_spared(world: PreemptionWorld, planner: Planner) -> None:
    """Without any one of them, or any gang of them, there is no room on the node."""
    plan = planned(world, planner)
    if plan is None:
        return
    assert plan.victims
    victims = victims_in(world, plan)
    for victim in victims:
        spared = {each.key for each in world.gang_of(victim)}
        others = [each for each in victims if each.key not in spared]
        assert plan.node_name not in nodes_for(world, [*leaving(world), *others])


def nothing_is_evicted_where_there_is_room(world: PreemptionWorld, planner: Planner) -> None:
    """Room that there is, or will be once the pods that are leaving are gone, is used."""
    if nodes_for(world, leaving(world)):
        assert planned(world, planner) is None


def victims_may_be_evicted(world: PreemptionWorld, planner: Planner) -> None:
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
        each not in leaving(world)
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
    stay = [each for each in world.pods if each not in leaving(world)]
    for space, least in world.minimums.items():
        lost = [each for each in victims if each.namespace == space]
        left = replace(world, pods=[each for each in stay if each not in lost]).used(space)
        is_own = space == world.preemptor.namespace
        if lost and not is_own and left.get("cpu", 0) < least["cpu"]:
            return False
    return True


def budgets_hold(world: PreemptionWorld, planner: Planner) -> None:
    """No budget loses more pods than it allows, and no pod of several budgets is evicted."""
    plan = planned(world, planner)
    if plan is not None:
        assert _are_within_budgets(world, victims_in(world, plan))


def _are_within_budgets(world: PreemptionWorld, victims: Sequence[Pod]) -> bool:
    of_budget = [
        [each for each in victims if budget.selects(each.namespace, each.labels)]
        for budget in world.budgets
    ]
    return all(
        len(lost) <= budget.disruptions_allowed
        for budget, lost in zip(world.budgets, of_budget, strict=True)
    ) and all(sum(each in lost for lost in of_budget) <= 1 for each in victims)


def the_order_of_pods_does_not_matter(world: PreemptionWorld, planner: Planner) -> None:
    """The same cluster, seen in another order, gives the same plan."""
    plan = planned(world, planner)
    other = planned(replace(world, pods=world.pods[::-1], nodes=world.nodes[::-1]), planner)
    assert (plan is None) == (other is None)
    if plan is not None and other is not None:
        assert plan.node_name == other.node_name
        assert plan.victims == other.victims


def two_pods_that_make_room_are_found(world: PreemptionWorld, planner: Planner) -> None:
    """Where the eviction of one or two single pods would keep all these promises, there is a plan.

    Its most important victim is no more important than theirs.
    """
    plan = planned(world, planner)
    if nodes_for(world, leaving(world)):
        return
    single = [each for each in world.pods if len(world.gang_of(each)) == 1]
    possible = [each for each in single if may_be_evicted(world, each)]
    for count in (1, 2) if plan is None else (1,):
        for victims in combinations(possible, count):
            if not (_are_spare(world, victims) and _are_within_budgets(world, victims)):
                continue
            if nodes_for(world, [*leaving(world), *victims]):
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


PROMISES: tuple[Callable[[PreemptionWorld, Planner], None], ...] = (
    replayed_plans_fit,
    no_victim_can_be_spared,
    nothing_is_evicted_where_there_is_room,
    victims_may_be_evicted,
    gangs_run_as_a_whole_or_not,
    no_quota_has_less_than_its_min,
    budgets_hold,
    the_order_of_pods_does_not_matter,
    two_pods_that_make_room_are_found,
    who_is_in_the_way_is_said,
)
