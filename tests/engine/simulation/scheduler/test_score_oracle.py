"""The scores say of random clusters what the oracle says, and both what is worked by hand."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.simulation.scheduler.columns import node_columns
from engine.simulation.scheduler.pod_affinity import affinity_points
from engine.simulation.scheduler.topology_spread import (
    SYSTEM_DEFAULT_CONSTRAINTS,
    soft_spread,
    spread_points,
)
from engine.view import ClusterView, IntColumn, WhatIf
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.neighbour_worlds import (
    HOSTNAME,
    model_of,
    random_cluster,
    random_pod,
    state_of,
)
from tests.engine.plugins.scheduler_oracle import Json, PlainCluster
from tests.engine.simulation.scheduler.score_oracle import (
    Points,
    inter_pod_affinity,
    topology_spread,
)

ZONE = "topology.kubernetes.io/zone"
SHOP = {"matchLabels": {"app": "shop"}}
randoms = st.randoms(use_true_random=False)


def node(name: str, zone: str = "") -> Json:
    labels = {HOSTNAME: name, **({ZONE: zone} if zone else {})}
    return {"metadata": {"name": name, "labels": labels}}


def pod(on: str = "", /, app: str = "shop", **more: Json) -> Json:
    metadata = {"name": f"{app}-{on}", "namespace": "default", "labels": {"app": app}}
    spec = {"nodeName": on, "containers": [], "affinity": more.get("affinity", {})}
    return {"metadata": {**metadata, **more.get("metadata", {})}, "spec": spec}


OWNED: Json = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "u"}]}
ZONED = [node("a1", "a"), node("a2", "a"), node("b1", "b")]


def both(pod: Json, cluster: PlainCluster, feasible: list[str]) -> tuple[Points, Points]:
    """Return the points of both scores, about which all agree."""
    view = state_of(cluster).view()
    rows = np.array([view.rows[name] for name in feasible], np.intp)
    spread = named(feasible, _spread(model_of(pod), view, rows))
    affinity = named(feasible, affinity_points(model_of(pod), view, rows))
    assert spread == topology_spread(pod, cluster, feasible)
    assert affinity == inter_pod_affinity(pod, cluster, feasible)
    return spread, affinity


def _spread(pod: Pod, view: ClusterView, rows: NDArray[np.intp]) -> IntColumn:
    """Return the points of rows by topology spread, as the model asks for them."""
    spread = soft_spread(pod, SYSTEM_DEFAULT_CONSTRAINTS)
    columns = node_columns(pod, view, NOW, filter(None, spread.selectors))
    return spread_points(spread, pod, view, rows, columns.matching)


def named(names: list[str], points: IntColumn) -> Points:
    return dict(zip(names, points.tolist(), strict=True))


def test_pods_of_a_controller_are_spread_over_nodes_and_zones() -> None:
    # By host name: 3 nodes, ln 5 = 1.609, + 2; by zone: 2 zones, ln 4 = 1.386, + 4.
    # a1: 1.609 + 2 + 1.386 + 4 = 8.996 -> 9; a2: 2 + 5.386 = 7.386 -> 7; b1: 6 -> 6.
    # Normalised 100 * (9 + 6 - cost) / 9: 66.7, 88.9, 100.
    cluster = PlainCluster(ZONED, [pod("a1"), pod("b1", app="cart")])
    spread, _ = both(pod(metadata=OWNED), cluster, ["a1", "a2", "b1"])
    assert spread == {"a1": 66, "a2": 88, "b1": 100}


def test_pods_of_nobody_are_not_spread_and_without_zones_nodes_count_alone() -> None:
    cluster = PlainCluster(ZONED, [pod("a1")])
    assert set(both(pod(), cluster, ["a1", "a2"])[0].values()) == {0}
    # Without zones: 1.386 + 2 -> 3 and 2: 100 * (3 + 2 - 3) / 3 = 66 and 100.
    cluster = PlainCluster([node("a"), node("b")], [pod("a")])
    assert both(pod(metadata=OWNED), cluster, ["a", "b"])[0] == {"a": 66, "b": 100}


def preferring(side: str, weight: int, key: str = ZONE) -> Json:
    term = {"topologyKey": key, "labelSelector": SHOP}
    preferred = [{"weight": weight, "podAffinityTerm": term}]
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def test_preferences_count_each_way_for_every_pod_of_a_domain() -> None:
    # The pod: 10 for each of two in a. The one on a1: -50 for a1 alone.
    shy = pod("a1", affinity=preferring("podAntiAffinity", 50, HOSTNAME))
    cluster = PlainCluster(ZONED, [shy, pod("a2")])
    wanting = pod(affinity=preferring("podAffinity", 10))
    # a1: 20 - 50 = -30, a2: 20, b1: 0; over a range of 50: 0, 100, 60.
    assert both(wanting, cluster, ["a1", "a2", "b1"])[1] == {"a1": 0, "a2": 100, "b1": 60}
    # A term that is required of the other counts 1.
    term = {"topologyKey": ZONE, "labelSelector": SHOP}
    needy = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster = PlainCluster(ZONED, [pod("b1", affinity=needy), pod("a1")])
    assert both(pod(), cluster, ["a1", "b1"])[1] == {"a1": 0, "b1": 100}


@settings(max_examples=150)
@given(random=randoms)
def test_scores_are_the_oracles(random: Random) -> None:
    cluster, incoming = random_cluster(random), random_pod(random)
    for constraint in incoming["spec"].get("topologySpreadConstraints", ()):
        if random.random() < 0.8:
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
            constraint.pop("minDomains", None)
    if random.random() < 0.5:
        incoming["metadata"].update(OWNED)
    names = [each["metadata"]["name"] for each in cluster.nodes]
    both(incoming, cluster, random.sample(names, random.randint(1, len(names))))


@settings(max_examples=50)
@given(random=randoms)
def test_pods_that_were_placed_count_as_those_that_are_on_nodes(random: Random) -> None:
    cluster = random_cluster(random)
    view = state_of(cluster).view()
    names = [each["metadata"]["name"] for each in cluster.nodes]
    what_if = WhatIf(view)
    incoming, rows = random_pod(random), np.array([view.rows[name] for name in names], np.intp)
    for i in range(3):
        found = _points(incoming, what_if.view, rows)
        assert found["affinity"] == list(inter_pod_affinity(incoming, cluster, names).values())
        assert found["spread"] == list(topology_spread(incoming, cluster, names).values())
        other, on = random_pod(random, f"other-{i}"), random.choice(names)
        what_if.place(model_of(other), view.rows[on])
        other["spec"]["nodeName"] = on
        cluster = PlainCluster(cluster.nodes, [*cluster.pods, other], cluster.namespaces)


def _points(pod: Json, view: ClusterView, rows: NDArray[np.intp]) -> Json:
    return {
        "affinity": affinity_points(model_of(pod), view, rows).tolist(),
        "spread": _spread(model_of(pod), view, rows).tolist(),
    }
