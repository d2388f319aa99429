"""The label by which a term can list nodes: `kubernetes.io/hostname`.

A value that is missing or shared does not identify a node, so such a node cannot be listed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.model.well_known import HOSTNAME_LABEL
from engine.view import MISSING, BoolColumn, ClusterView, label_column

NOT_LISTABLE = f"label {HOSTNAME_LABEL} is missing or not unique"
"""Why a node is not listed, for warnings."""


class Hostnames:
    """The hostname labels of a view."""

    def __init__(self, view: ClusterView) -> None:
        self._column = label_column(view, HOSTNAME_LABEL)

    def listable(self, rows: NDArray[np.intp]) -> BoolColumn:
        """Return which of `rows` have a unique hostname."""
        codes = self._column.codes[rows]
        listable: BoolColumn = (self._column.counts[codes] == 1) & (codes != MISSING)
        return listable

    def of(self, rows: NDArray[np.intp]) -> list[str | None]:
        """Return the hostname of each of `rows`, None where it is not listable."""
        codes = self._column.codes.take(rows)
        uses = self._column.counts.take(codes)
        values = self._column.values
        return [
            values[code] if used == 1 else None
            for code, used in zip(codes.tolist(), uses.tolist(), strict=True)
        ]
