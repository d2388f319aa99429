"""The points that the scheduler's scores give to the nodes it chooses among.

Source: pkg/scheduler/apis/config/v1/default_plugins.go and framework/runtime/framework.go
(RunScorePlugins). Each score gives 0..MAX_SCORE, normalised over these nodes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.plugins import PLUGINS, Score
from engine.plugins.lib.spread_constraints import SpreadConstraint
from engine.simulation.scheduler.pod_affinity import affinity_points
from engine.simulation.scheduler.topology_spread import (
    SYSTEM_DEFAULT_CONSTRAINTS,
    spread_points,
)
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

_NOT_PLUGINS: Final = frozenset({"PodTopologySpread", "InterPodAffinity"})
"""Those that no policy can name: what they give a node depends on the nodes that compete."""


def _score(name: str) -> Score:
    """Return the score of a plugin with its default args."""
    plugin = PLUGINS[name]
    assert plugin.score is not None  # noqa: S101 - all of them are scores
    score: Score = plugin.score(plugin.args())
    return score


_PLUGINS: Final = {name: _score(name) for name in WEIGHTS if name not in _NOT_PLUGINS}


def scores(
    pod: Pod,
    view: ClusterView,
    rows: NDArray[np.intp],
    now: Micros,
    default_constraints: Sequence[SpreadConstraint] = SYSTEM_DEFAULT_CONSTRAINTS,
) -> dict[str, IntColumn]:
    """Return the points of some rows by the name of the score, before they are weighed.

    Args:
        pod: the pod.
        view: the cluster.
        rows: the nodes that compete, at least one.
        now: the moment.
        default_constraints: of topology spread, for a pod that has none.
    """
    points = {
        name: score.normalize(score.score(pod, view, now).values.take(rows))
        for name, score in _PLUGINS.items()
    }
    points["PodTopologySpread"] = spread_points(pod, view, rows, default_constraints)
    points["InterPodAffinity"] = affinity_points(pod, view, rows)
    return points


def weighted_sum(points: Mapping[str, IntColumn]) -> IntColumn:
    """Return the total of each row."""
    total: IntColumn = np.add.reduce([WEIGHTS[name] * of for name, of in points.items()])
    return total
