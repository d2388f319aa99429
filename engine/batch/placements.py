"""The pods of a batch that have a node by now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.ranking import Ranking
from engine.model.pod import Pod
from engine.view import ClusterView, WhatIf

_LEAST_ROWS: Final = 1024
_ROOM: Final = 4  # for every row that took a pod
_MOST_RANKINGS: Final = 16  # that are looked at; most agree
_OUTSIDE: Final = -1


class Placements:
    """The cluster with the pods of a batch, and the part of it where they are.

    That part is a small cluster of its own, quick to evaluate: the rows that have taken pods, and
    those that probably will. When a pod goes elsewhere, it begins anew.

    Args:
        view: the cluster without them.
        rankings: gives those by which more pods will be placed.

    Attributes:
        what_if: the whole cluster.
        rows: of the pods, in order.
    """

    def __init__(self, view: ClusterView, rankings: Callable[[], Sequence[Ranking]]) -> None:
        self.what_if = WhatIf(view)
        self.rows: list[int] = []
        self._rankings = rankings
        self._part: WhatIf | None = None
        self._place = np.full(len(view), _OUTSIDE, np.intp)

    def add(self, pod: Pod, row: int) -> None:
        """Place a pod."""
        self.rows.append(row)
        self.what_if.place(pod, row)
        if self._part is not None:
            place = int(self._place[row])
            if place == _OUTSIDE:
                self._part = None
            else:
                self._part.place(pod, place)

    def part_with(self, rows: NDArray[np.intp]) -> tuple[ClusterView, NDArray[np.intp]]:
        """Return a view of a part of the cluster, and where in it rows that took pods are."""
        if self._part is None:
            part = self._rows_of_part()
            self._place[:] = _OUTSIDE
            self._place[part] = np.arange(part.size)
            self._part = self.what_if.take(part)
        return self._part.view, self._place.take(rows)

    def _rows_of_part(self) -> NDArray[np.intp]:
        """Return the rows that took pods, and those that are among the best of some rankings."""
        n, touched = self._place.size, np.unique(self.rows)
        most = max(_LEAST_ROWS, _ROOM * touched.size)
        if most > n // 2:
            return np.arange(n)
        some = self._rankings()[-_MOST_RANKINGS:]
        best = [ranking.best_rows(most - touched.size) for ranking in some]
        votes = np.bincount(np.concatenate(best), minlength=n)
        votes[touched] = len(best) + 1
        return np.sort(np.argpartition(votes, -most)[-most:])
