"""The points that the scheduler's scores give to the nodes it chooses among.

Source: pkg/scheduler/framework/runtime/framework.go (RunScorePlugins). Each score gives
0..MAX_SCORE, normalised over these nodes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.plugins import Score, ScoreAmong
from engine.policy import SCHEDULER_WEIGHTS
from engine.simulation.scheduler.columns import NodeColumns, image_points, score_of
from engine.view import ClusterView, IntColumn

_WISHES: Final = {
    name: score_of(name)
    for name in ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity")
}
"""Scores of what a pod asks for."""


def scores(
    pod: Pod, view: ClusterView, rows: NDArray[np.intp], now: Micros, columns: NodeColumns
) -> dict[str, IntColumn]:
    """Return the points of some rows by the name of the score, before they are weighed.

    Args:
        pod: the pod.
        view: the cluster.
        rows: the nodes that compete, at least one.
        now: the moment.
        columns: what is known of each node for the pod.
    """
    wishes = {
        name: score.normalize(_raw(score, pod, view, rows, now)) for name, score in _WISHES.items()
    }
    return {
        **wishes,
        "NodeResourcesFit": columns.fit.take(rows),
        "NodeResourcesBalancedAllocation": columns.balance.take(rows),
        "ImageLocality": image_points(pod, view, now).take(rows),
    }


def _raw(
    score: Score, pod: Pod, view: ClusterView, rows: NDArray[np.intp], now: Micros
) -> IntColumn:
    if isinstance(score, ScoreAmong):
        return score.score_among(pod, view, now, rows).values
    return score.score(pod, view, now).values.take(rows)


def weighted_sum(points: Mapping[str, IntColumn]) -> IntColumn:
    """Return the total of each row."""
    weighted = [SCHEDULER_WEIGHTS[name] * of for name, of in points.items()]
    total: IntColumn = np.add.reduce(weighted)
    return total
