"""Applications of several workloads, and the costs of traffic between regions and zones.

Source: the AppGroup and NetworkTopology APIs of diktyo-io, which NetworkOverhead reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from engine.model import api
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
