"""Metrics of quotas: how full each is, what it borrows and lends, and what waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.model.elastic_quota import ElasticQuota
from engine.model.resource_names import CPU, PODS
from engine.model.resources import Amounts
from engine.quota import (
    QuotaMode,
    QuotaRules,
    quota_figures,
    quota_usages,
    reserved_amounts,
)
from engine.view import ClusterView
from webhook.quota.observed import ObservedCluster

_MILLICORES = 1000
_MOST_QUOTAS = 500
_MOST_RESOURCES = 16  # of a quota: with eight series of each, 64,000 in all

_LABELS = ("quota_namespace", "quota", "resource")  # `namespace` is that of the scraped pod


@dataclass(frozen=True, slots=True, eq=False)
class QuotaCollector(Collector):
    """How full each quota is, computed at each scrape; the first so many by name.

    Attributes:
        observed: the cluster as this replica observes it.
        rules: what is compared.
        mode: of namespaces that name none.
        capacity: what the cohort has; None if that is the sum of `min`.
    """

    observed: ObservedCluster
    rules: QuotaRules
    mode: QuotaMode = "Enforce"
    capacity: Callable[[ClusterView], Amounts | None] = lambda _: None

    def collect(self) -> Iterator[Metric]:
        """Yield amounts of the resources that a quota limits, and how many pods wait for it."""
        view = self.observed.view()
        yield from self._usage(view)
        yield from self._queues(view)

    def _usage(self, view: ClusterView) -> Iterator[Metric]:
        used = _gauge("stowplan_quota_used", "Requests of pods")
        reserved = _gauge(
            "stowplan_quota_reserved", "Reserved for pods that are not in the view yet"
        )
        minimum = _gauge("stowplan_quota_min", "min of the quota")
        maximum = _gauge("stowplan_quota_max", "max of the quota")
        for usage in islice(quota_usages(view, self.rules), _MOST_QUOTAS):
            quota = usage.quota
            held = reserved_amounts(quota, partial(self._counted, quota.namespace))
            names = sorted(usage.maximum)[:_MOST_RESOURCES]
            _add(used, quota, {name: usage.used[name] for name in names})
            _add(reserved, quota, {name: held.get(name, 0) for name in names})
            _add(maximum, quota, {name: usage.maximum[name] for name in names})
            _add(minimum, quota, quota.min or {})
        yield from (used, reserved, minimum, maximum)

    def _queues(self, view: ClusterView) -> Iterator[Metric]:
        """Yield what there is of quotas whose pods queue alone."""
        borrowed = _gauge("stowplan_quota_borrowed", "Requests of pods beyond min")
        lent = _gauge("stowplan_quota_lent", "Of min, unused and taken by quotas that borrow")
        runtime = _gauge(
            "stowplan_quota_runtime", "What pods may use now, where quotas form a tree"
        )
        queued = GaugeMetricFamily(
            "stowplan_quota_queued_pods", "Pods that wait for the quota.", labels=_LABELS[:2]
        )
        most_queued = GaugeMetricFamily(
            "stowplan_quota_max_queued_pods",
            "Pods that may wait for the quota; a further one is denied.",
            labels=_LABELS[:2],
        )
        found = quota_figures(view, self.rules, self.mode, capacity=self.capacity(view))
        for figures in found[:_MOST_QUOTAS]:
            quota = figures.usage.quota
            # Zeros, too, so that a graph falls to the ground instead of ending in the air.
            names = dict.fromkeys(sorted({*(quota.min or {}), *(quota.max or {})} - {PODS}), 0)
            _add(borrowed, quota, {**names, **figures.sharing.borrowed})
            _add(lent, quota, {**names, **figures.sharing.lent})
            _add(runtime, quota, figures.runtime)
            queued.add_metric([quota.namespace, quota.name], figures.queued)
            most_queued.add_metric([quota.namespace, quota.name], quota.max_queued)
        yield from (borrowed, lent, runtime, queued, most_queued)

    def _counted(self, namespace: str, name: str) -> Amounts:
        return self.observed.requests(f"{namespace}/{name}", self.rules.count_pods == "Scheduled")


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, f"{text}, in cores, bytes or pieces.", labels=_LABELS)


def _add(gauge: GaugeMetricFamily, quota: ElasticQuota, amounts: Amounts) -> None:
    for name in sorted(amounts)[:_MOST_RESOURCES]:
        gauge.add_metric([quota.namespace, quota.name, name], _base(name, amounts[name]))


def _base(name: str, amount: int) -> float:
    """Return an amount in Prometheus' base units: cores instead of millicores."""
    return amount / _MILLICORES if name == CPU else amount
