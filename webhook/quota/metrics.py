"""Metrics of quotas: how full each is, what it borrows and lends, and what waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.errors import counted
from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.quantity import CPU, PODS
from engine.model.resources import Amounts
from engine.quota import (
    QuotaMode,
    QuotaRules,
    QuotaVerdict,
    quota_figures,
    quota_usages,
    reserved_amounts,
)
from engine.view import ClusterView
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, quota_reference
from webhook.cluster.timing import MonotonicClock
from webhook.quota.cache import ObservedCluster

_MILLICORES = 1000
_MOST_QUOTAS = 500
_MOST_RESOURCES = 16  # of a quota: with eight series of each, 64,000 in all

_LABELS = ("quota_namespace", "quota", "resource")  # `namespace` is that of the scraped pod


@dataclass(frozen=True, slots=True, eq=False)
class QuotaCollector(Collector):
    """How full each quota is, computed at each scrape; the first so many by name."""

    observed: ObservedCluster  # the cluster as this replica observes it
    rules: QuotaRules  # what is compared
    mode: QuotaMode = "Enforce"  # of namespaces that name none
    # what the cohort has; None if that is the sum of `min`
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
        # In Prometheus' base units: cores instead of millicores.
        amount = amounts[name] / _MILLICORES if name == CPU else amounts[name]
        gauge.add_metric([quota.namespace, quota.name, name], amount)


# Events on an ElasticQuota with the number of requests it has denied, for `kubectl describe`.
#
# Each replica reports its own denials: the sum over the replicas of a minute is the total.


_FLUSH_SECONDS = 5.0
_INTERVAL_SECONDS = 60.0
_MOST_EVENTS = 20  # in a flush


@dataclass(slots=True)
class _Denials:
    """Denials by one quota since its last Event, which was attempted at `reported_at`."""

    count: int = 0
    since: datetime | None = None
    last_message: str = ""
    reported_at: float = float("-inf")  # by the monotonic clock


@dataclass(eq=False)
class QuotaEventRecorder:
    """Counts denials, and writes at most one Event per quota and minute."""

    connection: Connection  # to the API server
    _: KW_ONLY
    view: Callable[[], ClusterView]  # the cluster
    identity: str  # of this process, written in each Event
    now: Callable[[], datetime] = lambda: datetime.now(UTC)  # the time of day, written in Events
    clock: MonotonicClock = field(default_factory=MonotonicClock)  # of the interval between Events

    def __post_init__(self) -> None:
        self._denials: dict[QuotaKey, _Denials] = {}

    def record(self, namespace: str, verdict: QuotaVerdict) -> None:
        """Count a denied request; quick, and bounded by the number of quotas."""
        quotas = self.view().namespaces.quotas.get(namespace, ())
        for quota in _named(verdict.exceeded, quotas):
            denials = self._denials.setdefault(quota.key, _Denials())
            denials.count += 1
            denials.since = denials.since or self.now()
            denials.last_message = verdict.message

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self.clock.sleep(_FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write the Events that are due; those that fail are written a minute later."""
        now, quotas = self.clock.now(), self.view().namespaces.quotas
        left = _MOST_EVENTS
        for key, denials in list(self._denials.items()):
            if now - denials.reported_at < _INTERVAL_SECONDS:
                continue
            quota = next((quota for quota in quotas.get(key[0], ()) if quota.key == key), None)
            if quota is None or not denials.count:
                del self._denials[key]
            elif left:
                left -= 1
                denials.reported_at = now
                await self._write(quota, denials)

    async def _write(self, quota: ElasticQuota, denials: _Denials) -> None:
        until, count = self.now(), denials.count
        since = denials.since or until
        requests = counted(count, "request")
        event = ObjectEvent(
            about=quota_reference(quota),
            reason="QuotaExceeded",
            action="Refused",
            message=f"refused {requests} since {since:%H:%M:%S}, the last one:"
            f" {denials.last_message}",
            count=count,
            since=since,
            until=until,
        )
        if await event.write(self.connection, self.identity):
            denials.count -= count  # more may have been recorded meanwhile
            denials.since = self.now() if denials.count else None


def _named(names: Iterable[str], quotas: Sequence[ElasticQuota]) -> Sequence[ElasticQuota]:
    """Return the quotas of these names, all if there are none: then the cohort is exceeded."""
    exceeded = set(names)
    return [quota for quota in quotas if quota.name in exceeded] or quotas
