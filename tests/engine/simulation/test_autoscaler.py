from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND
from engine.report import ArmPlacement, ArmReport, ArrivalSource, NodeTime
from engine.simulation import Arm, RecordedPod, Scenario, Simulation, placeholders, simulate
from engine.simulation.arms import ArmCluster
from engine.simulation.arrivals import Arrival, Arrivals, recorded_arrivals
from engine.simulation.autoscaler import Autoscaler
from engine.simulation.scheduler import passing_nodes
from engine.view import WhatIf
from tests.engine.simulation.recordings import (
    large_node,
    of_daemon_set,
    of_deployment,
    policies,
    recorded_pod,
    recording,
)

MINUTE = 60
POOL = {"karpenter.sh/nodepool": "default"}
KEPT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def karpenters(name: str) -> Node:
    return replace(large_node(name), labels=POOL)


def until(
    minutes: int,
    nodes: Iterable[Node],
    pods: Iterable[RecordedPod],
    seconds: Mapping[str, int] | None = None,
    arms: Sequence[Arm] = (),
    buffer: Sequence[Pod] = (),
) -> ArmReport:
    """Return how the last arm, the scheduler if there is none, fares until the last pod comes.

    Pods come at once, but for those that have so many seconds.
    """
    moments = {"last": minutes * MINUTE, **(seconds or {})}
    last = of_deployment("last", 0, cpu="100m")
    cluster = recording(nodes, [*pods, last])
    arrivals = recorded_arrivals(cluster.pods)

    def timed(each: Arrival) -> Arrival:
        app = each.pod.labels["app"]
        at = moments.get(app, 0) * SECOND
        return replace(each, at=at, ends_at=at + 1 if app == "last" else None)

    timed_pods = sorted(map(timed, arrivals.pods), key=lambda each: each.at)
    day = Arrivals(source=ArrivalSource.GENERATED, pods=timed_pods, moves=arrivals.moves)
    scenario = Scenario(cluster=cluster, arrivals=day)
    simulation = Simulation(scenario=scenario, arms=arms, autoscale=True, buffer=buffer)
    return simulate(simulation).arms[-1]


def node_time(arm: ArmReport) -> NodeTime:
    assert arm.node_time is not None
    return arm.node_time


def test_cluster_autoscaler_removes_a_node_that_was_half_empty_for_ten_minutes() -> None:
    # Two pods of 1 core, one on each node: from the first scan, at 1 min, both are unneeded. One
    # goes at 11 min, its pod to the other: 2 * 11 + 1 * 49 node minutes; the last one stays.
    pods = [of_deployment("web", number, "ab"[number]) for number in range(2)]
    time = node_time(until(60, [large_node("a"), large_node("b")], pods))
    assert (time.node_hours, time.core_hours) == (1.2, 9.5)  # 71 / 60, 8 * 71 / 60
    assert (time.evictions, time.waiting_hours) == (1, 0.0)


def test_cluster_autoscaler_leaves_a_node_that_is_half_full() -> None:
    pods = [of_deployment("web", number, "ab"[number], cpu="4") for number in range(2)]
    time = node_time(until(60, [large_node("a"), large_node("b")], pods))
    assert (time.node_hours, time.evictions) == (2.0, 0)


def test_karpenter_removes_a_node_at_once_however_full_it_is() -> None:
    # 4 of 8 cores on each: at 1 min one goes. 2 * 1 + 59 node minutes.
    pods = [of_deployment("web", number, "ab"[number], cpu="4") for number in range(2)]
    time = node_time(until(60, [karpenters("a"), karpenters("b")], pods))
    assert (time.node_hours, time.evictions) == (1.0, 1)  # 61 / 60


def test_nodes_stay_whose_pods_do_not_fit_elsewhere() -> None:
    pods = [of_deployment("web", number, "ab"[number], cpu="5") for number in range(2)]
    time = node_time(until(60, [karpenters("a"), karpenters("b")], pods))
    assert (time.node_hours, time.evictions) == (2.0, 0)


@pytest.mark.parametrize(("node", "hours"), [(large_node, 2.0), (karpenters, 1.0)])
def test_a_pod_that_its_autoscaler_does_not_evict_keeps_its_node(
    node: Callable[[str], Node], hours: float
) -> None:
    # Cluster Autoscaler does not evict it, Karpenter does.
    owner = [{"kind": "ReplicaSet", "name": "web", "uid": "web"}]
    pods = [
        recorded_pod(
            f"web-{name}",
            name,
            cpu="3",
            metadata={"annotations": KEPT, "ownerReferences": owner, "labels": {"app": "web"}},
        )
        for name in "ab"
    ]
    assert node_time(until(60, [node("a"), node("b")], pods)).node_hours == hours


def test_empty_nodes_go_with_their_daemon_sets_and_come_back_for_a_pod_that_waits() -> None:
    # One node has nothing but its agent, and goes at 1 min. `late`, of 7.5 cores, does not fit on
    # the other at 30.5 min: the node comes back at the next scan, at 31 min.
    agents = [of_daemon_set("agent", name, cpu="100m") for name in "ab"]
    web = of_deployment("web", 0, "a", cpu="7")
    late = of_deployment("late", 0, cpu="7500m")
    stock = until(
        60, [karpenters("a"), karpenters("b")], [*agents, web, late], {"late": 30 * MINUTE + 30}
    )
    time = node_time(stock)
    assert time.node_hours == 1.5  # 2 nodes for 1 min, 1 until 31 min, 2 until 60: 90 min
    assert (time.evictions, time.longest_wait) == (0, 30)


@pytest.mark.parametrize("node", [large_node, karpenters])
@pytest.mark.parametrize(("cores", "stays"), [("2", False), ("3", True)])
def test_a_node_stays_whose_room_the_buffer_needs(
    node: Callable[[str], Node], cores: str, *, stays: bool
) -> None:
    # 5 cores of 8 are free on each node; were one gone, 2 would be free on the other.
    pods = [of_deployment("web", number, "ab"[number], cpu="3") for number in range(2)]
    buffer = placeholders(of_deployment("spare", 0, cpu=cores), 1)
    time = node_time(until(60, [node("a"), node("b")], pods, buffer=buffer))
    assert (time.node_hours == 2.0) is stays
    assert (time.evictions == 0) is stays


@pytest.mark.parametrize("placement", [ArmPlacement.ADVICE, ArmPlacement.BINDING])
def test_a_pod_that_is_evicted_and_then_denied_waits(placement: ArmPlacement) -> None:
    # One pod a node: at 1 min one of two nodes goes, since the scheduler alone would let its pod
    # onto the other. It is denied there, and no node comes for a pod that the scheduler could bind.
    spec = (
        "{filters: [{name: one, expression: node.podCount < 1, message: one pod a node}],"
        " placement: {whenNoneFits: Deny}}"
    )
    one = Arm(name="one", placement=placement, policies=policies(spec))
    pods = [of_deployment("web", number, "ab"[number]) for number in range(2)]
    time = node_time(until(3, [karpenters("a"), karpenters("b")], pods, arms=[one]))
    assert (time.evictions, time.longest_wait) == (1, 2 * MINUTE)


@pytest.mark.parametrize(("replicas", "longest_wait"), [(1, 0), (0, MINUTE)])
def test_a_node_comes_back_for_the_buffer_before_a_pod_needs_it(
    replicas: int, longest_wait: int
) -> None:
    # One node is empty and goes at 1 min, since 4 of 8 cores are free on the other. At 30 min
    # `early` takes 2 of them, so that the buffer calls for the node. At 40 min `late` needs it.
    buffer = placeholders(of_deployment("spare", 0, cpu="4"), replicas)
    apps = {"web": "4", "early": "2", "late": "4"}
    pods = [of_deployment(app, 0, cpu=cpu) for app, cpu in apps.items()]
    moments = {"early": 30 * MINUTE, "late": 40 * MINUTE}
    stock = until(60, [karpenters("a"), karpenters("b")], pods, moments, buffer=buffer)
    assert node_time(stock).longest_wait == longest_wait


def finds_no_room(pods: Iterable[Pod], cluster: ArmCluster) -> Pod | None:
    """Return the first pod without room where each in turn takes the first node that it can."""
    left = WhatIf(cluster.view())
    for each in sorted(pods, key=lambda it: (-it.shape.requests["cpu"], it.key)):
        passing = np.flatnonzero(passing_nodes(each, left.view, cluster.now))
        if not passing.size:
            return each
        left.place_each([each], passing[:1].tolist())
    return None


@given(
    used=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    copies=st.dictionaries(st.integers(1, 5), st.integers(1, 12), max_size=3),
)
def test_copies_that_are_placed_at_once_fit_if_they_do_one_by_one(
    used: Sequence[int], copies: Mapping[int, int]
) -> None:
    nodes = [large_node(f"n{number}") for number in range(len(used))]
    running = [of_deployment(f"on{n}", 0, f"n{n}", cpu=str(cpu)) for n, cpu in enumerate(used)]
    buffer = [
        of_deployment(f"buffer{cpu}", number, cpu=str(cpu)).pod
        for cpu, count in copies.items()
        for number in range(count)
    ]
    recorded = recording(nodes, running)
    cluster = ArmCluster(recorded, frozenset(), recorded.loads(), ())
    scaler = Autoscaler(nodes, cluster, buffer)
    one = finds_no_room(buffer, cluster)
    at_once = scaler._first_without_room(buffer, scaler.nodes)  # noqa: SLF001 - all depends on it
    assert (at_once and at_once.shape) == (one and one.shape)
