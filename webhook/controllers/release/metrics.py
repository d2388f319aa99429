"""Metrics of held pods: how many are held and released, and what becomes of writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.model.elastic_quota import QuotaKey
from engine.model.time import SECOND, Micros
from webhook.controllers.release.pod_writer import WriteKind
from webhook.controllers.release.quota_queue import QuotaQueue
from webhook.controllers.release.refusals import Refusals
from webhook.controllers.release.unbound_releases import UnboundReleases
from webhook.controllers.release.write_error import WriteFailure
from webhook.placement.held_pods import HeldPods

_HOLD_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_MOST_QUOTAS = 500


class ReleaseMetrics:
    """Counters of the release of held pods; they stand still on replicas that do not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._writes = Counter(
            "stowplan_held_pod_writes",
            "Writes of held pods, by what they write and what became of them.",
            ["write", "result"],
            registry=registry,
        )
        self._hold_seconds = Histogram(
            "stowplan_hold_seconds",
            "Seconds from the creation of a held pod to its release.",
            buckets=_HOLD_SECONDS,
            registry=registry,
        )

    def written(self, kind: WriteKind, failure: WriteFailure | None) -> None:
        """Count one write; without a failure it was accepted."""
        result = "accepted" if failure is None else failure.value
        self._writes.labels(kind.value, result).inc()

    def held_for(self, seconds: float) -> None:
        """Count the time for which one pod was held."""
        self._hold_seconds.observe(seconds)


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseCollector(Collector):
    """The held and released pods of this moment, read at each scrape.

    Attributes:
        held: the pods that are held.
        unbound: those that are released and not bound.
        refusals: those whose release is refused.
        now: the time of day.
        quota_queue: the pods that wait for quota.
        is_leader: whether this replica leads, as it alone knows that.
    """

    held: HeldPods
    unbound: UnboundReleases
    refusals: Refusals
    now: Callable[[], Micros]
    quota_queue: QuotaQueue
    is_leader: Callable[[], bool]

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        yield GaugeMetricFamily("stowplan_held_pods", "Pods that are held.", len(self.held))
        yield GaugeMetricFamily(
            "stowplan_held_pods_overdue_seconds",
            "Seconds for which the oldest pod is held beyond its bound; 0 if none is.",
            self.held.oldest_overdue_seconds(self.now()),
        )
        yield GaugeMetricFamily(
            "stowplan_held_pods_refused",
            "Held pods whose last write somebody's admission refused.",
            len(self.refusals),
        )
        yield GaugeMetricFamily(
            "stowplan_released_pods_unbound",
            "Released pods that are not bound yet.",
            len(self.unbound),
        )
        yield self._within_min()

    def _within_min(self) -> Metric:
        gauge = GaugeMetricFamily(
            "stowplan_quota_within_min_wait_seconds",
            "Seconds for which the oldest pod within min of the quota has been waiting.",
            labels=["quota_namespace", "quota"],
        )
        if not self.is_leader():
            return gauge
        waits, oldest = self.quota_queue.waits, dict[QuotaKey, Micros]()
        for key, since in self.quota_queue.within_min_since.items():
            wait = waits.get(key)
            if wait is not None:
                oldest[wait.quota] = min(since, oldest.get(wait.quota, since))
        now = self.now()
        for quota in islice(sorted(oldest), _MOST_QUOTAS):
            namespace, _, name = quota
            gauge.add_metric([namespace, name], max(0, now - oldest[quota]) / SECOND)
        return gauge
