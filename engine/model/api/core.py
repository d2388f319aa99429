"""The core group, `v1`: pods, nodes and namespaces."""

from __future__ import annotations

from datetime import datetime

import msgspec

from engine.model.api.meta import (
    LabelSelector,
    ObjectMeta,
    Present,
    ResourceList,
    SelectorRequirement,
    WireStruct,
)


class ResourceRequirements(WireStruct, frozen=True):
    """Requests and limits of a container or of a pod as a whole."""

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
    """Required and preferred node affinity."""

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
    """A term that a pod prefers, and what a node gains by it."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(WireStruct, frozen=True):
    """Affinity or anti-affinity to other pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = (
        None
    )


class Affinity(WireStruct, frozen=True):
    """The affinity of a pod to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(WireStruct, frozen=True):
    """How evenly pods that match are spread over the values of a node label."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ImageVolume(WireStruct, frozen=True):
    """The image that a volume holds."""

    reference: str = ""


class EmptyDirVolume(WireStruct, frozen=True):
    """A volume that lasts as long as its pod; of the medium `Memory` it takes no disk."""

    medium: str = ""


class Volume(WireStruct, frozen=True):
    """A volume of a pod, as far as it may tie the pod to nodes."""

    name: str = ""
    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None
    csi: Present | None = None
    host_path: Present | None = None
    empty_dir: EmptyDirVolume | None = None
    image: ImageVolume | None = None


class PodSchedulingGate(WireStruct, frozen=True):
    """A condition that the scheduler waits for before it considers a pod."""

    name: str = ""


class PodSchedulingGroup(WireStruct, frozen=True):
    """The PodGroup that a pod is scheduled with, where the scheduler knows such groups (1.36)."""

    pod_group_name: str = ""


class PodSpec(WireStruct, frozen=True):
    """The specification of a pod."""

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


class NodeAllocatableResourceClaimStatus(WireStruct, frozen=True):
    """Ordinary resources of the node that a resource claim of a pod takes (alpha)."""

    resources: ResourceList | None = None


class PodCondition(WireStruct, frozen=True):
    """A condition of a pod."""

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
    node_allocatable_resource_claim_statuses: list[NodeAllocatableResourceClaimStatus] | None = None


class Pod(WireStruct, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(WireStruct, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(WireStruct, frozen=True):
    """The specification of a node."""

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
    """The status of a node, reported by its kubelet."""

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
    """A namespace: its labels and the annotations about quotas."""

    metadata: ObjectMeta = ObjectMeta()


class LimitRangeItem(WireStruct, frozen=True):
    """Limits of one type of object; the defaults are those of containers."""

    type: str = ""
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max: ResourceList | None = None
    min: ResourceList | None = None


class LimitRangeSpec(WireStruct, frozen=True):
    """Limits by type."""

    limits: list[LimitRangeItem] | None = None


class LimitRange(WireStruct, frozen=True):
    """A LimitRange."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class ScopeRequirement(WireStruct, frozen=True):
    """What a ResourceQuota asks of the pods that it counts."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(WireStruct, frozen=True):
    """Requirements that must all hold."""

    match_expressions: list[ScopeRequirement] | None = None


class ResourceQuotaSpec(WireStruct, frozen=True):
    """The greatest amounts of a namespace, and the pods that count."""

    hard: ResourceList | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuota(WireStruct, frozen=True):
    """A ResourceQuota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
