"""Conditions of nodes as tables: one condition of each node at a time.

A slot is a type of condition, and its number among the conditions of that type of a node; by
convention a node has one of each type. So a table of a slot has few different values, and
`node.conditions.exists(c, c.type == 'Ready' && ..)` is computed by columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.cel.values import MAP, TIMESTAMP
from engine.cel.vector import (
    MOMENTS,
    Column,
    DictColumn,
    Elements,
    Layout,
    Leaf,
    Path,
    Table,
    TextColumn,
)
from engine.model.node import NodeCondition
from engine.policy.activation import condition_value
from engine.view import MISSING, ClusterView, DictionaryColumn, Domain

_NODES: Final = (Domain.NODES,)
_MOST_SLOTS: Final = 64  # of a cluster; with more, conditions are looked at node by node
_FEW, _MANY = 8, 1 << 20  # different values in a large cluster
_TEXTS: Final = ("type", "status", "reason")
_TIME: Final = "lastTransitionTime"

NO_TIME: Final = -(2**63)
"""Stands for no time in columns of microseconds; no timestamp has that value."""

_Slot = tuple[str, int]


class ConditionLayout:
    """The columns of a `ConditionTable`: those of nodes, and a condition as a variable."""

    def __init__(self, nodes: Layout, variable: str) -> None:
        """Take the layout of nodes, and the name of a condition."""
        self._nodes = nodes
        self._variable = variable

    @property
    def variables(self) -> frozenset[str]:
        """The variables that differ by row."""
        return self._nodes.variables | {self._variable}

    def leaf(self, path: Path) -> Leaf:
        """Return the column for a path."""
        if path[0] != self._variable:
            return self._nodes.leaf(path)
        if len(path) == 1:
            return Leaf(path, MAP, _MANY)
        if path[1] == _TIME:
            return Leaf(path[:2], TIMESTAMP, _MANY)
        return Leaf(path[:2], None, _FEW)

    def elements(self, path: Path, variable: str) -> Layout | None:  # noqa: ARG002 (protocol)
        """Return None: a loop within a loop over conditions has no tables."""
        return None


class ConditionTable:
    """One condition of each node, and the node; rows without that condition may hold anything."""

    def __init__(self, nodes: Table, view: ClusterView, variable: str, slot: _Slot) -> None:
        """Take the table of nodes and the view it is of, the name of a condition, and which."""
        self._nodes = nodes
        self._view = view
        self._variable = variable
        self._slot = slot

    def __len__(self) -> int:
        return len(self._nodes)

    def numbers(self, path: Path) -> Column:
        """Return the time of the condition, or a number of the node."""
        if path[0] != self._variable:
            return self._nodes.numbers(path)
        times = self._times()
        absent = times == NO_TIME
        return Column(times.view(MOMENTS), absent if absent.any() else None)

    def presence(self, path: Path) -> Column:
        """Return whether the condition, or a map of the node, has the last key of a path."""
        if path[0] != self._variable:
            return self._nodes.presence(path)
        if path[1] == _TIME:
            return Column(self._times() != NO_TIME)
        return Column(np.array(path[1] in _TEXTS))

    def dictionary(self, path: Path) -> DictColumn | None:
        """Return the values of a path by code, None if too many differ."""
        if path[0] != self._variable:
            return self._nodes.dictionary(path)
        if len(path) == 1 or path[1] == _TIME:
            return None
        if path[1] not in _TEXTS:
            return DictColumn(np.zeros(len(self), np.int32), [None])
        conditions, field = self._conditions(), _TEXTS.index(path[1])
        return DictColumn(conditions.codes, [value and value[field] for value in conditions.values])

    def texts(self, path: Path) -> TextColumn | None:
        """Return texts of the node; those of a condition are few, and read by code."""
        return None if path[0] == self._variable else self._nodes.texts(path)

    def rows_at(
        self, numbers: Iterable[int], paths: Sequence[Path]
    ) -> Iterator[Mapping[str, object]]:
        """Return the nodes of some rows, and their conditions."""
        numbers = list(numbers)
        of_nodes = [path for path in paths if path[0] != self._variable]
        for number, row in zip(numbers, self._nodes.rows_at(numbers, of_nodes), strict=True):
            node = self._view.nodes[number]
            condition = None if node is None else _in_slot(node.conditions, self._slot)
            value = {} if condition is None else condition_value(condition)
            yield {**row, self._variable: value}

    def elements(self, path: Path, variable: str) -> Iterable[Elements] | None:  # noqa: ARG002 (protocol)
        """Return None; see the layout."""
        return None

    def remember(
        self,
        key: Hashable,  # noqa: ARG002 (protocol)
        paths: Sequence[Path],  # noqa: ARG002
        compute: Callable[[Table], Column],
        *,
        for_all_requests: bool,  # noqa: ARG002
    ) -> Column:
        """Return what `compute` gives; a loop is remembered as a whole."""
        return compute(self)

    def present(self) -> NDArray[np.bool_]:
        """Return the nodes that have the condition, shape (n,)."""
        return self._conditions().present

    def _conditions(self) -> DictionaryColumn[tuple[str, ...]]:
        """Return the texts of the condition of each node: few of them differ."""
        return self._view.dictionary_column(
            ("condition", self._slot),
            _NODES,
            lambda part: (
                None if condition is None else condition[:3]
                for condition in _of_slot(part, self._slot)
            ),
        )

    def _times(self) -> NDArray[np.int64]:
        """Return the time of the condition in microseconds, NO_TIME where there is none."""
        return self._view.node_column(
            ("condition", self._slot, _TIME),
            _NODES,
            lambda part: np.array(
                [
                    NO_TIME if condition is None or condition.since is None else condition.since
                    for condition in _of_slot(part, self._slot)
                ],
                np.int64,
            ),
        )


def condition_tables(nodes: Table, view: ClusterView, variable: str) -> Iterator[Elements] | None:
    """Return the tables that hold all conditions of the nodes, None if there are too many.

    Args:
        nodes: the table of nodes.
        view: the nodes.
        variable: the name of a condition.
    """
    types = view.dictionary_column(
        "condition types",
        _NODES,
        lambda part: (
            None if node is None else tuple(condition.type for condition in node.conditions)
            for node in part.nodes
        ),
    )
    slots = sorted({slot for value in types.values[MISSING + 1 :] for slot in _slots(value or ())})
    if len(slots) > _MOST_SLOTS:
        return None
    tables = (ConditionTable(nodes, view, variable, slot) for slot in slots)
    return (Elements(table, table.present()) for table in tables)


def _slots(types: Iterable[str]) -> Iterator[_Slot]:
    seen = Counter[str]()
    for of_type in types:
        yield of_type, seen[of_type]
        seen[of_type] += 1


def _of_slot(view: ClusterView, slot: _Slot) -> Iterator[NodeCondition | None]:
    return (None if node is None else _in_slot(node.conditions, slot) for node in view.nodes)


def _in_slot(conditions: Sequence[NodeCondition], slot: _Slot) -> NodeCondition | None:
    of_type, number = slot
    for condition in conditions:
        if condition.type == of_type:
            if not number:
                return condition
            number -= 1
    return None
