"""The kinds of the Kubernetes API that are read, as one table.

Decoding, watching, snapshots, policy test cases, `stowplan doctor` and the chart's ClusterRole go
by it: a new kind touches this table, its model and its consumer. Its domain says what its
events make out of date. What the API server writes into pods before it calls any webhook, such as
their priority, is read by offline tools alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, Protocol

import msgspec

from engine.model import api, usage
from engine.model.decision import ADVICE_ANNOTATION
from engine.model.disruption_budget import EVICTION_ANNOTATIONS, disruption_budget_of
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, quota_of
from engine.model.gang import GANG_ANNOTATIONS, pod_group_of
from engine.model.hold import GANG_RELEASED_ANNOTATION
from engine.model.namespace import limit_range_of, namespace_of, resource_quota_of
from engine.model.node import device_class_of, node_of
from engine.model.pod import MIRROR_ANNOTATION, Pod, pod_of
from engine.model.pod_classes import (
    MINIMUM_PRIORITY_ANNOTATION,
    PREEMPTION_ANNOTATION,
    TOLERATION_SECONDS_ANNOTATION,
    priority_class_of,
    runtime_class_of,
)
from engine.model.pod_shape import decode_large_pod
from engine.model.policy_resource import (
    POLICY_GROUP,
    POLICY_VERSION,
    PolicyKind,
    policy_resource_of,
)
from engine.model.scheduler_plugins import (
    THROUGHPUT_ANNOTATION,
    app_group_of,
    network_topology_of,
    node_disks_of,
    node_zones_of,
)
from engine.model.usage import usage_of_node_metric
from engine.model.well_known import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    RESERVE_POD_ANNOTATION,
    SCALING_FACTORS_ANNOTATION,
)


class Domain(IntEnum):
    """A part of the cluster: its events make the columns read from it out of date."""

    NODES = 0
    PODS = 1
    METRICS = 2
    TOPOLOGY = 3


LOAD_DOMAINS: Final = (Domain.NODES, Domain.PODS, Domain.METRICS)
"""Domains of a node's load: what it offers, what its pods request, what they use."""


class AuxObject(Protocol):
    """An object that a cluster may or may not have.

    A rule finds it by its type and key; of those of one type and key there is one.
    """

    @property
    def key(self) -> str:
        """Its key for rules: the name of its node, or its own `namespace/name`."""

    @property
    def node_name(self) -> str:
        """The node it describes, "" if it describes no single node."""


DEFAULT_NAMESPACE: Final = "default"
"""Namespace of objects in files that name none."""

_READ: Final = ("get", "list")
_WATCH: Final = (*_READ, "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of one API group."""

    group: str = ""  # API group, "" for the core group
    version: str = "v1alpha1"  # API version that is read
    kind: str  # `kind` of its objects
    plural: str  # its resource in paths and rights
    wire: type[msgspec.Struct]  # struct that objects are decoded as
    decode: Callable[[Any], Any]  # model of a wire struct; raises `ValueError`
    # decodes a large object as `wire`, with turns for other threads; None where none is so large
    decode_large: Callable[[bytes | msgspec.Raw], Any] | None = None
    # rights that reading it takes; none for a kind that only occurs in files
    verbs: tuple[str, ...] = _WATCH
    domain: Domain | None = None  # what grows stale with it; None if no rule about nodes reads it
    required: bool = False  # whether nothing can be decided without it. Other kinds may come and go
    # whether an object that cannot be read in full still counts with what can be read of it: a pod
    # must not hide what it takes
    counts_in_part: bool = False
    # whether it is watched only where pods may be evicted for others
    only_for_eviction: bool = False
    # whether it is watched only where policies of the API are taken
    only_for_policies: bool = False
    # whether only tools read it that stand in for an API server: snapshots have it, and the webhook
    # has no right to it
    only_offline: bool = False
    field_selector: str = ""  # selects the objects to watch, "" for all
    case_list: str = ""  # key of its list in policy test cases, "" if cases hold none
    # annotations that a snapshot keeps; None for all but secretive ones
    snapshot_annotations: frozenset[str] | None = None
    snapshot_metadata: bool = True  # whether a snapshot keeps more metadata than namespace and name

    @property
    def name(self) -> str:
        """The resource as `kubectl get` takes it, unique: `plural.group`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """URL path of its objects in all namespaces."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}/{self.plural}"


def _pod_of(wire: api.Pod) -> Pod:
    return pod_of(wire, namespace=DEFAULT_NAMESPACE)


_QUOTA: Final = Kind(
    group=UPSTREAM_GROUP,
    kind="ElasticQuota",
    plural="elasticquotas",
    wire=api.ElasticQuota,
    decode=quota_of,
    case_list="elasticQuotas",
)
_POD_GROUP: Final = Kind(
    group=UPSTREAM_GROUP,
    kind="PodGroup",
    plural="podgroups",
    wire=api.PodGroup,
    decode=pod_group_of,
)
_DISKS: Final = Kind(
    group="diskio.x-k8s.io",
    kind="NodeDiskIOStats",
    plural="nodediskiostats",
    wire=api.NodeDiskIO,
    decode=node_disks_of,
    domain=Domain.TOPOLOGY,
    case_list="nodeDiskIOStats",
)

NODE_METRICS: Final = Kind(
    group="metrics.k8s.io",
    version="v1beta1",
    kind="NodeMetrics",
    plural="nodes",
    wire=usage.NodeMetrics,
    decode=usage.node_reading,
    verbs=_READ,
    snapshot_metadata=False,
)
POD_METRICS: Final = Kind(
    group="metrics.k8s.io",
    version="v1beta1",
    kind="PodMetrics",
    plural="pods",
    wire=usage.PodMetrics,
    decode=usage.pod_reading,
    verbs=_READ,
    snapshot_metadata=False,
)

DISRUPTION_BUDGETS: Final = Kind(
    group="policy",
    version="v1",
    kind="PodDisruptionBudget",
    plural="poddisruptionbudgets",
    wire=api.PodDisruptionBudget,
    decode=disruption_budget_of,
    case_list="podDisruptionBudgets",
    snapshot_annotations=frozenset(),
)

PRIORITY_CLASSES: Final = Kind(
    group="scheduling.k8s.io",
    version="v1",
    kind="PriorityClass",
    plural="priorityclasses",
    wire=api.PriorityClass,
    decode=priority_class_of,
    only_for_eviction=True,
    case_list="priorityClasses",
    snapshot_annotations=frozenset(
        {MINIMUM_PRIORITY_ANNOTATION, PREEMPTION_ANNOTATION, TOLERATION_SECONDS_ANNOTATION}
    ),
)

_OFFLINE: Final = (
    Kind(
        version="v1",
        kind="LimitRange",
        plural="limitranges",
        wire=api.LimitRange,
        decode=limit_range_of,
        verbs=_READ,
        only_offline=True,
        case_list="limitRanges",
        snapshot_annotations=frozenset(),
    ),
    Kind(
        version="v1",
        kind="ResourceQuota",
        plural="resourcequotas",
        wire=api.ResourceQuota,
        decode=resource_quota_of,
        verbs=_READ,
        only_offline=True,
        snapshot_annotations=frozenset(),
    ),
    Kind(
        group="node.k8s.io",
        version="v1",
        kind="RuntimeClass",
        plural="runtimeclasses",
        wire=api.RuntimeClass,
        decode=runtime_class_of,
        verbs=_READ,
        only_offline=True,
        case_list="runtimeClasses",
        snapshot_annotations=frozenset(),
    ),
)

_POLICIES: Final = tuple(
    Kind(
        group=POLICY_GROUP,
        version=POLICY_VERSION,
        kind=each.value,
        plural=each.plural,
        wire=wire,
        decode=policy_resource_of,
        only_for_policies=True,
        snapshot_annotations=frozenset(),
    )
    for each, wire in (
        (PolicyKind.CLUSTER, api.PlacementPolicy),
        (PolicyKind.NAMESPACED, api.NamespacedPlacementPolicy),
    )
)

KINDS: Final = (
    Kind(
        version="v1",
        kind="Node",
        plural="nodes",
        wire=api.Node,
        decode=node_of,
        domain=Domain.NODES,
        required=True,
        case_list="nodes",
    ),
    Kind(
        version="v1",
        kind="Pod",
        plural="pods",
        wire=api.Pod,
        decode=_pod_of,
        decode_large=decode_large_pod,
        domain=Domain.PODS,
        required=True,
        counts_in_part=True,
        # A pod that finishes leaves the selection; the watch reports it as deleted.
        field_selector="status.phase!=Succeeded,status.phase!=Failed",
        case_list="pods",
        snapshot_annotations=frozenset(
            {
                ADVICE_ANNOTATION,
                AFTER_INITIALIZED_ANNOTATION,
                AFTER_SCHEDULED_ANNOTATION,
                MIRROR_ANNOTATION,
                RESERVE_POD_ANNOTATION,
                SCALING_FACTORS_ANNOTATION,
                THROUGHPUT_ANNOTATION,
                GANG_RELEASED_ANNOTATION,
                *EVICTION_ANNOTATIONS,
                *GANG_ANNOTATIONS,
            }
        ),
    ),
    Kind(
        version="v1",
        kind="Namespace",
        plural="namespaces",
        wire=api.Namespace,
        decode=namespace_of,
        required=True,
        case_list="namespaces",
        snapshot_annotations=frozenset(),
    ),
    _QUOTA,
    replace(_QUOTA, group=KOORDINATOR_GROUP),
    _POD_GROUP,
    replace(_POD_GROUP, group=KOORDINATOR_GROUP, wire=api.KoordinatorPodGroup),
    Kind(
        group="slo.koordinator.sh",
        kind="NodeMetric",
        plural="nodemetrics",
        wire=api.NodeMetric,
        decode=usage_of_node_metric,
        domain=Domain.METRICS,
        case_list="nodeMetrics",
        snapshot_metadata=False,
    ),
    Kind(
        group="topology.node.k8s.io",
        version="v1alpha2",
        kind="NodeResourceTopology",
        plural="noderesourcetopologies",
        wire=api.NodeResourceTopology,
        decode=node_zones_of,
        domain=Domain.TOPOLOGY,
        case_list="nodeResourceTopologies",
    ),
    Kind(
        group="appgroup.diktyo.x-k8s.io",
        kind="AppGroup",
        plural="appgroups",
        wire=api.AppGroup,
        decode=app_group_of,
        domain=Domain.TOPOLOGY,
        case_list="appGroups",
    ),
    Kind(
        group="networktopology.diktyo.x-k8s.io",
        kind="NetworkTopology",
        plural="networktopologies",
        wire=api.NetworkTopology,
        decode=network_topology_of,
        domain=Domain.TOPOLOGY,
        case_list="networkTopologies",
    ),
    _DISKS,
    # The earlier name of NodeDiskIOStats.
    replace(
        _DISKS,
        group="ioi.intel.com",
        version="v1",
        kind="NodeDiskIOInfo",
        plural="nodediskioinfoes",
        verbs=(),
        case_list="",
    ),
    Kind(
        group="resource.k8s.io",
        version="v1",
        kind="DeviceClass",
        plural="deviceclasses",
        wire=api.DeviceClass,
        decode=device_class_of,
        case_list="deviceClasses",
        snapshot_annotations=frozenset(),
    ),
    DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    *_OFFLINE,
    *_POLICIES,
    NODE_METRICS,
    POD_METRICS,
)

WATCHED: Final = tuple(
    kind
    for kind in KINDS
    if "watch" in kind.verbs and not (kind.only_for_eviction or kind.only_for_policies)
)
"""Kinds that are listed and watched on every live cluster; others with rights are polled."""

WATCHED_FOR_EVICTION: Final = tuple(kind for kind in KINDS if kind.only_for_eviction)
"""Kinds that are listed and watched beside them where pods may be evicted for others."""

WATCHED_FOR_POLICIES: Final = _POLICIES
"""Kinds that are listed and watched beside them where policies of the API are taken."""
