"""The pods of a batch that have a node by now."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.batch.ranking import Ranking
from engine.model.pod import Pod
from engine.view import ClusterView, IntColumn, WhatIf

_LEAST_ROWS: Final = 512
_ROOM: Final = 4  # for every row that took a pod
_MOST_RANKINGS: Final = 16  # that are looked at; most agree
_LATEST: Final = 256  # that took pods: others will be looked at by the pods of rare templates alone
_OUTSIDE: Final = -1


class Placements:
    """The cluster with the pods of a batch, and the part of it where they are.

    That part is a small cluster of its own, quick to evaluate: the rows that have taken pods, and
    those that probably will. When a pod goes elsewhere, it begins anew. Pods are counted when
    somebody looks.

    Args:
        view: the cluster without them.
        rankings: gives those by which more pods will be placed.

    Attributes:
        rows: of the pods, in order.
        repelling: how many of them keep others away.
    """

    def __init__(self, view: ClusterView, rankings: Callable[[], Sequence[Ranking]]) -> None:
        self.rows: list[int] = []
        self.repelling = 0
        self._pods: list[Pod] = []
        self._whole = WhatIf(view)
        self._in_whole = 0  # pods that are counted there
        self._waiting_for: set[Hashable] = set()  # templates of those that are not
        self._rankings = rankings
        self._part: WhatIf | None = None
        self._in_part = 0
        self._place = np.full(len(view), _OUTSIDE, np.intp)

    @property
    def what_if(self) -> WhatIf:
        """The whole cluster, right until the next pod is placed."""
        new, self._in_whole = slice(self._in_whole, None), len(self.rows)
        if self._pods[new]:
            self._whole.place_each(self._pods[new], self.rows[new])
            self._waiting_for.clear()
        return self._whole

    def add(self, pod: Pod, row: int, template: Hashable | None = None) -> None:
        """Place a pod.

        Args:
            pod: the pod.
            row: where.
            template: the one of the pod; None if it counts there unlike others of its template.
        """
        self.rows.append(row)
        self.repelling += bool(pod.pod_anti_affinity)
        self._pods.append(pod)
        self._waiting_for.add(template)

    def ahead(
        self, pod: Pod, template: Hashable, rows: NDArray[np.intp], counts: IntColumn
    ) -> ClusterView:
        """Return rows as they would be if so many more pods of a template were on each.

        See `WhatIf.ahead`, also for what `counts` is. Pods of the template that are placed are not
        counted one by one for it.
        """
        if not self._waiting_for <= {template}:
            return self.what_if.ahead(pod, rows, counts)
        waiting = np.array(self.rows[self._in_whole :], np.intp)
        placed = np.bincount(waiting, minlength=self._place.size)
        return self._whole.ahead(pod, rows, counts + placed.take(rows))

    def is_reported(self, pod: Pod, row: int) -> bool:
        """Return whether the usage report of a row knows a pod; see `WhatIf.is_reported`."""
        return self._whole.is_reported(pod, row)

    def part_with(self, rows: NDArray[np.intp]) -> tuple[ClusterView, NDArray[np.intp]]:
        """Return a view of a part of the cluster, and where in it rows that took pods are."""
        part, new, self._in_part = self._part, slice(self._in_part, None), len(self.rows)
        places = self._place.take(self.rows[new])
        needed = self._place.take(rows)
        if part is None or min(places.min(initial=0), needed.min(initial=0)) == _OUTSIDE:
            own = self._rows_of_part(rows)
            self._place[:] = _OUTSIDE
            self._place[own] = np.arange(own.size)
            part = self._part = self.what_if.take(own)
        elif places.size:
            part.place_each(self._pods[new], places.tolist())
        return part.view, self._place.take(rows)

    def _rows_of_part(self, needed: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return rows that are needed, the latest, and those that are the best of some rankings."""
        n, touched = self._place.size, np.union1d(needed, self.rows[-_LATEST:])
        most = max(_LEAST_ROWS, _ROOM * touched.size)
        if most > n // 2:
            return np.arange(n)
        latest = self._rankings()[-_MOST_RANKINGS:]
        best = [ranking.best_rows(most - touched.size) for ranking in latest]
        votes = np.bincount(np.concatenate(best), minlength=n)
        votes[touched] = len(best) + 1
        return np.sort(np.argpartition(votes, -most)[-most:])
