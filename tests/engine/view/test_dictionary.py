from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.model.api import ContainerImage
from engine.model.node import Node
from engine.view import ClusterState, ClusterView, CodeBook, DictionaryColumn, Domain, image_column
from tests.engine.measured_cluster import node

_NODES = (Domain.NODES,)


class _Team:
    """Reads the label `team`, and notes of how many rows."""

    def __init__(self) -> None:
        self.rows_read = 0

    def __call__(self, rows: ClusterView) -> Iterator[str | None]:
        self.rows_read += len(rows)
        return (None if node is None else node.labels.get("team") for node in rows.nodes)

    def column(self, view: ClusterView) -> DictionaryColumn[str]:
        return view.dictionary_column("team", _NODES, self)


def _cluster(*teams: str | None) -> ClusterState:
    state = ClusterState()
    for i, team in enumerate(teams):
        _set(state, i, team)
    return state


def _set(state: ClusterState, i: int, team: str | None) -> None:
    state.set_node(Node(name=f"n{i}", labels={"team": team} if team else {}, allocatable={}))


def _values(column: DictionaryColumn[str]) -> list[str | None]:
    return [column.values[code] for code in column.codes]


def test_rows_share_the_number_of_an_equal_value_and_zero_is_for_none() -> None:
    column = _Team().column(_cluster("x", None, "y", "x").view())
    assert column.codes.tolist() == [1, 0, 2, 1]
    assert column.values == [None, "x", "y"]


def test_rows_are_counted_by_value_as_they_now_are() -> None:
    team = _Team()
    state = _cluster("x", None, "y", "x")
    assert team.column(state.view()).counts.tolist() == [1, 2, 1]
    _set(state, 0, "y")
    assert team.column(state.view()).counts.tolist() == [1, 1, 2]


def test_only_rows_that_changed_are_read_again() -> None:
    team = _Team()
    state = _cluster(*["x"] * 10)
    team.column(state.view())
    _set(state, 3, "y")
    assert _values(team.column(state.view())) == ["x"] * 3 + ["y"] + ["x"] * 6
    assert team.rows_read == 11


def test_a_view_that_is_kept_goes_on_saying_the_same() -> None:
    team = _Team()
    state = _cluster(*["x"] * 10)
    old = state.view()
    before = team.column(old)
    for i in range(10):
        _set(state, i, f"y{i}")
        team.column(state.view())
    assert _values(before) == _values(team.column(old)) == ["x"] * 10


def test_values_that_come_and_go_do_not_pile_up() -> None:
    team = _Team()
    state = _cluster(*["x"] * 10)
    first = team.column(state.view())
    sizes = set()
    for i in range(1000):
        _set(state, i % 10, f"y{i}")
        sizes.add(len(team.column(state.view()).book))
    # At most twice the rows, 64 to spare, and the one value that tips it over.
    assert max(sizes) <= 2 * 10 + 64 + 1
    assert _values(team.column(state.view())) == [f"y{i}" for i in range(990, 1000)]
    assert _values(first) == ["x"] * 10


def test_keys_are_forgotten_when_there_are_too_many_of_them() -> None:
    state = _cluster("x")
    team = _Team()
    for i in range(300):
        state.view().dictionary_column(i, _NODES, team)
    state.view().dictionary_column(299, _NODES, team)
    state.view().dictionary_column(0, _NODES, team)
    assert team.rows_read == 301


def test_a_slice_is_taken_from_what_the_whole_remembers() -> None:
    team = _Team()
    view = _cluster("x", None, "y").view()
    rows = np.array([2, 0])
    assert _values(team.column(view.take(rows).take(np.array([1])))) == ["x"]
    assert _values(team.column(view.take(rows))) == ["y", "x"]
    assert team.rows_read == 3


def test_isin_finds_rows_by_value_and_never_those_without() -> None:
    column = _Team().column(_cluster("x", None, "y", "z").view())
    assert column.isin(["x", "z", "never seen"]).tolist() == [True, False, False, True]
    assert column.isin([]).tolist() == [False] * 4
    assert column.present.tolist() == [True, False, True, True]


def test_spread_takes_an_answer_per_value_to_the_rows() -> None:
    column = _Team().column(_cluster("x", None, "yy", "x").view())
    lengths = np.array([len(value or "") for value in column.values])
    assert column.spread(lengths).tolist() == [1, 0, 2, 1]


def test_asking_for_a_value_does_not_number_it() -> None:
    book = CodeBook[str]()
    assert book.find("x") is None
    assert len(book) == 1


@given(st.lists(st.lists(st.none() | st.text(max_size=2) | st.tuples(st.integers()))))
def test_what_is_encoded_can_be_read_back_at_any_time(batches: list[list[object]]) -> None:
    book = CodeBook[object]()
    codes = [book.encode(batch) for batch in batches]
    assert [[book.values[code] for code in batch] for batch in codes] == batches


_steps = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from(["delete", None, "x", "y"]) | st.text(max_size=2)),
    max_size=30,
)


@given(_steps)
def test_a_remembered_column_says_what_the_nodes_say_now(
    steps: list[tuple[int, str | None]],
) -> None:
    state = ClusterState()
    for i, what in steps:
        if what == "delete":
            state.delete_node(f"n{i}")
        else:
            _set(state, i, what)
        view = state.view()
        assert _values(_Team().column(view)) == list(_Team()(view))


APP = ContainerImage(names=("app:v1", "app@sha256:1"), size_bytes=50)
APP_ON_ARM = ContainerImage(names=("app:v1", "app@sha256:2"), size_bytes=40)


def holding(name: str, *images: ContainerImage) -> Node:
    return replace(node(name), images=images)


def sizes(view: ClusterView, name: str) -> dict[str, int]:
    return dict(zip(view.names, image_column(view, name)[0].tolist(), strict=True))


def cluster() -> ClusterState:
    state = ClusterState()
    for a_node in (holding("a", APP), holding("b", APP_ON_ARM), holding("c"), holding("d")):
        state.set_node(a_node)
    return state


def test_an_image_is_found_by_any_of_its_names() -> None:
    view = cluster().view()
    assert sizes(view, "app:v1") == {"a": 50, "b": 40, "c": 0, "d": 0}
    assert sizes(view, "app@sha256:2") == {"a": 0, "b": 40, "c": 0, "d": 0}
    assert sizes(view, "app") == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_its_share_is_that_of_all_nodes_even_when_some_are_asked_about() -> None:
    view = cluster().view()
    assert image_column(view, "app:v1")[1] == 2 / 4
    found, share = image_column(view.take(np.array([3, 1])), "app:v1")
    assert found.tolist() == [0, 40]
    assert share == 2 / 4


def test_nodes_that_are_not_known_do_not_count() -> None:
    state = cluster()
    state.delete_node("d")
    assert image_column(state.view(), "app:v1")[1] == 2 / 3
    assert image_column(ClusterState().view(), "app:v1")[1] == 0


def test_what_nodes_pull_and_drop_is_followed() -> None:
    state = cluster()
    assert sizes(state.view(), "app:v1")["c"] == 0
    state.set_node(holding("c", APP, APP))
    state.set_node(holding("b"))
    state.delete_node("a")
    assert sizes(state.view(), "app:v1") == {"": 0, "b": 0, "c": 50, "d": 0}
    state.set_node(holding("c"))
    assert not any(sizes(state.view(), "app:v1").values())


def test_a_size_that_no_image_has_does_no_harm() -> None:
    state = ClusterState()
    state.set_node(holding("a", ContainerImage(names=("less",), size_bytes=-1)))
    state.set_node(holding("b", ContainerImage(names=("more",), size_bytes=2**70)))
    assert sizes(state.view(), "less") == {"a": 0, "b": 0}
    assert sizes(state.view(), "more") == {"a": 0, "b": 2**48}


def test_a_view_that_is_kept_says_what_it_said() -> None:
    state = cluster()
    old = state.view()
    state.set_node(holding("a"))
    assert sizes(state.view(), "app:v1")["a"] == 0
    assert sizes(old, "app:v1")["a"] == 50
    assert sizes(old, "app:v1")["b"] == 40
