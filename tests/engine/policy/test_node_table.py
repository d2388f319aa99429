from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.cel.values import BOOL, DOUBLE, INT, MAP, STRING, TIMESTAMP
from engine.cel.vector.columns import Column, Path, Table
from engine.model.time import SECOND, Micros, micros
from engine.policy.environment import NODE_FIELDS, node_value, timestamp_value
from engine.policy.node_table import NodeLayout, NodeTable
from engine.view import ClusterState, ClusterView
from tests.engine.policy.events import EVENTS, apply
from tests.engine.policy.worlds import NOW, node, usage, view_of

_KEYS = {
    "allocatable": ["cpu", "memory", "nvidia.com/gpu", "none"],
    "requested": ["cpu", "memory", "nvidia.com/gpu", "pods", "none"],
    "limits": ["cpu", "memory", "nvidia.com/gpu", "none"],
    "usage": ["cpu", "memory", "none"],
    "labels": ["zone", "none"],
    "annotations": ["note", "none"],
}
_PATHS: list[Path] = [
    *(("node", field) for field in NODE_FIELDS),
    *(("node", field, key) for field, keys in _KEYS.items() for key in keys),
]
_MISSING = object()


def _followed(value: object, path: Path) -> object:
    """Return what a path leads to in a node's value, _MISSING without its last key.

    Raises:
        KeyError: an earlier key is missing.
    """
    *before, last = path[1:]
    for key in before:
        assert isinstance(value, dict)
        value = value[key]
    assert isinstance(value, dict)
    return value.get(last, _MISSING)


def _told(column: Column, row: int) -> object:
    if column.faults is not None and _at(column.faults, row):
        return _MISSING
    return _at(column.values, row)


def _at(values: NDArray[Any], row: int) -> object:
    return values[row].item() if values.ndim else values.item()


def _check(view: ClusterView, now: Micros) -> None:
    """Hold every column against the values of every node."""
    layout, table = NodeLayout(), NodeTable(view, now)
    for path in _PATHS:
        leaf = layout.leaf(path)
        assert leaf.path == path
        for row in np.flatnonzero(view.valid).tolist():
            value = node_value(NODE_FIELDS, view, row, now)
            try:
                expected = _followed(value, path)
            except KeyError:
                assert _told(table.presence(path), row) is _MISSING
                assert _told(table.numbers(path), row) is _MISSING
                continue
            assert _told(table.presence(path), row) is (expected is not _MISSING)
            if leaf.type in (BOOL, DOUBLE, INT):
                assert repr(_told(table.numbers(path), row)) == repr(expected)
            if leaf.type == TIMESTAMP:
                told = _told(table.numbers(path), row)
                assert told is expected or (
                    isinstance(told, datetime) and timestamp_value(micros(told)) == expected
                )
            column = table.dictionary(path)
            if column is not None:
                code = int(column.codes[row])
                assert (_MISSING if code == 0 else column.values[code]) == expected


@settings(max_examples=60)
@given(before=EVENTS, after=EVENTS, later=st.integers(0, 300))
def test_a_column_agrees_with_the_value_of_each_node(
    before: list[Any], after: list[Any], later: int
) -> None:
    state = ClusterState()
    for event in before:
        apply(state, event)
    _check(state.view(), NOW)
    for event in after:  # now columns are remembered, and only what changed is computed again
        apply(state, event)
    _check(state.view(), Micros(NOW + later * SECOND))


@pytest.mark.parametrize(
    ("path", "leaf", "of_type"),
    [
        (("node",), ("node",), MAP),
        (("node", "usage"), ("node", "usage"), MAP),
        (("node", "usage", "cpu", "x"), ("node", "usage", "cpu"), DOUBLE),
        (("node", "labels", "a", "b"), ("node", "labels", "a"), STRING),
        (("node", "taints", "x"), ("node", "taints"), None),
        (("node", "podCount"), ("node", "podCount"), INT),
        (("node", "ready"), ("node", "ready"), BOOL),
        (("node", "name"), ("node", "name"), STRING),
    ],
)
def test_a_path_ends_where_the_columns_do(path: Path, leaf: Path, of_type: object) -> None:
    found = NodeLayout().leaf(path)
    assert (found.path, found.type) == (leaf, of_type)


def test_texts_that_differ_on_every_node_are_not_given_out_by_code() -> None:
    view = view_of(*(node(f"n{i}", labels={"host": f"h{i}", "zone": "z"}) for i in range(100)))
    table = NodeTable(view, NOW)
    assert table.dictionary(("node", "labels", "host")) is None
    assert table.dictionary(("node", "labels", "zone")) is not None
    assert table.dictionary(("node", "labels")) is None


def test_a_row_holds_the_requested_fields() -> None:
    view = view_of(node("a", labels={"zone": "z"}))
    table, row = NodeTable(view, NOW), view.rows["a"]
    assert table.row(row, [("node", "labels", "zone"), ("node", "name")]) == {
        "node": {"labels": {"zone": "z"}, "name": "a"}
    }
    whole = table.row(row, [("node",)])["node"]
    assert isinstance(whole, dict)
    assert set(whole) == set(NODE_FIELDS) - {"usage", "creationTimestamp"}
    assert table.row(view.names.index(""), [("node",)]) == {"node": {}}


class _Counted:
    """Computes whether cpu usage is above a core, and counts the rows it looked at."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, table: Table) -> Column:
        self.rows += len(table)
        cpu = table.numbers(("node", "usage", "cpu"))
        return Column(cpu.values > 1, cpu.faults)


def _remembered(state: ClusterState, compute: _Counted, now: Micros = NOW) -> list[object]:
    view = state.view()
    column = NodeTable(view, now).remember(
        "hot", [("node", "usage", "cpu")], compute, for_all_requests=True
    )
    return [_told(column, view.rows[name]) for name in ("a", "b")]


def test_a_remembered_column_is_computed_again_only_where_its_fields_changed() -> None:
    state, compute = ClusterState(), _Counted()
    for i in range(20):
        state.set_node(node(f"n{i}"))
    for name, cpu in (("a", 500), ("b", 1500)):
        state.set_node(node(name))
        state.set_usage(usage(name, cpu=cpu))
    assert _remembered(state, compute) == [False, True]
    assert compute.rows == 22
    state.set_node(node("a", labels={"zone": "x"}))
    assert _remembered(state, compute) == [False, True]
    assert compute.rows == 22  # labels are not read
    state.set_usage(usage("a", cpu=2000))
    assert _remembered(state, compute) == [True, True]
    assert compute.rows == 23


def test_a_remembered_column_forgets_usage_that_has_grown_too_old() -> None:
    state, compute = ClusterState(), _Counted()
    for name, age in (("a", 0), ("b", 100)):
        state.set_node(node(name))
        state.set_usage(usage(name, age=age, cpu=2000))
    assert _remembered(state, compute) == [True, True]
    assert _remembered(state, compute, Micros(NOW + 100 * SECOND)) == [True, _MISSING]
    assert _remembered(state, compute, Micros(NOW + 200 * SECOND)) == [_MISSING, _MISSING]
