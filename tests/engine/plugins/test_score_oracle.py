"""The scores say of random clusters what the oracle says, and both what is worked by hand."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.plugins import PLUGINS, Cycle, ScoreAmong
from engine.view import ClusterView, WhatIf
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.neighbour_worlds import (
    HOSTNAME,
    model_of,
    random_cluster,
    random_pod,
    state_of,
)
from tests.engine.plugins.scheduler_oracle import Json, PlainCluster
from tests.engine.plugins.score_oracle import Points, inter_pod_affinity, topology_spread

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
    found = _points(pod, view, rows)
    spread, affinity = named(feasible, found["spread"]), named(feasible, found["affinity"])
    assert spread == topology_spread(pod, cluster, feasible)
    assert affinity == inter_pod_affinity(pod, cluster, feasible)
    return spread, affinity


def points_by(
    name: str, pod: Pod, view: ClusterView, rows: NDArray[np.intp], **args: object
) -> list[int]:
    """Return the points of rows by a plugin."""
    plugin = PLUGINS[name]
    assert plugin.score is not None
    score = plugin.score(plugin.args.model_validate(args))
    if isinstance(score, ScoreAmong):
        raw = score.score_among(Cycle(pod, view, NOW), rows).values
    else:
        raw = score.score(Cycle(pod, view, NOW)).values.take(rows)
    points: list[int] = score.normalize(raw).tolist()
    return points


def named(names: list[str], points: list[int]) -> Points:
    return dict(zip(names, points, strict=True))


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


def test_listed_constraints_take_the_place_of_the_systems() -> None:
    # By zone alone: a has one pod of 2 zones: ln 4 = 1.386 + 0 -> 1, b 0: 100 * (1 + 0 - 1) / 1.
    # The node without a zone is in no domain, and gets nothing.
    cluster = PlainCluster([*ZONED, node("lost")], [pod("a1")])
    view = state_of(cluster).view()
    rows = np.array([view.rows[name] for name in ("a1", "a2", "b1", "lost")], np.intp)
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    args: Json = {"defaultingType": "List", "defaultConstraints": [constraint]}
    owned = model_of(pod(metadata=OWNED))
    assert points_by("PodTopologySpread", owned, view, rows, **args) == [0, 0, 100, 0]
    args["defaultConstraints"] = []
    assert points_by("PodTopologySpread", owned, view, rows, **args) == [0, 0, 0, 0]


def test_what_a_score_was_given_is_told() -> None:
    cluster = PlainCluster([*ZONED, node("lost")], [pod("a1"), pod("a2")])
    view = state_of(cluster).view()

    def told(name: str, on: str, incoming: Json) -> list[tuple[str, object]]:
        plugin = PLUGINS[name]
        assert plugin.score is not None
        score = plugin.score(plugin.args())
        inputs = score.inputs(Cycle(model_of(incoming), view, NOW), view.rows[on])
        return [(each.name, each.text or each.value) for each in inputs]

    assert told("PodTopologySpread", "a1", pod(metadata=OWNED)) == [
        ("pods in kubernetes.io/hostname=a1", 1),
        ("pods in topology.kubernetes.io/zone=a", 2),
    ]
    assert told("PodTopologySpread", "lost", pod(metadata=OWNED))[1] == (f"label {ZONE}", "absent")
    near = told("InterPodAffinity", "a1", pod(affinity=preferring("podAffinity", 10)))
    assert near == [(f"weight of pods near by {ZONE}", 20)]


def test_what_a_required_term_of_others_counts_for_is_an_arg() -> None:
    # One on a1 requires such pods in its zone, one on b1 prefers them by 10: 30 against 10.
    term = {"topologyKey": ZONE, "labelSelector": SHOP}
    needy = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wanting = pod("b1", affinity=preferring("podAffinity", 10))
    cluster = PlainCluster(ZONED, [pod("a1", affinity=needy), wanting])
    view = state_of(cluster).view()
    rows = np.array([view.rows[name] for name in ("a1", "b1")], np.intp)

    def points(**args: object) -> list[int]:
        return points_by("InterPodAffinity", model_of(pod()), view, rows, **args)

    assert points() == [0, 100]
    assert points(hardPodAffinityWeight=30) == [100, 0]
    assert points(ignorePreferredTermsOfExistingPods=True) == [0, 0]


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
    both(incoming, cluster, sorted(random.sample(names, random.randint(1, len(names)))))


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
    found = {
        "affinity": points_by("InterPodAffinity", model_of(pod), view, rows),
        "spread": points_by("PodTopologySpread", model_of(pod), view, rows),
    }
    for name, points in (("InterPodAffinity", "affinity"), ("PodTopologySpread", "spread")):
        if not PLUGINS[name].ranks(
            Cycle(model_of(pod), view, NOW)
        ):  # no node is better than another
            assert len(set(found[points])) == 1
    return found
