"""Figures of a cluster at one moment: how evenly and how full its nodes are."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.quantity import CPU
from engine.model.time import SECOND
from engine.plugins.load_aware.estimation import capacity
from engine.report import Crowd, Measure, NodeLevels, NodeTime, Replicas, Spread, owner_of
from engine.report.nodes import Owner
from engine.simulation.arms import ArmCluster
from engine.simulation.arrivals import RESOURCES
from engine.view import IntColumn, Sum

# How even nodes could be at best: a lower bound, as if pods were divisible and fitted anywhere.
#
# A convex problem: the levels x of nodes of sizes c, of which what stays fills a, are to have the
# least variance, where x >= a and the amounts, the sum of c x, are given. Its minimum has x =
# max(a, m + s c), with m the mean of x, and one s for all nodes (Karush, Kuhn and Tucker). The
# least sum of (x - t)^2 is convex in t, so m is found by bisection; each s is exact.


Levels: TypeAlias = NDArray[np.float64]

_STEPS: Final = 60  # halvings: from 100 % to less than what a double tells apart
_ROUNDING: Final = 1e-9


def least_spread(levels: Levels, fixed: Levels, sizes: Levels) -> float | None:
    """Return the least standard deviation of levels with the same amounts; None if not known.

    Args:
        levels: of each node, (n,).
        fixed: how much of that cannot be elsewhere, (n,); of a node that has less, nothing is
            known: some of what was fixed has gone.
        sizes: of each node, (n,); one of size 0 keeps its level.
    """
    if not levels.size or (levels < fixed - _ROUNDING).any():
        return None
    total = float(sizes @ levels)
    low, high = 0.0, float(max(levels.max(), total / sizes[sizes > 0].min(initial=np.inf)))
    for _ in range(_STEPS):
        target = (low + high) / 2
        found = _nearest(target, fixed, sizes, total)
        if found.mean() > target:
            low = target
        else:
            high = target
    return float(_nearest(high, fixed, sizes, total).std())


def _nearest(target: float, fixed: Levels, sizes: Levels, total: float) -> Levels:
    """Return the levels nearest to a target, by the sum of squares, with this total amount."""
    nodes = np.flatnonzero(sizes)
    starts = (fixed[nodes] - target) / sizes[nodes]  # the slope from which on a node gets more
    order = nodes[np.argsort(starts)]
    starts = np.sort(starts)
    # Of the first so many nodes that get more: total = rest + target * sum of c + s * sum of c^2.
    rest = float(sizes @ fixed) - (sizes[order] * fixed[order]).cumsum()
    slopes = (total - rest - target * sizes[order].cumsum()) / (sizes[order] ** 2).cumsum()
    enough = np.append(slopes[:-1] <= starts[1:], True)
    levels = fixed.copy()
    if nodes.size:
        slope = slopes[int(enough.argmax())]
        levels[nodes] = np.maximum(fixed[nodes], target + slope * sizes[nodes])
    return levels


_HOUR: Final = 3_600 * SECOND
_MILLI: Final = 1_000
_DIGITS: Final = 1
SHOWN: Final = 10**-_DIGITS
"""The unit of percent that figures are shown in."""


class NodeClock:
    """Adds up what `NodeTime` says; moments are microseconds since the first arrival."""

    def __init__(self) -> None:
        self._at = 0
        self._nodes = 0  # node-microseconds
        self._millicores = 0
        self._evictions = 0
        self._waited = 0
        self._longest = 0
        self._since: dict[int, int] = {}

    def pass_to(self, at: int, nodes: Iterable[Node]) -> None:
        """Let these nodes be there from the last moment to this one."""
        spent, self._at = at - self._at, at
        for node in nodes:
            self._nodes += spent
            self._millicores += spent * node.allocatable.get(CPU, 0)

    def evicted(self) -> None:
        """Note that a pod loses its node."""
        self._evictions += 1

    def waits(self, number: int, at: int) -> None:
        """Note that a pod waits from a moment on, if it did not before."""
        self._since.setdefault(number, at)

    def waits_no_more(self, number: int, at: int) -> None:
        """Note that a pod has a node, or has ended, at a moment."""
        waited = at - self._since.pop(number, at)
        self._waited += waited
        self._longest = max(self._longest, waited)

    def figures(self) -> NodeTime:
        """Return the figures at the last moment; pods that still wait count until then."""
        for number in [*self._since]:
            self.waits_no_more(number, self._at)
        return NodeTime(
            node_hours=round(self._nodes / _HOUR, _DIGITS),
            core_hours=round(self._millicores / _MILLI / _HOUR, _DIGITS),
            evictions=self._evictions,
            waiting_hours=round(self._waited / _HOUR, _DIGITS),
            longest_wait=self._longest // SECOND,
        )


Percents = Mapping[tuple[Measure, str], NDArray[np.float64]]
"""By measure and resource: percent of allocatable node by node, shape (n,); NaN where it is gone.

Load is a share of what nodes have before amplification, as LoadAware compares it.
"""

Leasts = Mapping[tuple[Measure, str], float | None]
"""The least standard deviation by measure and resource, None where it is not known."""


def percents(cluster: ArmCluster, nodes: tuple[str, ...]) -> Percents:
    """Return how full each node is; of a resource that a node does not offer, 0."""
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
    """Return the least standard deviation of each measure of each resource."""
    result: dict[tuple[Measure, str], float | None] = {}
    for key, column in levels.items():
        here = ~np.isnan(column)
        parts = (column[here], fixed[key][here], np.maximum(offered[key][here], 0))
        result[key] = least_spread(*parts)
    return result


def _share(amount: IntColumn, offered: IntColumn) -> NDArray[np.float64]:
    return np.where(offered > 0, 100 * amount / np.maximum(offered, 1), 0.0)


def spreads(levels: Percents, leasts: Leasts = MappingProxyType({})) -> tuple[Spread, ...]:
    """Return the distribution of each measure of each resource over the nodes."""
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


def hottest(levels: Percents, thresholds: Mapping[str, float]) -> tuple[int, str] | None:
    """Return the hot node furthest above a threshold, and the resource; None without a hot one."""
    if not hot_nodes(levels, thresholds):
        return None
    excess = {
        name: np.nan_to_num(levels[Measure.LOAD, name]) - threshold
        for name, threshold in thresholds.items()
    }
    resource = max(excess, key=lambda name: excess[name].max())
    return int(excess[resource].argmax()), resource


def shown(percent: float) -> float:
    """Return a percentage as it is shown."""
    return round(float(percent), _DIGITS)


def largest_crowd(pods: Iterable[Pod], owners: Container[Owner]) -> Crowd:
    """Return the most pods of one owner on one node."""
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
