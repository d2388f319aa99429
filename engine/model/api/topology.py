"""The group `topology.node.k8s.io`: the NUMA zones of a node."""

from __future__ import annotations

from engine.model.api.meta import ObjectMeta, Quantity, WireStruct


class Attribute(WireStruct, frozen=True):
    """A setting of a node's kubelet."""

    name: str = ""
    value: str = ""


class ZoneCost(WireStruct, frozen=True):
    """The distance to another zone, in the units of ACPI's SLIT."""

    name: str = ""
    value: int = 0


class ZoneResource(WireStruct, frozen=True):
    """The amount of a resource in a zone."""

    name: str = ""
    available: Quantity = None


class Zone(WireStruct, frozen=True):
    """A part of a node; one of type `Node` is a NUMA zone."""

    name: str = ""
    type: str = ""
    costs: list[ZoneCost] | None = None
    resources: list[ZoneResource] | None = None


class NodeResourceTopology(WireStruct, frozen=True):
    """The zones of the node it is named after."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: list[str] | None = None
    attributes: list[Attribute] | None = None
    zones: list[Zone] | None = None
