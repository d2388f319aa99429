"""NodeResourceTopologyMatch: keep pods off nodes whose kubelet could not align them to a NUMA zone.

Source: scheduler-plugins, pkg/noderesourcetopology: filter.go, score.go, numaresources.go. A node
passes unless its kubelet has the policy single-numa-node.

NodeResourceTopology objects say what is free in zones. Agents renew them every few seconds at best,
so this is an estimate: only the kubelet decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.numa import CONTAINER_SCOPE, POD_SCOPE, SINGLE_ZONE, NodeZones
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.rule_input import RuleInput, RuleInputs, unit_of
from engine.model.rule_outcomes import FilterResult
from engine.model.time import Micros
from engine.plugins.base import MAX_SCORE, PASS, Plugin, Scores, result_of
from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.node_resource_topology_match.args import NodeResourceTopologyMatchArgs
from engine.plugins.node_resource_topology_match.least_numa_nodes import least_numa_nodes
from engine.plugins.node_resource_topology_match.numa_strategies import STRATEGIES, ZoneScore
from engine.plugins.node_resource_topology_match.numa_zones import (
    ABSENT,
    ZoneTables,
    container_requests,
    first_of,
    is_host_level,
    is_native,
    is_shared,
)
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, capped, left_to_devices

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
_ZONES: Final = (Domain.TOPOLOGY,)
_NODES_AND_ZONES: Final = (Domain.NODES, Domain.TOPOLOGY)

_Request: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by name, to be a key."""


class NodeResourceTopologyMatchFilter:
    """Rejects nodes where no single NUMA zone holds the pod, or one of its containers."""

    def __init__(self, args: NodeResourceTopologyMatchArgs) -> None:
        self._discards_reserved = args.discard_reserved_nodes

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:  # noqa: ARG002 (protocol)
        """Return PASS, or what cannot be aligned."""
        if not _is_concerned(pod):
            return FilterResult.passing(len(view))
        found = _fit_codes(_Requests.of(pod), view)
        if self._discards_reserved:
            found = np.where(_is_reserved(ZoneTables.of(view)), _INVALID, found)
        return result_of(found)

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the reason of a code."""
        return (_REASONS[code],)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return nothing: this filter can always be evaluated."""
        return ""

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the requests of the pod, and what each zone has left of them."""
        return _inputs(pod, view, row) if _is_concerned(pod) else ()


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
        requests = _Requests.of(pod)

        def points(part: ClusterView) -> IntColumn:
            zones = ZoneTables.of(part)
            if self._zone_score is None:
                return _fewest_zones(zones, requests)
            return _means(zones, requests, self._zone_score, self._weights)

        scores = view.pod_column((self, requests), _ZONES, points)
        if self._discards_reserved:
            scores = np.where(_is_reserved(ZoneTables.of(view)), 0, scores)
        return Scores(scores)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores, which are on the scale unless amounts or distances are absurd."""
        return np.clip(scores, 0, MAX_SCORE)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return nothing: this scorer can always be evaluated."""
        return ""

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the requests of the pod, and what each zone has left of them."""
        return _inputs(pod, view, row) if pod.shape.qos_class == _GUARANTEED else ()


class _Requests(NamedTuple):
    """All that is read of a pod: pods of equal requests share a cache entry.

    Attributes:
        qos_class: of the pod.
        whole: the requests of the pod as a whole, by name.
        init: the requests of each init container, and whether it is a sidecar.
        app: the requests of each container.
    """

    qos_class: str
    whole: _Request
    init: tuple[tuple[_Request, bool], ...]
    app: tuple[_Request, ...]

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Return the requests of a pod."""
        init, app = container_requests(pod)
        is_sidecar = [container.restart_policy == "Always" for container in pod.init_containers]
        return cls(
            pod.shape.qos_class,
            tuple(_pod_request(pod).items()),
            tuple(zip((tuple(request.items()) for request in init), is_sidecar, strict=True)),
            tuple(tuple(request.items()) for request in app),
        )

    def without(self, names: AbstractSet[str]) -> Self:
        """Return the same without some resources."""

        def rest(request: _Request) -> _Request:
            return tuple([(name, amount) for name, amount in request if name not in names])

        return self._replace(
            whole=rest(self.whole),
            init=tuple((rest(request), is_sidecar) for request, is_sidecar in self.init),
            app=tuple(map(rest, self.app)),
        )

    def by_scope(self) -> Mapping[str, Sequence[Amounts]]:
        """Return what is looked at in turn in each scope."""
        each = [*(request for request, _ in self.init), *self.app]
        return {POD_SCOPE: [dict(self.whole)], CONTAINER_SCOPE: [dict(request) for request in each]}


def _fit_codes(requests: _Requests, view: ClusterView) -> IntColumn:
    """Return PASS or what cannot be aligned, (n,), whatever devices provide left out.

    Those are in no zone of a node that has no device plugin for them.
    """
    left = {name: left_to_devices(name, view) for name, _ in requests.whole}
    devices = {name: nodes for name, nodes in left.items() if nodes is not None}

    def codes(of: _Requests) -> IntColumn:
        return view.pod_column(
            ("NUMA fit", of), _NODES_AND_ZONES, lambda part: _codes(ZoneTables.of(part), of)
        )

    found = codes(requests)
    if not devices:
        return found
    without = np.stack([*devices.values()])
    for kind in np.unique(without, axis=1).T:
        names = frozenset([name for name, left_out in zip(devices, kind, strict=True) if left_out])
        alike = (without == kind[:, np.newaxis]).all(axis=0)
        found = np.where(alike, codes(requests.without(names)), found)
    return found


class _Fit:
    """The amounts left in the zones of all nodes while containers are put into them in turn."""

    def __init__(self, zones: ZoneTables, qos_class: str) -> None:
        self._zones = zones
        self._left: dict[str, FloatColumn] = {}
        self._qos_class = qos_class

    def zone_of(self, request: Amounts) -> tuple[NDArray[np.intp], BoolColumn]:
        """Return the first zone of each node that holds a request, and where there is none, (n,).

        There is none on a node that does not offer all of it. Where there is none the zone is any.
        """
        suitable = np.ones((self._zones.most, len(self._zones.view)), np.bool_)
        is_offered = np.ones(len(self._zones.view), np.bool_)
        for name, amount in request.items():
            if amount:
                suitable &= self._holds(name, amount)
                is_offered &= self._zones.is_offered(name)
        first = first_of(suitable)
        fails = (first == len(suitable)) | ~is_offered
        return np.minimum(first, len(suitable) - 1), fails

    def take(self, request: Amounts, zone: NDArray[np.intp]) -> None:
        """Take a request from one zone of each node."""
        at = zone * len(zone) + np.arange(len(zone))
        for name, amount in request.items():
            if amount and not is_shared(name, self._qos_class):
                if name not in self._left:
                    self._left[name] = self._zones.available(name).copy()
                self._left[name].reshape(-1)[at] -= amount

    def _holds(self, name: str, amount: int) -> BoolColumn:
        left = self._left.get(name)
        if left is None:
            left = self._zones.available(name)
        holds = left != ABSENT if is_shared(name, self._qos_class) else left >= amount
        if is_host_level(name):
            holds |= ~self._zones.is_listed([name])
        return holds


def _is_concerned(pod: Pod) -> bool:
    """Return whether a pod asks for anything that may belong to a zone."""
    requests = chain(*container_requests(pod))
    asks_for_devices = any(not is_native(name) for request in requests for name in request)
    return pod.shape.qos_class != _BEST_EFFORT or asks_for_devices


def _codes(zones: ZoneTables, requests: _Requests) -> IntColumn:
    """Return the code of each node."""
    codes = np.full(len(zones.view), PASS, np.int64)
    of_pods = zones.has(SINGLE_ZONE, POD_SCOPE)
    if of_pods.any():
        _, fails = _Fit(zones, requests.qos_class).zone_of(dict(requests.whole))
        codes[of_pods & fails] = _POD
    of_containers = zones.has(SINGLE_ZONE, CONTAINER_SCOPE)
    if of_containers.any():
        codes = np.where(of_containers, _container_codes(zones, requests), codes)
    return codes


def _container_codes(zones: ZoneTables, requests: _Requests) -> IntColumn:
    """Return the code of each node as one that looks at containers one by one.

    Init containers run one after the other and so leave their zone as it was. Each container takes
    the zone with the lowest id that holds it.
    """
    fit = _Fit(zones, requests.qos_class)
    codes = np.full(len(zones.view), PASS, np.int64)
    for request, is_sidecar in requests.init:
        _, fails = fit.zone_of(dict(request))
        codes[(codes == PASS) & fails] = _SIDECAR if is_sidecar else _INIT_CONTAINER
    for number, request in enumerate(requests.app, 1):
        zone, fails = fit.zone_of(dict(request))
        codes[(codes == PASS) & fails] = _CONTAINER
        if number < len(requests.app):
            fit.take(dict(request), zone)
    return codes


def _fewest_zones(zones: ZoneTables, requests: _Requests) -> IntColumn:
    """Return the points of each node by how few zones a pod needs, 0 where none are known."""
    points = np.zeros(len(zones.view), np.int64)
    by_scope = requests.by_scope()
    for layout, rows in zones.rows_by_layout():
        points[rows] = least_numa_nodes(zones, layout, rows, by_scope[layout.scope])
    return points


def _means(
    zones: ZoneTables, requests: _Requests, zone_score: ZoneScore, weights: Mapping[str, int]
) -> IntColumn:
    """Return the points of each node by the worst of its zones, 0 unless a pod must fit one.

    They are the mean over what is looked at of the least that any fitting zone gives.
    """
    points = np.zeros(len(zones.view), np.int64)
    for scope, scoped in requests.by_scope().items():
        concerned = zones.has(SINGLE_ZONE, scope)
        if not concerned.any():
            continue
        total = np.zeros(len(points))
        for request in scoped:
            total += zone_score(request, zones, weights)
        mean = np.trunc(total / (len(scoped) or 1))  # exact, for the reason given in `trunc_div`
        points[concerned] = mean[concerned]
    return points


def _pod_request(pod: Pod) -> Amounts:
    return {name: capped(amount) for name, amount in pod.shape.peak_requests.items()}


def _inputs(pod: Pod, view: ClusterView, row: int) -> RuleInputs:
    known = view.lookup(NodeZones, view.names[row])
    if known is None:
        return (RuleInput("zones", text="not known"),)
    layout = known.layout
    requests = (
        [_pod_request(pod)] if layout.scope == POD_SCOPE else [*chain(*container_requests(pod))]
    )
    names = dict.fromkeys(name for request in requests for name in request)
    left = [{name: free[name] for name in names if name in free} for free in known.available]
    return (
        RuleInput("topology manager", text=f"{layout.policy}, scope {layout.scope}"),
        RuleInput("asked for", parts=tuple(_amounts("", request) for request in requests)),
        *(_amounts(f"zone {i} has left", amounts) for i, amounts in enumerate(left)),
    )


def _amounts(name: str, amounts: Amounts) -> RuleInput:
    """Return amounts of several resources as one input."""
    if not amounts:
        return RuleInput(name, text="none")
    parts = [RuleInput(resource, amount, unit_of(resource)) for resource, amount in amounts.items()]
    return RuleInput(name, parts=tuple(parts))


def _is_reserved(zones: ZoneTables) -> BoolColumn:
    """Return where zones are reported but do not show a pod that is expected there."""
    return zones.layouts.present & (zones.view.assumed > 0)


PLUGIN = Plugin(
    args=NodeResourceTopologyMatchArgs,
    filter=NodeResourceTopologyMatchFilter,
    score=NodeResourceTopologyMatchScore,
    reads=(Domain.NODES, Domain.PODS, Domain.TOPOLOGY),
)
