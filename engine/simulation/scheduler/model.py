"""The scheduler as a function of a pod and a cluster, with the state that it keeps between pods."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.rule_outcomes import and_not
from engine.model.selectors import named_nodes
from engine.model.time import Micros
from engine.placement import nodes_to_find
from engine.plugins import PLUGINS
from engine.policy import SCHEDULER_FILTERS
from engine.simulation.scheduler.columns import NodeColumns, filter_of, node_columns
from engine.simulation.scheduler.sampling import node_order, search
from engine.simulation.scheduler.scoring import scores, weighted_sum
from engine.view import BoolColumn, ClusterView, IntColumn

_FILTERS: Final = {rule.name: filter_of(rule.name) for rule in SCHEDULER_FILTERS}
_NEIGHBOURS: Final = ("NodePorts", "PodTopologySpread", "InterPodAffinity")
"""Filters that look at ports, or at pods of other nodes; they seldom concern a pod."""


class SchedulerModel:
    """Places pods as kube-scheduler with its default configuration would, one after the other.

    What it does not model: volumes, devices and preemption. Equal calls in equal order give equal
    nodes.

    Args:
        seed: of the choice among nodes that are equally good.
        percentage_of_nodes_to_score: as in the scheduler's configuration; 0 lets the number of
            nodes decide.
    """

    def __init__(self, seed: int, *, percentage_of_nodes_to_score: int = 0) -> None:
        self._random = Random(seed)  # noqa: S311 (no secret)
        self._percentage = percentage_of_nodes_to_score
        self._start = 0

    def place(self, request: PlacementRequest, view: ClusterView, now: Micros) -> str:
        """Return the name of the node for a pod, "" if no node can take it.

        Args:
            request: the pod, with what is written on it for the scheduler.
            view: the cluster without it.
            now: the moment.
        """
        pod = request.pod
        columns = node_columns(pod, view, now)
        passes = _passing(columns, pod, view, now)

        # 1. A nomination ends the search.
        nominated = pod.nominated_node_name
        row = view.rows.get(nominated) if nominated else None
        if row is not None and passes[row]:
            return nominated

        # 2. Look for enough feasible nodes, from where the last search ended.
        everywhere = node_order(view)
        order = _narrowed(everywhere, pod, view)
        most = nodes_to_find(order.size, self._percentage)
        feasible, looked_at = search(order, passes, self._start, most)
        if everywhere.size:
            self._start = (self._start + looked_at) % everywhere.size
        if not feasible.size:
            return ""

        # 3. Score them, unless there is no choice.
        best = feasible
        if feasible.size > 1:
            totals = weighted_sum(scores(pod, view, feasible, now, columns))
            best = feasible[totals == totals.max()]
        return view.names[int(best[self._random.randrange(best.size)])]


def passing_nodes(pod: Pod, view: ClusterView, now: Micros) -> BoolColumn:
    """Return which nodes pass the filters, (n,)."""
    return _passing(node_columns(pod, view, now), pod, view, now)


def node_scores(pod: Pod, view: ClusterView, now: Micros) -> dict[str, IntColumn]:
    """Return the points of all nodes that pass the filters, by the name of the score.

    As if all of them were looked at; aligned with the rows that `passing_nodes` gives, empty where
    there are none.
    """
    columns = node_columns(pod, view, now)
    (rows,) = _passing(columns, pod, view, now).nonzero()
    return scores(pod, view, rows, now, columns) if rows.size else {}


def unschedulable_message(request: PlacementRequest, view: ClusterView, now: Micros) -> str:
    """Return what the scheduler says of a pod that no node can take.

    Such as `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.` Each node
    counts for the first filter that rejects it.
    """
    left, reasons, pod = view.valid, Counter[str](), request.pod
    for name, rule in _FILTERS.items():
        if not PLUGINS[name].concerns(pod, view):
            continue
        result = rule.filter(pod, view, now)
        codes, counts = np.unique(result.codes[left & result.rejects], return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            for text in rule.reasons(code, pod, view) if code > 0 else ():
                reasons[text] += count
        left = and_not(left, result.rejects)
    counted = ", ".join(sorted(f"{count} {text}" for text, count in reasons.items()))
    nodes = f"0/{int(view.valid.sum())} nodes are available"
    return f"{nodes}: {counted}." if counted else f"{nodes}."


def _passing(columns: NodeColumns, pod: Pod, view: ClusterView, now: Micros) -> BoolColumn:
    """Return which nodes pass all filters, (n,)."""
    passes = columns.passes
    for name in _NEIGHBOURS:
        if PLUGINS[name].concerns(pod, view):
            passes = and_not(passes, _FILTERS[name].filter(pod, view, now).rejects)
    return passes


def _narrowed(order: NDArray[np.intp], pod: Pod, view: ClusterView) -> NDArray[np.intp]:
    """Return the nodes that are looked at for a pod, which may name them itself."""
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution
    names = None if required is None else named_nodes(required)
    if names is None:
        return order
    rows = [view.rows[name] for name in names if name in view.rows]
    return order[np.isin(order, rows)]
