"""What the release of held pods works with, and its metrics, built in one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.eviction import NodeFit
from engine.model.elastic_quota import EvictionMode, QuotaKey
from engine.model.time import SECOND, Micros, date
from engine.quota.queueing import QueueRules
from engine.release import HeldPod, HeldPodRegistry, QueueOrder, WriteFailure
from engine.view import ClusterState, ClusterView, WhatIf
from webhook.cluster.client.connection import Connection
from webhook.controllers.release.conditions import QueuedConditions
from webhook.controllers.release.nominations import Nominations, ReleasedPods
from webhook.controllers.release.pod_writer import PodWriter, WriteKind
from webhook.controllers.release.quota_queue import QuotaPace, QuotaQueue, SurgingPods
from webhook.controllers.release.release_health import ReleaseHealth, SchedulerLease
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRules:
    """The rules by which held pods are released."""

    order: QueueOrder = field(default_factory=QueueOrder)  # of the held pods
    queue: QueueRules = field(default_factory=QueueRules)  # the rules by which they wait for quota
    reclaims: bool = False  # whether pods are evicted for others where their quota says so
    hard_namespaces: Container[str] = ()  # whose quotas may ask for Hard reclaim
    preempts: bool = False  # whether pods of lower priority are


@dataclass(kw_only=True, eq=False)
class ReleaseContext:
    """What the release of held pods works with; nothing of it is written before somebody leads."""

    # to the API server, for nothing else: renewals of the Lease must not wait
    connection: Connection
    identity: str  # of this process, written in Events
    may_write: Callable[[], bool]  # whether this replica leads at this very moment
    annotate: Callable[[str, str], None]  # writes an annotation on the Lease
    state: ClusterState  # the cluster, in which nominated pods count
    held: HeldPods  # the pods that are held
    unbound: ReleasedPods  # observes those that are released
    rules: ReleaseRules  # by which they are
    # of writes and holds
    metrics: ReleaseMetrics = field(default_factory=lambda: ReleaseMetrics(CollectorRegistry()))
    # finds the pods that may go above `max`; none does without it
    surges: SurgingPods | None = None
    # the filters that a held pod must pass on the nodes of a view
    fit: Callable[[HeldPod, ClusterView], NodeFit]
    # what the policy of a held pod says of preemption
    preemption_of: Callable[[HeldPod], EvictionMode] = lambda _held: EvictionMode.OFF
    now: Callable[[], Micros]  # the time of day
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward

    pods: HeldPodRegistry = field(init=False)  # the records of all held and released pods
    nominations: Nominations = field(init=False)  # the nodes that they count on
    writer: PodWriter = field(init=False)  # writes held pods
    health: ReleaseHealth = field(init=False)  # whether pods are released
    conditions: QueuedConditions = field(init=False)  # what held pods say of their wait
    quota_queue: QuotaQueue = field(init=False)  # those that wait for quota
    pace: QuotaPace = field(init=False)  # how long they wait for it
    scheduler_lease: SchedulerLease = field(init=False)  # tells when the scheduler was restarted

    def __post_init__(self) -> None:
        """Make what only the release works with."""
        self.pods = self.unbound.pods
        self.nominations = Nominations(self.state, self.held, self.pods)
        self.writer = PodWriter(
            self.connection,
            may_write=self.may_write,
            clock=self.clock,
            now=lambda: date(self.now()).astimezone(UTC),
            count_write=self.metrics.written,
            observe_hold=self.metrics.held_for,
        )
        self.health = ReleaseHealth(self.annotate, self.clock)
        self.conditions = QueuedConditions(self.pods)
        self.quota_queue = QuotaQueue(
            self.state,
            self.held,
            self.pods,
            self.rules.queue,
            now=self.now,
            reclaims=self.rules.reclaims,
            hard_namespaces=self.rules.hard_namespaces,
            surges=self.surges,
            clock=self.clock,
        )
        self.pace = QuotaPace(self.now)
        self.scheduler_lease = SchedulerLease(self.connection)

    def node_for(self, held: HeldPod) -> str:
        """Return a node that would take a held pod that counts on none, "" for none."""
        view = self.state.view()
        return self.fit(held, view).first(WhatIf(view))


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseCollector(Collector):
    """The held and released pods of this moment, read at each scrape."""

    release: ReleaseContext  # what the release works with

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
