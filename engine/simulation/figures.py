"""Figures of a cluster at one moment: how evenly and how full its nodes are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.report import Measure, NodeLevels, Spread
from engine.simulation.arm_cluster import ArmCluster
from engine.simulation.load import RESOURCES
from engine.view import Sum

Percents = Mapping[tuple[Measure, str], NDArray[np.float64]]
"""By measure and resource: percent of allocatable node by node, shape (n,)."""

_DIGITS: Final = 1


def percents(cluster: ArmCluster, nodes: tuple[str, ...]) -> Percents:
    """Return how full each node is; of a resource that a node does not offer, 0.

    Args:
        cluster: at this moment.
        nodes: names, in the order of the result.
    """
    view = cluster.view()
    rows = [view.rows[name] for name in nodes]
    loads = np.array([cluster.load[name] for name in nodes]).reshape(-1, len(RESOURCES))
    result = {}
    for at, resource in enumerate(RESOURCES):
        offered = view.amount(view.allocatable, resource).take(rows)
        amounts = {
            Measure.REQUESTS: view.amount(view.sums[Sum.REQUESTS], resource).take(rows),
            Measure.LIMITS: view.amount(view.sums[Sum.LIMITS], resource).take(rows),
            Measure.LOAD: loads[:, at],
        }
        for measure, amount in amounts.items():
            share = 100 * amount / np.maximum(offered, 1)
            result[measure, resource] = np.where(offered > 0, share, 0.0)
    return result


def spreads(levels: Percents) -> tuple[Spread, ...]:
    """Return the distribution of each measure of each resource over the nodes."""
    return tuple(_spread(*key, column) for key, column in levels.items())


def node_levels(levels: Percents) -> tuple[NodeLevels, ...]:
    """Return the same node by node."""
    return tuple(
        NodeLevels(
            measure=measure, resource=resource, percent=tuple(column.round(_DIGITS).tolist())
        )
        for (measure, resource), column in levels.items()
    )


def hot_nodes(levels: Percents, thresholds: Mapping[str, float]) -> int:
    """Return the number of nodes whose load is above the threshold of any resource."""
    hot = [levels[Measure.LOAD, name] > threshold for name, threshold in thresholds.items()]
    return int(np.count_nonzero(np.any(hot, axis=0)))


def _spread(measure: Measure, resource: str, column: NDArray[np.float64]) -> Spread:
    values = column if column.size else np.zeros(1)
    p50, p90 = np.percentile(values, (50, 90))
    figures = (values.mean(), values.std(), p50, p90, values.max())
    mean, spread, p50, p90, most = (round(float(figure), _DIGITS) for figure in figures)
    return Spread(
        measure=measure, resource=resource, mean=mean, spread=spread, p50=p50, p90=p90, max=most
    )
