"""The rules by which an ElasticQuota is enforced, as data.

The defaults are ResourceQuota's rules. The other values, together, are those of the scheduler
plugin CapacityScheduling, for clusters that rely on it; but for `pods` in `max`, which the plugin
never counts and which limits the number of pods here all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from engine.model.elastic_quota import KOORDINATOR_GROUP, ElasticQuota
from engine.model.resources import Amounts
from engine.view import ClusterView

QuotaMode: TypeAlias = Literal["Enforce", "Queue", "Audit", "Off"]
"""Effect of an exceeded quota.

A denial; a wait until there is room, or a denial where nobody releases pods; a warning; or none,
because it is not checked."""

PodAccounting: TypeAlias = Literal["NonTerminal", "Scheduled"]
UnlistedResources: TypeAlias = Literal["Unlimited", "Zero"]
Borrowing: TypeAlias = Literal["Off", "AggregateMin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRules:
    """The comparison of a namespace with its quota.

    Attributes:
        unlisted_resources: bound of a resource that `max` does not name. `Zero` is upstream's
            rule: cpu, memory and ephemeral storage are forbidden where `max` lists anything at
            all; they are compared for every pod, so that nothing is admitted while one of them is
            exceeded. Other resources stay unlimited.
        count_pods: pods whose requests count. `Scheduled` leaves out those that wait for a node,
            so that many that are created at once may all pass, as upstream they would; there the
            rest waits in the scheduler's queue.
        borrowing: `AggregateMin` also limits all namespaces with quotas together to the sum of
            their `min`. It is off by default, because then they can use that sum only, however much
            the cluster has free, and nothing of a resource that no `min` names. Pods that another
            replica admits at the same moment are not visible, so that the sum can be exceeded
            slightly; `max` never can.
    """

    unlisted_resources: UnlistedResources = "Unlimited"
    count_pods: PodAccounting = "NonTerminal"
    borrowing: Borrowing = "Off"

    @property
    def compares_every_pod(self) -> bool:
        """Whether even a pod that requests nothing that `max` names may be denied."""
        return self.unlisted_resources == "Zero" or self.borrowing != "Off"


RESOURCE_QUOTA_RULES = QuotaRules()
CAPACITY_SCHEDULING_RULES = QuotaRules(
    unlisted_resources="Zero", count_pods="Scheduled", borrowing="AggregateMin"
)


def used_by_namespace(view: ClusterView, count_pods: PodAccounting) -> Mapping[str, Amounts]:
    """Return the requests of the pods that count, by namespace; `pods` is their number."""
    if count_pods == "Scheduled":
        return view.namespaces.scheduled
    return view.namespaces.requested


def quotas_of(view: ClusterView, namespace: str) -> tuple[ElasticQuota, ...]:
    """Return the quotas that limit the pods of a namespace.

    Those of scheduler-plugins limit the namespace they are in. Koordinator keeps many in one
    namespace and ties pods to them by labels and a tree; of these, only one that is named after its
    namespace limits it (Koordinator, pkg/webhook/elasticquota/pod_check.go).
    """
    return tuple(
        quota
        for quota in view.namespaces.quotas.get(namespace, ())
        if quota.group != KOORDINATOR_GROUP or quota.name == namespace
    )


def queues_pods(view: ClusterView, namespace: str, default: QuotaMode) -> bool:
    """Return whether new pods of a namespace wait for quota, rather than being denied."""
    return mode_of(view, namespace, default) == "Queue" and bool(quotas_of(view, namespace))


def mode_of(view: ClusterView, namespace: str, default: QuotaMode) -> QuotaMode:
    """Return the effect of an exceeded quota in a namespace.

    The annotation `stowplan.dev/quota-mode` of the Namespace overrides the default; an unknown
    value is ignored. It needs the right to write Namespace objects, which Kubernetes' own roles
    `admin` and `edit` do not give, so that users of a namespace cannot lift their own limit. A
    cluster that grants such rights should forbid the annotation with an admission policy.
    """
    annotated = view.namespaces.quota_modes.get(namespace)
    return next((mode for mode in get_args(QuotaMode) if mode == annotated), default)
