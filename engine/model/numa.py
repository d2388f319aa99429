"""The NUMA zones of a node, published by its topology exporter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.model import api
from engine.model.quantity import base_units
from engine.model.resources import Amounts

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
