"""The points that the scheduler's scores give to the nodes it chooses among.

Source: pkg/scheduler/apis/config/v1/default_plugins.go and framework/runtime/framework.go
(RunScorePlugins). Each score gives 0..MAX_SCORE, normalised over these nodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.plugins import PLUGINS
from engine.view import ClusterView, IntColumn

Points: TypeAlias = Callable[[Pod, ClusterView, NDArray[np.intp], Micros], IntColumn]
"""Gives the points of some rows, 0..MAX_SCORE, aligned with them."""

WEIGHTS: Final[Mapping[str, int]] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


def _points_of(name: str) -> Points:
    """Return the score of a plugin with its default args."""
    plugin = PLUGINS[name]
    assert plugin.score is not None  # noqa: S101 - all of them are scores
    score = plugin.score(plugin.args())

    def points(pod: Pod, view: ClusterView, rows: NDArray[np.intp], now: Micros) -> IntColumn:
        return score.normalize(score.score(pod, view, now).values.take(rows))

    return points


_SCORES: Final[Mapping[str, Points]] = {name: _points_of(name) for name in WEIGHTS}


def scores(
    pod: Pod, view: ClusterView, rows: NDArray[np.intp], now: Micros
) -> dict[str, IntColumn]:
    """Return the points of some rows by the name of the score, before they are weighed."""
    return {name: points(pod, view, rows, now) for name, points in _SCORES.items()}


def weighted_sum(points: Mapping[str, IntColumn]) -> IntColumn:
    """Return the total of each row."""
    total: IntColumn = np.add.reduce([WEIGHTS[name] * of for name, of in points.items()])
    return total
