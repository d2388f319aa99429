"""The groups of `diktyo.x-k8s.io`: workloads of an application, and the costs of the network."""

from __future__ import annotations

from engine.model.api.meta import ObjectMeta, WireStruct


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
