"""The parts of custom resources about NUMA zones, networks and disks, as msgspec structs.

Like those of `engine.model.api`, they mirror their APIs.
"""

from __future__ import annotations

from engine.model.api import ObjectMeta, WireStruct

Quantity = str | int | float | None


# topology.node.k8s.io/v1alpha2


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


# appgroup.diktyo.x-k8s.io/v1alpha1


class WorkloadReference(WireStruct, frozen=True):
    """A workload of an AppGroup; the selector is the value of a label of its pods."""

    selector: str = ""


class WorkloadDependency(WireStruct, frozen=True):
    """A workload that another one communicates with."""

    workload: WorkloadReference = WorkloadReference()
    max_network_cost: int = 0


class AppGroupWorkload(WireStruct, frozen=True):
    """A workload and its dependencies."""

    workload: WorkloadReference = WorkloadReference()
    dependencies: list[WorkloadDependency] | None = None


class AppGroupSpec(WireStruct, frozen=True):
    """The specification of an AppGroup."""

    workloads: list[AppGroupWorkload] | None = None


class TopologyOrder(WireStruct, frozen=True):
    """The place of a workload in the order in which an AppGroup is to be scheduled."""

    workload: WorkloadReference = WorkloadReference()
    index: int = 0


class AppGroupStatus(WireStruct, frozen=True):
    """The order of workloads, which a controller of its own computes and sorts by selector."""

    topology_order: list[TopologyOrder] | None = None


class AppGroup(WireStruct, frozen=True):
    """An application of several workloads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: AppGroupSpec = AppGroupSpec()
    status: AppGroupStatus = AppGroupStatus()


# networktopology.diktyo.x-k8s.io/v1alpha1


class DestinationCost(WireStruct, frozen=True):
    """The cost of reaching a region or zone."""

    destination: str = ""
    network_cost: int = 0


class OriginCosts(WireStruct, frozen=True):
    """The costs from a region or zone."""

    origin: str = ""
    cost_list: list[DestinationCost] | None = None


class TopologyCosts(WireStruct, frozen=True):
    """The costs between regions or between zones, by the label that names them."""

    topology_key: str = ""
    origin_list: list[OriginCosts] | None = None


class NetworkWeights(WireStruct, frozen=True):
    """One set of costs."""

    name: str = ""
    topology_list: list[TopologyCosts] | None = None


class NetworkTopologySpec(WireStruct, frozen=True):
    """Sets of costs."""

    weights: list[NetworkWeights] | None = None


class NetworkTopology(WireStruct, frozen=True):
    """The costs of traffic between the regions and zones of a cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkTopologySpec = NetworkTopologySpec()


# diskio.x-k8s.io/v1alpha1, and ioi.intel.com/v1 before


class Bandwidth(WireStruct, frozen=True):
    """A normalised bandwidth, per second."""

    total: Quantity = None
    read: Quantity = None
    write: Quantity = None


class DiskBandwidth(Bandwidth, frozen=True):
    """The bandwidth of a disk; the older API has it one level deeper."""

    status: Bandwidth | None = None


class NodeDiskIOSpec(WireStruct, frozen=True):
    """The node that is described."""

    node_name: str = ""


class NodeDiskIOStatus(WireStruct, frozen=True):
    """The bandwidth that its driver reports as left, by disk."""

    allocatable_bandwidth: dict[str, DiskBandwidth] | None = None


class NodeDiskIO(WireStruct, frozen=True):
    """NodeDiskIOStats, formerly NodeDiskIOInfo."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeDiskIOSpec = NodeDiskIOSpec()
    status: NodeDiskIOStatus = NodeDiskIOStatus()
