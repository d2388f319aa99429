"""Sets of nodes described by a label: exact, constant in size, and right for nodes to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.model.selectors import Operator
from engine.placement.affinity import Requirement, requirement
from engine.view import BoolColumn, ClusterView, LabelColumn, label_column
from engine.view.dictionary import MISSING

MAX_VALUES = 8
"""The most values of a label in one requirement."""

_SAMPLE = 32


class Groups:
    """The sets of nodes that a few values of one of some labels describe exactly.

    Args:
        view: all nodes.
        labels: which labels may be used; of several that fit, the first is.
        unreachable: (n,), nodes that the scheduler itself rejects. A label may also stand for
            them: one full or cordoned node in a zone does not make the zone a worse description.
    """

    def __init__(self, view: ClusterView, labels: Sequence[str], unreachable: BoolColumn) -> None:
        others = np.flatnonzero(unreachable & view.valid)
        columns = ((label, label_column(view, label)) for label in labels)
        self._labels = [
            _Label(label, column, others)
            for label, column in columns
            if len(column.book) > 1  # most are of other clouds: MISSING is all there is
        ]

    def describe(self, rows: NDArray[np.intp]) -> Requirement | None:
        """Return what exactly the nodes at `rows` meet of all reachable ones, None if nothing.

        Args:
            rows: at least one, without repeats, none of them unreachable.
        """
        for label in self._labels:
            values = label.exactly(rows)
            if values:
                return requirement(label.key, Operator.IN, values)
        return None


@dataclass(frozen=True)
class _Label:
    """A label of all nodes.

    Attributes:
        key: its name.
        column: its values.
        others: rows of nodes that it may also stand for.
    """

    key: str
    column: LabelColumn
    others: NDArray[np.intp]

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """How many nodes have each value, apart from `others`."""
        counts = self.column.counts
        if not self.others.size:
            return counts
        return counts - np.bincount(self.column.codes[self.others], minlength=counts.size)

    def exactly(self, rows: NDArray[np.intp]) -> list[str]:
        """Return the few values that all of `rows` have and no other node, or none.

        Most sets that are no group are told by their first node, most others by a few.
        """
        codes, first = self.column.codes, self.column.codes[rows[0]]
        if first == MISSING or self._counts[first] > rows.size:
            return []
        for some in (rows[:_SAMPLE], rows):
            found = np.flatnonzero(np.bincount(codes[some]))
            if (
                found[0] == MISSING
                or found.size > MAX_VALUES
                or self._counts[found].sum() > rows.size  # never less over all of `rows`
            ):
                return []
        return sorted(self.column.values[code] or "" for code in found.tolist())
