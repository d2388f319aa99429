"""Dictionary columns: a small number per row in place of a value that many rows share.

A question about a value is then answered once per distinct value and taken to the rows by number.
This serves labels and taints, and any other hashable value that a row has.

How the numbering stays right: a `CodeBook` only ever grows, so a number means the same value in
every column and view it was given to. Once most of its values are gone from the cluster a new book
takes its place; columns of the old one keep the old one.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain
from engine.view.axis import BoolColumn
from engine.view.cluster_view import ClusterView
from engine.view.column_cache import ColumnCache

MISSING = 0
"""The code of a row that has no value."""

_SPARE_VALUES = 64  # values of the past that the book of a small cluster may hold

_Value = TypeVar("_Value", bound=Hashable)
_Scalar = TypeVar("_Scalar", bound=np.generic)


class CodeBook(Generic[_Value]):
    """Numbers of values, given in order of first use and never taken back.

    Equal values share a number: who must tell 1 from True puts the type beside the value.
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
        """Return the number of each value, a new one if need be; None is for a row without one."""
        return np.fromiter(map(self._numbers.__getitem__, values), np.int32)


@dataclass(frozen=True)
class DictionaryColumn(Generic[_Value]):
    """One value per row, by number.

    Attributes:
        codes: (n,), the number of each row's value; MISSING where it has none.
        book: what the numbers mean. It may know more values than the rows have.
    """

    codes: NDArray[np.int32]
    book: CodeBook[_Value]

    @property
    def values(self) -> Sequence[_Value | None]:
        """The value of each number."""
        return self.book.values

    @property
    def present(self) -> BoolColumn:
        """Which rows have a value, shape (n,)."""
        present: BoolColumn = self.codes != MISSING
        return present

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """How many rows have each value, by number; counted once per column."""
        return np.bincount(self.codes, minlength=len(self.book))

    def isin(self, values: Iterable[_Value]) -> BoolColumn:
        """Return which rows have one of `values`, shape (n,)."""
        codes = [code for code in map(self.book.find, values) if code is not None]
        table = np.zeros(len(self.book), np.bool_)
        table[codes] = True
        return self.spread(table)

    def spread(self, table: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """Return, for each row, the entry that `table` has for its value, shape (n,).

        Args:
            table: one entry per element of `values`, in that order.
        """
        return table.take(self.codes)

    def take(self, rows: NDArray[np.intp]) -> DictionaryColumn[_Value]:
        """Return the column of some rows, in the order given."""
        return DictionaryColumn(self.codes[rows], self.book)


ValuesOf = Callable[[ClusterView], Iterable[_Value | None]]
"""Gives the value of each row of a view, None for a row that has none."""


class Dictionaries:
    """A bounded, least-recently-used memory of dictionary columns of one cluster."""

    def __init__(self, most: int) -> None:
        self._coders: OrderedDict[Hashable, _Coder] = OrderedDict()
        self._most = most

    def get(
        self,
        key: Hashable,
        view: ClusterView,
        domains: Sequence[Domain],
        values_of: ValuesOf[Any],
    ) -> DictionaryColumn[Any]:
        """Return the column `key` for a whole view; see `dictionary_column` for the arguments."""
        coder = self._coders.get(key)
        if coder is None or len(coder.book) > 2 * len(view) + _SPARE_VALUES:
            coder = self._coders[key] = _Coder()
        self._coders.move_to_end(key)
        if len(self._coders) > self._most:
            self._coders.popitem(last=False)
        book = coder.book
        codes = coder.codes.get(None, view, domains, lambda rows: book.encode(values_of(rows)))
        if coder.column is None or coder.column.codes is not codes:
            coder.column = DictionaryColumn(codes, book)
        return coder.column


@dataclass(slots=True)
class _Coder:
    """A book, and the one column written with it that is brought up to date row by row."""

    book: CodeBook[Any] = field(default_factory=CodeBook)
    codes: ColumnCache = field(default_factory=lambda: ColumnCache(1))
    column: DictionaryColumn[Any] | None = None


def dictionary_column(
    view: ClusterView, key: Hashable, domains: Sequence[Domain], values_of: ValuesOf[_Value]
) -> DictionaryColumn[_Value]:
    """Return a column of values by number, remembered; only rows that changed are read again.

    Args:
        view: the rows.
        key: names the column; must tell apart all that `values_of` closes over.
        domains: what the values are made from.
        values_of: row-wise.
    """
    if view.parent is not None:
        whole, rows = view.parent
        return dictionary_column(whole, key, domains, values_of).take(rows)
    if view.caches is None:
        book = CodeBook[_Value]()
        return DictionaryColumn(book.encode(values_of(view)), book)
    return view.caches.dictionaries.get(key, view, domains, values_of)
