"""Metrics of held pods: how many are held and released, and what becomes of writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.model.elastic_quota import QuotaKey
from engine.model.time import SECOND, Micros
from engine.release import HeldPodRegistry, WriteFailure
from webhook.controllers.release.pod_writer import WriteKind
from webhook.controllers.release.quota_queue import QuotaQueue
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


class ReleaseFacts(Protocol):
    """What is shown of the release of held pods."""

    @property
    def held(self) -> HeldPods: ...  # noqa: D102 - the pods that are held
    @property
    def pods(self) -> HeldPodRegistry: ...  # noqa: D102 - their records
    @property
    def quota_queue(self) -> QuotaQueue: ...  # noqa: D102 - those that wait for quota
    @property
    def may_write(self) -> Callable[[], bool]: ...  # noqa: D102 - whether this replica leads
    @property
    def now(self) -> Callable[[], Micros]: ...  # noqa: D102 - the time of day


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseCollector(Collector):
    """The held and released pods of this moment, read at each scrape.

    Attributes:
        release: what the release works with.
    """

    release: ReleaseFacts

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        yield GaugeMetricFamily("stowplan_held_pods", "Pods that are held.", len(self.release.held))
        yield GaugeMetricFamily(
            "stowplan_held_pods_overdue_seconds",
            "Seconds for which the oldest pod is held beyond its bound; 0 if none is.",
            self.release.held.oldest_overdue_seconds(self.release.now()),
        )
        yield GaugeMetricFamily(
            "stowplan_held_pods_refused",
            "Held pods whose last write somebody's admission refused.",
            len(self.release.pods.refused()),
        )
        yield GaugeMetricFamily(
            "stowplan_released_pods_unbound",
            "Released pods that are not bound yet.",
            len(self.release.pods.unbound()),
        )
        yield self._within_min()

    def _within_min(self) -> Metric:
        gauge = GaugeMetricFamily(
            "stowplan_quota_within_min_wait_seconds",
            "Seconds for which the oldest pod within min of the quota has been waiting.",
            labels=["quota_namespace", "quota"],
        )
        if not self.release.may_write():
            return gauge
        waits, oldest = self.release.quota_queue.waits, dict[QuotaKey, Micros]()
        for record in self.release.pods:
            since = record.within_min_since
            wait = None if since is None else waits.get(record.pod.key)
            if since is not None and wait is not None:
                oldest[wait.quota] = min(since, oldest.get(wait.quota, since))
        now = self.release.now()
        for quota in islice(sorted(oldest), _MOST_QUOTAS):
            namespace, _, name = quota
            gauge.add_metric([namespace, name], max(0, now - oldest[quota]) / SECOND)
        return gauge
