"""What a held or released pod adds to the node that it is nominated to, until it is bound."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.decision import ADVICE_ANNOTATION
from engine.model.hold import HOLD_GATE, RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.plugins.load_aware.estimation import LoadProfile
from engine.view import ClusterState, PodTransitions
from engine.view.assumed import MOST_WAITING_OF_NAMESPACE, NOMINATED_SECONDS
from tests.engine.measured_cluster import NOW, node, pod, report
from tests.engine.view_facts import facts

PROFILE = LoadProfile(known=("cpu",), factors=(("cpu", 100),))
KEY = "shop/p"


def after(seconds: float) -> Micros:
    return Micros(NOW + int(seconds * SECOND))


def held(name: str = "p", on: str = "", *, to: str = "", gates: tuple[str, ...] = ()) -> Pod:
    """Return a pod that waits behind our gate, or is bound."""
    return _pod(name, on, to=to, gates=() if on else (HOLD_GATE, *gates))


def released(name: str = "p", on: str = "", *, to: str = "") -> Pod:
    return _pod(name, on, to=to, annotations={RELEASED_ANNOTATION: to})


def _pod(
    name: str,
    on: str,
    *,
    to: str,
    gates: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
) -> Pod:
    a_pod = pod(
        name,
        on,
        requests={"cpu": "500m"},
        metadata={"namespace": "shop", "annotations": annotations or {}},
        schedulingGates=[{"name": gate} for gate in gates],
    )
    return msgspec.structs.replace(a_pod, nominated_node_name=to)


def cluster(*pods: Pod, nodes: str = "abc") -> ClusterState:
    made = ClusterState(assumed_seconds=300)
    made.track_sums([PROFILE])
    for name in nodes:
        made.set_node(node(name, cpu="8"))
        made.set_usage(report(name, {"cpu": 1000}, age=30))
    for a_pod in pods:
        made.set_pod(a_pod, seen_at=NOW)
    return made


def counted(state: ClusterState) -> dict[str, int]:
    """Return how many pods that are not bound count on each node."""
    view = state.view()
    counts = {name: int(view.assumed[row]) for name, row in view.rows.items()}
    return {name: count for name, count in counts.items() if count}


# A nomination that is decided here.


def test_a_nominated_pod_counts_at_once_as_if_it_were_bound() -> None:
    state, bound = cluster(held()), cluster(held(on="a"))
    state.nominate(KEY, "a")
    expected: dict[str, Any] = facts(bound.view())
    expected["nodes"]["a"]["assumed"] = 1
    expected["scheduled"] = {}  # it is bound nowhere
    expected["transitions"] = {"a": PodTransitions(nominated=1)}
    assert facts(state.view()) == expected


def test_it_counts_as_it_will_when_the_nomination_is_seen() -> None:
    state = cluster(held())
    state.nominate(KEY, "a")
    ahead = facts(state.view())
    state.set_pod(held(to="a"), seen_at=after(1))
    assert facts(state.view()) == ahead == facts(cluster(held(to="a")).view())


def test_taken_back_it_counts_nowhere() -> None:
    state = cluster(held())
    nothing = facts(state.view())
    state.nominate(KEY, "a")
    state.nominate(KEY, "")
    assert facts(state.view()) == nothing
    state.set_pod(held(to="b"), seen_at=NOW)
    state.nominate(KEY, "")
    assert facts(state.view()) == nothing
    state.set_pod(held(to="b", gates=("x",)), seen_at=NOW)  # the write is still under way
    assert facts(state.view()) == nothing
    state.set_pod(held(), seen_at=NOW)
    state.set_pod(held(to="b"), seen_at=NOW)
    assert counted(state) == {"b": 1}


def test_an_event_from_before_the_write_does_not_undo_it() -> None:
    state = cluster(held(gates=("x",)))
    state.nominate(KEY, "a")
    state.set_pod(held(), seen_at=NOW)
    assert counted(state) == {"a": 1}


def test_what_others_wrote_since_counts() -> None:
    state = cluster(held())
    state.nominate(KEY, "a")
    state.set_pod(held(to="a"), seen_at=NOW)
    state.set_pod(held(), seen_at=NOW)  # a preemptor took the room
    assert counted(state) == {}
    state.nominate(KEY, "a")
    state.set_pod(held(to="b"), seen_at=NOW)
    assert counted(state) == {"b": 1}


def test_a_pod_that_is_bound_or_unknown_is_left_as_it_is() -> None:
    state = cluster(held(on="a"))
    before = state.view()
    state.nominate(KEY, "b")
    state.nominate("shop/other", "b")
    assert state.view() is before


@pytest.mark.parametrize("on", ["a", "b", "elsewhere"])
def test_a_bound_pod_counts_where_it_is(on: str) -> None:
    state = cluster(held())
    state.nominate(KEY, "a")
    state.set_pod(held(on=on), seen_at=NOW)
    assert facts(state.view()) == facts(cluster(held(on=on)).view())
    state.nominate(KEY, "c")
    state.delete_pod(KEY)
    state.set_pod(held(), seen_at=NOW)  # another pod of that name
    assert counted(state) == {}


def test_an_unknown_node_gets_the_pod_when_it_comes() -> None:
    state = cluster(held(), nodes="bc")
    state.nominate(KEY, "a")
    assert counted(state) == {}
    state.set_node(node("a", cpu="8"))
    assert counted(state) == {"a": 1}
    state.delete_node("a")
    assert counted(state) == {}


# A nomination that is seen.


def test_a_released_pod_counts_for_a_minute_and_not_again() -> None:
    state = cluster(held(to="a"))
    state.release_assumed(after(3_600))  # a gate has no end
    assert counted(state) == {"a": 1}
    state.set_pod(released(to="a"), seen_at=after(3_600))
    state.release_assumed(after(3_600 + NOMINATED_SECONDS - 0.1))
    assert counted(state) == {"a": 1}
    state.release_assumed(after(3_600 + NOMINATED_SECONDS))
    assert counted(state) == {}
    state.set_pod(msgspec.structs.replace(released(to="a"), priority=7), seen_at=after(3_700))
    state.set_node(node("a", cpu="4"))
    assert counted(state) == {}
    state.set_pod(released(to="b"), seen_at=after(3_700))
    assert counted(state) == {"b": 1}


def test_a_nomination_that_never_arrives_ends_with_the_gate() -> None:
    # Its policies are written as preferred terms: no node is ever nominated.
    state = cluster(held())
    state.nominate(KEY, "a")
    state.set_pod(released(), seen_at=after(10))
    assert counted(state) == {"a": 1}
    state.release_assumed(after(10 + NOMINATED_SECONDS))
    assert counted(state) == {}


@pytest.mark.parametrize(
    "a_pod",
    [
        _pod("p", "", to="", annotations={RELEASED_ANNOTATION: "a"}),
        _pod("p", "", to="a"),  # the scheduler preempts pods for it
        _pod("p", "", to="a", gates=("other",)),
        _pod("p", "", to="nowhere", annotations={RELEASED_ANNOTATION: "a"}),
        _pod("p", "", to="", gates=(HOLD_GATE,), annotations={RELEASED_ANNOTATION: "a"}),
    ],
)
def test_what_a_tenant_writes_counts_nowhere(a_pod: Pod) -> None:
    assert counted(cluster(a_pod)) == {}


def test_a_nomination_precedes_an_advice() -> None:
    advice = {ADVICE_ANNOTATION: '{"nodes":["b"]}'}
    advised = _pod("p", "", to="", annotations={RELEASED_ANNOTATION: "", **advice})
    nominated = msgspec.structs.replace(advised, nominated_node_name="a")
    state = cluster(nominated)
    assert counted(state) == {"a": 1}
    state.set_pod(advised, seen_at=NOW)
    assert counted(state) == {"b": 1}
    state.set_pod(nominated, seen_at=NOW)
    assert counted(state) == {"a": 1}


def test_many_pods_of_a_namespace_are_nominated() -> None:
    most = MOST_WAITING_OF_NAMESPACE + 5
    pods = [held(f"p{number}", to="a") for number in range(most)]
    assert counted(cluster(*pods)) == {"a": most}


def test_a_clock_that_is_set_back_keeps_no_pod_nominated_for_longer() -> None:
    state = cluster(held("q", to="b"))
    state.set_pod(released(to="a"), seen_at=after(3_600))
    state.release_assumed(after(3_600))
    state.release_assumed(NOW)
    state.release_assumed(after(NOMINATED_SECONDS))
    assert counted(state) == {"b": 1}


# Whatever happens, in whatever order.

_NODES = st.sampled_from(["", "a", "b", "c"])
_SEEN = (
    st.builds(held, st.sampled_from("pqr"), to=_NODES)
    | st.builds(released, st.sampled_from("pqr"), to=_NODES)
    | st.builds(held, st.sampled_from("pqr"), _NODES)
)
_STEPS = st.lists(
    _SEEN
    | st.tuples(st.just("delete"), st.sampled_from("pqr"))
    | st.tuples(st.just("node"), st.sampled_from("ab"))
    | st.tuples(st.just("no node"), st.sampled_from("ab")),
    max_size=15,
)


@settings(max_examples=150)
@given(_STEPS, st.lists(st.tuples(st.sampled_from("pqr"), _NODES), max_size=6), st.randoms())
def test_any_order_of_events_ends_in_what_the_objects_say(
    steps: list[Pod | tuple[str, str]], decided: list[tuple[str, str]], random: Random
) -> None:
    state, alive, nodes = cluster(nodes="abc"), dict[str, Pod](), set("abc")
    for step in steps:
        if isinstance(step, Pod):
            state.set_pod(step, seen_at=NOW)
            alive[step.key] = step
        elif step[0] == "delete":
            state.delete_pod(f"shop/{step[1]}")
            alive.pop(f"shop/{step[1]}", None)
        elif step[0] == "node":
            state.set_node(node(step[1], cpu="8"))
            nodes.add(step[1])
        else:
            state.delete_node(step[1])
            nodes.discard(step[1])
    fresh = cluster(*alive.values(), nodes="abc")
    for name in {*"abc"} - nodes:
        fresh.delete_node(name)
    assert facts(state.view()) == facts(fresh.view())

    # What is decided here is what will be seen, whichever of the pods' nodes it was before.
    last = dict(decided)
    for name, to in decided:
        state.nominate(f"shop/{name}", to)
    pending = [
        a_pod
        for key, a_pod in alive.items()
        if not a_pod.node_name and key.removeprefix("shop/") in last and a_pod.is_held
    ]
    writes = [
        msgspec.structs.replace(a_pod, nominated_node_name=last[a_pod.name]) for a_pod in pending
    ]
    random.shuffle(writes)
    for a_pod in writes:
        fresh.set_pod(a_pod, seen_at=NOW)
    released_since = {
        key for key, a_pod in alive.items() if not a_pod.node_name and not a_pod.is_held
    }
    for key in released_since & {f"shop/{name}" for name in last}:
        state.delete_pod(key)
        fresh.delete_pod(key)
    assert facts(state.view()) == facts(fresh.view())
