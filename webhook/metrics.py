"""The registry, and the metrics of reviews, the view, policies in force and the process.

A feature declares its own metrics beside its code, and registers them here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import inf
from types import MappingProxyType
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.model.time import Micros
from engine.quota import Reach
from engine.view import ClusterView
from webhook.cluster.watch.source_status import SourceStatus, age_seconds

_SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

_VIEW_AGE = (
    "stowplan_view_age_seconds",
    "Seconds since the last contact with a source of the view.",
)
_EXACT_HEX_DIGITS = 13  # 52 bits: a sample holds no more exactly
NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class Metrics:
    """These metrics; counters are updated here, gauges call a function at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._reviews = self._counter(
            "stowplan_reviews", "Admission reviews, by path and outcome.", "path", "outcome"
        )
        self._review_seconds = Histogram(
            "stowplan_review_seconds",
            "Seconds from the arrival of a review to its response.",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        # A lookup of labels takes longer than counting. They are few: paths and outcomes.
        self._reviews_by = cache(self._reviews.labels)
        self._review_seconds_by = cache(self._review_seconds.labels)
        self._in_flight = Gauge(
            "stowplan_reviews_in_flight",
            "Admission reviews without a response yet.",
            ["path"],
            registry=self.registry,
        )
        self._connections_closed = self._counter(
            "stowplan_connections_closed",
            "Connections that were closed because of their peer, by reason.",
            "reason",
        )
        self._rule_errors = self._counter(
            "stowplan_rule_errors", "Policy rules that could not be evaluated for a pod."
        )
        self._rules_abstained = self._counter(
            "stowplan_rules_abstained",
            "Rules that abstained for a pod because data they read was stale, by domain.",
            "domain",
        )
        self._holds_refused = self._counter(
            "stowplan_holds_refused",
            "Pods that were advised instead of held, for their release could not be relied on, by"
            " reason.",
            "reason",
        )
        self._quota_writes = self._counter(
            "stowplan_quota_writes",
            "Writes of reservations on ElasticQuotas, by outcome.",
            "outcome",
        )
        self._quota_drift = Gauge(
            "stowplan_quota_drift",
            "ElasticQuotas with a status or reservations that have been wrong for long.",
            ["what"],
            registry=self.registry,
        )
        self._quota_over_max = Gauge(
            "stowplan_quota_over_max",
            "ElasticQuotas whose pods have used more than max for a while.",
            registry=self.registry,
        )
        self._quota_namespaces = Gauge(
            "stowplan_quota_namespaces",
            "Namespaces in which the API server asks about quota, +Inf for all; of the leader.",
            registry=self.registry,
        )
        self._policy_reloads = self._counter(
            "stowplan_policy_reloads",
            "Reloads of the policy files after a change, by outcome.",
            "outcome",
        )

    def reviewed(
        self,
        path: str,
        outcome: str,
        seconds: float,
        *,
        rule_errors: int = 0,
        abstained: Mapping[str, int] = NOTHING,
    ) -> None:
        """Count one review; `abstained` is the number of rules by stale domain."""
        self._reviews_by(path, outcome).inc()
        self._review_seconds_by(path).observe(seconds)
        if rule_errors:
            self._rule_errors.inc(rule_errors)
        for domain, rules in abstained.items():
            self._rules_abstained.labels(domain).inc(rules)

    def hold_refused(self, reason: str) -> None:
        """Count one pod that was advised instead of held."""
        self._holds_refused.labels(reason).inc()

    def quota_written(self, outcome: str) -> None:
        self._quota_writes.labels(outcome).inc()

    def quotas_drifted(self, what: str, quotas: int) -> None:
        """Show the number of quotas whose `status` or `reservations` have been wrong for long."""
        self._quota_drift.labels(what).set(quotas)

    def quotas_over_max(self, quotas: int) -> None:
        """Show the number of quotas whose pods use more than `max`."""
        self._quota_over_max.set(quotas)

    def quota_namespaces(self, names: Reach) -> None:
        """Show in how many namespaces the API server asks about quota."""
        self._quota_namespaces.set(inf if names is None else len(names))

    def policies_reloaded(self, *, succeeded: bool) -> None:
        self._policy_reloads.labels("loaded" if succeeded else "failed").inc()

    def connection_closed(self, reason: str) -> None:
        self._connections_closed.labels(reason).inc()

    def show_connections(self, count: Callable[[], int]) -> None:
        self._gauge("stowplan_connections", "Open connections to the port of reviews.", count)

    def show_tasks(self, count: Callable[[], int]) -> None:
        """Show the number of tasks of the event loop: one that only grows is a leak."""
        self._gauge("stowplan_tasks", "Tasks of the event loop.", count)

    def show_in_flight(self, path: str, count: Callable[[], int]) -> None:
        self._in_flight.labels(path).set_function(count)

    def show_view(
        self, view: Callable[[], ClusterView], recorded_seconds: Callable[[], float] | None = None
    ) -> None:
        self._gauge("stowplan_view_version", "Events applied to the view.", lambda: view().version)
        self._gauge("stowplan_view_nodes", "Nodes in the view.", lambda: int(view().valid.sum()))
        self._gauge(
            "stowplan_view_pods",
            "Pods in the view that have not finished.",
            lambda: sum(
                requests["pods"]
                for totals in (view().namespaces.requested, view().namespaces.queued)
                for requests in totals.values()
            ),
        )
        if recorded_seconds is not None:
            age = Gauge(*_VIEW_AGE, ["source"], registry=self.registry)
            age.labels("recording").set_function(recorded_seconds)

    def show_sources(self, sources: Mapping[str, SourceStatus], now: Callable[[], Micros]) -> None:
        self.registry.register(_Sources(sources, now))

    def show_policies(
        self,
        *,
        count: Callable[[], int],
        loaded_at: Callable[[], datetime],
        digest: Callable[[], str],
        is_current: Callable[[], bool],
    ) -> None:
        """Show the policies in force: number, time of loading, hash, and whether files differ."""
        self._gauge("stowplan_policies", "Policies in force.", count)
        self._gauge(
            "stowplan_policies_loaded_timestamp_seconds",
            "Time at which the policies in force were loaded.",
            lambda: loaded_at().timestamp(),
        )
        self._gauge(
            "stowplan_policies_hash",
            "Hash of the policies in force; replicas with the same policies show the same.",
            lambda: int(digest()[:_EXACT_HEX_DIGITS], 16),
        )
        self._gauge(
            "stowplan_policies_last_reload_successful",
            "Whether the policies in force are those in the files.",
            is_current,
        )

    def show_policy_resources(
        self, counts: Callable[[], Mapping[tuple[str, str, str], int]]
    ) -> None:
        """Show what became of the policies of the API, by kind, namespace and acceptance."""
        self.registry.register(
            _Counts(
                GaugeMetricFamily,
                "stowplan_policy_resources",
                "Policies of the API, by kind, namespace and what became of them.",
                ("kind", "policy_namespace", "acceptance"),
                counts,
            )
        )

    def show_policy_counts(
        self,
        *,
        decisions: Callable[[], Mapping[tuple[str, str, str], int]],
        rejections: Callable[[], Mapping[tuple[str, str, str], int]],
        rule_seconds: Callable[[], Mapping[tuple[str, str], float]],
        rule_evaluations: Callable[[], Mapping[tuple[str, str], int]],
    ) -> None:
        """Show the effect of each policy in force, and the time that its rules take."""
        for counts in (
            _Counts(
                CounterMetricFamily,
                "stowplan_policy_decisions",
                "Decisions for pods that a policy took part in, by policy, mode and outcome.",
                ("policy", "mode", "outcome"),
                decisions,
            ),
            _Counts(
                CounterMetricFamily,
                "stowplan_rule_rejections",
                "Nodes that a filter was the first to reject, added up over decisions, by policy, "
                "mode and rule.",
                ("policy", "mode", "rule"),
                rejections,
            ),
            _Counts(
                CounterMetricFamily,
                "stowplan_rule_seconds",
                "Seconds that rules took to be evaluated for decisions, by policy and rule; the "
                "scheduler's own rules have no policy.",
                ("policy", "rule"),
                rule_seconds,
            ),
            _Counts(
                CounterMetricFamily,
                "stowplan_rule_evaluations",
                "Evaluations of rules for decisions, by policy and rule; the scheduler's own rules "
                "have no policy.",
                ("policy", "rule"),
                rule_evaluations,
            ),
        ):
            self.registry.register(counts)

    def answered(self) -> dict[str, int]:
        """Number of finished reviews, by path."""
        counts: dict[str, int] = {}
        for metric in self._reviews.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    path = sample.labels["path"]
                    counts[path] = counts.get(path, 0) + int(sample.value)
        return counts

    def show_certificate(self, expires_at: Callable[[], datetime]) -> None:
        self._gauge(
            "stowplan_certificate_expiry_timestamp_seconds",
            "Time at which the serving certificate expires.",
            lambda: expires_at().timestamp(),
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)


@dataclass(frozen=True, slots=True, eq=False)
class _Counts(Collector):
    """Counts that are kept elsewhere, by label values, read at each scrape."""

    family: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    counts: Callable[[], Mapping[Any, float]]  # by a tuple of values of the labels

    def collect(self) -> Iterator[Metric]:
        metric = self.family(self.name, self.text, labels=self.labels)
        for values, count in self.counts().items():
            metric.add_metric(values, count)
        yield metric


@dataclass(frozen=True, slots=True, eq=False)
class _Sources(Collector):
    """Status of each source, read at each scrape: sources come and go."""

    sources: Mapping[str, SourceStatus]
    now: Callable[[], Micros]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all sources; one without any contact has no age."""
        labels, now = ["source"], self.now()
        age = GaugeMetricFamily(*_VIEW_AGE, labels=labels)
        synced = GaugeMetricFamily(
            "stowplan_source_synced",
            "Whether a source has been listed in full at least once.",
            labels=labels,
        )
        objects = GaugeMetricFamily(
            "stowplan_source_objects", "Objects held from a source.", labels=labels
        )
        events = CounterMetricFamily(
            "stowplan_source_events", "Events received from a source.", labels=labels
        )
        relists = CounterMetricFamily(
            "stowplan_source_relists", "Lists of a source after the first.", labels=labels
        )
        for name, source in self.sources.items():
            seconds = age_seconds(source, now)
            if seconds is not None:
                age.add_metric([name], seconds)
            synced.add_metric([name], source.synced)
            objects.add_metric([name], source.objects)
            events.add_metric([name], source.events)
            relists.add_metric([name], source.relists)
        yield from (age, synced, objects, events, relists)
