"""A table made of plain rows, with a cache, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cel import CelError, compile_node, new_frame
from engine.cel.ast import Node
from engine.cel.check import check
from engine.cel.environment import Environment
from engine.cel.parser import parse
from engine.cel.values import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    MAP,
    NUMBERS,
    STRING,
    TIMESTAMP,
    CelType,
    Duration,
    Timestamp,
)
from engine.cel.vector import (
    Column,
    DictColumn,
    Elements,
    Leaf,
    MissingPath,
    Path,
    Plan,
    Table,
    TextColumn,
    packed,
    plan_condition,
    plan_number,
    unpacked,
)
from engine.cel.vector.columns import constant

Row = dict[str, Any]
"""The value of `node` in a row."""

Memory = dict[Hashable, tuple[Sequence[Row], NDArray[Any]]]
"""Columns by key, with the rows they were made for."""

ENVIRONMENT = Environment(variables={"node": DYN, "pod": DYN})
LISTED: Path = ("node", "list")
"""The one list of each row that has tables of elements; they are maps."""

_DEPTH = 3  # a path goes as far as `node.labels.zone`
_TYPES: Mapping[frozenset[type], CelType] = {
    frozenset({bool}): BOOL,
    frozenset({int}): INT,
    frozenset({float}): DOUBLE,
    frozenset({str}): STRING,
    frozenset({dict}): MAP,
    frozenset({Timestamp}): TIMESTAMP,
    frozenset({Duration}): DURATION,
}


@dataclass(frozen=True)
class RowsLayout:
    """The layout that fits some rows.

    With `hidden`, a table has nothing but whole rows, so that all is evaluated row by row.
    """

    rows: Sequence[Row]
    hidden: bool = False
    variables: frozenset[str] = frozenset({"node"})

    def elements(self, path: Path, variable: str) -> ElementLayout | None:
        return ElementLayout(self, path, variable) if path == LISTED and not self.hidden else None

    def leaf(self, path: Path) -> Leaf:
        if self.hidden:
            return Leaf(path[:1])
        path = path[:_DEPTH]
        found = [followed(row, path) for row in self.rows]
        kinds = frozenset(type(value) for value in found if type(value) is not MissingPath)
        of_type = _TYPES.get(kinds)
        if of_type == STRING and MissingPath(0) in found and len(path) == _DEPTH:
            of_type = None  # not even the map is there
        return Leaf(path, of_type, distinct=len({repr(value) for value in found}))


@dataclass(frozen=True)
class RowsTable:
    """Rows as columns; `memory` is shared by the tables of one history, None for no memory."""

    rows: Sequence[Row]
    memory: Memory | None = None
    reads: list[str] = field(default_factory=list)  # of anything but dictionary columns

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, path: Path) -> Column:
        found = [followed(row, path) for row in self.rows]
        faults = np.array([type(value) is MissingPath for value in found], np.bool_)
        present = [value for value in found if type(value) is not MissingPath]
        parts = [constant(value).values for value in present]
        values = np.zeros(len(found), parts[0].dtype if parts else np.float64)
        values[~faults] = parts
        return Column(values, faults if faults.any() else None)

    def presence(self, path: Path) -> Column:
        above = [followed(row, path[:-1]) for row in self.rows]
        values = np.array(
            [type(parent) is dict and path[-1] in parent for parent in above], np.bool_
        )
        return Column(
            values, np.array([type(parent) in {MissingPath, list} for parent in above], np.bool_)
        )

    def dictionary(self, path: Path) -> DictColumn | None:
        if len(path) == 1:
            return None
        codes: dict[str, int] = {repr(MissingPath(len(path) - 2)): 0}
        values: list[object] = [None]
        for row in self.rows:
            value = followed(row, path)
            if repr(value) not in codes:
                codes[repr(value)] = len(values)
                values.append(value)
        numbers = [codes[repr(followed(row, path))] for row in self.rows]
        return DictColumn(np.array(numbers, np.int32), values)

    def texts(self, path: Path) -> TextColumn | None:
        found = [followed(row, path) for row in self.rows]
        missing = MissingPath(len(path) - 2)
        if len(path) == 1 or not all(isinstance(value, str) or value == missing for value in found):
            return None
        values = [None, *dict.fromkeys(value for value in found if isinstance(value, str))]
        numbers = {value: code for code, value in enumerate(values)}
        codes = np.array([numbers.get(value, 0) for value in map(_text, found)], np.int32)
        absent = codes == 0
        return TextColumn(
            codes,
            values,
            numbers.get,
            absent if absent.any() else None,
        )

    def rows_at(
        self, numbers: Iterable[int], paths: Sequence[Path]
    ) -> Iterator[Mapping[str, object]]:
        self.reads.append(f"rows for {paths}")
        return ({"node": self.rows[number]} for number in numbers)

    def elements(self, path: Path, variable: str) -> Iterable[Elements]:
        lists = [row[path[-1]] for row in self.rows]
        for position in range(max(map(len, lists), default=0)):
            present = np.array([position < len(found) for found in lists], np.bool_)
            found = [found[position] if position < len(found) else {} for found in lists]
            yield Elements(ElementTable(self, variable, found), present)

    def remember(
        self,
        key: Hashable,
        paths: Sequence[Path],  # noqa: ARG002 (a row is one thing here)
        compute: Callable[[Table], Column],
        *,
        for_all_requests: bool,
    ) -> Column:
        key = (key, for_all_requests)
        if self.memory is None:
            return compute(self)
        before, cells = self.memory.get(key, ((), np.zeros((2, 0))))
        changed = [
            number
            for number, row in enumerate(self.rows)
            if number >= len(before) or before[number] is not row
        ]
        part = packed(compute(RowsTable([self.rows[number] for number in changed])))
        whole = np.zeros((2, len(self.rows)), part.dtype)
        cached = min(cells.shape[1], len(self.rows))
        whole[:, :cached] = cells[:, :cached]
        whole[:, changed] = part
        self.memory[key] = (self.rows, whole)
        self.reads.append(f"remember {len(changed)}")
        return unpacked(whole)


@dataclass(frozen=True)
class ElementLayout:
    """The layout of the tables with one element of the list at a path in each row."""

    base: RowsLayout
    path: Path
    variable: str

    @property
    def variables(self) -> frozenset[str]:
        return self.base.variables | {self.variable}

    def leaf(self, path: Path) -> Leaf:
        if path[0] != self.variable:
            return self.base.leaf(path)
        found = [element for row in self.base.rows for element in row[self.path[-1]]]
        return RowsLayout(found).leaf(path)

    def elements(self, path: Path, variable: str) -> None:  # noqa: ARG002 (protocol)
        return None


@dataclass(frozen=True)
class ElementTable:
    """Rows with an element of a list as a variable beside `node`."""

    base: RowsTable
    variable: str
    found: Sequence[Row]

    def __len__(self) -> int:
        return len(self.base)

    def _of(self, path: Path) -> RowsTable:
        return RowsTable(self.found) if path[0] == self.variable else self.base

    def numbers(self, path: Path) -> Column:
        return self._of(path).numbers(path)

    def presence(self, path: Path) -> Column:
        return self._of(path).presence(path)

    def dictionary(self, path: Path) -> DictColumn | None:
        return self._of(path).dictionary(path)

    def texts(self, path: Path) -> TextColumn | None:
        return self._of(path).texts(path)

    def rows_at(
        self, numbers: Iterable[int], paths: Sequence[Path]
    ) -> Iterator[Mapping[str, object]]:
        numbers = list(numbers)
        for number, row in zip(numbers, self.base.rows_at(numbers, paths), strict=True):
            yield {**row, self.variable: self.found[number]}

    def elements(self, path: Path, variable: str) -> None:  # noqa: ARG002 (protocol)
        return None

    def remember(
        self,
        key: Hashable,  # noqa: ARG002 (protocol)
        paths: Sequence[Path],  # noqa: ARG002
        compute: Callable[[Table], Column],
        *,
        for_all_requests: bool,  # noqa: ARG002
    ) -> Column:
        return compute(self)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def followed(row: Row, path: Path) -> object:
    """Return the value at the end of a path, or where the path ends early."""
    value: object = row
    for found, key in enumerate(path[1:]):
        if type(value) is not dict:
            return MissingPath(found, value)
        if key not in value:
            return MissingPath(found)
        value = value[key]
    return value


def resolved(expression: str) -> Node:
    """Return the tree of an expression; a mistake in it is left to fail when it is evaluated."""
    return check(parse(expression, ENVIRONMENT.limits), ENVIRONMENT).root


def condition(expression: str, layout: RowsLayout) -> Plan:
    """Return the plan of a condition."""
    return plan_condition(resolved(expression), ENVIRONMENT, layout)


def number(expression: str, layout: RowsLayout) -> Plan:
    """Return the plan of a number."""
    return plan_number(resolved(expression), ENVIRONMENT, layout)


def listed(column: Column) -> list[str]:
    """Return the values of a column as text, `error` where there is none."""
    faults = np.zeros(len(column.values), bool) if column.faults is None else column.faults
    pairs = zip(column.values.tolist(), faults.tolist(), strict=True)
    return ["error" if fault else repr(value) for value, fault in pairs]


def by_row(expression: str, rows: Sequence[Row], pod: object, *, as_number: bool) -> list[str]:
    """Return what the scalar evaluator gives for each row, in the form of `listed`."""
    closure = compile_node(resolved(expression), ENVIRONMENT)
    results = []
    for row in rows:
        try:
            value = closure(new_frame({"node": row, "pod": pod}))
            good = type(value) in NUMBERS if as_number else type(value) is bool
            results.append(repr(float(value) if as_number else value) if good else "error")  # type: ignore[arg-type]
        except (CelError, OverflowError):  # the second: of an int beyond all doubles
            results.append("error")
    return results
