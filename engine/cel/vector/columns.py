"""Columns and tables: the input and output of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.cel.values import (
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    INT_MAX,
    INT_MIN,
    TIMESTAMP,
    CelType,
    Duration,
    Timestamp,
)

Path: TypeAlias = tuple[str, ...]
"""A variable and the keys followed from it: `node.labels.zone` is ("node", "labels", "zone")."""

Bools: TypeAlias = NDArray[np.bool_]

MOMENTS: Final = np.dtype("M8[us]")
SPANS: Final = np.dtype("m8[us]")
COLUMN_TYPES: Final = frozenset({BOOL, INT, DOUBLE, TIMESTAMP, DURATION})
"""The types that have columns of their own."""

_NANOS_PER_MICRO: Final = 1000


class NotVectorizableError(Exception):
    """Values that columns cannot hold: of mixed types, beyond 64 bits, or nested too deeply.

    Rare, and no mistake in the expression, which then has to be evaluated row by row.
    """


class Column(msgspec.Struct, frozen=True, gc=False):
    """One value for each row, or one for all of them.

    Attributes:
        values: bool, int64, float64, datetime64[us] or timedelta64[us], shape (n,), or () for a
            value that all rows share. Shape () may also be object, for a value of any other type,
            such as an int of JSON beyond 64 bits. The value of a row at fault is meaningless.
        faults: the rows whose evaluation failed, shape (n,) or (); None, the fast path, if none.
    """

    values: NDArray[Any]
    faults: Bools | None = None


class DictColumn(msgspec.Struct, frozen=True, gc=False):
    """A dictionary-encoded column: each row has the code of its value.

    Attributes:
        codes: shape (n,), int32; 0 where the last key of the path is missing from its map.
        values: the value of each code, of any CEL type, or a `MissingPath`; that of code 0 is
            ignored. Values that no row has are allowed.
    """

    codes: NDArray[np.int32]
    values: Sequence[object]


class TextColumn(DictColumn, frozen=True, gc=False):
    """A dictionary-encoded column of strings, however many of them differ.

    No two codes have the same string; that of code 0 is no string.

    Attributes:
        find: the code of a string, None where no row has it.
        absent: the rows with code 0, shape (n,); None if none.
    """

    find: Callable[[str], int | None]
    absent: Bools | None


@dataclass(frozen=True, slots=True)
class MissingPath:
    """Stands for a path that ends early in some row.

    Attributes:
        found: keys that could be followed; the next key could not.
        value: the value reached; {} for any map, because it lacks the next key.
    """

    found: int
    value: object = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leaf:
    """The column of a table that holds a path.

    Attributes:
        path: the path, or the prefix of it that the table has a column for.
        type: one of `COLUMN_TYPES` if the table stores such values, `STRING` if it has a
            `TextColumn` of them, `MAP` if the values are always maps, None if they may be of any
            type.
        distinct: estimated number of distinct values in a large table.
    """

    path: Path
    type: CelType | None = None
    distinct: int = 32


class Layout(Protocol):
    """The schema of tables, known before any rows; immutable."""

    @property
    def variables(self) -> frozenset[str]:
        """Variables with a value for each row, which is a map."""

    def leaf(self, path: Path) -> Leaf:
        """Return the leaf for a path that begins with one of `variables`."""

    def elements(self, path: Path, variable: str) -> Layout | None:
        """Return the layout of the tables that `Table.elements` gives, None if it gives none."""


class Table(Protocol):
    """Rows on which an expression is evaluated; immutable.

    Paths are always those of a `Leaf` of the layout.
    """

    def __len__(self) -> int:
        """Return the number of rows."""

    def numbers(self, path: Path) -> Column:
        """Return the values of a leaf of one of `COLUMN_TYPES`, at fault where it has none."""

    def presence(self, path: Path) -> Column:
        """Return whether the last key of a path is in its map; at fault where nothing is there.

        No other value than a map has keys.
        """

    def dictionary(self, path: Path) -> DictColumn | None:
        """Return the dictionary-encoded values.

        None for a variable as a whole, and if too many values are distinct.
        """

    def texts(self, path: Path) -> TextColumn | None:
        """Return the strings of a leaf of type `STRING`; None for a leaf of any other type."""

    def rows_at(
        self, numbers: Iterable[int], paths: Sequence[Path]
    ) -> Iterator[Mapping[str, object]]:
        """Return the variables of some rows, with at least the values at `paths`."""

    def elements(self, path: Path, variable: str) -> Iterable[Elements] | None:
        """Return tables that together hold every element of the lists at a path.

        None if the lists of these rows are too different; the layout has said that there are some.

        Args:
            path: of a list in every row.
            variable: the name that an element has in these tables, beside all variables of rows.
        """

    def remember(
        self,
        key: Hashable,
        paths: Sequence[Path],
        compute: Callable[[Table], Column],
        *,
        for_all_requests: bool,
    ) -> Column:
        """Return the cached column of `key`, computed if it is missing or rows have changed.

        Args:
            key: identifies the column.
            paths: the values of a row that determine its result: other rows are not recomputed.
            compute: row-wise; gets this table or a subset of its rows. Its values are (n,) and
                always of one type. Its errors propagate, and nothing is cached then.
            for_all_requests: whether the column depends on the rows alone.
        """


class Elements(NamedTuple):
    """At most one element of a list in each row, as a table.

    Attributes:
        table: the rows, with the element.
        present: the rows that have one, shape (n,); what the others hold means nothing.
    """

    table: Table
    present: Bools


def constant(value: object) -> Column:
    """Return the column of a value that all rows share."""
    if type(value) is bool or type(value) is float:
        return Column(np.array(value))
    if type(value) is int and INT_MIN <= value <= INT_MAX:
        return Column(np.array(value, np.int64))
    if isinstance(value, Timestamp | Duration):
        micros, rest = divmod(value.nanos, _NANOS_PER_MICRO)
        if not rest:
            return Column(np.array(micros, MOMENTS if type(value) is Timestamp else SPANS))
    holder = np.empty((), np.object_)
    holder[()] = value
    return Column(holder)


FAILED: Final = Column(np.array(False), np.array(True))  # noqa: FBT003 (numpy has it so)
"""The column of an evaluation that failed for every row."""


def either(a: Bools | None, b: Bools | None) -> Bools | None:
    """Return the union of two masks, None being the empty one."""
    if a is None:
        return b
    return a if b is None else a | b


def packed(column: Column) -> NDArray[Any]:
    """Return a column of shape (n,) as an array of shape (2, n): values, then faults."""
    faults = np.zeros_like(column.values) if column.faults is None else column.faults
    return np.stack([column.values, faults.astype(column.values.dtype)])


def unpacked(cells: NDArray[Any]) -> Column:
    """Return the column of an array made by `packed`."""
    values, marks = cells
    faults = marks.astype(np.bool_, copy=False)
    return Column(values, faults if faults.any() else None)


FEW: Final = 32
"""Evaluations that take no longer than a lookup in the cache."""

_DENSE: Final = 65_536  # combinations of codes up to which counting them beats sorting them


def sizes_of(columns: Sequence[DictColumn]) -> tuple[int, ...]:
    return tuple(len(column.values) for column in columns)


def combinations_of(
    columns: Sequence[DictColumn], mask: Bools | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the combinations of codes that occur within the mask, and the index of each row's.

    The combinations are of shape (columns, m). The index of other rows is arbitrary.
    """
    sizes = sizes_of(columns)
    total = math.prod(sizes)
    if len(sizes) == 1:
        joint = columns[0].codes.astype(np.intp)
        if total <= FEW:
            return np.arange(total)[np.newaxis], joint
    else:
        joint = np.ravel_multi_index([column.codes for column in columns], sizes)
    masked = joint if mask is None else joint[mask]
    if total <= _DENSE:
        present = np.flatnonzero(np.bincount(masked, minlength=total))
        index = positions_of(present, total).take(joint)
    else:
        present = np.unique(masked)
        index = np.searchsorted(present, joint).clip(max=max(len(present) - 1, 0))
    if len(sizes) == 1:
        return present[np.newaxis], index
    return np.array(np.unravel_index(present, sizes)), index


def positions_of(numbers: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Return the inverse of `numbers`: the position of each number below `size`, 0 for others."""
    positions = np.zeros(size, np.intp)
    positions[numbers] = np.arange(len(numbers))
    return positions


def rows_of(
    paths: Sequence[Path], columns: Sequence[DictColumn], combinations: NDArray[np.intp]
) -> Iterator[Mapping[str, object]]:
    """Return the variables of a row for each combination of codes; see `_row_of`."""
    if len(paths) > 1:
        for codes in combinations.T.tolist():
            yield _row_of(paths, columns, codes)
        return
    outward, values = paths[0][::-1], columns[0].values
    for code in combinations[0].tolist():
        value = values[code]
        if not code or type(value) is MissingPath:
            yield _row_of(paths, columns, [code])
        else:
            for key in outward:
                value = {key: value}
            yield value


def _row_of(
    paths: Sequence[Path], columns: Sequence[DictColumn], codes: Sequence[int]
) -> dict[str, object]:
    """Return the variables of a row with these codes, restricted to `paths`."""
    row: dict[str, object] = {}
    for path, column, code in zip(paths, columns, codes, strict=True):
        value = column.values[code] if code else MissingPath(len(path) - 2)
        path_to_value = path
        if type(value) is MissingPath:
            path_to_value, value = path[: value.found + 1], value.value
        *above, last = path_to_value
        parent: Any = row
        for key in above:
            parent = parent.setdefault(key, {})
        if type(value) is dict and not value:  # other paths may have filled this map
            parent.setdefault(last, {})
        else:
            parent[last] = value
    return row
