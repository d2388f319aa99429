"""Objects that scorers of scheduler-plugins read: AppGroups, zones and disks of nodes.

Sources: the AppGroup and NetworkTopology APIs of diktyo-io, which NetworkOverhead reads; the
NodeResourceTopology of a topology exporter; scheduler-plugins, kep/624-disk-io-aware-scheduling, a
proposal that was never coded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.quantity import base_units, quantity_of
from engine.model.resources import Amounts
from engine.model.well_known import REGION_LABEL, ZONE_LABEL

APP_GROUP_LABEL: Final = "appgroup.diktyo.x-k8s.io"
WORKLOAD_LABEL: Final = "appgroup.diktyo.x-k8s.io.workload"

_GREATEST_COST: Final = 2**31
"""The API allows costs up to 10,000; this leaves room for a sum over all pods."""

Workload: TypeAlias = tuple[str, str]
"""The name of an AppGroup, and the selector of a workload in it: the two labels of its pods."""


class Place(NamedTuple):
    """Region and zone of a node; "" where it has no such label."""

    region: str
    zone: str


class Dependency(NamedTuple):
    """A workload that another one communicates with, and the greatest cost of reaching it."""

    selector: str
    max_network_cost: int


@dataclass(frozen=True, slots=True)
class AppGroup:
    """An application."""

    key: str  # `namespace/name`
    dependencies: Mapping[str, tuple[Dependency, ...]]  # of each workload, by its selector
    # the place of workloads in the topological order, by selector; the least first
    indexes: Mapping[str, int] = field(default_factory=dict)
    node_name: str = ""


@dataclass(frozen=True, slots=True)
class NetworkTopology:
    """The costs of a cluster's network."""

    key: str  # `namespace/name`
    # by the name of a set of costs, the label of its places, origin and destination
    costs: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]
    node_name: str = ""


def workload_of(labels: Mapping[str, str]) -> Workload | None:
    """Return the workload of a pod, None if it is in no AppGroup."""
    group = labels.get(APP_GROUP_LABEL)
    return (group, labels.get(WORKLOAD_LABEL, "")) if group else None


def place_of(labels: Mapping[str, str]) -> Place:
    """Return region and zone of a node from its labels."""
    return Place(labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, ""))


def app_group_of(wire: api.AppGroup) -> AppGroup:
    """Return the model of an AppGroup."""
    dependencies: dict[str, tuple[Dependency, ...]] = {}
    for workload in wire.spec.workloads or ():
        more = tuple(
            Dependency(dependency.workload.selector, _bounded(dependency.max_network_cost))
            for dependency in workload.dependencies or ()
        )
        selector = workload.workload.selector
        dependencies[selector] = dependencies.get(selector, ()) + more
    return AppGroup(_key(wire.metadata), dependencies, _indexes(wire.status.topology_order or ()))


def _indexes(order: Sequence[api.TopologyOrder]) -> dict[str, int]:
    """Return the index of each selector that upstream finds, by bisection of a sorted list.

    Source: scheduler-plugins, pkg/networkaware/util, FindPodOrder. In a list that is not sorted it
    finds some selectors, and the others are unknown.
    """
    indexes = {}
    for entry in order:
        selector, low, high = entry.workload.selector, 0, len(order) - 1
        while low <= high:
            middle = (low + high) // 2
            at = order[middle].workload.selector
            if at == selector:
                indexes[selector] = order[middle].index
                break
            low, high = (middle + 1, high) if at < selector else (low, middle - 1)
    return indexes


def network_topology_of(wire: api.NetworkTopology) -> NetworkTopology:
    costs: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    for weights in wire.spec.weights or ():
        by_label = costs.setdefault(weights.name, {})
        for topology in weights.topology_list or ():
            by_origin = by_label.setdefault(topology.topology_key, {})
            for origin in topology.origin_list or ():
                by_origin.setdefault(origin.origin, {}).update(
                    (cost.destination, _bounded(cost.network_cost))
                    for cost in origin.cost_list or ()
                )
    return NetworkTopology(_key(wire.metadata), costs)


def _key(meta: api.ObjectMeta) -> str:
    return f"{meta.namespace or 'default'}/{meta.name}"


def _bounded(cost: int) -> int:
    return min(max(cost, -_GREATEST_COST), _GREATEST_COST)


# NUMA zones of nodes, published by a topology exporter.

UNKNOWN_DISTANCE: Final = 255
"""The distance of unreachable zones in ACPI's SLIT; ours of zones without a cost."""

SINGLE_ZONE: Final = "single-numa-node"
"""The policy of a kubelet that refuses pods which no single zone can hold."""

POD_SCOPE: Final = "pod"
CONTAINER_SCOPE: Final = "container"

_POLICIES: Final = frozenset({"none", "best-effort", "restricted", SINGLE_ZONE})
_SCOPES: Final = frozenset({CONTAINER_SCOPE, POD_SCOPE})
_OLD_POLICIES: Final = {
    f"{prefix}{level}Level": (policy, scope)
    for prefix, policy in (
        ("SingleNUMANode", SINGLE_ZONE),
        ("BestEffort", "best-effort"),
        ("Restricted", "restricted"),
    )
    for level, scope in (("Container", CONTAINER_SCOPE), ("Pod", POD_SCOPE))
}
"""The values of the deprecated `topologyPolicies`, of which the first one counts."""

_ZONE_NAME: Final = re.compile(r"node-0*([0-9]{1,2})", re.ASCII)
_GREATEST_ID: Final = 64
_GREATEST_COUNT: Final = 1024
_DEFAULT_COUNT: Final = 8
_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_GREATEST_DISTANCE: Final = 2**31


@dataclass(frozen=True, slots=True)
class NumaLayout:
    """The constant properties of a node's zones, which many nodes have in common."""

    policy: str  # the policy of the kubelet's topology manager
    scope: str  # whether that considers each container or the pod as a whole
    most_zones: int  # the most zones that the kubelet supports
    # from each zone to each, by their position in order of their ids
    distances: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        """Return the number of zones."""
        return len(self.distances)


@dataclass(frozen=True, slots=True)
class NodeZones:
    """The zones of one node."""

    node_name: str
    layout: NumaLayout
    # amounts left in each zone, base units, in order of their ids; without those that the zone does
    # not have
    available: tuple[Amounts, ...]

    @property
    def key(self) -> str:
        """The name of the node."""
        return self.node_name


def node_zones_of(wire: api.NodeResourceTopology) -> NodeZones:
    """Return the zones in a NodeResourceTopology.

    Sources: scheduler-plugins, pkg/noderesourcetopology: pluginhelpers.go for the zones, of which
    those without a usable id do not count; nodeconfig/topologymanager.go for the policy.
    """
    zones = {
        number: zone
        for zone in wire.zones or ()
        if zone.type == "Node" and (number := _zone_id(zone.name)) is not None
    }
    ids = sorted(zones)
    return NodeZones(
        node_name=wire.metadata.name,
        layout=_layout(wire, tuple(_distances(zones[number], ids) for number in ids)),
        available=tuple(_available(zones[number]) for number in ids),
    )


def _layout(wire: api.NodeResourceTopology, distances: tuple[tuple[int, ...], ...]) -> NumaLayout:
    policy, scope = _OLD_POLICIES.get(
        next(iter(wire.topology_policies or ()), ""), ("none", CONTAINER_SCOPE)
    )
    most_zones = _DEFAULT_COUNT
    for attribute in wire.attributes or ():
        match attribute.name:
            case "topologyManagerPolicy" if attribute.value in _POLICIES:
                policy = attribute.value
            case "topologyManagerScope" if attribute.value in _SCOPES:
                scope = attribute.value
            case "topologyManagerMaxNUMANodes":
                most_zones = _count(attribute.value) or most_zones
    return NumaLayout(policy, scope, most_zones, distances)


def _count(text: str) -> int:
    """Return the number of zones that the kubelet accepts, 0 if it rejects the text."""
    number = int(text) if _COUNT.fullmatch(text) else 0
    return min(number, _GREATEST_COUNT) if number > 1 else 0


def _zone_id(name: str) -> int | None:
    match = _ZONE_NAME.fullmatch(name)
    number = int(match[1]) if match else _GREATEST_ID + 1
    return number if number <= _GREATEST_ID else None


def _distances(zone: api.Zone, ids: Iterable[int]) -> tuple[int, ...]:
    costs = {_zone_id(cost.name): cost.value for cost in zone.costs or ()}
    return tuple(min(max(costs.get(i, UNKNOWN_DISTANCE), 0), _GREATEST_DISTANCE) for i in ids)


def _available(zone: api.Zone) -> Amounts:
    return {
        resource.name: base_units(resource.name, resource.available)
        for resource in zone.resources or ()
    }


# Disk bandwidth: the needs of pods, and what the disks of a node have left.

THROUGHPUT_ANNOTATION: Final = "blockio.kubernetes.io/throughput"

_GREATEST_BANDWIDTH: Final = 2**52
"""Bytes per second, more than any disk moves, and few enough for exact products with 100."""


class Throughput(NamedTuple):
    """The bandwidth that a pod needs, bytes per second."""

    read: int
    write: int


class Disk(NamedTuple):
    """The bandwidth that a disk has left, normalised bytes per second."""

    total: int
    read: int
    write: int


@dataclass(frozen=True, slots=True)
class NodeDisks:
    """The disks of one node, in the order of their ids."""

    node_name: str
    disks: tuple[Disk, ...]

    @property
    def key(self) -> str:
        """The name of the node."""
        return self.node_name


class _Annotation(msgspec.Struct, frozen=True):
    rbps: str | int | float = 0
    wbps: str | int | float = 0


def throughput_of(text: str | None) -> Throughput | None:
    """Return the needs in a pod's annotation; a malformed one counts as none.

    Its `blocksize` is for models of vendors, which are not implemented.
    """
    if not text:
        return None
    try:
        written = msgspec.json.decode(text, type=_Annotation)
        return Throughput(_bandwidth(written.rbps), _bandwidth(written.wbps))
    except (msgspec.DecodeError, RecursionError, QuantityError):
        return None


def node_disks_of(wire: api.NodeDiskIO) -> NodeDisks:
    by_id = wire.status.allocatable_bandwidth or {}
    bandwidths = [by_id[name].status or by_id[name] for name in sorted(by_id)]
    disks = (
        Disk(_bandwidth(left.total), _bandwidth(left.read), _bandwidth(left.write))
        for left in bandwidths
    )
    return NodeDisks(wire.spec.node_name, tuple(disks))


def _bandwidth(text: api.Quantity) -> int:
    return min(max(quantity_of(text).value(), 0), _GREATEST_BANDWIDTH)
