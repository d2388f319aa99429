"""Queues of quotas of Koordinator's tree: bounded by runtime, and by `max` of all above."""

from __future__ import annotations

from engine.model.elastic_quota import TreeSettings
from engine.model.time import Micros
from engine.model.usage import NodeUsage
from engine.quota import QuotaRequest, Reservation
from engine.quota.queueing import (
    CohortLending,
    NamespaceQueues,
    PodUnderWay,
    QueueDecision,
    QueuedPod,
    QueueRules,
    next_releases,
)
from engine.view import AssumedPod, ClusterState, ClusterView
from tests.builders import node_from, quota_from
from tests.engine.quota.tree.quotas import quota, tree_pod


def _state(*, cpu: str = "10") -> ClusterState:
    state = ClusterState()
    for each in (
        quota("top", most={"cpu": 6000}, tree=TreeSettings(is_parent=True)),
        quota("batch", "top", most={"cpu": 6000}),
        quota("team", "top", most={"cpu": 6000}, namespace="team"),
    ):
        state.set_quota(each)
    offered = {"cpu": cpu, "memory": "1Gi", "pods": "99"}
    node = {"metadata": {"name": "node-a"}, "status": {"allocatable": offered}}
    state.set_node(node_from(node))
    return state


def _decision(
    view: ClusterView, queues: NamespaceQueues, *pods: tuple[str, str, str], under_way: int = 0
) -> QueueDecision:
    """Return what may go of pods, each with its name, namespace and label."""
    queued = []
    for name, namespace, label in pods:
        queue = queues.get(namespace, label)
        assert queue is not None
        queued.append(QueuedPod(name, queue.quota.key, {"cpu": 1000, "pods": 1}, Micros(0)))
    released = [PodUnderWay("shop", {"cpu": 1000}, "batch")] * under_way
    situation = queues.situation(view, under_way=released, assumed=())
    return next_releases(queued, situation.quotas, situation.usage, situation.cohort, Micros(0))


def _put(state: ClusterState, *, batch: int, team: int, queued: int) -> None:
    """Add pods of 1 cpu: running ones of two quotas, and some that wait for the first."""
    for i in range(batch):
        state.set_pod(tree_pod("shop", f"b{i}", "1", "batch"), seen_at=Micros(0))
    for i in range(team):
        state.set_pod(tree_pod("team", f"t{i}", "1"), seen_at=Micros(0))
    for i in range(queued):
        waiting = tree_pod("shop", f"q{i}", "1", "batch", queued=True)
        state.set_pod(waiting, seen_at=Micros(0))


def test_pods_of_a_label_are_released_up_to_what_all_above_allow() -> None:
    state, queues = _state(), NamespaceQueues(QueueRules())
    _put(state, batch=2, team=2, queued=4)
    view = state.view()
    queues.update(view)
    waiting = [(f"q{i}", "shop", "batch") for i in range(4)]
    decision = _decision(view, queues, *waiting)
    assert [release.key for release in decision.released] == ["q0", "q1"]  # of 6 in `top`
    decision = _decision(view, queues, *waiting, under_way=1)
    assert [release.key for release in decision.released] == ["q0"]


def test_a_quota_waits_for_its_runtime_which_others_share() -> None:
    # 4 cpu, weights are equal: each may use 2 while both request more.
    state, queues = _state(cpu="4"), NamespaceQueues(QueueRules())
    _put(state, batch=1, team=0, queued=3)
    for i in range(4):
        state.set_pod(tree_pod("team", f"w{i}", "1", queued=True), seen_at=Micros(0))
    view = state.view()
    queues.update(view)
    waiting = [(f"q{i}", "shop", "batch") for i in range(3)]
    waiting += [(f"w{i}", "team", "") for i in range(4)]
    released = [release.key for release in _decision(view, queues, *waiting).released]
    assert sorted(released) == ["q0", "w0", "w1"]


def test_nobody_waits_for_a_quota_that_does_not_exist() -> None:
    state, queues = _state(), NamespaceQueues(QueueRules())
    queues.update(state.view())
    assert queues.get("shop", "gone") is None
    assert queues.get("shop") is None


def test_what_waiting_pods_claim_is_computed_again_only_when_pods_or_nodes_change() -> None:
    state, computed = _state(), list[str]()
    for namespace in ("shop", "mail"):
        limits = {"min": {"cpu": "2"}, "max": {"cpu": "9"}}
        metadata = {"namespace": namespace, "name": "quota"}
        state.set_quota(quota_from({"metadata": metadata, "spec": limits}))

    def assumed() -> tuple[AssumedPod, ...]:
        computed.append("once more")
        return ()

    lending = CohortLending(
        QueueRules(),
        state.view,
        assumed,
        counted=state.requests,
        version_of=lambda _uid: 0,
        clock=lambda: 0.0,
    )

    def is_lent(cpu: int) -> bool:
        request = QuotaRequest(Reservation("uid", "p", {"cpu": cpu}), dry_run=True)
        return lending.judge("shop", request, {}).allowed

    assert (is_lent(10_000), is_lent(10_001), len(computed)) == (True, False, 1)
    state.set_usage(NodeUsage(node_name="node-a", usage={"cpu": 1}))
    assert (is_lent(10_000), len(computed)) == (True, 1)
    waiting = tree_pod("mail", "w", "1", queued=True)
    state.set_pod(waiting, seen_at=Micros(0))
    assert (is_lent(10_000), is_lent(9_000), len(computed)) == (False, True, 2)
    state.delete_pod(waiting.key)
    assert (is_lent(10_000), len(computed)) == (True, 3)
