from __future__ import annotations

from engine.model.elastic_quota import ElasticQuota
from engine.model.time import Micros
from engine.quota import (
    CAPACITY_SCHEDULING_RULES,
    RESOURCE_QUOTA_RULES,
    Allowance,
    Reservation,
    Reservations,
    quota_usages,
    reserved_amounts,
)
from engine.quota.reservations import encode
from engine.view import ClusterState
from tests.builders import elastic_quota, pod_from


def quota(name: str = "team", *, reservations: str = "", **maximum: int) -> ElasticQuota:
    return elastic_quota(name, most=maximum, uid="q", version=1, reservations=reservations)


def cluster(*quotas: ElasticQuota) -> ClusterState:
    """Return a cluster with a pod of 2 cores in `shop` that waits for a node."""
    state = ClusterState()
    for each in quotas:
        state.set_quota(each)
    resources = {"requests": {"cpu": "2", "memory": "1"}}
    pod = {
        "metadata": {"namespace": "shop", "name": "a"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    state.set_pod(pod_from(pod), seen_at=Micros(0))
    return state


def test_usage_is_of_the_resources_that_a_quota_limits() -> None:
    view = cluster(quota(cpu=3000, pods=5)).view()
    (usage,) = quota_usages(view, RESOURCE_QUOTA_RULES)
    assert usage.used == {"cpu": 2000, "pods": 1}
    assert usage.maximum == {"cpu": 3000, "pods": 5}
    assert usage.exceeded == ()


def test_usage_above_max_names_the_resources() -> None:
    view = cluster(quota(cpu=1500, pods=1, memory=1)).view()
    (usage,) = quota_usages(view, RESOURCE_QUOTA_RULES)
    assert usage.exceeded == ("cpu",)
    assert usage.clause == "exceeded quota: team, requested: , used: cpu=2, limited: cpu=1500m"


def test_pods_count_by_the_rules() -> None:
    view = cluster(quota(cpu=3000)).view()
    (usage,) = quota_usages(view, CAPACITY_SCHEDULING_RULES)
    assert usage.used["cpu"] == 0  # it has no node


def test_what_is_reserved_for_pods_in_the_view_is_not_counted_again() -> None:
    reservations = Reservations(
        by_key={
            "u1": Reservation("u1", "a", {"cpu": 2000}),  # in the view
            "u2": Reservation("u2", "b", {"cpu": 300}),
            "u3": Reservation("u3", "b", {"cpu": 400}),  # only one of the name can be stored
            "r1": Reservation("u1", "a", {"cpu": 50}, 7, "r1"),
        },
        allowances={"replica-1": Allowance("replica-1", 1, {"cpu": 1000})},
    )
    full = quota(cpu=9000, reservations=encode(reservations, "q"))
    state = cluster(full)
    reserved = reserved_amounts(full, lambda name: state.requests(f"shop/{name}"))
    assert reserved == {"cpu": 400 + 50 + 1000}
