"""Dictionary columns: a small number per row in place of a value that many rows share.

A question about a value is answered once per distinct value and taken to the rows by number. This
serves labels and taints, and any other hashable value of a row.

A `CodeBook` only grows, so a number means the same value in every column and view it was given to.
Once most of its values are gone from the cluster a new book takes its place; columns of the old one
keep the old one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.view.axis import BoolColumn

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
