"""Public names: those of Kubernetes and of clouds, which an anonymous snapshot keeps.

A name on these lists reveals nothing about its user; any other text is replaced. A public prefix
does not make a key public: people choose the rest of `node-role.kubernetes.io/...`.
"""

from __future__ import annotations

from engine.model import koordinator_quota
from engine.model.disk_io import THROUGHPUT_ANNOTATION
from engine.model.network import APP_GROUP_LABEL, WORKLOAD_LABEL
from engine.model.well_known import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QOS_CLASS_LABEL,
    RESERVE_POD_ANNOTATION,
    SCALING_FACTORS_ANNOTATION,
)
from engine.plugins import NODE_ANNOTATIONS

PUBLIC_VALUES = frozenset(
    {
        PRIORITY_CLASS_LABEL,
        QOS_CLASS_LABEL,
        koordinator_quota.IS_PARENT_LABEL,
        koordinator_quota.PREEMPTIBLE_LABEL,
        *"""
        beta.kubernetes.io/arch beta.kubernetes.io/instance-type beta.kubernetes.io/os
        cloud.google.com/gke-spot cloud.google.com/machine-family eks.amazonaws.com/capacityType
        failure-domain.beta.kubernetes.io/region failure-domain.beta.kubernetes.io/zone
        karpenter.k8s.aws/instance-category karpenter.k8s.aws/instance-cpu
        karpenter.k8s.aws/instance-family karpenter.k8s.aws/instance-generation
        karpenter.k8s.aws/instance-memory karpenter.k8s.aws/instance-size
        karpenter.sh/capacity-type kubernetes.azure.com/scalesetpriority kubernetes.io/arch
        kubernetes.io/os node.kubernetes.io/instance-type node.kubernetes.io/windows-build
        nvidia.com/gpu.count nvidia.com/gpu.memory nvidia.com/gpu.product
        topology.kubernetes.io/region topology.kubernetes.io/zone
        """.split(),
    }
)
"""Keys of labels, taints and requirements that stay, with their values."""

PUBLIC_KEYS = PUBLIC_VALUES | frozenset(
    {
        # Labels and fields whose values are names.
        APP_GROUP_LABEL,
        WORKLOAD_LABEL,
        koordinator_quota.NAME_LABEL,
        koordinator_quota.PARENT_LABEL,
        koordinator_quota.TREE_ID_LABEL,
        *"""
        app app.kubernetes.io/component app.kubernetes.io/instance app.kubernetes.io/managed-by
        app.kubernetes.io/name app.kubernetes.io/part-of app.kubernetes.io/version
        controller-revision-hash k8s-app kubernetes.io/hostname kubernetes.io/metadata.name
        metadata.name name pod-template-hash statefulset.kubernetes.io/pod-name
        """.split(),
        # Labels and taints whose values are empty or a state.
        *"""
        CriticalAddonsOnly node-role.kubernetes.io/control-plane node-role.kubernetes.io/etcd
        node-role.kubernetes.io/infra node-role.kubernetes.io/master
        node-role.kubernetes.io/worker node.cloudprovider.kubernetes.io/uninitialized
        node.kubernetes.io/disk-pressure node.kubernetes.io/exclude-from-external-load-balancers
        node.kubernetes.io/memory-pressure node.kubernetes.io/network-unavailable
        node.kubernetes.io/not-ready node.kubernetes.io/out-of-service
        node.kubernetes.io/pid-pressure node.kubernetes.io/unreachable
        node.kubernetes.io/unschedulable nvidia.com/gpu.present
        DeletionCandidateOfClusterAutoscaler ToBeDeletedByClusterAutoscaler
        karpenter.sh/disrupted karpenter.sh/nodepool
        """.split(),
        # Resources.
        *"""
        amd.com/gpu attachable-volumes-aws-ebs attachable-volumes-azure-disk
        attachable-volumes-gce-pd cpu ephemeral-storage google.com/tpu koordinator.sh/gpu
        koordinator.sh/gpu-core koordinator.sh/gpu-memory koordinator.sh/gpu-memory-ratio
        koordinator.sh/rdma kubernetes.io/batch-cpu kubernetes.io/batch-memory
        kubernetes.io/mid-cpu kubernetes.io/mid-memory memory nvidia.com/gpu
        nvidia.com/gpu.shared pods storage
        """.split(),
    }
)
"""Keys of labels, taints and requirements, and names of resources, that stay as they are."""

PUBLIC_DOMAINS = (
    "deviceclass.resource.kubernetes.io",
    "kubernetes.io",
    "k8s.io",
    "koordinator.sh",
)
"""What is below them has a meaning, so the end of a prefix stays: `<word>.kubernetes.io/<word>`."""

PUBLIC_WORDS = frozenset(
    {
        # Namespaces, schedulers and priority classes that clusters come with.
        *"""
        default default-scheduler koord-scheduler kube-node-lease kube-public kube-system
        system-cluster-critical system-node-critical
        """.split(),
        # Koordinator's priority classes and types of aggregation.
        *"""
        avg koord-batch koord-free koord-mid koord-prod p50 p90 p95 p99
        """.split(),
        # Quotas that Koordinator makes itself.
        koordinator_quota.DEFAULT_QUOTA,
        koordinator_quota.ROOT_QUOTA,
        koordinator_quota.SYSTEM_QUOTA,
        # Zones of nodes, how kubelets keep to them, and what measures networks.
        *"""
        NetperfCosts UserDefined best-effort container none pod restricted single-numa-node
        topologyManagerMaxNUMANodes topologyManagerPolicy topologyManagerScope
        """.split(),
        *(
            f"{policy}{level}Level"
            for policy in ("None", "BestEffort", "Restricted", "SingleNUMANode")
            for level in ("", "Container", "Pod")
        ),
        *(f"node-{number}" for number in range(16)),
        # Owners and their APIs.
        *"""
        DaemonSet Job Node ReplicaSet ReplicationController StatefulSet apps/v1 batch/v1 v1
        """.split(),
        # Phases, QoS classes and policies.
        *"""
        Always BestEffort Burstable Guaranteed Never OnFailure Pending Running Unknown
        """.split(),
        # Conditions.
        *"""
        ContainersReady DiskPressure False Initialized MemoryPressure NetworkUnavailable
        PIDPressure PodReadyToStartContainers PodScheduled Ready True Unschedulable
        """.split(),
        # Conditions of node-problem-detector, and reasons of the kubelet and the node controller.
        *"""
        CorruptDockerOverlay2 FrequentContainerdRestart FrequentDockerRestart
        FrequentKubeletRestart FrequentUnregisterNetDevice KernelDeadlock ReadonlyFilesystem
        KubeletHasDiskPressure KubeletHasInsufficientMemory KubeletHasInsufficientPID
        KubeletHasNoDiskPressure KubeletHasSufficientMemory KubeletHasSufficientPID
        KubeletNotReady KubeletReady NodeStatusNeverUpdated NodeStatusUnknown RouteCreated
        """.split(),
        # Operators and effects.
        *"""
        DoesNotExist Equal Exists Gt In Lt NoExecute NoSchedule NotIn PreferNoSchedule
        """.split(),
        # The medium of a volume, ports of nodes, and how pods are spread.
        *"""
        0.0.0.0 DoNotSchedule Honor Ignore Memory SCTP ScheduleAnyway TCP UDP
        """.split(),
        # Keys in annotations that are read.
        *"""
        aggregatedUsage blocksize prodUsageThresholds rbps usageAggregatedDuration
        usageAggregationType usageThresholds wbps
        """.split(),
    }
)
"""Texts that stay wherever they occur."""

READ_ANNOTATIONS = frozenset(
    {
        AFTER_INITIALIZED_ANNOTATION,
        AFTER_SCHEDULED_ANNOTATION,
        RESERVE_POD_ANNOTATION,
        SCALING_FACTORS_ANNOTATION,
        THROUGHPUT_ANNOTATION,
        *NODE_ANNOTATIONS,
        koordinator_quota.ADMISSION_ANNOTATION,
        koordinator_quota.CHILD_REQUEST_ANNOTATION,
        koordinator_quota.NAMESPACES_ANNOTATION,
        koordinator_quota.SHARED_WEIGHT_ANNOTATION,
        koordinator_quota.STRICT_KEYS_ANNOTATION,
    }
)
"""Annotations of nodes, pods and quotas with figures that plugins read."""
