"""Labels and annotations that Kubernetes and Koordinator define, under their names there."""

from __future__ import annotations

from typing import Final

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""Set by the kubelet; it may differ from the name of the node, be missing, or be shared by mistake.

No autoscaler can foresee it, so a requirement on it never leads to a new node.
"""

REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Set on every namespace by the API server, and so known even where the namespace is not."""

SYSTEM_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
"""The priority classes that every cluster has: of pods that it cannot run without."""

PRIORITY_CLASS_LABEL: Final = "koordinator.sh/priority-class"
QOS_CLASS_LABEL: Final = "koordinator.sh/qosClass"
RESERVE_POD_ANNOTATION: Final = "scheduling.koordinator.sh/reserve-pod"
SCALING_FACTORS_ANNOTATION: Final = "scheduling.koordinator.sh/load-estimated-scaling-factors"
AFTER_SCHEDULED_ANNOTATION: Final = (
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
)
AFTER_INITIALIZED_ANNOTATION: Final = (
    "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
)
