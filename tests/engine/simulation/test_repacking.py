from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from engine.model.disruption_budget import DisruptionBudget
from engine.model.selectors import LabelSelector
from engine.report import RepackAim, StayReason
from engine.simulation import passing_nodes, repack
from tests.bench.packed_clusters import Kind, packed_cluster
from tests.engine.measured_cluster import NOW, node
from tests.engine.simulation.recordings import (
    of_daemon_set,
    of_deployment,
    recorded_pod,
    recording,
)

if TYPE_CHECKING:
    from engine.model.node import Node
    from engine.report import RepackReport
    from engine.simulation import RecordedCluster, RecordedPod

PLENTY = 60.0  # seconds: no test takes so long


def four(name: str, cpu: str = "4") -> Node:
    """Return a node of some cores, and of much else."""
    return node(name, cpu=cpu, memory="64Gi", pods="110")


def halves(*pods: RecordedPod, waits: RecordedPod | None = None) -> RecordedCluster:
    """Return two nodes of 4 cores, their pods, and a pod that waits for all of one."""
    waiting = of_deployment("large", 0, cpu="4") if waits is None else waits
    return recording([four("a"), four("b")], [*pods, waiting])


def replayed(cluster: RecordedCluster, report: RepackReport) -> list[str]:
    """Take the steps one by one on the model of the scheduler; return the pods that run then."""
    state = cluster.empty_state()
    pods = {str(each.pod.key): each.pod for each in cluster.pods}
    for pod in pods.values():
        if pod.node_name:
            state.set_pod(pod, seen_at=NOW)
    running = {key for key, pod in pods.items() if pod.node_name}
    for step in report.steps:
        key = f"{step.pod.namespace}/{step.pod.name}"
        if step.source:
            assert key in running
            running.discard(key)
            state.delete_pod(key)
        if step.target:
            free = structs.replace(pods[key], node_name="", phase="")
            view = state.view()
            assert passing_nodes(free, view, NOW)[view.rows[step.target]]
            bound = structs.replace(free, node_name=step.target, phase="Running")
            state.set_pod(bound, seen_at=NOW)
            running.add(key)
    return sorted(running)


def test_a_running_pod_moves_so_that_a_waiting_one_fits() -> None:
    cluster = halves(of_deployment("web", 0, "a", cpu="2"), of_deployment("web", 1, "b", cpu="2"))
    report = repack(cluster, seconds=PLENTY)
    assert report.answers == (
        "1 of 1 waiting pods get a node.",
        "1 running pod would move; fewer are not enough.",
    )
    moved, placed = report.steps
    assert (moved.owner, moved.source) == ("shop/web-abc", placed.target)
    assert (placed.owner, placed.source) == ("shop/large-abc", "")
    assert len(replayed(cluster, report)) == 3


def test_pods_that_change_places_leave_before_they_come_back() -> None:
    # On `a` 2 of 4 cores are kept, on `b` 3 of 5. `first` has to leave `a` for a pod that selects
    # it, and `b` has room only once `second` is on `a`.
    nodes = [replace(four("a"), labels={"disk": "ssd"}), four("b", cpu="5")]
    pods = [
        of_daemon_set("agent", "a", cpu="2"),
        of_daemon_set("agent", "b", cpu="3"),
        of_deployment("first", 0, "a", cpu="2"),
        of_deployment("second", 0, "b", cpu="1"),
        of_deployment("wanted", 0, cpu="1", nodeSelector={"disk": "ssd"}),
    ]
    cluster = recording(nodes, pods)
    report = repack(cluster, seconds=PLENTY)
    assert (report.placed, report.moved, len(report.steps)) == (1, 2, 4)
    assert len(replayed(cluster, report)) == 5


def test_nodes_are_free_but_for_pods_that_belong_to_them() -> None:
    pods = [of_deployment("web", number, "abc"[number]) for number in range(3)]
    daemons = [of_daemon_set("agent", name, cpu="100m") for name in "abc"]
    cluster = recording([four(name) for name in "abc"], [*pods, *daemons])
    report = repack(cluster, seconds=PLENTY, free_nodes=2)
    assert report.answers == (
        "No pod waits for a node.",
        "2 nodes of 2 wanted can be free.",
        "2 running pods would move; fewer are not enough.",
    )
    assert len(report.free_nodes) == 2
    more = repack(cluster, seconds=PLENTY, free_nodes=3)
    assert "2 nodes of 3 wanted can be free; no plan frees more than 2." in more.answers


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (recorded_pod("web", "a", cpu="2"), StayReason.ALONE),
        (of_deployment("web", 0, "a", cpu="2", priority=2_000_000_000), StayReason.SYSTEM),
        (
            of_deployment(
                "web", 0, "a", cpu="2", volumes=[{"persistentVolumeClaim": {"claimName": "v"}}]
            ),
            StayReason.CLAIMS,
        ),
        (
            of_deployment(
                "web",
                0,
                "a",
                cpu="2",
                topologySpreadConstraints=[
                    {
                        "maxSkew": 1,
                        "topologyKey": "zone",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }
                ],
            ),
            StayReason.NEIGHBOURS,
        ),
    ],
)
def test_pods_that_may_not_move_stay_with_the_reason(pod: RecordedPod, reason: StayReason) -> None:
    kept = structs.replace(pod.pod, node_name="b"), pod.raw
    cluster = halves(pod, type(pod)(structs.replace(kept[0], name="other"), pod.raw))
    report = repack(cluster, seconds=PLENTY)
    assert (report.placed, report.steps, report.staying) == (0, (), {reason: 2})


def test_a_pod_that_is_marked_stays() -> None:
    marked = of_deployment("web", 0, "a", cpu="2")
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    marked = type(marked)(structs.replace(marked.pod, annotations=annotations), marked.raw)
    report = repack(halves(marked), seconds=PLENTY)
    assert report.staying == {StayReason.MARKED: 1}


@pytest.mark.parametrize(("allowed", "placed"), [(0, 0), (1, 1)])
def test_disruption_budgets_bound_who_moves(allowed: int, placed: int) -> None:
    everything = LabelSelector(())
    budget = DisruptionBudget(
        namespace="shop", name="web", selector=everything, disruptions_allowed=allowed
    )
    cluster = halves(of_deployment("web", 0, "a", cpu="2"), of_deployment("web", 1, "b", cpu="2"))
    report = repack(replace(cluster, extras=(budget,)), seconds=PLENTY)
    assert (report.placed, report.moved) == (placed, placed)


def test_pods_under_two_budgets_stay() -> None:
    budgets = tuple(
        DisruptionBudget(
            namespace="shop", name=name, selector=LabelSelector(()), disruptions_allowed=9
        )
        for name in ("one", "two")
    )
    cluster = halves(of_deployment("web", 0, "a", cpu="2"), of_deployment("web", 1, "b", cpu="2"))
    report = repack(replace(cluster, extras=budgets), seconds=PLENTY)
    assert report.staying == {StayReason.BUDGETS: 2}


def test_waiting_pods_that_keep_apart_are_not_put_together() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = [replace(four(it), labels={"kubernetes.io/hostname": it}) for it in ("a", "b")]
    pods = [of_deployment("x", number, affinity=apart) for number in range(3)]
    cluster = recording(nodes, pods)
    report = repack(cluster, seconds=PLENTY)
    assert report.placed == 2
    assert len({step.target for step in report.steps}) == 2
    # The first packing placed all three, as it knows nothing of affinity.
    (goal,) = (goal for goal in report.goals if goal.aim is RepackAim.PLACED)
    assert (goal.found, goal.bound) == (2, 3)
    assert len(replayed(cluster, report)) == 2


def test_a_running_pod_of_a_lower_priority_gives_way_and_waits() -> None:
    low = [of_deployment("low", number, name, cpu="3") for number, name in enumerate("ab")]
    cluster = halves(*low, waits=of_deployment("high", 0, cpu="4", priority=10))
    report = repack(cluster, seconds=PLENTY)
    assert (report.placed, report.moved, report.displaced) == (1, 0, 1)
    assert report.answers[1].startswith("0 running pods would move, 1 would give way")
    assert len(replayed(cluster, report)) == 2


def test_pods_that_wait_for_more_than_a_node_are_not_packed() -> None:
    gated = of_deployment("large", 0, cpu="4", schedulingGates=[{"name": "example.com/later"}])
    held = of_deployment("large", 1, cpu="4", schedulingGates=[{"name": "stowplan.dev/hold"}])
    for pod, waiting in ((gated, 0), (held, 1)):
        report = repack(halves(waits=pod), seconds=PLENTY)
        assert (report.waiting, report.placed) == (waiting, waiting)


def test_without_time_nobody_moves_and_the_bound_is_what_waits() -> None:
    cluster = halves(of_deployment("web", 0, "a", cpu="2"), of_deployment("web", 1, "b", cpu="2"))
    report = repack(cluster, seconds=0)
    assert report.steps == ()
    assert report.answers[0] == "0 of 1 waiting pods get a node; whether more could is not known."


@pytest.mark.parametrize("utilization", [90, 100, 105])
@pytest.mark.parametrize("seed", range(3))
def test_every_plan_fits_step_by_step(utilization: int, seed: int) -> None:
    cluster = packed_cluster(Kind(4, 4, 2, utilization), seed)
    report = repack(cluster, seconds=PLENTY)
    running = sum(bool(each.pod.node_name) for each in cluster.pods)
    assert len(replayed(cluster, report)) == running + report.placed - report.displaced
    assert all(goal.found == goal.bound for goal in report.goals)


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_a_plan_that_is_cut_short_fits_step_by_step(seconds: float) -> None:
    cluster = packed_cluster(Kind(16, 4, 4, 100), 1)
    report = repack(cluster, seconds=seconds, free_nodes=1)
    running = sum(bool(each.pod.node_name) for each in cluster.pods)
    assert len(replayed(cluster, report)) == running + report.placed - report.displaced


def test_a_seed_gives_the_same_plan() -> None:
    cluster = packed_cluster(Kind(4, 4, 2, 100), 1)
    first, second = (repack(cluster, seconds=PLENTY, seed=7) for _ in range(2))
    assert first == second
