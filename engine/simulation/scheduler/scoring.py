"""The points that the scheduler's scores give to the nodes it chooses among.

Source: pkg/scheduler/apis/config/v1/default_plugins.go and framework/runtime/framework.go
(RunScorePlugins). Each score gives 0..MAX_SCORE, normalised over these nodes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.simulation.scheduler.columns import NodeColumns, image_points, score_of
from engine.simulation.scheduler.pod_affinity import affinity_points
from engine.simulation.scheduler.topology_spread import SoftSpread, spread_points
from engine.view import ClusterView, IntColumn

WEIGHTS: Final[Mapping[str, int]] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""The weights of the scores."""

_AFFINITY: Final = score_of("NodeAffinity")
_TAINTS: Final = score_of("TaintToleration")


def scores(
    pod: Pod,
    view: ClusterView,
    rows: NDArray[np.intp],
    now: Micros,
    columns: NodeColumns,
    spread: SoftSpread,
) -> dict[str, IntColumn]:
    """Return the points of some rows by the name of the score, before they are weighed.

    Args:
        pod: the pod.
        view: the cluster.
        rows: the nodes that compete, at least one.
        now: the moment.
        columns: what is known of each node for the pod, pods by the selectors of `spread` included.
        spread: the constraints of the pod.
    """
    affinity = _AFFINITY.score(pod, view, now).values.take(rows)
    return {
        "TaintToleration": _TAINTS.normalize(columns.taints.take(rows)),
        "NodeAffinity": _AFFINITY.normalize(affinity),
        "NodeResourcesFit": columns.fit.take(rows),
        "PodTopologySpread": spread_points(spread, pod, view, rows, columns.matching),
        "InterPodAffinity": affinity_points(pod, view, rows),
        "NodeResourcesBalancedAllocation": columns.balance.take(rows),
        "ImageLocality": image_points(pod, view, now).take(rows),
    }


def weighted_sum(points: Mapping[str, IntColumn]) -> IntColumn:
    """Return the total of each row."""
    total: IntColumn = np.add.reduce([WEIGHTS[name] * of for name, of in points.items()])
    return total
