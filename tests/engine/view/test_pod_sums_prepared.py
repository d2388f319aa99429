from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.usage import PodUsage
from engine.plugins.load_aware.sums import LoadProfile
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, node, pod, report, seconds_ago
from tests.engine.view_facts import facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.model.usage import NodeUsage
    from engine.view import PodSumProfile
    from engine.view.pod_table import PodEntry

LOAD = LoadProfile(known=("cpu",), factors=(("cpu", 85),))
OTHER_LOAD = LoadProfile(known=("cpu",), factors=(("cpu", 50),), seconds_after_scheduled=60)
NODES = 80
PODS = 200


class Looked:
    """A profile of the number of pods, which counts how often it is asked about one."""

    width: ClassVar[int] = 1
    reads_reports: ClassVar[bool] = False

    def __init__(self) -> None:
        self.times = 0

    def contribution(self, _key: str, _pod: PodEntry, _report: NodeUsage | None) -> tuple[int, ...]:
        self.times += 1
        return (1,)


def any_event(random: Random) -> Callable[[ClusterState], None]:
    """Return something that may happen in a cluster of some nodes and pods."""
    on, name = f"n{random.randrange(NODES)}", f"p{random.randrange(PODS)}"
    match random.randrange(8):
        case 0:
            return lambda state: state.set_node(node(on, cpu="4"))
        case 1:
            return lambda state: state.delete_node(on)
        case 2:
            key = f"default/p{random.randrange(PODS)}"
            usage = report(on, {"cpu": 900}, pods={key: PodUsage({"cpu": 70}, is_prod=True)})
            return lambda state: state.set_usage(usage)
        case 3:
            return lambda state: state.delete_pod(f"default/{name}")
        case _:
            new = pod(name, on, requests={"cpu": random.choice(["1", "200m"])})
            age = seconds_ago(random.randrange(300))
            return lambda state: state.set_pod(new, seen_at=age)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False))
def test_sums_counted_a_few_nodes_at_a_time_are_those_counted_at_once(random: Random) -> None:
    state, fresh = ClusterState(), ClusterState()
    state.track_sums([LOAD])
    before = [any_event(random) for _ in range(400)]
    for event in before:  # a long list, that nobody looks at meanwhile
        event(state)
        event(fresh)
    for _ in state.prepare_sums([LOAD, OTHER_LOAD]):
        for event in [any_event(random) for _ in range(random.randrange(8))]:
            event(state)
            event(fresh)
    state.track_sums([LOAD, OTHER_LOAD])
    fresh.track_sums([LOAD, OTHER_LOAD])
    assert facts(state.view()) == facts(fresh.view())


def test_what_was_prepared_is_not_counted_again() -> None:
    state, looked = ClusterState(), Looked()
    profiles: list[PodSumProfile] = [LOAD, looked]
    for number in range(100):
        state.set_pod(pod(f"p{number}", f"n{number}"), seen_at=NOW)
    assert len(list(state.prepare_sums(profiles))) > 1
    state.track_sums(profiles)
    assert state.view().pod_sums[looked].sum() == 100
    assert looked.times == 100
    assert not list(state.prepare_sums(profiles))


def test_a_view_after_a_long_list_has_little_left_to_count() -> None:
    state, looked = ClusterState(), Looked()
    state.track_sums([looked])
    for number in range(1000):
        state.set_pod(pod(f"p{number}", f"n{number % 10}"), seen_at=NOW)
    counted = looked.times
    assert state.view().pod_sums[looked].sum() == 1000
    assert looked.times - counted < 100
