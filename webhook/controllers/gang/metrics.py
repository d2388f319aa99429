"""Metrics of gangs: how many wait and are released, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.controllers.gang.outcome import GangOutcome, GangState


class GangCounts(Protocol):
    """Who knows how many gangs wait."""

    @property
    def counts(self) -> Mapping[GangState, int]:
        """The number of gangs with held members, by what they wait for."""


class GangMetrics:
    """Counters of the release of gangs; they stand still on replicas that do not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = Counter(
            "stowplan_gang_releases",
            "Attempts to release a gang, by how they ended.",
            ["outcome"],
            registry=registry,
        )
        for outcome in GangOutcome:
            self._outcomes.labels(outcome.value)

    def ended(self, outcome: GangOutcome) -> None:
        """Count the end of an attempt."""
        self._outcomes.labels(outcome.value).inc()


@dataclass(frozen=True, slots=True, eq=False)
class GangCollector(Collector):
    """The gangs of this moment, read at each scrape.

    Attributes:
        gangs: knows them.
    """

    gangs: GangCounts

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge."""
        gauge = GaugeMetricFamily(
            "stowplan_gangs",
            "Gangs with held members, by what they wait for.",
            labels=["state"],
        )
        for state, number in self.gangs.counts.items():
            gauge.add_metric([state.value], number)
        yield gauge
