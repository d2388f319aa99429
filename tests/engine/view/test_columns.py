from __future__ import annotations

from engine.model import api
from engine.model.node import Node
from engine.view import ClusterState, integer_label_column, label_column, taint_column

_TAINT = api.Taint(key="dedicated", value="x", effect="NoSchedule")


def _state() -> ClusterState:
    state = ClusterState()
    state.set_node(Node(name="n0", labels={"zone": "a", "rack": ""}, allocatable={}))
    state.set_node(Node(name="n1", labels={"zone": "b"}, taints=(_TAINT,), allocatable={}))
    return state


def test_a_label_that_is_empty_is_not_missing() -> None:
    rack = label_column(_state().view(), "rack")
    assert [rack.values[code] for code in rack.codes] == ["", None]


def test_each_label_is_a_column_of_its_own() -> None:
    view = _state().view()
    zone, rack = label_column(view, "zone"), label_column(view, "rack")
    assert zone.isin(["b"]).tolist() == [False, True]
    assert rack.isin(["b"]).tolist() == [False, False]


def test_numbers_are_read_from_labels_that_spell_one() -> None:
    state = _state()
    for i, text in enumerate(["07", "-3", "7.5", "9" * 30]):
        state.set_node(Node(name=f"m{i}", labels={"gen": text}, allocatable={}))
    number, present = integer_label_column(state.view(), "gen")
    assert number.tolist() == [0, 0, 7, -3, 0, 0]
    assert present.tolist() == [False, False, True, True, False, False]


def test_all_taints_of_a_node_are_one_value() -> None:
    taints = taint_column(_state().view())
    assert [taints.values[code] for code in taints.codes] == [(), (_TAINT,)]


def test_a_row_that_is_no_node_any_more_has_neither_labels_nor_taints() -> None:
    state = _state()
    label_column(state.view(), "zone")
    state.delete_node("n1")
    view = state.view()
    assert label_column(view, "zone").present.tolist() == [True, False]
    assert taint_column(view).present.tolist() == [True, False]
