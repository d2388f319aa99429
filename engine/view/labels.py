"""Dictionary columns: a small number per row in place of a value that few rows have alone.

A question about a value is answered once per distinct value and taken to the rows by number. This
serves labels and taints, and any other hashable value a row has.

How the numbering stays right: a `CodeBook` only ever grows, so a number means the same value in
every column and every view it was given to. When most of its values are gone from the cluster a
new book takes its place, and columns of the old one keep the old one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.view.axis import BoolColumn
from engine.view.cluster_view import ClusterView, Domain
from engine.view.column_cache import ColumnCache

MISSING = 0
"""The code of a row that has no value."""

_SPARE_VALUES = 64  # a small cluster's book may hold so many values that no row has any more

_Value = TypeVar("_Value", bound=Hashable)
_Scalar = TypeVar("_Scalar", bound=np.generic)


class CodeBook(dict[_Value | None, int], Generic[_Value]):
    """Numbers for values, given in order of first use and never taken back.

    Looking up a value that has none gives it the next one. Values that are equal share a number:
    who must tell 1 from True adds the type to the value.

    Attributes:
        values: the value of each number; that of MISSING is None.
    """

    def __init__(self) -> None:
        super().__init__({None: MISSING})
        self.values: list[_Value | None] = [None]

    def __missing__(self, value: _Value) -> int:
        number = self[value] = len(self.values)
        self.values.append(value)
        return number
