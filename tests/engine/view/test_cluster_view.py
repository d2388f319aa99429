"""What tenants write must not grow the memory of the view, whether it is stored or refused."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.model import api, caches
from engine.model.caches import is_long
from engine.view import ClusterState, ClusterView, Domain, IntColumn, Sum, label_column
from engine.view.cluster_view import AggregateCache, ColumnCache
from engine.view.pod_table import PodTable
from engine.view.rows import LONGEST_NAME, NodeRows, ShapeContributions
from tests.engine.measured_cluster import NOW, node, pod, report
from tests.engine.model.hostile_pods import hostile_pod

_PODS = (Domain.PODS,)


def _pod_counts(part: ClusterView) -> NDArray[np.int64]:
    return part.amount(part.sums[0], "pods").copy()


def _cluster() -> ClusterState:
    state = ClusterState()
    for i in range(8):
        state.set_node(node(f"n{i}"))
    return state


def test_columns_that_are_brought_up_to_date_share_the_view_of_the_changed_rows() -> None:
    state = _cluster()
    asked: list[tuple[str, ...]] = []

    def counts(part: ClusterView) -> NDArray[np.int64]:
        asked.append(part.names)
        return _pod_counts(part)

    for key in "ab":
        state.view().node_column(key, _PODS, counts)
    before = state.view().version
    state.set_pod(pod("p", "n5"), seen_at=NOW)
    view = state.view()
    for key in "ab":
        assert view.node_column(key, _PODS, counts).tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    assert asked[2:] == [("n5",), ("n5",)]
    assert view.part_changed_since(before, _PODS) is view.part_changed_since(before, _PODS)


def test_a_view_dies_with_its_last_holder_even_after_it_brought_columns_up_to_date() -> None:
    # Otherwise the state would have to copy its columns before every write.
    state = _cluster()
    state.view().node_column("a", _PODS, _pod_counts)
    state.set_pod(pod("p", "n5"), seen_at=NOW)
    view = state.view()
    view.node_column("a", _PODS, _pod_counts)
    alive = weakref.ref(view)
    state.set_pod(pod("q", "n5"), seen_at=NOW)
    del view
    assert alive() is None


def test_several_amounts_come_in_the_order_asked_for() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="1", memory="2", **{"ephemeral-storage": "3", "x.com/gpu": "4"}))
    view = state.view()
    for names, expected in (
        (("cpu", "memory", "ephemeral-storage"), [1000, 2, 3]),
        (("memory", "cpu"), [2, 1000]),
        (("x.com/gpu", "unheard-of", "cpu"), [4, 0, 1000]),
        (("unheard-of",), [0]),
    ):
        assert view.amounts(view.allocatable, names)[:, 0].tolist() == expected
    assert view.amounts(view.allocatable, ()).shape == (0, 1)


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
    monkeypatch.setattr(caches, "FORGOTTEN_AFTER", 10)
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


NODES = (Domain.NODES,)


class Counted:
    """How many nodes there are, with a record of how often that was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, view: ClusterView) -> int:
        self.calls += 1
        return int(view.valid.sum())


def two_nodes() -> ClusterState:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    state.set_node(node("b", cpu="4"))
    return state


def test_what_is_common_is_made_once_until_a_node_changes() -> None:
    state, counted = two_nodes(), Counted()
    assert state.view().node_aggregate("count", NODES, counted) == 2
    state.set_pod(pod("web", "a"), seen_at=NOW)
    assert state.view().node_aggregate("count", NODES, counted) == 2
    assert counted.calls == 1
    state.set_node(node("c", cpu="4"))
    assert state.view().node_aggregate("count", NODES, counted) == 3
    assert counted.calls == 2


def test_a_row_that_comes_with_a_pod_alone_is_a_change_too() -> None:
    """What is made of columns would otherwise be shorter than they are."""
    state = two_nodes()
    assert state.view().node_aggregate("rows", NODES, len) == 2
    state.set_pod(pod("web", "not-seen-yet"), seen_at=NOW)
    assert state.view().node_aggregate("rows", NODES, len) == 3


def test_some_rows_have_in_common_what_they_have() -> None:
    view, counted = two_nodes().view(), Counted()
    assert view.node_aggregate("count", NODES, counted) == 2
    part = view.take(view.valid.nonzero()[0][:1])
    assert part.node_aggregate("count", NODES, counted) == 1


def test_an_old_view_is_answered_and_not_remembered() -> None:
    state, counted = two_nodes(), Counted()
    old = state.view()
    state.delete_node("b")
    new = state.view()
    assert new.node_aggregate("count", NODES, counted) == 1
    assert old.node_aggregate("count", NODES, counted) == 2
    assert new.node_aggregate("count", NODES, counted) == 1
    assert counted.calls == 2


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    cache, view, counted = AggregateCache(2), two_nodes().view(), Counted()
    for key in ("x", "y", "x", "z", "x", "y"):
        cache.get(key, view, NODES, counted)
    assert counted.calls == 4  # x, y, z, and y again


def test_what_nobody_asks_for_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "FORGOTTEN_AFTER", 10)
    state, cache, counted = two_nodes(), AggregateCache(99), Counted()
    cache.get("of a policy that is gone", state.view(), NODES, counted)
    cache.get("asked for", state.view(), NODES, len)
    for number in range(11):
        state.set_pod(pod(f"p{number}", "a"), seen_at=NOW)
    assert cache.get("asked for", state.view(), NODES, str) == 2  # type: ignore[comparison-overlap]
    cache.get("new", state.view(), NODES, len)
    cache.get("of a policy that is gone", state.view(), NODES, counted)
    assert counted.calls == 2


KIB, MIB = 2**10, 2**20


class Traced:
    """Bytes that were allocated since it was made and are still held."""

    held = 0


@contextmanager
def traced() -> Iterator[Traced]:
    result = Traced()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield result
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        result.held = after - before
    finally:
        tracemalloc.stop()


def undeclared(first: int, names: int, containers: int) -> int:
    """Return the bytes that shapes of 20 pods take beyond what they say."""
    keys = 20 * 4 * KIB  # the longest key of the cache of shapes
    with traced() as memory:
        pods = [hostile_pod(first + n, names=names, containers=containers) for n in range(20)]
        shapes = [pod.shape for pod in pods]
        del pods
    return memory.held - sum(shape.size for shape in shapes) - keys


@pytest.mark.parametrize(("names", "containers"), [(2, 1), (100, 1), (4, 20), (0, 99)])
def test_a_shape_takes_no_more_memory_than_it_says(names: int, containers: int) -> None:
    # A table of the whole process that is full grows in one of the three, not in all of them.
    assert any(undeclared(first, names, containers) <= 0 for first in (0, 20, 40))


def test_contributions_of_hostile_pods_are_held_within_bounds() -> None:
    contributions = ShapeContributions(NodeRows(PodTable()), most_bytes=200 * KIB)
    with traced() as memory:
        for number in range(20):
            contributions.of(hostile_pod(number).shape)
    assert 1 < len(contributions.cached) < 10
    assert memory.held < 2 * MIB  # with all shapes in the cache of shapes


def test_a_very_long_name_of_a_resource_gets_no_column() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    for number, length in enumerate((LONGEST_NAME, LONGEST_NAME + 1)):
        name = "x" * length
        state.set_pod(pod(f"p{number}", "a", requests={name: "1"}), seen_at=NOW)
    longest = [name for name in state.view().axis.names if name.startswith("x")]
    assert [len(name) for name in longest] == [LONGEST_NAME]


def test_a_namespace_forgets_resources_that_none_of_its_pods_requests_any_more() -> None:
    state = ClusterState()
    state.set_pod(pod("stays", requests={"cpu": "1"}), seen_at=NOW)
    for number in range(50):
        passing = pod(f"p{number}", requests={f"example.com/{number}": "1", "cpu": "0"})
        state.set_pod(passing, seen_at=NOW)
        state.delete_pod(passing.key)
    assert state.view().namespaces.requested == {"default": {"cpu": 1000, "pods": 1}}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("label", "zone"), False),
        (("label", "x" * 5_000), True),
        (("codes", frozenset({("k", "x" * 5_000)}), b""), True),
        (("codes", b"x" * 5_000), True),
        (("tolerations", (api.Toleration(key="a"), api.Toleration(value="x" * 5_000))), True),
        (("tolerations", tuple(api.Toleration(key=str(n)) for n in range(3))), False),
        (("tolerations", tuple(api.Toleration() for _ in range(1_000))), True),
        ((("a", 1), (("b", 2), object)), False),
    ],
)
def test_a_key_that_a_pod_makes_long_is_known(key: object, *, expected: bool) -> None:
    assert is_long(key) is expected


def test_a_column_of_a_long_key_is_right_and_not_kept() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    view, cache = state.view(), ColumnCache(9)
    computed: list[int] = []

    def compute(_: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        computed.append(1)
        return np.arange(len(view))

    for _ in range(2):
        assert cache.get("x" * 5_000, view, (Domain.NODES,), compute).tolist() == [0]
    assert len(computed) == 2


def test_labels_that_pods_make_up_are_not_kept() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    view = state.view()
    with traced() as memory:
        for number in range(256):
            assert not label_column(view, f"{number}" * 20_000).present.any()
    assert memory.held < 1 * MIB  # the keys alone would take 12
