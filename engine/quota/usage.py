"""What a namespace uses of a quota, for graphs and for the audit of what slipped through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota.bounds import effective_max, excess, sum_of
from engine.quota.reservations import Reservations, decode, split_by_name
from engine.quota.rules import QuotaRules, quotas_of, used_by_namespace
from engine.quota.surge import CountedPods
from engine.quota.verdict import exceeded_clause
from engine.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """Usage of one quota, of the resources that it limits alone; base units.

    Attributes:
        quota: the quota.
        used: by pods in the view.
        maximum: the greatest amounts.
    """

    quota: ElasticQuota
    used: Amounts
    maximum: Amounts

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Resources of which pods use more than `max`, sorted."""
        return tuple(sorted(excess(self.used, self.maximum)))

    @property
    def clause(self) -> str:
        """The exceeded resources, in ResourceQuota's words."""
        return exceeded_clause(self.quota.name, self.exceeded, {}, self.used, self.maximum)


def quota_usages(view: ClusterView, rules: QuotaRules) -> Iterator[QuotaUsage]:
    """Yield the usage of each quota that limits the pods of a namespace, sorted by namespace."""
    counted = used_by_namespace(view, rules.count_pods)
    for namespace in sorted(view.namespaces.quotas):
        used = counted.get(namespace, {})
        for quota in quotas_of(view, namespace):
            maximum = effective_max(quota, rules)
            yield QuotaUsage(
                quota=quota,
                used={name: used.get(name, 0) for name in maximum},
                maximum=maximum,
            )


def reserved_amounts(quota: ElasticQuota, counted: CountedPods) -> dict[str, int]:
    """Return what is reserved on a quota beyond what a view counts, allowances included.

    Args:
        quota: in its newest version.
        counted: amounts that the view counts for the pod of a name in its namespace.
    """
    found = decode(quota.reservations, quota.uid) or Reservations()
    named, additive = split_by_name(found.by_key.values())
    beyond = (excess(amounts, counted(name)) for name, amounts in named.items())
    allowances = (allowance.amounts for allowance in found.allowances.values())
    return sum_of([*beyond, *additive, *allowances])
