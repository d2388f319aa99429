"""How policies want their decisions to be written on the pod: `spec.placement`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine.model.elastic_quota import ReclaimMode
from engine.model.hold import HOLD_FOR_ORDER, HOLD_FOR_PREEMPTION


class DynamicFilters(StrEnum):
    """The way filters over changing state are written on the pod."""

    PREFERRED = "Preferred"  # rejected nodes are left out of the preferred ones
    REQUIRED = "Required"  # rejected nodes are also excluded with `NotIn`


class PlacementAt(StrEnum):
    """The moment of the decision for a pod."""

    ADMISSION = "Admission"  # advice, written when the pod is created
    BINDING = "Binding"  # the node that the scheduler takes is kept, or replaced, at its binding


class WhenNoneFits(StrEnum):
    """The verdict on a pod that the policies' filters leave no node for."""

    ALLOW = "Allow"
    DENY = "Deny"
    WAIT = "Wait"  # its binding is denied: the scheduler tries it again after a back-off


DEFAULT_GROUP_LABELS = (
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)


WISH_WEIGHTS: Final = (
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
)
"""The scheduler's scores of what a pod asks for, with its weights.

Source: Kubernetes, pkg/scheduler/apis/config/v1/default_plugins.go.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """What makes a ranking beside rules, and how it is written (`spec.placement` of a policy).

    Attributes:
        at: when pods are decided.
        release_in_order: whether pods are held until those before them in the order are bound.
        preemption: whether pods of lower priority are evicted for one that no node takes, which is
            held for that.
        min_gain: by how many points of 100 another node must be better than the scheduler's for a
            pod to be moved at its binding.
        max_nodes: the most node names written in preferred terms, and in `NotIn`.
        group_labels: labels that may stand for a set of nodes where they describe it exactly.
        scheduler_scores: the weight of each plugin that scores what a pod asks for, 0 for none.
    """

    at: PlacementAt = PlacementAt.ADMISSION
    dynamic_filters: DynamicFilters = DynamicFilters.PREFERRED
    when_none_fits: WhenNoneFits = WhenNoneFits.ALLOW
    release_in_order: bool = False
    preemption: ReclaimMode = ReclaimMode.OFF
    min_gain: int = 1
    max_nodes: int = 64
    group_labels: tuple[str, ...] = DEFAULT_GROUP_LABELS
    scheduler_scores: tuple[tuple[str, int], ...] = WISH_WEIGHTS

    @property
    def hold_reasons(self) -> tuple[str, ...]:
        """Why pods are held before the scheduler sees them, () if they are not."""
        preempts = self.preemption is not ReclaimMode.OFF
        return (
            *((HOLD_FOR_ORDER,) if self.release_in_order else ()),
            *((HOLD_FOR_PREEMPTION,) if preempts else ()),
        )
