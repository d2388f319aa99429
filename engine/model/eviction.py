"""The autoscalers that do not evict a pod, by what it says of itself: its node stays.

Sources: kubernetes/autoscaler, cluster-autoscaler/simulator/drainability/rules, with its default
flags; kubernetes-sigs/karpenter, pkg/utils/pod/scheduling.go, IsDisruptable. Cluster Autoscaler
also keeps the nodes of pods of kube-system in their first hour, which is too short to count here.
"""

from __future__ import annotations

from typing import Final

from engine.model import api

CLUSTER_AUTOSCALER: Final = "ClusterAutoscaler"
KARPENTER: Final = "Karpenter"

NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
"""Of the nodes that Karpenter made."""

SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"

EVICTION_ANNOTATIONS: Final = frozenset(
    {SAFE_TO_EVICT_ANNOTATION, SAFE_VOLUMES_ANNOTATION, DO_NOT_DISRUPT_ANNOTATION}
)
"""The annotations of pods that autoscalers read."""

_REPLACING: Final = frozenset({"Job", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""The kinds of owners that make a new pod for one that is evicted."""

_WITH_NODE: Final = frozenset({"DaemonSet", "Node"})
"""The kinds of owners whose pods go with their node; a node owns its static pods."""


def not_evictable_by(meta: api.ObjectMeta, spec: api.PodSpec) -> tuple[str, ...]:
    """Return the autoscalers that do not evict a pod, sorted; without PodDisruptionBudgets."""
    annotations = meta.annotations or {}
    by_karpenter = annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"
    if _stays_with_cluster_autoscaler(meta, spec, annotations):
        return (CLUSTER_AUTOSCALER, KARPENTER) if by_karpenter else (CLUSTER_AUTOSCALER,)
    return (KARPENTER,) if by_karpenter else ()


def _stays_with_cluster_autoscaler(
    meta: api.ObjectMeta, spec: api.PodSpec, annotations: dict[str, str]
) -> bool:
    is_safe = annotations.get(SAFE_TO_EVICT_ANNOTATION)
    kinds = [owner.kind for owner in meta.owner_references or ()]
    if is_safe == "true" or not _WITH_NODE.isdisjoint(kinds):
        return False
    if is_safe == "false" or _REPLACING.isdisjoint(kinds):
        return True
    for volume in spec.volumes or ():
        on_disk = volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
        if on_disk or volume.host_path is not None:
            safe = annotations.get(SAFE_VOLUMES_ANNOTATION, "").split(",")
            if volume.name not in safe:
                return True
    return False
