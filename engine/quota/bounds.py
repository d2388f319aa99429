"""Bounds that a quota sets to each resource, and the comparison of amounts with them.

Source of `Zero` and of borrowing: CapacityScheduling (scheduler-plugins,
pkg/capacityscheduling/elasticquota.go), the effective bounds and the comparison of its PreFilter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from engine.model.elastic_quota import (
    BUILT_IN_QUOTAS,
    KOORDINATOR_GROUP,
    UPSTREAM_GROUP,
    ElasticQuota,
    QuotaKey,
)
from engine.model.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from engine.model.resources import Amounts
from engine.view import ClusterView

# The rules by which an ElasticQuota is enforced, as data.
#
# The defaults are ResourceQuota's rules. The other values, together, are those of the scheduler
# plugin CapacityScheduling, for clusters that rely on it; but for `pods` in `max`, which the plugin
# never counts and which limits the number of pods here all the same.


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


_ZERO = {CPU: 0, MEMORY: 0, EPHEMERAL_STORAGE: 0}
_ALWAYS_COMPARED = {**_ZERO, PODS: 0}


def effective_max(quota: ElasticQuota, rules: QuotaRules) -> Amounts:
    """Return the greatest amounts; a resource that is not among them is unlimited."""
    if quota.max is None:
        return {}
    return quota.max if rules.unlisted_resources == "Unlimited" else {**_ZERO, **quota.max}


def effective_min(quota: ElasticQuota) -> Amounts:
    """Return the guaranteed amounts; of a resource that is not among them nothing is."""
    return {**_ZERO, **(quota.min or {})}


def limited(requests: Amounts, quota: ElasticQuota, rules: QuotaRules) -> dict[str, int]:
    """Return the part of some requests that a quota limits."""
    bounds = effective_max(quota, rules)
    return {name: amount for name, amount in requests.items() if amount > 0 and name in bounds}


def over_max(requests: Amounts, used: Amounts, quota: ElasticQuota, rules: QuotaRules) -> list[str]:
    """Return the resources in which requests and the amounts used exceed `max`, sorted."""
    if rules.unlisted_resources == "Unlimited":
        compared = {name: amount for name, amount in requests.items() if amount > 0}
    else:
        compared = {**_ALWAYS_COMPARED, **requests}
    return _over(compared, used, effective_max(quota, rules))


def over_min(requests: Amounts, used: Amounts, guaranteed: Amounts) -> list[str]:
    """Return the resources in which requests and the amounts used exceed a `min`, sorted.

    Only resources that the requests name are compared, besides those that always are.
    """
    compared = {**_ZERO, **requests}
    return _over(compared, used, {**dict.fromkeys(compared, 0), **guaranteed})


def _over(requests: Amounts, used: Amounts, bounds: Amounts) -> list[str]:
    return sorted(
        name
        for name, amount in requests.items()
        if name in bounds and used.get(name, 0) + amount > bounds[name]
    )


@dataclass(frozen=True, slots=True)
class CohortUsage:
    """Usage and guarantees of all namespaces with a quota, together; base units.

    A namespace borrows: it may use more than its own `min` while others use less of theirs.
    """

    used: Amounts
    guaranteed: Amounts

    def with_more(self, amounts: Amounts) -> CohortUsage:
        """Return the cohort once a namespace uses more; the number of pods does not count."""
        more = {name: amount for name, amount in amounts.items() if name != PODS}
        return CohortUsage(sum_of((self.used, more)), self.guaranteed)


def cohort_usage(
    quotas: Mapping[str, Sequence[ElasticQuota]], used: Mapping[str, Amounts]
) -> CohortUsage:
    """Return the cohort of the namespaces that have a quota of scheduler-plugins.

    The first quota of a namespace counts, as it does upstream. The number of pods does not: no
    `min` guarantees it.
    """
    members = {
        namespace: first
        for namespace, listed in quotas.items()
        if (first := next((quota for quota in listed if quota.group == UPSTREAM_GROUP), None))
    }
    held = sum_of(used.get(namespace, {}) for namespace in members)
    held.pop(PODS, None)
    return CohortUsage(held, sum_of(map(effective_min, members.values())))


def excess(amounts: Amounts, counted: Amounts) -> dict[str, int]:
    """Return what some amounts have beyond others."""
    beyond = {name: amount - counted.get(name, 0) for name, amount in amounts.items()}
    return {name: amount for name, amount in beyond.items() if amount > 0}


def sum_of(parts: Iterable[Amounts]) -> dict[str, int]:
    """Return amounts added up by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


Reach: TypeAlias = frozenset[str] | None
"""Names of namespaces; None for all of the cluster."""


def reach_of(quotas: Iterable[QuotaKey]) -> Reach:
    """Return the namespaces in which a pod may be limited by one of some quotas.

    A quota of scheduler-plugins limits its own namespace. One of Koordinator's tree limits pods of
    any namespace, for whoever creates a pod may name it in a label. The built-in ones limit nobody.
    """
    namespaces = set[str]()
    for namespace, group, name in quotas:
        if group != KOORDINATOR_GROUP:
            namespaces.add(namespace)
        elif name not in BUILT_IN_QUOTAS:
            return None
    return frozenset(namespaces)
