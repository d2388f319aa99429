"""Worlds in which one plan is right, each with the reason: what the order of victims means.

Each takes the planner to check, so that broken copies of it can be shown to break an example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from engine.eviction import WorkloadKey
from engine.eviction.guards import Failures, GuardState, OwnerHits
from engine.model.disruption_budget import DisruptionBudget
from engine.model.pod import Pod
from engine.model.pod_classes import PreemptionToleration, PriorityClass
from engine.model.selectors import LabelSelector
from engine.model.time import SECOND, Micros
from engine.policy import CompiledPolicy, PolicySet
from tests.engine.eviction.promises import Planner
from tests.engine.eviction.worlds import GANG_LABEL, OWN, ReclaimWorld, running
from tests.engine.measured_cluster import NOW, node, seconds_ago
from tests.engine.policy.worlds import policy

_IN_GANG = {GANG_LABEL: "gang"}
_OTHER_GANG = {GANG_LABEL: "other"}
_ANYWHERE = PolicySet([CompiledPolicy(name="anywhere")])
_FEW = PolicySet([policy("filters: [{name: few, expression: node.podCount < 2}]\n", "few")])


def _world(
    pods: Sequence[Pod],
    cpu: int = 2,
    *,
    nodes: Sequence[str] = ("a", "b"),
    size: int = 4,
    cohort: int = 100,
    **more: Any,  # noqa: ANN401 (any further field of a world)
) -> ReclaimWorld:
    """Return nodes of some cores with pods of `batch` and `etl`, which have a `min` of 1 core."""
    return ReclaimWorld(
        nodes=[node(name, cpu=str(size), memory="64Gi", pods="20") for name in nodes],
        pods=pods,
        preemptor=running("preemptor", "", cpu, namespace=OWN),
        minimums={OWN: {"cpu": 50_000}, "batch": {"cpu": 1000}, "etl": {"cpu": 1000}},
        cohort={"cpu": cohort * 1000},
        policies=_ANYWHERE,
        **more,
    )


def _victims(world: ReclaimWorld, planner: Planner) -> tuple[str, ...]:
    """Return the node and the names of the victims; the reason where there is no plan."""
    plan = planner(world.request, world.quotas, world.situation())
    if not hasattr(plan, "victims"):
        return (str(plan.reason),)
    return plan.node_name, *(victim.key.partition("/")[2] for victim in plan.victims)


def the_highest_share_first(planner: Planner) -> None:
    """batch borrows 5 cores and etl 1, so batch gives, though its pod is the more important."""
    pods = [
        running("e", "a", 2, namespace="etl"),
        running("x", "a", 2, priority=10),
        running("y", "b", 4, priority=90),
    ]
    world = _world(pods)
    world = replace(world, minimums={**world.minimums, "etl": {}})
    assert _victims(world, planner) == ("a", "x")


def then_the_lowest_priority(planner: Planner) -> None:
    """Of one quota."""
    pods = [running("old", "a", 2, priority=10), running("low", "a", 2, age=9000)]
    assert _victims(_world(pods, nodes=["a"]), planner) == ("a", "low")


def then_the_newest(planner: Planner) -> None:
    """Of one quota and priority."""
    pods = [running("new", "a", 2, age=400), running("old", "a", 2, age=9000)]
    assert _victims(_world(pods, nodes=["a"]), planner) == ("a", "new")


def the_node_whose_highest_priority_is_lowest(planner: Planner) -> None:
    """Two victims of priority 1 on b cost less than one of 2 on a."""
    pods = [
        running("a1", "a", 4, priority=2),
        running("b1", "b", 2, priority=1),
        running("b2", "b", 2, priority=1),
    ]
    assert _victims(_world(pods, 4), planner) == ("b", "b1", "b2")


def then_the_node_with_the_fewest_victims(planner: Planner) -> None:
    """At equal priority."""
    pods = [running("a1", "a", 2), running("a2", "a", 2), running("b1", "b", 4)]
    assert _victims(_world(pods, 4), planner) == ("b", "b1")


def then_the_first_name(planner: Planner) -> None:
    """At equal cost."""
    pods = [running("on-b", "b", 4), running("on-a", "a", 4)]
    assert _victims(_world(pods, 4, nodes=["b", "a"]), planner) == ("a", "on-a")


def a_node_of_protected_pods_is_passed_over(planner: Planner) -> None:
    """No budget is violated, whatever else costs more."""
    labels = {"app": "x"}
    pods = [running("a1", "a", 4, labels=labels), running("b1", "b", 4, priority=50)]
    budget = DisruptionBudget(
        namespace="batch", name="pdb", selector=LabelSelector(), disruptions_allowed=0
    )
    other = replace(budget, namespace="etl")
    assert _victims(_world(pods, 4, budgets=[other]), planner) == ("a", "a1")
    assert _victims(_world(pods, 4, budgets=[budget]), planner) == ("BlockedByPDB",)


def room_in_the_cohort_takes_one_pod_that_is_enough(planner: Planner) -> None:
    """A node is free, but not the cohort: one pod of 2 cores rather than two of 1."""
    pods = [
        running("small", "a", 1),
        running("small-2", "a", 1),
        running("large", "b", 2, priority=9),
    ]
    assert _victims(_world(pods, 2, size=8, cohort=4), planner)[1:] == ("large",)


def a_node_and_the_cohort_take_pods_of_two_nodes(planner: Planner) -> None:
    """The pod of a is in the way, and that of b takes of the cohort."""
    pods = [running("a1", "a", 2), running("a2", "a", 2, namespace="free"), running("b1", "b", 4)]
    world = _world(pods, 4, cohort=4)
    world = replace(world, minimums={**world.minimums, "batch": {}})
    assert _victims(world, planner) == ("b", "b1", "a1")


def pods_on_the_node_that_the_cohort_takes_spare_others(planner: Planner) -> None:
    """For the node a1 is enough and for the cohort a2 is needed too, which makes a1 unneeded."""
    pods = [
        running("a1", "a", 1, namespace="etl"),
        running("a2", "a", 3, priority=9),
        running("b1", "b", 4, namespace="free"),
    ]
    world = _world(pods, 1, cohort=2)
    world = replace(world, minimums={**world.minimums, "batch": {}, "etl": {}})
    assert _victims(world, planner) == ("a", "a2")


def pods_that_leave_make_room(planner: Planner) -> None:
    """Nothing more is evicted where pods that are evicted already make room."""
    pods = [running("a1", "a", 4), running("b1", "b", 4)]
    assert _victims(_world(pods, 4, leaving=frozenset({"b1"})), planner) == ("NotNeeded",)


def room_that_leaves_is_not_borrowed(planner: Planner) -> None:
    """Once a1 is gone batch uses its `min` alone: etl gives, though it borrows less now."""
    pods = [
        running("a1", "a", 3),
        running("a2", "a", 1, namespace="free"),
        running("b1", "b", 1),
        running("b2", "b", 2, namespace="etl"),
        running("b3", "b", 1, namespace="etl", priority=9),
    ]
    world = _world(pods, 3, leaving=frozenset({"a1"}), cohort=5)
    assert _victims(world, planner)[1:] == ("b2",)


def a_min_holds_against_several_pods(planner: Planner) -> None:
    """batch uses 4 and keeps 2, so one of them may go, but not both."""
    world = _world([running("a1", "a", 2), running("a2", "a", 2)], 4, nodes=["a"])
    world = replace(world, minimums={**world.minimums, "batch": {"cpu": 2000}})
    assert _victims(world, planner) == ("NoVictims",)


def a_budget_holds_against_several_pods(planner: Planner) -> None:
    """It allows one eviction, and two are needed."""
    budget = DisruptionBudget(
        namespace="batch", name="pdb", selector=LabelSelector(), disruptions_allowed=1
    )
    pods = [running("a1", "a", 2), running("a2", "a", 2), running("b1", "b", 3)]
    world = _world(pods, 4, nodes=["a"], budgets=[budget])
    assert _victims(world, planner) == ("BlockedByPDB",)


def pods_that_have_just_started_go(planner: Planner) -> None:
    """What a quota is guaranteed does not wait until others have used it for a while."""
    world = _world([running("a1", "a", 4, age=1), running("b1", "b", 4, age=2)], 4)
    assert _victims(world, planner) == ("a", "a1")


def owners_rest_for_pods_that_came_back(planner: Planner) -> None:
    """For a minute from the first eviction; a pod that ran before it may go at any time."""
    pods = [running("a1", "a", 4, owner="set", age=20), running("b1", "b", 4, owner="set")]
    world = _world(pods, 4)
    for seconds, expected in ((10, ("a", "a1")), (59, ("b", "b1")), (60, ("a", "a1"))):
        guards = GuardState(owners={"set": OwnerHits(seconds_ago(seconds))})
        assert _victims(replace(world, guards=guards), planner) == expected
    guards = GuardState(owners={"set": OwnerHits(seconds_ago(59))})
    back = replace(world, pods=[running(f"{on}1", on, 4, owner="set", age=20) for on in "ab"])
    assert _victims(replace(back, guards=guards), planner) == ("Guarded",)


def namespaces_at_their_limit_wait(planner: Planner) -> None:
    """Others give meanwhile, though they borrow less."""
    pods = [running("a1", "a", 4, namespace="etl"), running("b1", "b", 3), running("c1", "c", 4)]
    world = replace(_world(pods, 3, nodes=["a", "b", "c"]), at_limit=frozenset({"batch"}))
    world = replace(world, minimums={**world.minimums, "etl": {}})
    assert _victims(world, planner) == ("a", "a1")
    both = replace(world, at_limit=frozenset({"batch", "etl"}))
    assert _victims(both, planner) == ("AtLimit",)


def ready_pods_of_exhausted_workloads_stay(planner: Planner) -> None:
    """Those that are not ready go, and so do those of others, though they are more important."""
    pods = [
        running("db-0", "a", 4, owner="db", kind="StatefulSet"),
        running("db-1", "b", 4, owner="db", kind="StatefulSet"),
        running("c1", "c", 4, priority=10),
    ]
    ready = [structs.replace(pods[0], is_ready=True), structs.replace(pods[1], is_ready=True)]
    db = frozenset({WorkloadKey("StatefulSet", "batch", "db")})
    world = _world(pods, 4, nodes=["a", "b", "c"])
    assert _victims(replace(world, pods=[*ready, pods[2]]), planner) == ("a", "db-0")
    world = replace(world, exhausted=db)
    assert _victims(replace(world, pods=[*ready, pods[2]]), planner) == ("c", "c1")
    assert _victims(replace(world, pods=[ready[0], *pods[1:]]), planner) == ("b", "db-1")
    full = replace(_world(ready, 4), exhausted=db)
    assert _victims(full, planner) == ("Guarded",)


def classes_may_tolerate_it(planner: Planner) -> None:
    """For ten minutes, as long as the pod that needs room has less than priority 100."""
    pods = [running(f"{on}1", on, 4, age=500, priority_class="patient") for on in ("a", "b")]
    patient = PriorityClass(
        name="patient", toleration=PreemptionToleration(100, 600), is_preempting=True
    )
    world = replace(_world(pods, 4), classes={"patient": patient})
    assert _victims(world, planner) == ("Guarded",)
    assert _victims(replace(world, now=Micros(NOW + 100 * SECOND)), planner) == ("a", "a1")
    urgent = replace(world, preemptor=running("preemptor", "", 4, namespace=OWN, priority=100))
    assert _victims(urgent, planner) == ("a", "a1")
    assert _victims(replace(world, classes={}), planner) == ("Guarded",)  # who knows


def what_runs_the_cluster_stays(planner: Planner) -> None:
    """Pods of DaemonSets, and those of system priority."""
    pods = [
        running("a1", "a", 4, owner="set", kind="DaemonSet"),
        running("b1", "b", 4, priority=10**9),
    ]
    assert _victims(_world(pods, 4), planner) == ("NoVictims",)


def filters_of_policies_hold(planner: Planner) -> None:
    """On a two pods would be left, which the policy does not want."""
    pods = [
        running("a1", "a", 2),
        running("a2", "a", 1, namespace="free"),
        running("a3", "a", 1, namespace="free"),
        running("b1", "b", 4, priority=9),
    ]
    assert _victims(replace(_world(pods), policies=_FEW), planner) == ("b", "b1")


def whoever_is_not_needed_in_the_cohort_is_spared(planner: Planner) -> None:
    """4 cores are needed: the first in order, of 1 core, does not help where two of 2 do."""
    pods = [
        running("x1", "a", 1),
        running("x2", "a", 2, priority=1),
        running("x3", "b", 2, priority=2),
    ]
    world = _world(pods, 1, size=8, cohort=2)
    world = replace(world, minimums={**world.minimums, "batch": {}})
    assert _victims(world, planner)[1:] == ("x2", "x3")


def guards_come_first(planner: Planner) -> None:
    """A pod whose plans failed waits, and so do all of a namespace for which reclaim pauses."""
    world = _world([running("a1", "a", 4), running("b1", "b", 4)], 4)
    failed = GuardState(failures={"uid-preemptor": Failures(2, seconds_ago(100))})
    assert _victims(replace(world, guards=failed), planner) == ("BackedOff",)
    paused = GuardState(pauses={OWN: NOW + 1})
    assert _victims(replace(world, guards=paused), planner) == ("Paused",)
    others = GuardState(pauses={"etl": NOW + 1})
    assert _victims(replace(world, guards=others), planner) == ("a", "a1")


def beyond_its_min_a_pod_takes_nothing(planner: Planner) -> None:
    """It would borrow itself."""
    world = _world([running("a1", "a", 4), running("b1", "b", 4)], 4)
    world = replace(world, minimums={**world.minimums, OWN: {"cpu": 3000}})
    assert _victims(world, planner) == ("NotWithinMin",)


def gangs_go_last_and_as_a_whole(planner: Planner) -> None:
    """The single pod goes, though more important; the gang only where nothing else helps."""
    gang = [running(name, name, 4, labels=_IN_GANG) for name in ("a", "b")]
    single = running("single", "c", 4, priority=9)
    world = _world([*gang, single], 4, nodes=["a", "b", "c"], gangs=frozenset({"gang"}))
    assert _victims(world, planner) == ("c", "single")
    alone = _world(gang, 4, gangs=frozenset({"gang"}))
    alone = replace(alone, minimums={**alone.minimums, "batch": {}})
    assert _victims(alone, planner) == ("a", "a", "b")
    labelled = replace(alone, gangs=frozenset())  # without a PodGroup they are no gang
    assert _victims(labelled, planner) == ("a", "a")


def a_gang_goes_where_the_cohort_alone_has_no_room(planner: Planner) -> None:
    """Both nodes have room; the smallest gang goes, though that of three is newer."""
    gang = [running(f"g{on}", on, 2, labels=_IN_GANG) for on in ("a", "b")]
    large = [running(f"h{i}", "a", 2, labels=_OTHER_GANG, age=400) for i in range(3)]
    world = _world([*large, *gang], 2, size=8, cohort=10, gangs=frozenset({"gang", "other"}))
    world = replace(world, minimums={**world.minimums, "batch": {}})
    assert _victims(world, planner)[1:] == ("ga", "gb")


def of_a_gang_and_a_pod_the_gang_is_enough(planner: Planner) -> None:
    """The single pod frees a core, the member 3, which is what is wanted."""
    gang = [running("a1", "a", 3, labels=_IN_GANG), running("b1", "b", 4, labels=_IN_GANG)]
    world = _world([*gang, running("single", "a", 1)], 3, gangs=frozenset({"gang"}))
    world = replace(world, minimums={**world.minimums, "batch": {}})
    assert _victims(world, planner) == ("a", "a1", "b1")


def the_gang_of_the_lowest_priority_goes(planner: Planner) -> None:
    """Of two on one node."""
    pods = [
        *(running(f"low{i}", "a", 1, labels=_IN_GANG, priority=1) for i in range(2)),
        *(running(f"high{i}", "a", 1, labels=_OTHER_GANG, priority=9) for i in range(2)),
    ]
    world = _world(pods, 2, nodes=["a"], gangs=frozenset({"gang", "other"}))
    assert sorted(_victims(world, planner)) == ["a", "low0", "low1"]


def a_min_and_a_budget_hold_for_a_gang_together(planner: Planner) -> None:
    """Each of two may go, but not both, so none does."""
    gang = [running(name, name, 4, labels=_IN_GANG) for name in ("a", "b")]
    world = _world(gang, 4, gangs=frozenset({"gang"}))
    assert _victims(world, planner) == ("NoVictims",)  # batch keeps a core
    free = replace(world, minimums={**world.minimums, "batch": {}})
    budget = DisruptionBudget(
        namespace="batch", name="pdb", selector=LabelSelector(), disruptions_allowed=1
    )
    assert _victims(replace(free, budgets=[budget]), planner) == ("BlockedByPDB",)
    back = [gang[0], running("b", "b", 4, labels=_IN_GANG, age=20, owner="set")]
    guards = GuardState(owners={"set": OwnerHits(seconds_ago(30))})
    assert _victims(replace(free, pods=back, guards=guards), planner) == ("Guarded",)


def a_gang_of_more_than_ten_stays(planner: Planner) -> None:
    """Guards never let more be on their way out."""
    pods = [running(f"a{i}", "a", 1, labels=_IN_GANG) for i in range(11)]
    for count, expected in ((11, "NoVictims"), (10, "a")):
        gangs = frozenset({"gang"})
        world = _world(pods[:count], 4, nodes=["a"], size=count, gangs=gangs)
        world = replace(world, minimums={**world.minimums, "batch": {}})
        assert _victims(world, planner)[0] == expected


EXAMPLES: tuple[Callable[[Planner], None], ...] = (
    the_highest_share_first,
    then_the_lowest_priority,
    then_the_newest,
    the_node_whose_highest_priority_is_lowest,
    then_the_node_with_the_fewest_victims,
    then_the_first_name,
    a_node_of_protected_pods_is_passed_over,
    room_in_the_cohort_takes_one_pod_that_is_enough,
    a_node_and_the_cohort_take_pods_of_two_nodes,
    pods_on_the_node_that_the_cohort_takes_spare_others,
    pods_that_leave_make_room,
    room_that_leaves_is_not_borrowed,
    a_min_holds_against_several_pods,
    a_budget_holds_against_several_pods,
    pods_that_have_just_started_go,
    owners_rest_for_pods_that_came_back,
    namespaces_at_their_limit_wait,
    ready_pods_of_exhausted_workloads_stay,
    classes_may_tolerate_it,
    what_runs_the_cluster_stays,
    filters_of_policies_hold,
    whoever_is_not_needed_in_the_cohort_is_spared,
    guards_come_first,
    beyond_its_min_a_pod_takes_nothing,
    gangs_go_last_and_as_a_whole,
    a_gang_goes_where_the_cohort_alone_has_no_room,
    of_a_gang_and_a_pod_the_gang_is_enough,
    the_gang_of_the_lowest_priority_goes,
    a_min_and_a_budget_hold_for_a_gang_together,
    a_gang_of_more_than_ten_stays,
)
