"""Applications of several workloads, and what traffic costs between the places they run in.

Source: the AppGroup and NetworkTopology APIs of diktyo-io, which NetworkOverhead reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from engine.model.well_known import REGION_LABEL, ZONE_LABEL

if TYPE_CHECKING:
    from engine.model import api, topology_api

APP_GROUP_LABEL: Final = "appgroup.diktyo.x-k8s.io"
WORKLOAD_LABEL: Final = "appgroup.diktyo.x-k8s.io.workload"

_GREATEST_COST: Final = 2**31
"""Costs are at most 10,000 by their API; this leaves room for a sum over all pods."""

Workload: TypeAlias = tuple[str, str]
"""The name of an AppGroup, and the selector of a workload in it: the two labels of its pods."""


class Place(NamedTuple):
    """Where a node is; "" for what its labels do not say."""

    region: str
    zone: str


class Dependency(NamedTuple):
    """A workload that another one talks to, and what reaching it may cost at most."""

    selector: str
    max_network_cost: int


@dataclass(frozen=True, slots=True)
class AppGroup:
    """An application.

    Attributes:
        key: `namespace/name`.
        dependencies: of each workload, by its selector.
    """

    key: str
    dependencies: Mapping[str, tuple[Dependency, ...]]
    node_name: str = ""


@dataclass(frozen=True, slots=True)
class NetworkTopology:
    """The costs of a cluster's network.

    Attributes:
        key: `namespace/name`.
        costs: by the name of a set of costs, the label that tells places apart, origin and
            destination.
    """

    key: str
    costs: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]
    node_name: str = ""


def workload_of(labels: Mapping[str, str]) -> Workload | None:
    """Return which workload a pod is of, None for one in no AppGroup."""
    group = labels.get(APP_GROUP_LABEL)
    return (group, labels.get(WORKLOAD_LABEL, "")) if group else None


def place_of(labels: Mapping[str, str]) -> Place:
    """Return where a node is by its labels."""
    return Place(labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, ""))


def app_group_of(wire: topology_api.AppGroup) -> AppGroup:
    """Return an AppGroup as the engine sees it."""
    dependencies: dict[str, tuple[Dependency, ...]] = {}
    for one in wire.spec.workloads or ():
        more = tuple(
            Dependency(other.workload.selector, _bounded(other.max_network_cost))
            for other in one.dependencies or ()
        )
        selector = one.workload.selector
        dependencies[selector] = dependencies.get(selector, ()) + more
    return AppGroup(_key(wire.metadata), dependencies)


def network_topology_of(wire: topology_api.NetworkTopology) -> NetworkTopology:
    """Return a NetworkTopology as the engine sees it."""
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
