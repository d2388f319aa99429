"""Columns by value: a small number per row in place of a value, and the rows of an image.

A question about a value is answered once per distinct value and taken to the rows by number. This
serves labels and taints, and any other hashable value of a row.

A `CodeBook` only grows, so a number means the same value in every column and view it was given to.
Once most of its values are gone from the cluster a new book takes its place; columns of the old one
keep the old one.

A node names some 50 images, a pod needs a few: so no column is kept per image, but an index from
names to rows, from which a column is made on demand.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.model.node import Node
from engine.view.axis import BoolColumn, IntColumn, capped

MISSING = 0
"""The code of a row without a value."""

_Value = TypeVar("_Value", bound=Hashable)
_Scalar = TypeVar("_Scalar", bound=np.generic)


class CodeBook(Generic[_Value]):
    """Numbers of values, given in order of first use and never taken back.

    Equal values share a number: to tell 1 from True, put the type beside the value.
    """

    def __init__(self) -> None:
        self._numbers: defaultdict[_Value | None, int] = defaultdict(
            count(MISSING + 1).__next__, {None: MISSING}
        )
        self._values: list[_Value | None] = []

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def values(self) -> Sequence[_Value | None]:
        """The value of each number; that of MISSING is None."""
        if len(self._values) < len(self._numbers):
            self._values.extend(islice(self._numbers, len(self._values), None))
        return self._values

    def find(self, value: _Value) -> int | None:
        """Return the number of a value, None when it has none."""
        return self._numbers.get(value)

    def encode(self, values: Iterable[_Value | None]) -> NDArray[np.int32]:
        """Return the number of each value, a new one if need be; None stands for no value."""
        return np.fromiter(map(self._numbers.__getitem__, values), np.int32)


@dataclass(frozen=True)
class DictionaryColumn(Generic[_Value]):
    """One value per row, by number.

    Attributes:
        codes: (n,), the number of each row's value; MISSING where it has none.
        book: the meaning of the numbers. It may know more values than the rows have.
    """

    codes: NDArray[np.int32]
    book: CodeBook[_Value]

    @property
    def values(self) -> Sequence[_Value | None]:
        """The value of each number."""
        return self.book.values

    @property
    def present(self) -> BoolColumn:
        """Rows that have a value, shape (n,)."""
        present: BoolColumn = self.codes != MISSING
        return present

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """Number of rows with each value, by number; counted once per column."""
        return np.bincount(self.codes, minlength=len(self.book))

    def isin(self, values: Iterable[_Value]) -> BoolColumn:
        """Return the rows that have one of `values`, shape (n,)."""
        codes = [code for code in map(self.book.find, values) if code is not None]
        table = np.zeros(len(self.book), np.bool_)
        table[codes] = True
        return self.spread(table)

    def spread(self, table: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """Return the entry of `table` for the value of each row, shape (n,).

        Args:
            table: one entry per element of `values`, in that order.
        """
        return table.take(self.codes)

    def take(self, rows: NDArray[np.intp]) -> DictionaryColumn[_Value]:
        """Return the column of some rows, in the order given."""
        return DictionaryColumn(self.codes[rows], self.book)


class ImageIndex:
    """The rows of each image, by any of its names.

    Views of one cluster share it. Each brings it up to date, though no rule may need it: that costs
    10 us for a new node and next to nothing for others, where a first question about 5,000 nodes
    would have to wait for 50 ms.
    """

    def __init__(self) -> None:
        self._version = -1  # at which any node last changed
        self._by_row: list[tuple[api.ContainerImage, ...]] = []  # as indexed
        self._rows: dict[api.ContainerImage, array[int]] = {}
        self._named: dict[str, list[api.ContainerImage]] = {}

    def catch_up(self, nodes: Sequence[Node | None], changed: IntColumn, latest: int) -> bool:
        """Index the nodes of a whole view.

        Args:
            nodes: by row, None for a row without one.
            changed: the version at which each node last changed, (n,).
            latest: the greatest of these.

        Returns:
            Whether the index is that of the view; it cannot go back to old nodes.
        """
        if latest < self._version:
            return False
        if latest > self._version:
            self._by_row.extend([()] * (len(changed) - len(self._by_row)))
            for row in np.flatnonzero(changed > self._version).tolist():
                node = nodes[row]
                self._put(row, node.images if node else ())
        self._version = latest
        return True

    def sizes(self, name: str) -> IntColumn:
        """Return the size of an image on each row, in bytes, -1 where it is not, shape (n,)."""
        sizes = np.full(len(self._by_row), -1, np.int64)
        for image in self._named.get(name, ()):
            rows = np.frombuffer(self._rows[image], np.intc)
            sizes[rows] = max(capped(image.size_bytes), 0)  # no node has two images of one name
        return sizes

    def _put(self, row: int, images: tuple[api.ContainerImage, ...]) -> None:
        """Index a row as it now is."""
        if images == self._by_row[row]:
            return  # most changes of a node are of something else
        old, new = set(self._by_row[row]), set(images)
        for image in old - new:
            rows = self._rows[image]
            rows.remove(row)
            if not rows:
                self._remove(image)
        for image in new - old:
            if image not in self._rows:
                self._rows[image] = array("i")
                for name in set(image.names or ()):
                    self._named.setdefault(name, []).append(image)
            self._rows[image].append(row)
        self._by_row[row] = images

    def _remove(self, image: api.ContainerImage) -> None:
        """Take out an image that no node holds any more."""
        del self._rows[image]
        for name in set(image.names or ()):
            self._named[name].remove(image)
            if not self._named[name]:
                del self._named[name]
