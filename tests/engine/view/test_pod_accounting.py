from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.model.usage import NodeUsage, PodUsage
from engine.plugins.load_aware.estimation import LoadProfile
from engine.view import ClusterState, ClusterView, Domain, PodSumProfile, PodTransitions
from engine.view.pod_accounting import Departures
from engine.view.pod_table import PodEntry
from tests.engine.measured_cluster import NOW, node, pod, report, seconds_ago
from tests.engine.view_facts import facts


def test_a_pod_departs_once_and_at_its_last_moment() -> None:
    departures = Departures()
    departures.put("a", Micros(5))
    departures.put("a", Micros(7))  # its grace period was changed
    departures.put("b", Micros(6))
    assert departures.take(Micros(5)) == []
    assert departures.take(Micros(9)) == ["b", "a"]
    assert departures.take(Micros(9)) == []


def test_who_is_gone_departs_no_more() -> None:
    departures = Departures()
    departures.put("a", Micros(5))
    departures.put("a", None)
    assert departures.take(Micros(9)) == []


def test_some_at_a_time_the_earliest_first() -> None:
    departures = Departures()
    for moment in (3, 1, 2):
        departures.put(f"p{moment}", Micros(moment))
    assert (departures.take(Micros(9), 2), departures.is_due(Micros(9))) == (["p1", "p2"], True)


def test_memory_follows_the_pods_that_are_left() -> None:
    departures = Departures()
    for moment in range(10_000):
        departures.put("a", Micros(moment))
    assert len(departures._queue) <= 2 + 1024  # noqa: SLF001
    assert departures.take(Micros(10_000)) == ["a"]


def moving(name: str, on: str = "", *, to: str = "", deleting: bool = False) -> Pod:
    return msgspec.structs.replace(pod(name, on), deleting=deleting, nominated_node_name=to)


def state_of(*pods: Pod) -> ClusterState:
    state = ClusterState()
    for name in ("a", "b"):
        state.set_node(node(name))
    for a_pod in pods:
        state.set_pod(a_pod, seen_at=NOW)
    return state


def test_bound_pods_leave_by_deletion_and_pending_ones_come_by_nomination() -> None:
    state = state_of(
        moving("1", "a", deleting=True),
        moving("2", "a", to="b"),  # where it was nominated to no longer matters
        moving("3", to="b"),
        moving("4", to="b", deleting=True),
        moving("5", deleting=True),
    )
    assert state.view().transitions == {
        "a": PodTransitions(terminating=1),
        "b": PodTransitions(nominated=2),
    }


def test_a_pod_that_is_gone_has_finished_or_came_no_longer_counts() -> None:
    state = state_of(moving("1", "a", deleting=True), moving("2", to="b"), moving("3", to="b"))
    state.delete_pod("default/1")
    state.set_pod(moving("2", "b"), seen_at=NOW)
    state.set_pod(msgspec.structs.replace(moving("3", to="b"), phase="Failed"), seen_at=NOW)
    assert state.view().transitions == {}


def test_the_rows_of_both_nodes_change_when_a_nomination_moves() -> None:
    state = state_of(moving("1", to="a"))
    before = state.view().version
    state.set_pod(moving("1", to="b"), seen_at=NOW)
    view = state.view()
    assert {view.names[row] for row in view.changed_since(before, (Domain.PODS,))} == {"a", "b"}


def test_nodes_need_not_be_known() -> None:
    state = state_of(moving("1", to="new"))
    assert state.view().transitions == {"new": PodTransitions(nominated=1)}


def test_a_view_that_is_kept_says_what_it_said() -> None:
    state = state_of(moving("1", to="a"))
    kept = state.view()
    state.set_pod(moving("1", to="b"), seen_at=NOW)
    assert kept.transitions == {"a": PodTransitions(nominated=1)}
    assert state.view().transitions == {"b": PodTransitions(nominated=1)}


_pods = st.builds(
    moving,
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from(["", "a", "b"]),
    to=st.sampled_from(["", "a", "b"]),
    deleting=st.booleans(),
)


@settings(max_examples=100)
@given(st.lists(_pods | st.sampled_from(["1", "2", "3"]), max_size=12))
def test_any_order_of_events_ends_in_what_the_pods_say(events: list[Pod | str]) -> None:
    state, alive = state_of(), dict[str, "Pod"]()
    for event in events:
        if isinstance(event, str):
            state.delete_pod(f"default/{event}")
            alive.pop(event, None)
        else:
            state.set_pod(event, seen_at=NOW)
            alive[event.name] = event
    assert state.view().transitions == state_of(*alive.values()).view().transitions


@dataclass(frozen=True, slots=True)
class Requested:
    """The cpu and the number of pods."""

    width: ClassVar[int] = 2
    reads_reports: ClassVar[bool] = False

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:  # noqa: ARG002 (protocol)
        return pod.shape.requests.get("cpu", 0), 1


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """The number of pods that are newer than the report."""

    width: ClassVar[int] = 1
    reads_reports: ClassVar[bool] = True

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:  # noqa: ARG002 (protocol)
        return (int(report is None or pod.assigned_at > (report.update_time or 0)),)


PROFILES: tuple[PodSumProfile, ...] = (Requested(), Unmeasured())

_names = st.sampled_from(["a", "b"])
_events = st.lists(
    st.tuples(
        st.just("pod"),
        st.builds(
            lambda i, on, cpu: pod(f"p{i}", on, requests={"cpu": cpu}),
            st.integers(0, 3),
            st.sampled_from(["", "a", "b", "c"]),
            st.sampled_from(["1", "200m"]),
        ),
    )
    | st.tuples(st.just("gone"), st.integers(0, 3).map(lambda i: f"default/p{i}"))
    | st.tuples(
        st.just("report"),
        st.builds(lambda on, age: report(on, {}, age=age), _names, st.integers(0, 200)),
    )
    | st.tuples(st.just("unreported"), _names),
    max_size=12,
)


def _apply(state: ClusterState, event: tuple[str, Any]) -> None:
    kind, what = event
    match kind:
        case "pod":
            state.set_pod(what, seen_at=seconds_ago(100))
        case "gone":
            state.delete_pod(what)
        case "report":
            state.set_usage(what)
        case _:
            state.delete_usage(what)


def _sums(view: ClusterView) -> dict[str, list[list[int]]]:
    return {
        name: [view.pod_sums[profile][:, row].tolist() for profile in PROFILES]
        for name, row in view.rows.items()
    }


def test_a_pod_adds_its_part_to_its_node_alone() -> None:
    state = ClusterState()
    state.track_sums(PROFILES)
    state.set_node(node("a"))
    state.set_pod(pod("p", "b", requests={"cpu": "2"}), seen_at=NOW)
    state.set_pod(pod("q", "b", requests={"cpu": "500m"}), seen_at=NOW)
    state.set_pod(pod("pending", requests={"cpu": "1"}), seen_at=NOW)
    assert _sums(state.view()) == {"a": [[0, 0], [0]], "b": [[2500, 2], [2]]}


def test_a_report_changes_what_depends_on_it() -> None:
    state = ClusterState()
    state.track_sums(PROFILES)
    state.set_pod(pod("p", "a"), seen_at=seconds_ago(100))
    assert _sums(state.view())["a"][1] == [1]
    state.set_usage(report("a", {}, age=50))
    assert _sums(state.view())["a"][1] == [0]


@settings(max_examples=100)
@given(_events)
def test_sums_kept_along_the_way_are_those_counted_at_the_end(
    events: list[tuple[str, Any]],
) -> None:
    state, fresh = ClusterState(), ClusterState()
    state.track_sums(PROFILES)
    held: list[tuple[ClusterView, object]] = []
    for event in events:
        view = state.view()
        held.append((view, _sums(view)))
        _apply(state, event)
        _apply(fresh, event)
    fresh.track_sums(PROFILES)
    assert _sums(state.view()) == _sums(fresh.view())
    for view, sums in held:
        assert _sums(view) == sums


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
