"""The oracle itself, by clusters small enough to be worked by hand."""

from __future__ import annotations

import pytest

from tests.engine.plugins.neighbour_worlds import HOSTNAME, ZONE
from tests.engine.plugins.scheduler_oracle import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    PORTS,
    SPREAD,
    SPREAD_LABEL,
    Json,
    PlainCluster,
    inter_pod_affinity,
    node_ports,
    pod_topology_spread,
)

SHOP = {"matchLabels": {"app": "shop"}}


def node(name: str, zone: str = "") -> Json:
    labels = {HOSTNAME: name, **({ZONE: zone} if zone else {})}
    return {"metadata": {"name": name, "labels": labels}}


def pod(on: str = "", /, app: str = "shop", namespace: str = "default", **spec: object) -> Json:
    metadata = {"name": "p", "namespace": namespace, "labels": {"app": app}}
    return {"metadata": metadata, "spec": {"nodeName": on, "containers": [], **spec}}


def spread(key: str = ZONE, skew: int = 1, **more: object) -> Json:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": SHOP,
        **more,
    }


def required(side: str, key: str = ZONE, selector: Json = SHOP, **more: object) -> Json:
    term = {"topologyKey": key, "labelSelector": selector, **more}
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("none")]


def test_a_pod_goes_where_its_domain_stays_within_the_skew() -> None:
    # Zone a has 2 pods, b has 1: in a it would be 2 + 1 - 1 = 2 > 1, in b 1 + 1 - 1 = 1.
    cluster = PlainCluster(NODES, [pod("a1"), pod("a2"), pod("b1"), pod("a1", app="cart")])
    wanted = pod(topologySpreadConstraints=[spread()])
    found = pod_topology_spread(wanted, cluster)
    assert found == {"a1": SPREAD, "a2": SPREAD, "b1": "", "none": SPREAD_LABEL}
    # Fewer than three domains: the fewest count as 0, and b too would have 1 + 1 - 0 = 2.
    wanted = pod(topologySpreadConstraints=[spread(minDomains=3)])
    assert set(pod_topology_spread(wanted, cluster).values()) == {SPREAD, SPREAD_LABEL}


def test_pods_that_are_leaving_or_of_other_namespaces_do_not_count_for_spread() -> None:
    leaving = pod("a1")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster = PlainCluster(NODES, [leaving, pod("a1", namespace="other")])
    found = pod_topology_spread(pod(topologySpreadConstraints=[spread()]), cluster)
    assert found == {"a1": "", "a2": "", "b1": "", "none": SPREAD_LABEL}


@pytest.mark.parametrize(("policy", "b1"), [("Honor", ""), ("Ignore", SPREAD)])
def test_nodes_that_a_pod_cannot_use_count_as_the_policy_says(policy: str, b1: str) -> None:
    # With b alone 1 + 1 - 1 = 1; with a, which has none, 1 + 1 - 0 = 2.
    cluster = PlainCluster(NODES, [pod("b1")])
    constraint = spread(nodeAffinityPolicy=policy)
    wanted = pod(topologySpreadConstraints=[constraint], nodeSelector={ZONE: "b"})
    assert pod_topology_spread(wanted, cluster)["b1"] == b1


def test_a_pod_needs_every_label_that_its_affinity_names_and_a_pod_there() -> None:
    wanted = pod(app="cart", affinity=required("podAffinity"))
    near_b = {"a1": AFFINITY, "a2": AFFINITY, "b1": "", "none": AFFINITY}
    assert inter_pod_affinity(wanted, PlainCluster(NODES, [pod("b1")])) == near_b
    # Nobody is there, and it is not what it looks for itself.
    assert set(inter_pod_affinity(wanted, PlainCluster(NODES, [])).values()) == {AFFINITY}
    first = pod(affinity=required("podAffinity"))
    found = inter_pod_affinity(first, PlainCluster(NODES, []))
    assert found == {"a1": "", "a2": "", "b1": "", "none": AFFINITY}


def test_anti_affinity_holds_on_both_sides() -> None:
    away = required("podAntiAffinity")
    cluster = PlainCluster(NODES, [pod("a1")])
    found = inter_pod_affinity(pod(affinity=away), cluster)
    assert found == {"a1": ANTI_AFFINITY, "a2": ANTI_AFFINITY, "b1": "", "none": ""}
    cluster = PlainCluster(NODES, [pod("a1", affinity=away)])
    found = inter_pod_affinity(pod(), cluster)
    both = {"a1": EXISTING_ANTI_AFFINITY, "a2": EXISTING_ANTI_AFFINITY}
    assert found == {**both, "b1": "", "none": ""}


def test_terms_reach_the_namespaces_that_they_name() -> None:
    cluster = PlainCluster(NODES, [pod("a1", namespace="red")], {"red": {"team": "red"}})
    cases: list[tuple[Json, str]] = [
        ({}, ""),
        ({"namespaces": ["red"]}, ANTI_AFFINITY),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, ANTI_AFFINITY),
        ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, ""),
        ({"namespaceSelector": {}}, ANTI_AFFINITY),
        ({"namespaceSelector": {}, "mismatchLabelKeys": ["app"]}, ""),
    ]
    for more, reason in cases:
        wanted = pod(affinity=required("podAntiAffinity", **more))
        assert inter_pod_affinity(wanted, cluster)["a1"] == reason, more


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ({"hostPort": 80}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.2"}, False),
        ({"hostPort": 80, "protocol": "UDP"}, False),
        ({"hostPort": 81}, False),
        ({"containerPort": 80}, False),
    ],
)
def test_a_port_is_taken_with_its_address_and_protocol(wanted: Json, *, taken: bool) -> None:
    def using(on: str, port: Json) -> Json:
        return pod(on, containers=[{"ports": [port]}])

    cluster = PlainCluster(NODES, [using("a1", {"hostPort": 80, "hostIP": "10.0.0.1"})])
    found = node_ports(using("", wanted), cluster)
    assert found == {"a1": PORTS if taken else "", "a2": "", "b1": "", "none": ""}
