"""What Prometheus may ask: every metric of the webhook, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from engine.view import ClusterView

_SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """The metrics, and the few moments at which they change.

    Gauges of things that live elsewhere are given a function to ask at each scrape.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._reviews = Counter(
            "stowplan_reviews",
            "Admission reviews answered, by path and what came of them.",
            ["path", "outcome"],
            registry=self.registry,
        )
        self._review_seconds = Histogram(
            "stowplan_review_seconds",
            "Time from a review's arrival to its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "stowplan_reviews_in_flight",
            "Admission reviews being worked on.",
            ["path"],
            registry=self.registry,
        )
        self._rule_errors = Counter(
            "stowplan_rule_errors",
            "Policy rules that could not be evaluated for a pod.",
            registry=self.registry,
        )
        self._policy_reloads = Counter(
            "stowplan_policy_reloads",
            "Times the policy files were loaded after a change, by outcome.",
            ["outcome"],
            registry=self.registry,
        )

    def reviewed(self, path: str, outcome: str, seconds: float, *, rule_errors: int = 0) -> None:
        """Count one answered review."""
        self._reviews.labels(path, outcome).inc()
        self._review_seconds.labels(path).observe(seconds)
        if rule_errors:
            self._rule_errors.inc(rule_errors)

    def policies_reloaded(self, *, succeeded: bool) -> None:
        """Count one reload of the policy files."""
        self._policy_reloads.labels("loaded" if succeeded else "failed").inc()

    def show_in_flight(self, path: str, count: Callable[[], int]) -> None:
        """Ask `count` for the reviews of `path` being worked on."""
        self._in_flight.labels(path).set_function(count)

    def show_view(self, view: Callable[[], ClusterView], age_seconds: Callable[[], float]) -> None:
        """Ask `view` and `age_seconds` how much of the cluster is known, and how fresh it is."""
        self._gauge("stowplan_view_version", "Events applied to the view.", lambda: view().version)
        self._gauge("stowplan_view_nodes", "Nodes known.", lambda: int(view().valid.sum()))
        self._gauge(
            "stowplan_view_pods",
            "Pods known that have not finished.",
            lambda: sum(requests["pods"] for requests in view().namespace_requests.values()),
        )
        self._gauge("stowplan_view_age_seconds", "Time since the last event.", age_seconds)

    def show_policies(self, count: Callable[[], int]) -> None:
        """Ask `count` for the policies in use."""
        self._gauge("stowplan_policies", "Policies in use.", count)

    def show_certificate(self, expires_at: Callable[[], datetime]) -> None:
        """Ask `expires_at` for the end of the serving certificate."""
        self._gauge(
            "stowplan_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires.",
            lambda: expires_at().timestamp(),
        )

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)
