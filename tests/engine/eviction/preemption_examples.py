"""Worlds in which one plan is right, each with the reason.

Each takes the planner to check, so that broken copies of it can be shown to break an example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from engine.eviction.guards import GuardState, OwnerHits
from engine.model.disruption_budget import DisruptionBudget
from engine.model.node import IMPLICIT_DOMAIN
from engine.model.pod_classes import PreemptionToleration, PriorityClass
from engine.model.selectors import LabelSelector
from tests.engine.eviction.promises import Planner
from tests.engine.eviction.worlds import GANG_LABEL, PreemptionWorld, quota_key, running, small
from tests.engine.measured_cluster import NOW, pod, seconds_ago

_IN_GANG = {GANG_LABEL: "gang"}
_OTHER_GANG = {GANG_LABEL: "other"}
_QUARTER = pod(requests={"cpu": "250m"}).shape
_BUDGET = DisruptionBudget(
    namespace="batch", name="pdb", selector=LabelSelector(), disruptions_allowed=0
)


def _victims(world: PreemptionWorld, planner: Planner) -> tuple[str, ...]:
    """Return the node and the names of the victims; the reason where there is no plan."""
    plan = planner(world.request, world.quotas, world.situation())
    if not hasattr(plan, "victims"):
        return (str(plan.reason),)
    return plan.node_name, *(victim.key.partition("/")[2] for victim in plan.victims)


def the_node_whose_highest_priority_is_lowest(planner: Planner) -> None:
    """Two victims of priority 1 on b cost less than one of 2 on a."""
    pods = [
        running("a1", "a", 4, priority=2),
        running("b1", "b", 2, priority=1),
        running("b2", "b", 2, priority=1),
    ]
    assert _victims(small(pods), planner) == ("b", "b1", "b2")


def the_lowest_priority_then_the_newest(planner: Planner) -> None:
    """Of the three on one node one is enough."""
    pods = [
        running("higher", "a", 1, priority=9, age=10),
        running("old", "a", 1, age=5000),
        running("new", "a", 1, age=4000),
    ]
    assert _victims(small(pods, 2, nodes=["a"]), planner) == ("a", "new")


def pods_of_its_priority_stay(planner: Planner) -> None:
    """50 is not lower than 50."""
    assert _victims(small([running("a1", "a", 4, priority=50)], nodes=["a"]), planner) == (
        "NoVictims",
    )


def gangs_go_last_and_as_a_whole(planner: Planner) -> None:
    """The single pod goes, though more important; the gang only where nothing else helps."""
    gang = [running(name, name, 4, labels=_IN_GANG) for name in ("a", "b")]
    single = running("single", "c", 4, priority=9)
    assert _victims(small([*gang, single], nodes=["a", "b", "c"]), planner) == ("c", "single")
    assert _victims(small(gang), planner) == ("a", "a", "b")
    labelled = replace(small(gang), gangs=frozenset())  # without a PodGroup they are no gang
    assert _victims(labelled, planner) == ("a", "a")


def of_a_gang_and_a_pod_the_gang_is_enough(planner: Planner) -> None:
    """The single pod frees a core, the member 3, which is what is wanted."""
    gang = [running("a1", "a", 3, labels=_IN_GANG), running("b1", "b", 4, labels=_IN_GANG)]
    pods = [*gang, running("single", "a", 1)]
    assert _victims(small(pods, 3), planner) == ("a", "a1", "b1")


def the_gang_of_the_lowest_priority_goes(planner: Planner) -> None:
    """Of two on one node."""
    pods = [
        *(running(f"low{i}", "a", 1, labels=_IN_GANG, priority=1) for i in range(2)),
        *(running(f"high{i}", "a", 1, labels=_OTHER_GANG, priority=9) for i in range(2)),
    ]
    world = replace(small(pods, 2, nodes=["a"]), gangs=frozenset({"gang", "other"}))
    assert _victims(world, planner) == ("a", "low0", "low1")


def a_budget_holds_for_a_gang_together(planner: Planner) -> None:
    """One of two may go, so none does."""
    gang = [running(name, name, 4, labels=_IN_GANG) for name in ("a", "b")]
    world = replace(small(gang), budgets=[replace(_BUDGET, disruptions_allowed=1)])
    assert _victims(world, planner) == ("BlockedByPDB",)


def what_runs_the_cluster_stays(planner: Planner) -> None:
    """Pods of DaemonSets."""
    pods = [running("a1", "a", 4, owner="set", kind="DaemonSet")]
    assert _victims(small(pods, nodes=["a"]), planner) == ("NoVictims",)


def a_gang_of_which_one_must_stay_stays(planner: Planner) -> None:
    """A member tolerates preemption, or is too important, so all stay."""
    first, second = (running(name, name, 4, labels=_IN_GANG) for name in ("a", "b"))
    tolerating = running("b", "b", 4, labels=_IN_GANG, priority_class="for-ever")
    assert _victims(small([first, tolerating]), planner) == ("Tolerated",)
    important = running("b", "b", 4, labels=_IN_GANG, priority=60)
    assert _victims(small([first, important]), planner) == ("NoVictims",)
    assert _victims(small([first, second]), planner)[0] == "a"


def a_class_tolerates_for_its_seconds(planner: Planner) -> None:
    """`patient` tolerates 50 for 4,000 seconds."""
    world = small([running("a1", "a", 4, age=3999, priority_class="patient")], nodes=["a"])
    assert _victims(world, planner) == ("Tolerated",)
    later = small([running("a1", "a", 4, age=4000, priority_class="patient")], nodes=["a"])
    assert _victims(later, planner) == ("a", "a1")


def a_class_that_never_preempts_does_not(planner: Planner) -> None:
    """Unless it says that it does while its pods are held."""
    world = small([running("a1", "a", 4)], nodes=["a"])
    never = msgspec.structs.replace(
        world.preemptor, preemption_policy="Never", priority_class_name="never"
    )
    classes = {
        preempts: PriorityClass(
            name="never", toleration=PreemptionToleration(51), is_preempting=preempts
        )
        for preempts in (False, True)
    }
    world = replace(world, preemptor=never, classes={"never": classes[False]})
    assert _victims(world, planner) == ("NeverPreempts",)
    assert _victims(replace(world, classes={}), planner) == ("NeverPreempts",)
    assert _victims(replace(world, classes={"never": classes[True]}), planner) == ("a", "a1")


def a_budget_is_a_veto(planner: Planner) -> None:
    """Upstream would rather violate it than not preempt."""
    pods = [running("a1", "a", 4), running("b1", "b", 4, priority=40, namespace="etl")]
    assert _victims(replace(small(pods), budgets=[_BUDGET]), planner) == ("b", "b1")
    both = [_BUDGET, replace(_BUDGET, namespace="etl")]
    assert _victims(replace(small(pods), budgets=both), planner) == ("BlockedByPDB",)


def a_min_stays(planner: Planner) -> None:
    """Batch needs 4 cores for its `min`, so etl gives; the quota of the pod itself may shrink."""
    pods = [running("a1", "a", 4), running("b1", "b", 4, priority=40, namespace="etl")]
    world = replace(small(pods), minimums={"batch": {"cpu": 4000}})
    assert _victims(world, planner) == ("b", "b1")
    below = replace(world, minimums={"batch": {"cpu": 9000}, "etl": {"cpu": 9000}})
    assert _victims(below, planner) == ("NoVictims",)
    own = small([running("a1", "a", 4, namespace="shop")], nodes=["a"])
    assert _victims(replace(own, minimums={"shop": {"cpu": 9000}}), planner) == ("a", "a1")


def a_quota_that_is_not_known_takes_no_part(planner: Planner) -> None:
    """As one of a namespace that does not queue: nothing guarantees its `min`."""
    world = small([running("a1", "a", 4)], nodes=["a"])
    situation = world.situation()
    (candidate,) = situation.candidates
    counted = msgspec.structs.replace(candidate, quotas=(quota_key("batch"),))
    plan = planner(world.request, (), replace(situation, candidates=[counted]))
    assert [victim.key for victim in plan.victims] == ["batch/a1"]


def owners_rest_for_pods_that_came_back(planner: Planner) -> None:
    """For a minute from the first eviction."""
    world = small([running("a1", "a", 4, owner="set", age=20)], nodes=["a"])
    guards = GuardState(owners={"set": OwnerHits(seconds_ago(40))})
    assert _victims(replace(world, guards=guards), planner) == ("Guarded",)
    assert _victims(world, planner) == ("a", "a1")


def guards_come_first(planner: Planner) -> None:
    """Nobody is evicted for a namespace while evictions for it pause."""
    world = small([running("a1", "a", 4)], nodes=["a"])
    paused = GuardState(pauses={world.preemptor.namespace: NOW + 1})
    assert _victims(replace(world, guards=paused), planner) == ("Paused",)


def pods_that_leave_make_room(planner: Planner) -> None:
    """Whoever their quota and their priority."""
    pods = [running("a1", "a", 4, priority=90), running("b1", "b", 4)]
    world = replace(small(pods), leaving=frozenset({"a1"}))
    assert _victims(world, planner) == ("NotNeeded",)


def no_more_than_ten_go(planner: Planner) -> None:
    """Guards never let more be on their way out."""
    pods = [msgspec.structs.replace(running(f"a{i}", "a", 1), shape=_QUARTER) for i in range(16)]
    assert _victims(small(pods, 2, nodes=["a"]), planner)[0] == "a"
    assert _victims(small(pods, 4, nodes=["a"]), planner) == ("NoVictims",)


def what_devices_may_provide_is_not_lacking(planner: Planner) -> None:
    """The node offers none, and one is in use there; only the 3 cores are missing."""
    stays, wants = (
        pod(requests={"cpu": cpu, f"{IMPLICIT_DOMAIN}gpu": "1"}).shape for cpu in ("1", "3")
    )
    keeper = msgspec.structs.replace(running("keeper", "a", 1, priority=90), shape=stays)
    world = small([keeper, running("a1", "a", 3)], nodes=["a"])
    preemptor = msgspec.structs.replace(world.preemptor, shape=wants)
    assert _victims(replace(world, preemptor=preemptor), planner) == ("a", "a1")


EXAMPLES: tuple[Callable[[Planner], None], ...] = (
    the_node_whose_highest_priority_is_lowest,
    the_lowest_priority_then_the_newest,
    pods_of_its_priority_stay,
    gangs_go_last_and_as_a_whole,
    of_a_gang_and_a_pod_the_gang_is_enough,
    the_gang_of_the_lowest_priority_goes,
    a_budget_holds_for_a_gang_together,
    what_runs_the_cluster_stays,
    a_gang_of_which_one_must_stay_stays,
    a_class_tolerates_for_its_seconds,
    a_class_that_never_preempts_does_not,
    a_budget_is_a_veto,
    a_min_stays,
    a_quota_that_is_not_known_takes_no_part,
    owners_rest_for_pods_that_came_back,
    guards_come_first,
    pods_that_leave_make_room,
    no_more_than_ten_go,
    what_devices_may_provide_is_not_lacking,
)
