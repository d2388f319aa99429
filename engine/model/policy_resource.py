"""The model of a policy that is an object of the API, before its spec is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from engine.model import api
from engine.model.elastic_quota import EvictionMode
from engine.model.hold import HOLD_FOR_ORDER, HOLD_FOR_PREEMPTION
from engine.model.time import micros


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
    """What makes a ranking beside rules, and how it is written (`spec.placement` of a policy)."""

    at: PlacementAt = PlacementAt.ADMISSION  # when pods are decided
    dynamic_filters: DynamicFilters = DynamicFilters.PREFERRED
    when_none_fits: WhenNoneFits = WhenNoneFits.ALLOW
    # whether pods are held until those before them in the order are bound
    release_in_order: bool = False
    # whether pods of lower priority are evicted for one that no node takes, which is held for that
    preemption: EvictionMode = EvictionMode.OFF
    # by how many points of 100 another node must be better than the scheduler's for a pod to be
    # moved at its binding
    min_gain: int = 1
    max_nodes: int = 64  # the most node names written in preferred terms, and in `NotIn`
    # labels that may stand for a set of nodes where they describe it exactly
    group_labels: tuple[str, ...] = DEFAULT_GROUP_LABELS
    # the weight of each plugin that scores what a pod asks for, 0 for none
    scheduler_scores: tuple[tuple[str, int], ...] = WISH_WEIGHTS

    @property
    def hold_reasons(self) -> tuple[str, ...]:
        """Why pods are held before the scheduler sees them, () if they are not."""
        preempts = self.preemption is not EvictionMode.OFF
        return (
            *((HOLD_FOR_ORDER,) if self.release_in_order else ()),
            *((HOLD_FOR_PREEMPTION,) if preempts else ()),
        )


POLICY_GROUP: Final = "stowplan.dev"
POLICY_VERSION: Final = "v1alpha1"


class PolicyKind(StrEnum):
    """The two kinds of policies."""

    CLUSTER = "PlacementPolicy"  # for pods of all namespaces
    NAMESPACED = "NamespacedPlacementPolicy"  # for pods of its own namespace

    @property
    def plural(self) -> str:
        """Its resource in paths and rights."""
        return _PLURALS[self]


_PLURALS: Final = {
    PolicyKind.CLUSTER: "placementpolicies",
    PolicyKind.NAMESPACED: "namespacedplacementpolicies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResource:
    """A policy of the API."""

    kind: PolicyKind  # its kind
    namespace: str = ""  # "" for a PlacementPolicy
    name: str  # unique in its kind and namespace
    spec: Any  # as it was written, of whatever type; never changed
    uid: str = ""  # empty if it is not stored
    generation: int = 0  # the number of its spec, 0 if it is not stored
    version: int = 0  # its resourceVersion, 0 if it has none
    created: int = 0  # microseconds since the epoch, 0 if it is not stored
    status: Mapping[str, Any] = field(default_factory=dict)  # as it was last written; never changed

    @property
    def policy_name(self) -> str:
        """The name of the policy in reports, metrics and annotations."""
        return policy_name(self.namespace, self.name)

    @property
    def path(self) -> str:
        """What diagnostics name in the place of a file, such as `placementpolicies/web`."""
        return f"{self.kind.plural}/{self.policy_name}"

    @property
    def manifest(self) -> dict[str, Any]:
        """The object without what the API server adds to it."""
        metadata = {"name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        manifest = {
            "apiVersion": f"{POLICY_GROUP}/{POLICY_VERSION}",
            "kind": self.kind.value,
            "metadata": metadata,
        }
        return manifest if self.spec is None else {**manifest, "spec": self.spec}


def policy_name(namespace: str, name: str) -> str:
    """Return the name by which a policy is known, `namespace/name` of a namespaced one."""
    return f"{namespace}/{name}" if namespace else name


def policy_resource_of(wire: api.PlacementPolicy) -> PolicyResource:
    """Return the model of a policy of either kind."""
    meta = wire.metadata
    is_namespaced = isinstance(wire, api.NamespacedPlacementPolicy)
    return PolicyResource(
        kind=PolicyKind.NAMESPACED if is_namespaced else PolicyKind.CLUSTER,
        namespace=meta.namespace,
        name=meta.name,
        spec=wire.spec,
        uid=meta.uid,
        generation=meta.generation,
        version=meta.version,
        created=micros(meta.creation_timestamp) if meta.creation_timestamp else 0,
        status=wire.status,
    )
