from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import generate_latest

from engine.model.time import SECOND, Micros
from engine.view import Domain
from webhook.cluster.watch.source_status import SourceStatus
from webhook.metrics import Metrics

NOW = Micros(1_000_000 * SECOND)


def _lines(metrics: Metrics) -> list[str]:
    return generate_latest(metrics.registry).decode().splitlines()


def test_each_source_is_shown_as_of_the_scrape() -> None:
    pods = SourceStatus(name="pods", domain=Domain.PODS, required=True)
    sources = {"pods": pods}
    metrics = Metrics()
    metrics.show_sources(sources, lambda: NOW)
    lines = _lines(metrics)
    assert 'stowplan_source_synced{source="pods"} 0.0' in lines
    assert not any(line.startswith("stowplan_view_age_seconds{") for line in lines)

    pods.present = pods.synced = True
    pods.last_contact = Micros(NOW - 2_500_000)
    pods.events, pods.relists, pods.objects = 12, 1, 7
    sources["namespaces"] = SourceStatus(name="namespaces", domain=None, required=False)
    lines = _lines(metrics)
    for line in (
        'stowplan_view_age_seconds{source="pods"} 2.5',
        'stowplan_source_synced{source="pods"} 1.0',
        'stowplan_source_events_total{source="pods"} 12.0',
        'stowplan_source_relists_total{source="pods"} 1.0',
        'stowplan_source_objects{source="pods"} 7.0',
        'stowplan_source_synced{source="namespaces"} 0.0',
    ):
        assert line in lines


def test_rules_that_abstained_are_counted_by_stale_domain() -> None:
    metrics = Metrics()
    metrics.reviewed("mutate", "placed", 0.001, abstained={"usage": 2})
    metrics.reviewed("mutate", "placed", 0.001, abstained={"usage": 1, "pods": 5})
    lines = _lines(metrics)
    assert 'stowplan_rules_abstained_total{domain="usage"} 3.0' in lines
    assert 'stowplan_rules_abstained_total{domain="pods"} 5.0' in lines


def test_reviews_are_counted_by_path_and_outcome_and_timed_by_path() -> None:
    metrics = Metrics()
    for path, outcome in (("mutate", "placed"), ("mutate", "placed"), ("validate", "admitted")):
        metrics.reviewed(path, outcome, 0.0015)
    lines = _lines(metrics)
    assert [line for line in lines if line.startswith("stowplan_reviews_total")] == [
        'stowplan_reviews_total{outcome="placed",path="mutate"} 2.0',
        'stowplan_reviews_total{outcome="admitted",path="validate"} 1.0',
    ]
    assert 'stowplan_review_seconds_bucket{le="0.001",path="mutate"} 0.0' in lines
    assert 'stowplan_review_seconds_bucket{le="0.002",path="mutate"} 2.0' in lines
    assert 'stowplan_review_seconds_count{path="validate"} 1.0' in lines


def test_the_moment_policies_were_loaded_is_shown() -> None:
    metrics = Metrics()
    metrics.show_policies(
        count=lambda: 1,
        loaded_at=lambda: datetime(1970, 1, 2, tzinfo=UTC),
        digest=lambda: "0" * 32,
        is_current=lambda: True,
    )
    assert "stowplan_policies_loaded_timestamp_seconds 86400.0" in _lines(metrics)


def test_namespaces_asked_about_are_counted_and_all_are_infinitely_many() -> None:
    metrics = Metrics()
    metrics.quota_namespaces(frozenset({"a", "b"}))
    assert "stowplan_quota_namespaces 2.0" in _lines(metrics)
    metrics.quota_namespaces(None)
    assert "stowplan_quota_namespaces +Inf" in _lines(metrics)


def test_drifted_quotas_are_shown_by_what_has_drifted() -> None:
    metrics = Metrics()
    metrics.quotas_drifted("status", 3)
    metrics.quotas_drifted("reservations", 0)
    lines = _lines(metrics)
    assert 'stowplan_quota_drift{what="status"} 3.0' in lines
    assert 'stowplan_quota_drift{what="reservations"} 0.0' in lines
