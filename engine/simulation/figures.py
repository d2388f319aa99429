"""Figures of a cluster at one moment: how evenly and how full its nodes are."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.plugins.load_aware.usage import capacity
from engine.report import Crowd, Measure, NodeLevels, Replicas, Spread, owner_of
from engine.report.replicas import Owner
from engine.simulation.arm_cluster import ArmCluster
from engine.simulation.least_spread import least_spread
from engine.simulation.load import RESOURCES
from engine.view import IntColumn, Sum

Percents = Mapping[tuple[Measure, str], NDArray[np.float64]]
"""By measure and resource: percent of allocatable node by node, shape (n,); NaN where it is gone.

Load is a share of what nodes have before amplification, as LoadAware compares it.
"""

Leasts = Mapping[tuple[Measure, str], float | None]
"""The least standard deviation by measure and resource, None where it is not known."""

_DIGITS: Final = 1


def percents(cluster: ArmCluster, nodes: tuple[str, ...]) -> Percents:
    """Return how full each node is; of a resource that a node does not offer, 0.

    Args:
        cluster: at this moment.
        nodes: names, in the order of the result.
    """
    view = cluster.view()
    is_here = np.array([view.rows.get(name) is not None for name in nodes], np.bool_)
    rows = [view.rows.get(name, 0) for name in nodes]
    loads = np.array([cluster.load[name] for name in nodes]).reshape(-1, len(RESOURCES))
    raw = capacity(view, RESOURCES)[:, rows]
    result = {}
    for at, resource in enumerate(RESOURCES):
        offered = view.amount(view.allocatable, resource).take(rows)
        requested = view.amount(view.sums[Sum.REQUESTS], resource).take(rows)
        limited = view.amount(view.sums[Sum.LIMITS], resource).take(rows)
        result[Measure.REQUESTS, resource] = _share(requested, offered)
        result[Measure.LIMITS, resource] = _share(limited, offered)
        result[Measure.LOAD, resource] = _share(loads[:, at], raw[at])
    return {key: np.where(is_here, column, np.nan) for key, column in result.items()}


def sizes(cluster: ArmCluster, nodes: tuple[str, ...]) -> Percents:
    """Return what each node offers, by the same keys as `percents`."""
    view = cluster.view()
    rows = [view.rows[name] for name in nodes]
    raw = capacity(view, RESOURCES)[:, rows].astype(np.float64)
    result = {}
    for at, resource in enumerate(RESOURCES):
        offered = view.amount(view.allocatable, resource).take(rows).astype(np.float64)
        result[Measure.REQUESTS, resource] = result[Measure.LIMITS, resource] = offered
        result[Measure.LOAD, resource] = raw[at]
    return result


def least_spreads(levels: Percents, fixed: Percents, offered: Percents) -> Leasts:
    """Return the least standard deviation of each measure of each resource.

    Args:
        levels: of nodes, as they are.
        fixed: their levels without the pods that were placed.
        offered: what they offer.
    """
    result: dict[tuple[Measure, str], float | None] = {}
    for key, column in levels.items():
        here = ~np.isnan(column)
        parts = (column[here], fixed[key][here], np.maximum(offered[key][here], 0))
        result[key] = least_spread(*parts)
    return result


def _share(amount: IntColumn, offered: IntColumn) -> NDArray[np.float64]:
    return np.where(offered > 0, 100 * amount / np.maximum(offered, 1), 0.0)


def spreads(levels: Percents, leasts: Leasts = MappingProxyType({})) -> tuple[Spread, ...]:
    """Return the distribution of each measure of each resource over the nodes.

    Args:
        levels: of the nodes.
        leasts: the least spreads, as far as they are known.
    """
    return tuple(_spread(*key, column, leasts.get(key)) for key, column in levels.items())


def node_levels(levels: Percents) -> tuple[NodeLevels, ...]:
    """Return the same node by node, 0 where a node is gone."""
    return tuple(
        NodeLevels(
            measure=measure,
            resource=resource,
            percent=tuple(np.nan_to_num(column).round(_DIGITS).tolist()),
        )
        for (measure, resource), column in levels.items()
    )


def hot_nodes(levels: Percents, thresholds: Mapping[str, float]) -> int:
    """Return the number of nodes whose load, as it is shown, is above any threshold."""
    hot = [
        levels[Measure.LOAD, name].round(_DIGITS) > threshold
        for name, threshold in thresholds.items()
    ]
    return int(np.count_nonzero(np.any(hot, axis=0)))


def largest_crowd(pods: Iterable[Pod], owners: Container[Owner]) -> Crowd:
    """Return the most pods of one owner on one node.

    Args:
        pods: all that are bound.
        owners: those that are looked at.
    """
    replicas = Replicas()
    for pod in pods:
        if owner_of(pod) in owners:
            replicas.set(pod)
    return replicas.crowd()


def _spread(
    measure: Measure, resource: str, column: NDArray[np.float64], least: float | None
) -> Spread:
    here = column[~np.isnan(column)]
    values = here if here.size else np.zeros(1)
    p50, p90 = np.percentile(values, (50, 90))
    figures = (values.mean(), values.std(), p50, p90, values.max())
    mean, spread, p50, p90, most = (round(float(figure), _DIGITS) for figure in figures)
    return Spread(
        measure=measure,
        resource=resource,
        mean=mean,
        spread=spread,
        p50=p50,
        p90=p90,
        max=most,
        least=None if least is None else round(least, _DIGITS),
    )
