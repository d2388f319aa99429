"""The parts of Kubernetes objects that the engine reads, as msgspec structs.

They mirror the API field for field (camelCase on the wire); the meaning of a field is decided where
it is used. Decoding skips unknown fields, so a newer API server costs nothing, and accepts `null`
wherever Go writes one for an empty value.

There is a part for each API group; the metadata that all of them share comes first.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

# A quantity in JSON, which may be a bare number.
Quantity = str | int | float | None

# A resource list in JSON: name to quantity.
ResourceList = dict[str, Quantity]

_MOST_DIGITS = 18  # of a resourceVersion, which is below 2**63


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number, which grows with every write; 0 where it is none.

    Source: kubernetes.io, "Kubernetes API Concepts", comparison of resource versions.
    """
    is_number = resource_version.isdecimal() and len(resource_version) <= _MOST_DIGITS
    return int(resource_version) if is_number else 0


class WireStruct(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, gc=False
):
    """Settings of every struct of an API object."""


class OwnerReference(WireStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class ObjectMeta(WireStruct, frozen=True):
    """Standard object metadata."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    resource_version: str = ""

    @property
    def version(self) -> int:
        """The resourceVersion as a number; see `version_number`."""
        return version_number(self.resource_version)


class SelectorRequirement(WireStruct, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(WireStruct, frozen=True):
    """A selector of namespaces or objects by their labels; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class Present(WireStruct, frozen=True):
    """An object of which only matters that it is there."""


class ResourceRequirements(WireStruct, frozen=True):
    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainerPort(WireStruct, frozen=True):
    """A port of a container; `host_port` is that of the node, 0 for none."""

    host_ip: str = msgspec.field(default="", name="hostIP")
    host_port: int = 0
    protocol: str = ""


class Container(WireStruct, frozen=True):
    """A container or init container; `restart_policy` "Always" makes an init one a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    ports: list[ContainerPort] | None = None


class Toleration(WireStruct, frozen=True):
    """A toleration; an empty key with operator Exists tolerates every taint."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorTerm(WireStruct, frozen=True):
    """Requirements that must all hold; an empty term matches nothing."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(WireStruct, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(WireStruct, frozen=True):
    """A term with the weight (1..100) it adds to each node that matches it."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(WireStruct, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = (
        None
    )


class PodAffinityTerm(WireStruct, frozen=True):
    """The pods that a pod must be near to, or away from, and what near is.

    Without a selector it selects no pod; without namespaces and selector of namespaces those of the
    pod's own namespace.
    """

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(WireStruct, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(WireStruct, frozen=True):
    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = (
        None
    )


class Affinity(WireStruct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(WireStruct, frozen=True):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ImageVolume(WireStruct, frozen=True):
    reference: str = ""


class EmptyDirVolume(WireStruct, frozen=True):
    """A volume that lasts as long as its pod; of the medium `Memory` it takes no disk."""

    medium: str = ""


class Volume(WireStruct, frozen=True):
    name: str = ""
    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None
    csi: Present | None = None
    host_path: Present | None = None
    empty_dir: EmptyDirVolume | None = None
    image: ImageVolume | None = None


class PodSchedulingGate(WireStruct, frozen=True):
    name: str = ""


class PodSchedulingGroup(WireStruct, frozen=True):
    """The PodGroup that a pod is scheduled with, where the scheduler knows such groups (1.36)."""

    pod_group_name: str = ""


class PodSpec(WireStruct, frozen=True):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Present] | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None


class ContainerStatus(WireStruct, frozen=True):
    """Resources that the kubelet has actuated for a container (in-place resize)."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None


class PodCondition(WireStruct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None


class PodStatus(WireStruct, frozen=True):
    """The status of a pod; its resources are those actuated and allocated for the pod itself."""

    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None
    phase: str = ""
    qos_class: str = ""
    nominated_node_name: str = ""
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(WireStruct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(WireStruct, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeCondition(WireStruct, frozen=True):
    """A condition of a node; the kubelet renews its heartbeat every few minutes."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None


class ContainerImage(WireStruct, frozen=True):
    """An image on a node, under all its names: by tag and by digest."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeStatus(WireStruct, frozen=True):
    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    conditions: list[NodeCondition] | None = None
    images: list[ContainerImage] | None = None


class Node(WireStruct, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class LimitRangeItem(WireStruct, frozen=True):
    type: str = ""
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max: ResourceList | None = None
    min: ResourceList | None = None


class LimitRangeSpec(WireStruct, frozen=True):
    limits: list[LimitRangeItem] | None = None


class LimitRange(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class ScopeRequirement(WireStruct, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(WireStruct, frozen=True):
    match_expressions: list[ScopeRequirement] | None = None


class ResourceQuotaSpec(WireStruct, frozen=True):
    hard: ResourceList | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuota(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()


class WorkloadReference(WireStruct, frozen=True):
    """A workload of an AppGroup; the selector is the value of a label of its pods."""

    selector: str = ""


class WorkloadDependency(WireStruct, frozen=True):
    workload: WorkloadReference = WorkloadReference()
    max_network_cost: int = 0


class AppGroupWorkload(WireStruct, frozen=True):
    workload: WorkloadReference = WorkloadReference()
    dependencies: list[WorkloadDependency] | None = None


class AppGroupSpec(WireStruct, frozen=True):
    workloads: list[AppGroupWorkload] | None = None


class TopologyOrder(WireStruct, frozen=True):
    workload: WorkloadReference = WorkloadReference()
    index: int = 0


class AppGroupStatus(WireStruct, frozen=True):
    """The order of workloads, which a controller of its own computes and sorts by selector."""

    topology_order: list[TopologyOrder] | None = None


class AppGroup(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: AppGroupSpec = AppGroupSpec()
    status: AppGroupStatus = AppGroupStatus()


class DestinationCost(WireStruct, frozen=True):
    destination: str = ""
    network_cost: int = 0


class OriginCosts(WireStruct, frozen=True):
    origin: str = ""
    cost_list: list[DestinationCost] | None = None


class TopologyCosts(WireStruct, frozen=True):
    """The costs between regions or between zones, by the label that names them."""

    topology_key: str = ""
    origin_list: list[OriginCosts] | None = None


class NetworkWeights(WireStruct, frozen=True):
    name: str = ""
    topology_list: list[TopologyCosts] | None = None


class NetworkTopologySpec(WireStruct, frozen=True):
    weights: list[NetworkWeights] | None = None


class NetworkTopology(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkTopologySpec = NetworkTopologySpec()


class Bandwidth(WireStruct, frozen=True):
    """A normalised bandwidth, per second."""

    total: Quantity = None
    read: Quantity = None
    write: Quantity = None


class DiskBandwidth(Bandwidth, frozen=True):
    """The bandwidth of a disk; the older API has it one level deeper."""

    status: Bandwidth | None = None


class NodeDiskIOSpec(WireStruct, frozen=True):
    node_name: str = ""


class NodeDiskIOStatus(WireStruct, frozen=True):
    allocatable_bandwidth: dict[str, DiskBandwidth] | None = None


class NodeDiskIO(WireStruct, frozen=True):
    """NodeDiskIOStats, formerly NodeDiskIOInfo."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeDiskIOSpec = NodeDiskIOSpec()
    status: NodeDiskIOStatus = NodeDiskIOStatus()


class Overhead(WireStruct, frozen=True):
    """What a pod of the class takes beside its containers."""

    pod_fixed: ResourceList | None = None


class Scheduling(WireStruct, frozen=True):
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


class PodDisruptionBudgetSpec(WireStruct, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(WireStruct, frozen=True):
    disruptions_allowed: int = 0


class PodDisruptionBudget(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class DeviceClassSpec(WireStruct, frozen=True):
    extended_resource_name: str | None = None


class DeviceClass(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class ElasticQuotaSpec(WireStruct, frozen=True):
    min: ResourceList | None = None
    max: ResourceList | None = None


class ElasticQuotaStatus(WireStruct, frozen=True):
    used: ResourceList | None = None


class ElasticQuota(WireStruct, frozen=True):
    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()


class PodGroupSpec(WireStruct, frozen=True):
    min_member: int = 0
    min_resources: ResourceList | None = None
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(WireStruct, frozen=True):
    phase: str = ""
    occupied_by: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: datetime | None = None


class PodGroup(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class KoordinatorPodGroup(PodGroup, frozen=True):
    """A `scheduling.sigs.k8s.io/v1alpha1` PodGroup, another object than one of the same name."""


class PriorityClass(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class ResourceMap(WireStruct, frozen=True):
    resources: ResourceList | None = None


class AggregatedUsage(WireStruct, frozen=True):
    """Usage percentiles over one duration; keys are avg, p50, p90, p95, p99."""

    duration: str = ""
    usage: dict[str, ResourceMap] | None = None


class NodeMetricInfo(WireStruct, frozen=True):
    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: list[AggregatedUsage] | None = None


class PodMetricInfo(WireStruct, frozen=True):
    namespace: str = ""
    name: str = ""
    priority: str = ""
    pod_usage: ResourceMap = ResourceMap()


class NodeMetricCollectPolicy(WireStruct, frozen=True):
    report_interval_seconds: int | None = None


class NodeMetricSpec(WireStruct, frozen=True):
    metric_collect_policy: NodeMetricCollectPolicy | None = None


class NodeMetricStatus(WireStruct, frozen=True):
    update_time: datetime | None = None
    node_metric: NodeMetricInfo | None = None
    pods_metric: list[PodMetricInfo | None] | None = None


class NodeMetric(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


# The group `stowplan.dev`: policies as the API server stores them.
#
# Their `spec` stays as it was written: `engine.policy` checks it, with the place of each mistake.


class PolicyMeta(ObjectMeta, frozen=True):
    """Metadata with the number of the spec: status and metadata change without a new one."""

    generation: int = 0


class PlacementPolicy(WireStruct, frozen=True):
    """A `stowplan.dev/v1alpha1` PlacementPolicy."""

    metadata: PolicyMeta = PolicyMeta()
    spec: Any = None
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class NamespacedPlacementPolicy(PlacementPolicy, frozen=True):
    """A `stowplan.dev/v1alpha1` NamespacedPlacementPolicy."""


class Attribute(WireStruct, frozen=True):
    name: str = ""
    value: str = ""


class ZoneCost(WireStruct, frozen=True):
    """The distance to another zone, in the units of ACPI's SLIT."""

    name: str = ""
    value: int = 0


class ZoneResource(WireStruct, frozen=True):
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
