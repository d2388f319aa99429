"""Bounds that a quota sets to each resource, and the comparison of amounts with them.

Source of `Zero` and of borrowing: CapacityScheduling (scheduler-plugins,
pkg/capacityscheduling/elasticquota.go), the effective bounds and the comparison of its PreFilter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota
from engine.model.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from engine.model.resources import Amounts
from engine.quota.rules import QuotaRules

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
