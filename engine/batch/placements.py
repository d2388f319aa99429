"""The pods of a batch that have a node by now."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.view import ClusterView, IntColumn, WhatIf


class Placements:
    """The cluster with the pods of a batch.

    Pods are counted when somebody looks.

    Args:
        view: the cluster without them.

    Attributes:
        rows: of the pods, in order.
        sociable: how many of them want others near or away.
    """

    def __init__(self, view: ClusterView) -> None:
        self.rows: list[int] = []
        self.sociable = 0
        self._pods: list[Pod] = []
        self._whole = WhatIf(view)
        self._in_whole = 0  # pods that are counted there
        self._waiting_for: set[Hashable] = set()  # templates of those that are not
        self._nodes = len(view)

    @property
    def what_if(self) -> WhatIf:
        """The whole cluster, right until the next pod is placed."""
        new, self._in_whole = slice(self._in_whole, None), len(self.rows)
        if self._pods[new]:
            self._whole.place_each(self._pods[new], self.rows[new])
            self._waiting_for.clear()
        return self._whole

    def add(self, pod: Pod, row: int, template: Hashable | None = None) -> bool:
        """Place a pod.

        Args:
            pod: the pod.
            row: where.
            template: the one of the pod; None if it is one of its kind.

        Returns:
            Whether it counts there unlike others of its template; see `WhatIf.is_reported`.
        """
        is_reported = self._whole.is_reported(pod, row)
        self.rows.append(row)
        if (
            pod.pod_anti_affinity
            or pod.pod_affinity
            or pod.preferred_pod_affinity
            or pod.preferred_pod_anti_affinity
        ):
            self.sociable += 1
        self._pods.append(pod)
        self._waiting_for.add(None if is_reported else template)
        return is_reported

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
        placed = np.bincount(waiting, minlength=self._nodes)
        return self._whole.ahead(pod, rows, counts + placed.take(rows))
