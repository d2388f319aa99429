from __future__ import annotations

from prometheus_client import CollectorRegistry

from tests.webhook.controllers.reclaim.worlds import quota_key
from webhook.controllers.reclaim.metrics import ReclaimMetrics


def test_evicted_pods_are_counted_by_quota_for_as_many_quotas_as_there_may_be() -> None:
    registry = CollectorRegistry()
    metrics = ReclaimMetrics(registry, lambda: False)
    for number in range(600):
        metrics.evicted_pod(quota_key(f"n{number}"))
    metrics.evicted_pod(quota_key("n0"))
    metrics.evicted_pod(None)  # of no quota

    def count(namespace: str) -> float | None:
        labels = {"quota_namespace": namespace, "quota": "team"}
        return registry.get_sample_value("stowplan_quota_evicted_pods_total", labels)

    assert [count("n0"), count("n499"), count("n500")] == [2, 1, None]


def test_a_pause_is_shown_while_it_lasts() -> None:
    registry, paused = CollectorRegistry(), True
    ReclaimMetrics(registry, lambda: paused)
    assert registry.get_sample_value("stowplan_reclaim_paused") == 1
    paused = False
    assert registry.get_sample_value("stowplan_reclaim_paused") == 0
