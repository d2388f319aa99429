"""What the filters and scores of the scheduler say of nodes, remembered for pods of a template.

There are memories of what pods do not change, and of the room that they leave. Of the latter only
the rows of nodes that took pods are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.shape_cache import cached_by_shape
from engine.model.time import Micros
from engine.plugins import PLUGINS, Filter, Score
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, is_device_resource

_NODES: Final = (Domain.NODES,)
_NODES_AND_PODS: Final = (Domain.NODES, Domain.PODS)

_encode = msgspec.msgpack.Encoder().encode


def filter_of(name: str) -> Filter:
    """Return the filter of a plugin, with its default args."""
    plugin = PLUGINS[name]
    assert plugin.filter is not None  # noqa: S101 - all that are asked for are filters
    made: Filter = plugin.filter(plugin.args())
    return made


def score_of(name: str) -> Score:
    """Return the score of a plugin, with its default args."""
    plugin = PLUGINS[name]
    assert plugin.score is not None  # noqa: S101 - all that are asked for are scores
    made: Score = plugin.score(plugin.args())
    return made


_UNSCHEDULABLE: Final = filter_of("NodeUnschedulable")
_TAINTS: Final = filter_of("TaintToleration")
_AFFINITY: Final = filter_of("NodeAffinity")
_FIT: Final = filter_of("NodeResourcesFit")
_FIT_SCORE: Final = score_of("NodeResourcesFit")
_BALANCE: Final = score_of("NodeResourcesBalancedAllocation")
_IMAGES: Final = score_of("ImageLocality")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeColumns:
    """What is known of each node for a pod.

    Attributes:
        passes: (n,), which nodes pass all filters but those by ports and by the pods of other
            nodes.
        fit: (n,), points of NodeResourcesFit.
        balance: (n,), points of NodeResourcesBalancedAllocation.
    """

    passes: BoolColumn
    fit: IntColumn
    balance: IntColumn


def node_columns(pod: Pod, view: ClusterView, now: Micros) -> NodeColumns:
    """Return what is known of each node for a pod."""
    fits, fit, balance = _room(pod, view, now)
    passes = view.valid & _allowed(pod, view, now) & (fits != 0)
    return NodeColumns(passes=passes, fit=fit, balance=balance)


def image_points(pod: Pod, view: ClusterView, now: Micros) -> IntColumn:
    """Return the points of ImageLocality, (n,), made again when any node changes."""

    def points(rows: ClusterView) -> IntColumn:
        return _IMAGES.score(pod, rows, now).values

    return view.node_aggregate(("scheduler's images", pod.images), _NODES, points)


def _allowed(pod: Pod, view: ClusterView, now: Micros) -> BoolColumn:
    """Return which nodes a pod may use whoever is there, (n,)."""
    required = None
    if pod.affinity is not None:
        required = pod.affinity.required_during_scheduling_ignored_during_execution

    def column(rows: ClusterView) -> BoolColumn:
        rejects = (
            _UNSCHEDULABLE.filter(pod, rows, now).rejects | _TAINTS.filter(pod, rows, now).rejects
        )
        return ~(rejects | _AFFINITY.filter(pod, rows, now).rejects)

    selector = frozenset(pod.node_selector.items())
    key = ("scheduler's nodes", pod.tolerations, selector, _encode(required))
    return view.pod_column(key, _NODES, column)


def _room(pod: Pod, view: ClusterView, now: Micros) -> NDArray[np.int64]:
    """Return where a pod fits, and the scores by requests, (3, n)."""

    def columns(rows: ClusterView) -> NDArray[np.int64]:
        fit = _FIT.filter(pod, rows, now).rejects
        points = _FIT_SCORE.score(pod, rows, now), _BALANCE.score(pod, rows, now)
        return np.array([~fit, *(each.values for each in points)], np.int64)

    devices = tuple([name for name in pod.shape.requests if is_device_resource(name, view)])
    key = ("scheduler's room", _amounts(pod.shape), devices)
    return view.pod_column(key, _NODES_AND_PODS, columns)


@cached_by_shape
def _amounts(shape: PodShape) -> tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]]:
    """Return all of a shape that the scheduler's plugins read."""
    requests, scored = shape.requests, shape.non_zero_container_requests
    return frozenset(requests.items()), frozenset(scored.items())
