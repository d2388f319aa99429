"""What a quota allows of each resource, and whether an amount passes it.

Source of `Zero` and of the pool: CapacityScheduling (scheduler-plugins,
pkg/capacityscheduling/elasticquota.go), the effective bounds and the comparison of its PreFilter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota
from engine.model.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from engine.model.resources import Amounts
from engine.quota.rules import QuotaRules

_NONE_OF_THEM = {CPU: 0, MEMORY: 0, EPHEMERAL_STORAGE: 0}
_ALWAYS_COMPARED = {**_NONE_OF_THEM, PODS: 0}


def effective_max(quota: ElasticQuota, rules: QuotaRules) -> Amounts:
    """Return the greatest amounts; what is not among them is unlimited."""
    if quota.max is None:
        return {}
    return quota.max if rules.unlisted_resources == "Unlimited" else {**_NONE_OF_THEM, **quota.max}


def effective_min(quota: ElasticQuota) -> Amounts:
    """Return the guaranteed amounts; of what is not among them nothing is."""
    return {**_NONE_OF_THEM, **(quota.min or {})}


def limited(requests: Amounts, quota: ElasticQuota, rules: QuotaRules) -> dict[str, int]:
    """Return what of some requests a quota limits."""
    bounds = effective_max(quota, rules)
    return {name: amount for name, amount in requests.items() if amount > 0 and name in bounds}


def over_max(requests: Amounts, used: Amounts, quota: ElasticQuota, rules: QuotaRules) -> list[str]:
    """Return the resources in which requests on top of what is used pass `max`, sorted."""
    if rules.unlisted_resources == "Unlimited":
        asked = {name: amount for name, amount in requests.items() if amount > 0}
    else:
        asked = {**_ALWAYS_COMPARED, **requests}
    return _over(asked, used, effective_max(quota, rules))


def over_min(requests: Amounts, used: Amounts, guaranteed: Amounts) -> list[str]:
    """Return the resources in which requests on top of what is used pass a `min`, sorted.

    Only resources that the requests name are compared, besides those that always are.
    """
    asked = {**_NONE_OF_THEM, **requests}
    return _over(asked, used, {**dict.fromkeys(asked, 0), **guaranteed})


def _over(requests: Amounts, used: Amounts, bounds: Amounts) -> list[str]:
    return sorted(
        name
        for name, amount in requests.items()
        if name in bounds and used.get(name, 0) + amount > bounds[name]
    )


@dataclass(frozen=True, slots=True)
class CohortUsage:
    """What all namespaces with a quota hold and are guaranteed, together; base units.

    One may take more than its own `min` while others leave theirs: that is to borrow.
    """

    used: Amounts
    guaranteed: Amounts

    def with_more(self, amounts: Amounts) -> CohortUsage:
        """Return the pool once somebody holds more; the number of pods is no part of it."""
        more = {name: amount for name, amount in amounts.items() if name != PODS}
        return CohortUsage(sum_of((self.used, more)), self.guaranteed)


def cohort_usage(
    quotas: Mapping[str, Sequence[ElasticQuota]], used: Mapping[str, Amounts]
) -> CohortUsage:
    """Return the pool of the namespaces that have a quota of scheduler-plugins.

    The first quota of a namespace counts, as it does upstream. The number of pods is no part of
    the pool: no `min` guarantees it.
    """
    sharing = {
        namespace: first
        for namespace, some in quotas.items()
        if (first := next((one for one in some if one.group == UPSTREAM_GROUP), None))
    }
    held = sum_of(used.get(namespace, {}) for namespace in sharing)
    held.pop(PODS, None)
    return CohortUsage(held, sum_of(map(effective_min, sharing.values())))


def sum_of(parts: Iterable[Amounts]) -> dict[str, int]:
    """Return amounts added up by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total
