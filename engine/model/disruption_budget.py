"""What keeps a pod from being evicted: disruption budgets, and marks for autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.model import api
from engine.model.selectors import LabelSelector, parse_label_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """The PodDisruptionBudget of some pods of a namespace.

    Pods that are not ready may sometimes be evicted beyond a budget; here they count like others.

    Source: k8s.io/kubernetes, pkg/registry/core/pod/storage/eviction.go.
    """

    namespace: str
    name: str
    selector: LabelSelector | None  # None selects no pod, an empty one every pod of the namespace
    disruptions_allowed: int  # pods that may be evicted now, by its controller's latest count
    node_name: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the eviction of a pod of a namespace, with labels, counts against it."""
        return (
            self.selector is not None
            and namespace == self.namespace
            and self.selector.matches(labels)
        )


def disruption_budget_of(wire: api.PodDisruptionBudget) -> DisruptionBudget:
    selector = None
    if wire.spec.selector is not None:
        selector, mistakes = parse_label_selector(wire.spec.selector, ("spec", "selector"))
        if mistakes:
            raise ValueError(str(mistakes[0]))
    return DisruptionBudget(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        selector=selector,
        disruptions_allowed=wire.status.disruptions_allowed,
    )


# The autoscalers that do not evict a pod, by what it says of itself: its node stays.
#
# Sources: kubernetes/autoscaler, cluster-autoscaler/simulator/drainability/rules, with its default
# flags; kubernetes-sigs/karpenter, pkg/utils/pod/scheduling.go, IsDisruptable. Cluster Autoscaler
# also keeps the nodes of pods of kube-system in their first hour, which is too short to count here.


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
