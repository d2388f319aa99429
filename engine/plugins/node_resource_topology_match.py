"""NodeResourceTopologyMatch: keep pods off nodes whose kubelet could not align them to a NUMA zone.

Source: scheduler-plugins, pkg/noderesourcetopology: filter.go, score.go, numaresources.go. A node
passes unless its kubelet has the policy single-numa-node.

What is free in zones is known from NodeResourceTopology objects, which agents renew every few
seconds at best, so all of this is a guess: only the kubelet decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.numa import CONTAINER_SCOPE, POD_SCOPE, SINGLE_ZONE, NodeZones
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.plugins.arithmetic import trunc_div
from engine.plugins.base import MAX_SCORE, PASS, Plugin, Scores
from engine.plugins.least_numa_nodes import least_numa_nodes
from engine.plugins.node_resource_topology_match_args import NodeResourceTopologyMatchArgs
from engine.plugins.numa_strategies import STRATEGIES, ZoneScore
from engine.plugins.numa_zones import (
    ABSENT,
    ZoneTables,
    container_requests,
    is_host_level,
    is_native,
    is_shared,
)
from engine.plugins.words import amount_words
from engine.view import BoolColumn, ClusterView, Domain, IntColumn
from engine.view.axis import capped

_INVALID, _POD, _INIT_CONTAINER, _SIDECAR, _CONTAINER = range(1, 6)
_REASONS: Final = {
    _INVALID: "invalid node topology data",
    _POD: "cannot align pod",
    _INIT_CONTAINER: "cannot align init container",
    _SIDECAR: "cannot align sidecar container",
    _CONTAINER: "cannot align container",
}
_GUARANTEED: Final = "Guaranteed"
_BEST_EFFORT: Final = "BestEffort"
_UNFIT: Final = 2**62
"""Instead of the score of a zone that a request does not fit: more than any score."""


class NodeResourceTopologyMatchFilter:
    """Rejects nodes where no single NUMA zone holds the pod, or one of its containers."""

    def __init__(self, args: NodeResourceTopologyMatchArgs) -> None:
        self._discards_reserved = args.discard_reserved_nodes

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> IntColumn:  # noqa: ARG002 (protocol)
        """Return PASS, or what cannot be aligned."""
        codes = np.full(len(view), PASS, np.int64)
        if not _is_concerned(pod):
            return codes
        zones = ZoneTables.of(view)
        rows = zones.nodes_with(SINGLE_ZONE, POD_SCOPE)
        if rows.size:
            fit = _Fit(zones, rows, pod.shape.qos_class, [_pod_request(pod)])
            codes[rows] = np.where(fit.suitable(_pod_request(pod)).any(axis=0), PASS, _POD)
        rows = zones.nodes_with(SINGLE_ZONE, CONTAINER_SCOPE)
        if rows.size:
            codes[rows] = _container_codes(zones, rows, pod)
        if self._discards_reserved:
            codes[_is_reserved(zones)] = _INVALID
        return codes

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the one reason of a code."""
        return (_REASONS[code],)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return nothing: this filter can always be evaluated."""
        return ""

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> Mapping[str, str]:  # noqa: ARG002 (protocol)
        """Return what the pod asks for and what each zone has left of it."""
        return _inputs(pod, view, row) if _is_concerned(pod) else {}


class NodeResourceTopologyMatchScore:
    """Ranks nodes by their zones, for Guaranteed pods; to others all nodes are as good."""

    def __init__(self, args: NodeResourceTopologyMatchArgs) -> None:
        self._zone_score = STRATEGIES.get(args.scoring_strategy.type)
        self._weights = args.weights
        self._discards_reserved = args.discard_reserved_nodes

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:  # noqa: ARG002 (protocol)
        """Return points, 0 where nothing is known of the zones."""
        if pod.shape.qos_class != _GUARANTEED:
            return Scores(np.full(len(view), MAX_SCORE, np.int64))
        zones = ZoneTables.of(view)
        init, app = container_requests(pod)
        asked = {POD_SCOPE: [_pod_request(pod)], CONTAINER_SCOPE: [*init, *app]}
        scores = np.zeros(len(view), np.int64)
        if self._zone_score is None:
            for layout, rows in zones.rows_by_layout():
                requests = asked[layout.scope]
                tables = {
                    name: table[: len(layout)].astype(np.float64)
                    for name, table in _tables(zones, rows, requests).items()
                }
                scores[rows] = least_numa_nodes(layout, rows.size, requests, tables)
        else:
            for scope, requests in asked.items():
                rows = zones.nodes_with(SINGLE_ZONE, scope)
                if rows.size:
                    means = _mean(zones, self._zone_score, requests, self._weights)
                    scores[rows] = means[rows]
        if self._discards_reserved:
            scores[_is_reserved(zones)] = 0
        return Scores(scores)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores, which are on the scale unless amounts or distances are absurd."""
        return np.clip(scores, 0, MAX_SCORE)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return nothing: this scorer can always be evaluated."""
        return ""

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> Mapping[str, str]:  # noqa: ARG002 (protocol)
        """Return what the pod asks for and what each zone has left of it."""
        return _inputs(pod, view, row) if pod.shape.qos_class == _GUARANTEED else {}


class _Fit:
    """What is left in the zones of some nodes while containers are put into them one by one."""

    def __init__(
        self,
        zones: ZoneTables,
        rows: NDArray[np.intp],
        qos_class: str,
        requests: Sequence[Amounts],
    ) -> None:
        names = dict.fromkeys(name for request in requests for name in request)
        self._left = _tables(zones, rows, requests)
        self._offered = {name: zones.is_offered(name)[rows] for name in names}
        self._qos_class = qos_class
        self._shape = (zones.most, rows.size)

    def suitable(self, request: Amounts) -> BoolColumn:
        """Return which zones hold a request, (most, n); a column of none if the node lacks it."""
        suitable = np.ones(self._shape, np.bool_)
        for name, amount in request.items():
            if amount:
                suitable &= self._holds(name, amount)
        return suitable

    def take(self, request: Amounts, zone: NDArray[np.intp]) -> None:
        """Take a request from one zone of each node, what a zone lists of it."""
        at = (zone, np.arange(zone.size))
        for name, amount in request.items():
            if not is_shared(name, self._qos_class):
                left = self._left[name][at]
                self._left[name][at] = np.where(left == ABSENT, ABSENT, left - amount)

    def _holds(self, name: str, amount: int) -> BoolColumn:
        left = self._left[name]
        listed = left != ABSENT
        holds = listed if is_shared(name, self._qos_class) else left >= amount
        if is_host_level(name):
            holds = holds | ~listed.any(axis=0)
        return holds & self._offered[name]


def _is_concerned(pod: Pod) -> bool:
    """Return whether a pod asks for anything that may belong to a zone."""
    requests = chain(*container_requests(pod))
    asks_for_devices = any(not is_native(name) for request in requests for name in request)
    return pod.shape.qos_class != _BEST_EFFORT or asks_for_devices


def _container_codes(zones: ZoneTables, rows: NDArray[np.intp], pod: Pod) -> IntColumn:
    """Return the code of each node that looks at containers one by one.

    Init containers run one after the other and so leave their zone as it was. Each container takes
    the zone with the lowest id that holds it.
    """
    init, app = container_requests(pod)
    fit = _Fit(zones, rows, pod.shape.qos_class, [*init, *app])
    codes = np.full(rows.size, PASS, np.int64)
    for request, container in zip(init, pod.init_containers, strict=True):
        code = _SIDECAR if container.restart_policy == "Always" else _INIT_CONTAINER
        fits = fit.suitable(request).any(axis=0)
        codes[(codes == PASS) & ~fits] = code
    for number, request in enumerate(app, 1):
        suitable = fit.suitable(request)
        codes[(codes == PASS) & ~suitable.any(axis=0)] = _CONTAINER
        if number < len(app):
            fit.take(request, suitable.argmax(axis=0))
    return codes


def _mean(
    zones: ZoneTables,
    zone_score: ZoneScore,
    requests: Sequence[Amounts],
    weights: Mapping[str, int],
) -> IntColumn:
    """Return the mean over requests of the least score that any fitting zone gives them, (n,)."""
    total = np.zeros(len(zones.view), np.int64)
    exist = zones.exist()
    for request in requests:
        by_zone = zone_score(request, zones, weights)
        least = np.where(exist & (by_zone != 0), by_zone, _UNFIT).min(axis=0)
        total += np.where(least == _UNFIT, 0, least)
    return trunc_div(total, len(requests) or 1)


def _pod_request(pod: Pod) -> Amounts:
    return {name: capped(amount) for name, amount in pod.shape.peak_requests.items()}


def _tables(
    zones: ZoneTables, rows: NDArray[np.intp], requests: Sequence[Amounts]
) -> Mapping[str, IntColumn]:
    """Return what is free of all that is requested in the zones of some nodes, to be written."""
    names = dict.fromkeys(name for request in requests for name in request)
    return {name: zones.available(name)[:, rows] for name in names}


def _inputs(pod: Pod, view: ClusterView, row: int) -> dict[str, str]:
    known = view.lookup(NodeZones, view.names[row])
    if known is None:
        return {"zones": "not known"}
    layout = known.layout
    requests = (
        [_pod_request(pod)] if layout.scope == POD_SCOPE else [*chain(*container_requests(pod))]
    )
    names = dict.fromkeys(name for request in requests for name in request)
    left = [{name: free[name] for name in names if name in free} for free in known.available]
    return {
        "topology manager": f"{layout.policy}, scope {layout.scope}",
        "asked for": "; ".join(map(_words, requests)),
        **{f"zone {i} has left": _words(amounts) for i, amounts in enumerate(left)},
    }


def _words(amounts: Amounts) -> str:
    return ", ".join(f"{name} {amount_words(name, one)}" for name, one in amounts.items()) or "none"


def _is_reserved(zones: ZoneTables) -> BoolColumn:
    """Return where zones are told of but do not show a pod that is expected there."""
    return zones.layouts.present & (zones.view.assumed > 0)


PLUGIN = Plugin(
    args=NodeResourceTopologyMatchArgs,
    filter=NodeResourceTopologyMatchFilter,
    score=NodeResourceTopologyMatchScore,
    reads=(Domain.NODES, Domain.PODS, Domain.TOPOLOGY),
)
