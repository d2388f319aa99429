from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.time import Micros
from engine.quota import RESOURCE_QUOTA_RULES, QuotaMode, Reservation, Reservations
from engine.quota.reservations import encode
from engine.view import ClusterState
from tests.builders import pod_from
from webhook.quota import ObservedCluster, QuotaCollector


def quota(
    namespace: str, reservations: str = "", minimum: dict[str, str] | None = None, **maximum: str
) -> api.ElasticQuota:
    written: dict[str, Any] = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "metadata": {
            "namespace": namespace,
            "name": "team",
            "uid": "q",
            "annotations": {"stowplan.dev/reservations": reservations},
        },
        "spec": {"max": maximum, "min": minimum or {}},
    }
    return msgspec.convert(written, api.ElasticQuota)


def scraped(state: ClusterState, mode: QuotaMode = "Enforce") -> list[str]:
    observed = ObservedCluster(
        view=state.view, requests=lambda key, scheduled: state.requests(key, scheduled=scheduled)
    )
    registry = CollectorRegistry()
    registry.register(QuotaCollector(observed, RESOURCE_QUOTA_RULES, mode))
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_how_full_a_quota_is_can_be_graphed() -> None:
    state = ClusterState()
    waiting = Reservations(by_key={"u": Reservation("u", "b", {"cpu": 500, "memory": 7})})
    state.set_quota(quota_of(quota("shop", encode(waiting, "q"), cpu="4", memory="1Ki")))
    pod = {
        "metadata": {"namespace": "shop", "name": "a"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]},
    }
    state.set_pod(pod_from(pod), seen_at=Micros(0))
    of_cpu = '{quota="team",quota_namespace="shop",resource="cpu"}'
    of_memory = '{quota="team",quota_namespace="shop",resource="memory"}'
    assert set(scraped(state)) == {
        f"stowplan_quota_used{of_cpu} 1.5",
        f"stowplan_quota_reserved{of_cpu} 0.5",
        f"stowplan_quota_max{of_cpu} 4.0",
        f"stowplan_quota_used{of_memory} 0.0",
        f"stowplan_quota_reserved{of_memory} 7.0",
        f"stowplan_quota_max{of_memory} 1024.0",
    }


def test_the_number_of_series_is_bounded() -> None:
    state = ClusterState()
    for number in range(600):
        state.set_quota(quota_of(quota(f"shop-{number:03}", cpu="4")))
    many = {f"example.com/device-{number}": "1" for number in range(30)}
    state.set_quota(quota_of(quota("first", "", None, **many)))
    lines = scraped(state)
    assert len(lines) == 3 * (16 + 499)
    assert any("shop-498" in line for line in lines)


def test_what_a_quota_that_queues_borrows_and_lends_can_be_graphed() -> None:
    state = ClusterState()
    state.set_quota(quota_of(quota("shop", minimum={"cpu": "1"}, cpu="4", pods="9")))
    state.set_quota(quota_of(quota("mail", minimum={"cpu": "2"}, cpu="4")))
    for name, queued in (("a", False), ("b", True)):
        pod = {
            "metadata": {
                "namespace": "shop",
                "name": name,
                "annotations": {"stowplan.dev/hold-reasons": "quota"},
            },
            "spec": {
                "schedulingGates": [{"name": "stowplan.dev/hold"}] if queued else [],
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}],
            },
        }
        state.set_pod(pod_from(pod), seen_at=Micros(0))
    lines = set(scraped(state, "Queue"))
    of = 'quota="team",quota_namespace="{}"'
    shop, mail = of.format("shop"), of.format("mail")
    assert lines >= {
        f'stowplan_quota_min{{{shop},resource="cpu"}} 1.0',
        f'stowplan_quota_used{{{shop},resource="cpu"}} 1.5',
        # shop uses 1.5 of the 1 it is guaranteed; mail leaves all of its 2 unused.
        f'stowplan_quota_borrowed{{{shop},resource="cpu"}} 0.5',
        f'stowplan_quota_lent{{{shop},resource="cpu"}} 0.0',
        f'stowplan_quota_borrowed{{{mail},resource="cpu"}} 0.0',
        f'stowplan_quota_lent{{{mail},resource="cpu"}} 0.5',
        f"stowplan_quota_queued_pods{{{shop}}} 1.0",
        f"stowplan_quota_max_queued_pods{{{shop}}} 1000.0",
        f"stowplan_quota_queued_pods{{{mail}}} 0.0",
    }
    assert not any("runtime" in line for line in lines)
    assert not any("borrowed" in line for line in scraped(state))  # nothing queues there
