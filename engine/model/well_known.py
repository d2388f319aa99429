"""Labels and annotations under the names that Kubernetes, Koordinator and we ourselves define."""

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

PLACEMENT_WEBHOOK: Final = "placement.stowplan.dev"
"""The webhook that is asked about new pods."""

CREATION_CONDITION: Final = "something-is-said-of-new-pods"
"""Name of a condition of this webhook whose expression is `false`; where it is, nobody is asked."""

QUOTA_WEBHOOK = "quota.stowplan.dev"
"""The webhook that is asked about pods; the list is a requirement of its namespaceSelector."""

ROLLOUT_WEBHOOK = "rollout.stowplan.dev"
"""The webhook that is asked about new quotas, so that their namespaces are listed first."""

PROBE_WEBHOOK = "rollout-probe.stowplan.dev"
"""The webhook that tells which version of the configuration an API server has."""

STAMP_LABEL = "stowplan.dev/rollout-stamp"
"""Label in the objectSelector of the probe's webhook: the generation that the list came with."""

NARROWING_ANNOTATION = "stowplan.dev/quota-rollout"
"""Annotation: the announcement that there will be fewer namespaces."""

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Label of every Namespace, set by the API server: its name."""

LIST_MARK = "stowplan.dev"
"""In our list, which may have no other value: no namespace can have this name, for it has a dot."""
