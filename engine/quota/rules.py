"""Which rules an ElasticQuota is enforced by, as data.

The defaults are ResourceQuota's rules. The other values, together, are those of the scheduler
plugin CapacityScheduling, for clusters that are used to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from engine.model.elastic_quota import KOORDINATOR_GROUP, ElasticQuota
from engine.model.resources import Amounts
from engine.view import ClusterView

QuotaMode: TypeAlias = Literal["Enforce", "Audit", "Off"]
"""What an exceeded quota leads to: a denial, a warning, or nothing, for nobody looks."""

PodAccounting: TypeAlias = Literal["NonTerminal", "Scheduled"]
UnlistedResources: TypeAlias = Literal["Unlimited", "Zero"]
Borrowing: TypeAlias = Literal["Off", "AggregateMin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRules:
    """How a namespace is held to its quota.

    Attributes:
        unlisted_resources: what a resource means that `max` does not name. `Zero` is upstream's
            rule: cpu, memory and ephemeral storage are forbidden where `max` lists anything at
            all; they are compared for every pod, so that nothing is admitted while one of them is
            over. Other resources stay unlimited.
        count_pods: which pods hold their requests. `Scheduled` leaves out those that wait for a
            node, so that many that are created at once may all pass, as upstream they would; there
            the rest waits in the scheduler's queue.
        borrowing: `AggregateMin` also holds all namespaces with quotas together to the sum of
            their `min`. It is off because that sum is all they can use then, however much room the
            cluster has, and none of a resource that no `min` names. What another replica is
            admitting at the same moment is not seen, so that the sum can be passed by a little;
            `max` never can.
    """

    unlisted_resources: UnlistedResources = "Unlimited"
    count_pods: PodAccounting = "NonTerminal"
    borrowing: Borrowing = "Off"

    @property
    def spares_nobody(self) -> bool:
        """Whether even a pod that needs nothing of what `max` names may be refused."""
        return self.unlisted_resources == "Zero" or self.borrowing != "Off"


RESOURCE_QUOTA_RULES = QuotaRules()
CAPACITY_SCHEDULING_RULES = QuotaRules(
    unlisted_resources="Zero", count_pods="Scheduled", borrowing="AggregateMin"
)


def used_by_namespace(view: ClusterView, count_pods: PodAccounting) -> Mapping[str, Amounts]:
    """Return what the pods that count hold, by namespace; `pods` is their number."""
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


def mode_of(view: ClusterView, namespace: str, default: QuotaMode) -> QuotaMode:
    """Return what an exceeded quota leads to in a namespace.

    The annotation `stowplan.dev/quota-mode` of the Namespace wins over the default; one that says
    something else counts for nothing. Whoever may write Namespace objects decides: by Kubernetes'
    own roles `admin` and `edit`, those who work inside a namespace may not, so nobody can lift a
    limit that was set for them. A cluster that hands out such rights should forbid the annotation
    with an admission policy.
    """
    said = view.namespaces.quota_modes.get(namespace)
    return next((mode for mode in get_args(QuotaMode) if mode == said), default)
