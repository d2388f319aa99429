from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from engine.model.time import SECOND, Micros
from engine.view import ClusterState, Domain
from webhook.cluster.cluster import Cluster
from webhook.cluster.watch.source_status import SourceStatus
from webhook.placement.live_policies import LivePolicies
from webhook.serving.health import Health
from webhook.serving.tls import LiveCertificate, SelfSigned

START = datetime(2026, 3, 2, tzinfo=UTC)
NOW = Micros(int(START.timestamp()) * SECOND)


@pytest.fixture
def sources() -> dict[str, SourceStatus]:
    """Return pods that were heard 2.5 s ago, and usage that the cluster does not have."""
    pods = SourceStatus(
        name="pods",
        domain=Domain.PODS,
        required=True,
        present=True,
        synced=True,
        last_contact=Micros(NOW - 2_500_000),
        objects=7,
    )
    metrics = SourceStatus(
        name="metrics.k8s.io", domain=Domain.METRICS, required=False, last_error="no such API"
    )
    return {source.name: source for source in (pods, metrics)}


@pytest.fixture
def health(sources: dict[str, SourceStatus], policies: Path, state: ClusterState) -> Health:
    return Health(
        policies=LivePolicies([policies], track=state.track_sums, now=lambda: START),
        cluster=Cluster(state=state, now=lambda: NOW, is_live=True, sources=sources),
        certificate=LiveCertificate(SelfSigned(now=START), client_ca=None, now=lambda: START),
        now=lambda: NOW,
        modes={},
        reviews=dict,
    )


def test_a_replica_is_not_ready_while_reviews_would_wait_for_its_caches(health: Health) -> None:
    assert health.ready()
    health.preparing = True
    assert not health.ready()
    assert health.report().preparing


def test_every_source_is_told_and_when_policies_were_loaded(health: Health) -> None:
    detail = msgspec.json.decode(msgspec.json.encode(health.report()))
    assert detail["sources"][0] == {
        "name": "pods",
        "required": True,
        "present": True,
        "synced": True,
        "ageSeconds": 2.5,
        "objects": 7,
        "skipped": 0,
        "lastError": "",
    }
    assert detail["sources"][1]["ageSeconds"] is None
    assert detail["view"]["stale"] == []
    assert detail["policies"]["loadedAt"] == "2026-03-02T00:00:00+00:00"


def test_a_webhook_is_not_ready_before_all_it_needs_was_read(
    health: Health, sources: dict[str, SourceStatus]
) -> None:
    assert health.ready()
    sources["pods"].synced = False
    assert not health.ready()


def test_an_optional_source_is_waited_for_until_it_answers_or_fails(
    health: Health, sources: dict[str, SourceStatus]
) -> None:
    sources["metrics.k8s.io"].last_error = ""
    assert not health.ready()
    sources["metrics.k8s.io"].synced = True
    assert health.ready()


def test_what_grows_stale_is_told_and_leaves_the_webhook_ready(
    health: Health, sources: dict[str, SourceStatus]
) -> None:
    sources["pods"].last_contact = Micros(NOW - 200 * SECOND)
    assert health.ready()
    assert health.report().view.stale == ("pods are 200 s old",)
