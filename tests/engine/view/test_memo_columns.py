from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.view import ClusterState, ClusterView, Domain, IntColumn, Sum
from engine.view import memo as remembered
from engine.view.memo import ColumnCache
from tests.engine.measured_cluster import NOW, node, pod, report

BOTH = (Domain.NODES, Domain.PODS)


def free_cpu(view: ClusterView) -> IntColumn:
    """Return what no pod has asked for, by nodes and pods, millicores."""
    return view.amount(view.allocatable, "cpu") - view.amount(view.sums[Sum.REQUESTS], "cpu")


def asked_for(view: ClusterView) -> IntColumn:
    """Return two requests, by pods, shape (2, n)."""
    return np.stack([view.amount(view.sums[Sum.REQUESTS], name) for name in ("cpu", "memory")])


def measured(view: ClusterView) -> IntColumn:
    """Return when nodes were measured, by reports."""
    return view.metric_time * 2


@dataclass
class Watched:
    """`free_cpu`, with a record of how many rows each call was for."""

    rows: list[int] = field(default_factory=list)

    def __call__(self, view: ClusterView) -> IntColumn:
        self.rows.append(len(view))
        return free_cpu(view)


def eight_nodes() -> ClusterState:
    state = ClusterState()
    for name in "abcdefgh":
        state.set_node(node(name, cpu="4"))
    return state


def bind(state: ClusterState, name: str, on: str) -> None:
    state.set_pod(pod(name, on, requests={"cpu": "500m"}), seen_at=NOW)


EVENTS: st.SearchStrategy[Callable[[ClusterState], None]] = st.one_of(
    st.builds(
        lambda name, cpu: lambda state: state.set_node(node(name, cpu=str(cpu))),
        st.sampled_from("abcdef"),
        st.integers(1, 3),
    ),
    st.builds(lambda name: lambda state: state.delete_node(name), st.sampled_from("abcdef")),
    st.builds(
        lambda name, on: lambda state: bind(state, name, on),
        st.sampled_from("pqrst"),
        st.sampled_from("abcdefgh"),
    ),
    st.builds(
        lambda name: lambda state: state.delete_pod(f"default/{name}"), st.sampled_from("pqrst")
    ),
    st.builds(
        lambda on, age: lambda state: state.set_usage(report(on, {"cpu": 1}, age=age)),
        st.sampled_from("abcdefgh"),
        st.integers(0, 2),
    ),
    st.builds(lambda on: lambda state: state.delete_usage(on), st.sampled_from("abcdefgh")),
)


def assert_remembered_is_fresh(view: ClusterView) -> None:
    assert view.node_column("free", BOTH, free_cpu).tolist() == free_cpu(view).tolist()
    assert view.pod_column("asked", (Domain.PODS,), asked_for).tolist() == asked_for(view).tolist()
    assert view.node_column("age", (Domain.METRICS,), measured).tolist() == measured(view).tolist()


@given(st.lists(st.lists(EVENTS, max_size=6), max_size=8))
def test_a_remembered_column_is_as_right_as_a_new_one(
    batches: list[list[Callable[[ClusterState], None]]],
) -> None:
    state = ClusterState()
    kept = []
    for batch in batches:
        for event in batch:
            event(state)
        view = state.view()
        assert_remembered_is_fresh(view)
        kept.append(view)
    for view in kept:  # oldest first: what is newer was remembered meanwhile
        assert_remembered_is_fresh(view)


@given(st.lists(EVENTS, max_size=12), st.data())
def test_a_column_of_some_rows_is_those_rows_of_the_column(
    events: list[Callable[[ClusterState], None]], data: st.DataObject
) -> None:
    state = eight_nodes()
    for event in events:
        event(state)
    view = state.view()
    rows = np.array(data.draw(st.lists(st.integers(0, len(view) - 1), unique=True)), np.intp)
    assert_remembered_is_fresh(view.take(rows))


def test_only_rows_that_changed_are_computed_again() -> None:
    state, compute = eight_nodes(), Watched()
    state.view().node_column("free", BOTH, compute)
    bind(state, "p", "c")
    view = state.view()
    assert view.node_column("free", BOTH, compute)[view.rows["c"]] == 3500
    assert compute.rows == [8, 1]


def test_a_column_is_not_computed_again_for_changes_it_is_not_made_from() -> None:
    state, compute = eight_nodes(), Watched()
    first = state.view().node_column("free", BOTH, compute)
    state.set_usage(report("c", {"cpu": 1}))
    assert state.view().node_column("free", BOTH, compute) is first
    assert compute.rows == [8]


def test_past_a_quarter_of_the_rows_all_are_computed_again() -> None:
    state, compute = eight_nodes(), Watched()
    state.view().node_column("free", BOTH, compute)
    for number, name in enumerate("abc"):
        bind(state, str(number), name)
    state.view().node_column("free", BOTH, compute)
    assert compute.rows == [8, 8]


def test_a_column_given_out_is_never_written_again() -> None:
    state = eight_nodes()
    given_out = state.view().node_column("free", BOTH, free_cpu)
    bind(state, "p", "c")
    state.view().node_column("free", BOTH, free_cpu)
    assert given_out.tolist() == [4000] * 8
    with pytest.raises(ValueError, match="read-only"):
        given_out[0] = 0


def test_the_least_recently_used_column_is_forgotten() -> None:
    view, compute, cache = eight_nodes().view(), Watched(), ColumnCache(2)
    for key in ("a", "b", "a", "c"):  # c takes the place of b
        cache.get(key, view, BOTH, compute)
    assert len(compute.rows) == 3
    cache.get("a", view, BOTH, compute)
    assert len(compute.rows) == 3
    cache.get("b", view, BOTH, compute)
    assert len(compute.rows) == 4


def test_columns_are_forgotten_when_they_take_too_many_bytes() -> None:
    # Eight rows of 8 bytes: two columns have 128 bytes, a third would be too much.
    view, compute, cache = eight_nodes().view(), Watched(), ColumnCache(9, most_bytes=150)
    for key in ("a", "b", "c", "b", "c"):  # c takes the place of a
        cache.get(key, view, BOTH, compute)
    assert len(compute.rows) == 3
    cache.get("a", view, BOTH, compute)
    assert len(compute.rows) == 4


def test_columns_that_have_grown_take_the_bytes_they_have_now() -> None:
    state, compute, cache = eight_nodes(), Watched(), ColumnCache(9, most_bytes=150)
    for key in ("a", "b"):
        cache.get(key, state.view(), BOTH, compute)
    state.set_node(node("i", cpu="4"))  # nine rows: 72 bytes each, 144 in all
    view = state.view()
    for key in ("a", "b"):
        cache.get(key, view, BOTH, compute)
    cache.get("c", view, BOTH, compute)  # takes the place of a
    compute.rows.clear()
    for key in ("b", "c", "a"):
        cache.get(key, view, BOTH, compute)
    assert compute.rows == [9]


def test_a_column_that_nobody_asks_for_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of policies that are gone nothing may stay."""
    monkeypatch.setattr(remembered, "FORGOTTEN_AFTER", 10)
    state, cache, watched = eight_nodes(), ColumnCache(99), Watched()
    cache.get("of a policy that is gone", state.view(), BOTH, watched)
    cache.get("asked for", state.view(), BOTH, free_cpu)
    for number in range(11):
        bind(state, f"p{number}", "a")
    cache.get("asked for", state.view(), BOTH, free_cpu)
    cache.get("new", state.view(), BOTH, free_cpu)
    cache.get("of a policy that is gone", state.view(), BOTH, watched)
    assert watched.rows == [8, 8]  # all rows both times, not the one that changed


def test_a_column_becomes_as_wide_as_its_new_rows_need() -> None:
    """A condition is bools as long as it can be evaluated everywhere, then codes."""

    def is_small(view: ClusterView) -> NDArray[np.bool_] | NDArray[np.int8]:
        free = free_cpu(view)
        return (
            free < 2000 if (free >= 0).all() else np.where(free < 0, -1, free < 2000).astype("i1")
        )

    state = eight_nodes()
    assert state.view().node_column("small", BOTH, is_small).tolist() == [False] * 8
    for number in range(9):  # 9 * 500m of 4 cores
        bind(state, f"p{number}", "a")
    column = state.view().node_column("small", BOTH, is_small)
    assert column.tolist() == [-1, 0, 0, 0, 0, 0, 0, 0]
    bind(state, "q", "b")
    assert state.view().node_column("small", BOTH, is_small).tolist() == column.tolist()


def test_what_a_column_is_made_of_may_take_its_place_meanwhile() -> None:
    cache, state = ColumnCache(1), eight_nodes()

    def doubled(view: ClusterView) -> IntColumn:
        return 2 * cache.get("inner", view, BOTH, free_cpu)

    assert cache.get("outer", state.view(), BOTH, doubled).tolist() == [8000] * 8
    for name in "abc":  # more than a quarter, so all is computed again, with the inner one anew
        bind(state, name, name)
    found = cache.get("outer", state.view(), BOTH, doubled)
    assert found.tolist() == [7000] * 3 + [8000] * 5  # 2 * (4000 - 500)
