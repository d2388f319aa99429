"""LoadAware's sums per node: what reports and estimates say its pods use.

Source: Koordinator, pkg/scheduler/plugins/loadaware (pod_assign_cache.go, estimator).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.model.pod import PodShape
    from engine.model.resources import Amounts
    from engine.model.usage import NodeUsage
    from engine.view.axis import IntColumn
    from engine.view.pod_table import PodTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProfile:
    """The arguments of LoadAware that its sums depend on; rules with equal ones share the sums.

    Attributes:
        known: resource names, sorted; the first axis of every sum.
        factors: estimation factor in percent by resource name.
        seconds_after_scheduled: forced estimation window, 0 for none.
        seconds_after_initialized: forced estimation window, 0 for none.
        customize: whether a pod's own annotations are honoured.
        include_system: whether usage outside pods counts as production usage.
    """

    known: tuple[str, ...]
    factors: tuple[tuple[str, int], ...]
    seconds_after_scheduled: int = 0
    seconds_after_initialized: int = 0
    customize: bool = False
    include_system: bool = False


@dataclass(frozen=True, slots=True)
class LoadSums:
    """Per known resource and node, shape (n_known, n) each, base units.

    Attributes:
        node_delta: what estimates add to the reported usage of the node.
        node_estimated: the full estimates of all its pods.
        prod_usage: reported usage of its production pods.
        prod_delta: what estimates add to that.
    """

    node_delta: IntColumn
    node_estimated: IntColumn
    prod_usage: IntColumn
    prod_delta: IntColumn

    def take(self, rows: NDArray[np.intp]) -> LoadSums:
        """Return the sums of some rows."""
        return LoadSums(
            self.node_delta[:, rows],
            self.node_estimated[:, rows],
            self.prod_usage[:, rows],
            self.prod_delta[:, rows],
        )


class LoadTracker:
    """Keeps the sums of one profile up to date."""

    def __init__(self, profile: LoadProfile) -> None:
        self.profile = profile
        self.sums: LoadSums
        self._version = -1

    def refresh(
        self,
        pods: PodTable,
        usages: Sequence[NodeUsage | None],
        changed: IntColumn,
        version: int,
    ) -> None:
        """Bring `sums` up to `version`: redo the rows whose pods or report changed since.

        Arrays given out before are never written again.
        """
        raise NotImplementedError
