"""Metrics of quotas: how full each is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.model.resource_names import CPU
from engine.model.resources import Amounts
from engine.quota import QuotaRules, quota_usages, reserved_amounts
from webhook.quota.observed import ObservedCluster

_MILLICORES = 1000
_MOST_QUOTAS = 500
_MOST_RESOURCES = 16  # of a quota: 24,000 series in all


@dataclass(frozen=True, slots=True, eq=False)
class QuotaCollector(Collector):
    """How full each quota is, computed at each scrape; the first so many by name.

    Attributes:
        observed: the cluster as this replica observes it.
        rules: what is compared.
    """

    observed: ObservedCluster
    rules: QuotaRules

    def collect(self) -> Iterator[Metric]:
        """Yield used, reserved and max amounts of the resources that a quota limits."""
        # `namespace` is that of the scraped pod.
        labels = ["quota_namespace", "quota", "resource"]
        used = GaugeMetricFamily(
            "stowplan_quota_used", "Requests of pods, in cores, bytes or pieces.", labels=labels
        )
        reserved = GaugeMetricFamily(
            "stowplan_quota_reserved",
            "Reserved for pods that are not in the view yet, in cores, bytes or pieces.",
            labels=labels,
        )
        maximum = GaugeMetricFamily(
            "stowplan_quota_max", "max of the quota, in cores, bytes or pieces.", labels=labels
        )
        for usage in islice(quota_usages(self.observed.view(), self.rules), _MOST_QUOTAS):
            quota = usage.quota
            held = reserved_amounts(quota, partial(self._counted, quota.namespace))
            for name in sorted(usage.maximum)[:_MOST_RESOURCES]:
                values = [quota.namespace, quota.name, name]
                used.add_metric(values, _base(name, usage.used[name]))
                reserved.add_metric(values, _base(name, held.get(name, 0)))
                maximum.add_metric(values, _base(name, usage.maximum[name]))
        yield from (used, reserved, maximum)

    def _counted(self, namespace: str, name: str) -> Amounts:
        return self.observed.requests(f"{namespace}/{name}", self.rules.count_pods == "Scheduled")


def _base(name: str, amount: int) -> float:
    """Return an amount in Prometheus' base units: cores instead of millicores."""
    return amount / _MILLICORES if name == CPU else amount
