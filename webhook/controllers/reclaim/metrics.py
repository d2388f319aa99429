"""Metrics of reclaim."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from webhook.controllers.reclaim.eviction_writer import EvictionResult
from webhook.controllers.reclaim.outcome import Outcome


class ReclaimMetrics:
    """Counters of reclaims; they stand still on replicas that do not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reclaims = Counter(
            "stowplan_reclaims",
            "Evictions of others for a pod, by why it may (source) and how they ended.",
            ["source", "outcome"],
            registry=registry,
        )
        self._evictions = Counter(
            "stowplan_evictions",
            "Evictions of pods that borrow, by what became of them.",
            ["result"],
            registry=registry,
        )

    def ended(self, source: str, outcome: Outcome) -> None:
        """Count one reclaim of a source of plans."""
        self._reclaims.labels(source, outcome.value).inc()

    def evicted(self, result: EvictionResult) -> None:
        """Count one eviction that was sent."""
        self._evictions.labels(result.value).inc()
