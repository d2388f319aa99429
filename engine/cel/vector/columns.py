"""What a plan reads and gives: columns of a table, and the face of the table itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.cel.values import INT_MAX, INT_MIN

if TYPE_CHECKING:
    from engine.cel.values import CelType

Path: TypeAlias = tuple[str, ...]
"""A variable and the keys followed from it: `node.labels.zone` is ("node", "labels", "zone")."""

Bools: TypeAlias = NDArray[np.bool_]


class Column(msgspec.Struct, frozen=True, gc=False):
    """One value for each row, or one for all of them.

    Attributes:
        values: bool, int64 or float64, shape (n,), or () for one value that all rows share. Only
            with shape () also object, for a value of any other type, or for an int that JSON had
            beyond 64 bits. Where a row is at fault its value means nothing.
        faults: where there is no value because the evaluation failed, shape (n,) or (); None when
            nowhere, which is the fast path.
    """

    values: NDArray[Any]
    faults: Bools | None = None


class DictColumn(msgspec.Struct, frozen=True, gc=False):
    """A dictionary column: a small number for each row in place of a value that many rows share.

    Attributes:
        codes: (n,), int32; 0 where the last key of the path is missing from its map.
        values: the value of each code, of any CEL type, or a `Gap`; that of code 0 is not looked
            at. There may be values that no row has.
    """

    codes: NDArray[np.int32]
    values: Sequence[object]


@dataclass(frozen=True, slots=True)
class MissingPath:
    """Stands for a path that cannot be followed to its end.

    Attributes:
        found: how many keys could be followed; the next one could not.
        value: what stands there; {} for any map, which then lacks the next key.
    """

    found: int
    value: object = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a table has for a path.

    Attributes:
        path: as far as the table goes: the whole of what was asked for, or its beginning.
        type: `BOOL`, `INT` or `DOUBLE` if the table has the values as numbers, `MAP` if they are
            always maps, None if they may be anything.
        distinct: about how many different values to expect in a large table.
    """

    path: Path
    type: CelType | None = None
    distinct: int = 32


class Layout(Protocol):
    """What is known of a table before there is one; never changes."""

    @property
    def variables(self) -> frozenset[str]:
        """The variables that have another value in each row; the values are maps."""

    def leaf(self, path: Path) -> Leaf:
        """Return what tables have for a path that begins with one of `variables`."""


class Table(Protocol):
    """Rows on which an expression is evaluated; nothing in it changes.

    A path here is always that of a `Leaf` of the layout.
    """

    def __len__(self) -> int:
        """Return the number of rows."""

    def numbers(self, path: Path) -> Column:
        """Return the values of a leaf that is numeric, at fault where there is none."""

    def presence(self, path: Path) -> Column:
        """Return whether the last key of a path is in its map, at fault where there is no map."""

    def coded(self, path: Path) -> DictColumn | None:
        """Return the values by code.

        None if so many differ that codes would not pay, and for a variable as a whole.
        """

    def row(self, number: int, paths: Sequence[Path]) -> Mapping[str, object]:
        """Return the variables of a row, with at least what `paths` name."""

    def remember(
        self,
        key: Hashable,
        paths: Sequence[Path],
        compute: Callable[[Table], Column],
        *,
        for_all_requests: bool,
    ) -> Column:
        """Return the column that `compute` gives for this table; it may be remembered.

        Args:
            key: names the column.
            paths: what of a row decides its value, so that only changed rows need be redone.
            compute: row-wise; gets this table or some rows of it. Its values are (n,) and always
                of one type. What it raises goes through, and nothing is remembered.
            for_all_requests: whether the column depends on the rows alone.
        """


def constant(value: object) -> Column:
    """Return the column of one value that all rows share."""
    if type(value) is bool or type(value) is float:
        return Column(np.array(value))
    if type(value) is int and INT_MIN <= value <= INT_MAX:
        return Column(np.array(value, np.int64))
    holder = np.empty((), np.object_)
    holder[()] = value
    return Column(holder)


FAILED: Final = Column(np.array(False), np.array(True))  # noqa: FBT003 (numpy has it so)
"""The column of an evaluation that failed for every row."""


def either(a: Bools | None, b: Bools | None) -> Bools | None:
    """Return where one of two masks is set."""
    if a is None:
        return b
    return a if b is None else a | b


def packed(column: Column) -> NDArray[Any]:
    """Return a column of shape (n,) as one array, shape (2, n): values above faults."""
    faults = np.zeros_like(column.values) if column.faults is None else column.faults
    return np.stack([column.values, faults.astype(column.values.dtype)])


def unpacked(cells: NDArray[Any]) -> Column:
    """Return the column that `packed` was given."""
    values, marks = cells
    faults = marks.astype(np.bool_, copy=False)
    return Column(values, faults if faults.any() else None)
