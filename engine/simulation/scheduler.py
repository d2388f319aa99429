"""A model of kube-scheduler 1.36 as it is shipped: which node it would bind a pod to.

Its filters, scores, weights and sampling are those of the default profile. What the scheduler is
told by nobody here, as who evicts whom, does not belong here; nor do policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.decision import PlacementRequest
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape, cached_by_shape
from engine.model.rule_outcomes import and_not
from engine.model.selectors import named_nodes
from engine.model.time import Micros
from engine.placement import nodes_to_find
from engine.plugins import PLUGINS, Cycle, Score, ScoreAmong
from engine.policy import SCHEDULER_FILTERS, SCHEDULER_WEIGHTS
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, is_device_resource, label_column

# What the filters and scores of the scheduler say of nodes, remembered for pods of a template.
#
# There are memories of what pods do not change, and of the room that they leave. Of the latter only
# the rows of nodes that took pods are computed again.


_NODES: Final = (Domain.NODES,)
_NODES_AND_PODS: Final = (Domain.NODES, Domain.PODS)

_encode = msgspec.msgpack.Encoder().encode


_UNSCHEDULABLE: Final = PLUGINS["NodeUnschedulable"].default_filter()
_TAINTS: Final = PLUGINS["TaintToleration"].default_filter()
_AFFINITY: Final = PLUGINS["NodeAffinity"].default_filter()
_FIT: Final = PLUGINS["NodeResourcesFit"].default_filter()
_FIT_SCORE: Final = PLUGINS["NodeResourcesFit"].default_score()
_BALANCE: Final = PLUGINS["NodeResourcesBalancedAllocation"].default_score()
_IMAGES: Final = PLUGINS["ImageLocality"].default_score()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeColumns:
    """What is known of each node for a pod."""

    # (n,), which nodes pass all filters but those by ports and by the pods of other nodes
    passes: BoolColumn
    fit: IntColumn  # (n,), points of NodeResourcesFit
    balance: IntColumn  # (n,), points of NodeResourcesBalancedAllocation


def node_columns(pod: Pod, view: ClusterView, now: Micros) -> NodeColumns:
    """Return what is known of each node for a pod."""
    fits, fit, balance = _room(pod, view, now)
    passes = view.valid & _allowed(pod, view, now) & (fits != 0)
    return NodeColumns(passes=passes, fit=fit, balance=balance)


def image_points(pod: Pod, view: ClusterView, now: Micros) -> IntColumn:
    """Return the points of ImageLocality, (n,), made again when any node changes."""

    def points(rows: ClusterView) -> IntColumn:
        return _IMAGES.score(Cycle(pod, rows, now)).values

    return view.node_aggregate(
        ("scheduler's images", pod.images, pod.volume_images), _NODES, points
    )


def _allowed(pod: Pod, view: ClusterView, now: Micros) -> BoolColumn:
    """Return which nodes a pod may use whoever is there, (n,)."""
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution

    def column(rows: ClusterView) -> BoolColumn:
        rejects = (
            _UNSCHEDULABLE.filter(Cycle(pod, rows, now)).rejects
            | _TAINTS.filter(Cycle(pod, rows, now)).rejects
        )
        return ~(rejects | _AFFINITY.filter(Cycle(pod, rows, now)).rejects)

    selector = frozenset(pod.node_selector.items())
    key = ("scheduler's nodes", pod.tolerations, selector, _encode(required))
    return view.pod_column(key, _NODES, column)


def _room(pod: Pod, view: ClusterView, now: Micros) -> NDArray[np.int64]:
    """Return where a pod fits, and the scores by requests, (3, n)."""

    def columns(rows: ClusterView) -> NDArray[np.int64]:
        fit = _FIT.filter(Cycle(pod, rows, now)).rejects
        points = _FIT_SCORE.score(Cycle(pod, rows, now)), _BALANCE.score(Cycle(pod, rows, now))
        return np.array([~fit, *(each.values for each in points)], np.int64)

    devices = tuple([name for name in pod.shape.requests if is_device_resource(name, view)])
    key = ("scheduler's room", _amounts(pod.shape), devices)
    return view.pod_column(key, _NODES_AND_PODS, columns)


@cached_by_shape
def _amounts(shape: PodShape) -> tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]]:
    """Return all of a shape that the scheduler's plugins read."""
    requests, scored = shape.requests, shape.non_zero_container_requests
    return frozenset(requests.items()), frozenset(scored.items())


# Which nodes the scheduler looks at for a pod: in a large cluster not all of them.
#
# Source: pkg/scheduler/schedule_one.go (findNodesThatPassFilters) and
# pkg/scheduler/backend/cache/node_tree.go. The scheduler looks at several nodes at a time, and so
# may find others than the first ones by a few.


_REGION: Final = "topology.kubernetes.io/region"
_ZONE: Final = "topology.kubernetes.io/zone"

Rows = NDArray[np.intp]


class Sample(NamedTuple):
    """What a search for nodes found.

    Attributes:
        feasible: rows of nodes that can take the pod, in the order in which they were found.
        looked_at: the number of nodes that were looked at.
    """

    feasible: Rows
    looked_at: int


def node_order(view: ClusterView) -> Rows:
    """Return the rows of all nodes in the order in which the scheduler looks at them.

    That is the first node of each zone, then the second of each, and so on. Nodes, and zones by
    their first node, are in order of names here, as a scheduler that has just started knows them.
    """
    return view.whole.node_aggregate("scheduler's order of nodes", (Domain.NODES,), _interleaved)


def search(order: Rows, passes: BoolColumn, start: int, most: int) -> Sample:
    """Search for feasible nodes, from a place of the order on and around.

    Args:
        order: rows of the nodes.
        passes: (n,), which rows can take the pod.
        start: where to begin, any number.
        most: feasible nodes that are enough.
    """
    if not order.size:
        return Sample(order, 0)
    start %= order.size
    ahead = np.concatenate([order[start:], order[:start]])
    (places,) = passes.take(ahead).nonzero()
    if places.size <= most:
        return Sample(ahead[places], order.size)
    places = places[:most]
    return Sample(ahead[places], int(places[-1]) + 1)


def _interleaved(view: ClusterView) -> Rows:
    (known,) = view.valid.nonzero()
    rows = np.array(sorted(known.tolist(), key=view.names.__getitem__), np.intp)
    region, zone = (label_column(view, key) for key in (_REGION, _ZONE))
    pairs = region.codes[rows].astype(np.int64) * len(zone.book) + zone.codes[rows]
    _, first, of_row = np.unique(pairs, return_index=True, return_inverse=True)
    by_zone, sizes = np.argsort(of_row, kind="stable"), np.bincount(of_row)
    turns = np.empty(rows.size, np.intp)
    turns[by_zone] = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rows[np.lexsort((first[of_row], turns))]


# The points that the scheduler's scores give to the nodes it chooses among.
#
# Source: pkg/scheduler/framework/runtime/framework.go (RunScorePlugins). Each score gives
# 0..MAX_SCORE, normalised over these nodes alone.


_WISHES: Final = {
    name: PLUGINS[name].default_score()
    for name in ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity")
}
"""Scores of what a pod asks for."""


def scores(
    pod: Pod, view: ClusterView, rows: NDArray[np.intp], now: Micros, columns: NodeColumns
) -> dict[str, IntColumn]:
    """Return the points of some rows by the name of the score, before they are weighed."""
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
        return score.score_among(Cycle(pod, view, now), rows).values
    return score.score(Cycle(pod, view, now)).values.take(rows)


def weighted_sum(points: Mapping[str, IntColumn]) -> IntColumn:
    """Return the total of each row."""
    weighted = [SCHEDULER_WEIGHTS[name] * of for name, of in points.items()]
    total: IntColumn = np.add.reduce(weighted)
    return total


_FILTERS: Final = {rule.name: PLUGINS[rule.name].default_filter() for rule in SCHEDULER_FILTERS}
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


def allowed_nodes(pod: Pod, view: ClusterView, now: Micros) -> BoolColumn:
    """Return which nodes pass the filters that no pod decides, (n,)."""
    return view.valid & _allowed(pod, view, now)


def depends_on_pods(pod: Pod, view: ClusterView, now: Micros) -> bool:
    """Return whether ports, or pods of other nodes, may reject a node for a pod."""
    cycle = Cycle(pod, view, now)
    return any(PLUGINS[name].concerns(cycle) for name in _NEIGHBOURS)


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
        if not PLUGINS[name].concerns(Cycle(pod, view, now)):
            continue
        result = rule.filter(Cycle(pod, view, now))
        codes, counts = np.unique(result.codes[left & result.rejects], return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            for text in rule.reasons(code, Cycle(pod, view, now)) if code > 0 else ():
                reasons[text] += count
        left = and_not(left, result.rejects)
    counted = ", ".join(sorted(f"{count} {text}" for text, count in reasons.items()))
    nodes = f"0/{int(view.valid.sum())} nodes are available"
    return f"{nodes}: {counted}." if counted else f"{nodes}."


def _passing(columns: NodeColumns, pod: Pod, view: ClusterView, now: Micros) -> BoolColumn:
    """Return which nodes pass all filters, (n,)."""
    passes = columns.passes
    for name in _NEIGHBOURS:
        if PLUGINS[name].concerns(Cycle(pod, view, now)):
            passes = and_not(passes, _FILTERS[name].filter(Cycle(pod, view, now)).rejects)
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
