"""Sets of nodes described by a label: exact, constant in size, and right for nodes to come."""

from __future__ import annotations

from collections.abc import Sequence

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
        self._columns = [
            (label, column, _counts(column, others))
            for label in labels
            for column in (label_column(view, label),)
        ]

    def describe(self, rows: NDArray[np.intp]) -> Requirement | None:
        """Return what exactly the nodes at `rows` meet of all reachable ones, None if nothing.

        Args:
            rows: at least one, without repeats, none of them unreachable.
        """
        for label, column, counts in self._columns:
            codes = _exact_codes(column.codes, counts, rows)
            if codes:
                values = sorted(column.values[code] or "" for code in codes)
                return requirement(label, Operator.IN, values)
        return None


def _counts(column: LabelColumn, others: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return how many nodes have each value, apart from `others`."""
    if not others.size:
        return column.counts
    return column.counts - np.bincount(column.codes[others], minlength=column.counts.size)


def _exact_codes(
    codes: NDArray[np.int32], counts: NDArray[np.int64], rows: NDArray[np.intp]
) -> list[int]:
    """Return the numbers of the few values that all of `rows` have and no other node, or none.

    Most sets that are no group are told by their first node, most others by a few.
    """
    if counts[codes[rows[0]]] > rows.size:
        return []
    for some in (rows[:_SAMPLE], rows):
        found = np.flatnonzero(np.bincount(codes[some]))
        if (
            found[0] == MISSING
            or found.size > MAX_VALUES
            or counts[found].sum() > rows.size  # never less over all of `rows`
        ):
            return []
    return found.tolist()
