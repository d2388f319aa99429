from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.view import ClusterState, Domain, PodTransitions
from tests.engine.measured_cluster import NOW, node, pod

if TYPE_CHECKING:
    from engine.model.pod import Pod


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
