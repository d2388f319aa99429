"""Metrics of reclaim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from engine.model.elastic_quota import QuotaKey
from webhook.controllers.reclaim.eviction_writer import EvictionResult
from webhook.controllers.reclaim.outcome import Outcome

_MOST_QUOTAS: Final = 500
"""As many as other metrics of quotas have; evictions of pods of further ones are not counted."""


class ReclaimMetrics:
    """Metrics of evictions; they stand still on replicas that do not lead.

    Args:
        registry: of the metrics.
        is_paused: whether this replica leads, and plans nothing for some namespace.
    """

    def __init__(self, registry: CollectorRegistry, is_paused: Callable[[], bool]) -> None:
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
        self._quotas: set[QuotaKey] = set()
        self._evicted_pods = Counter(
            "stowplan_quota_evicted_pods",
            "Pods of a quota that were evicted, for others or above its runtime.",
            ["quota_namespace", "quota"],
            registry=registry,
        )
        paused = Gauge(
            "stowplan_reclaim_paused",
            "1 while the leader evicts nobody for some namespace, since too many reclaims for it"
            " did not end in a binding.",
            registry=registry,
        )
        paused.set_function(lambda: float(is_paused()))

    def ended(self, source: str, outcome: Outcome) -> None:
        """Count one reclaim of a source of plans."""
        self._reclaims.labels(source, outcome.value).inc()

    def evicted(self, result: EvictionResult) -> None:
        """Count one eviction that was sent."""
        self._evictions.labels(result.value).inc()

    def evicted_pod(self, quota: QuotaKey | None) -> None:
        """Count a pod that was evicted, by the quota that it counts for."""
        if quota is None or (quota not in self._quotas and len(self._quotas) >= _MOST_QUOTAS):
            return
        self._quotas.add(quota)
        namespace, _, name = quota
        self._evicted_pods.labels(namespace, name).inc()
