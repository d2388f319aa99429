from __future__ import annotations

from msgspec.structs import replace

from engine.eviction import Victim, WorkloadKey
from engine.model.pod import Pod
from tests.engine.eviction.worlds import running
from webhook.controllers.eviction.guards import PlannedVictims, RunningPods


def _pods(namespace: str, count: int) -> list[Pod]:
    return [running(f"{namespace}-{i}", "a", 1, namespace=namespace) for i in range(count)]


def _seen(*pods: Pod) -> RunningPods:
    seen = RunningPods()
    for pod in pods:
        seen.pod_changed(pod, 1, b"")
    return seen


def _victims(*pods: Pod) -> list[Victim]:
    return [
        Victim(
            key=pod.key,
            uid=pod.uid,
            quota=None,
            owner=pod.uid,
            assigned_at=0,
            node_name="a",
            requests={},
        )
        for pod in pods
    ]


def test_a_tenth_of_the_pods_of_a_namespace_are_evicted_at_a_time() -> None:
    batch, etl = _pods("batch", 120), _pods("etl", 5)
    planned = PlannedVictims(_seen(*batch, *etl), percent=10)
    for pod in batch[:11]:
        planned.set(f"for-{pod.name}", _victims(pod))
    assert planned.room("batch") == 1  # 120 / 10 - 11
    assert not planned.at_limit("another")
    planned.set("for-the-last", _victims(batch[11]))
    assert planned.at_limit("another") == {"batch"}
    assert planned.room("etl") == 10
    # A plan that has its victims keeps its place.
    assert not planned.at_limit("for-the-last")
    planned.remove("for-the-last")
    assert not planned.at_limit("another")


def test_victims_that_are_gone_do_not_count() -> None:
    batch = _pods("batch", 20)
    seen = _seen(*batch)
    planned = PlannedVictims(seen, percent=10)
    planned.set("one", _victims(*batch[:10]))
    assert planned.room("batch") == 0
    seen.pod_deleted("batch", batch[0].name)
    assert planned.room("batch") == 1


def test_a_claim_ends_with_its_plan() -> None:
    one, other = _pods("batch", 2)
    planned = PlannedVictims(_seen(one, other))
    planned.set("a", _victims(one))
    planned.set("b", _victims(other))
    assert planned.of_others("a") == {other.uid}
    planned.remove("b")
    assert not planned.of_others("a")


def test_pods_of_a_workload_are_counted_as_they_change() -> None:
    ready, other = (
        replace(
            running(f"db-{number}", "a", 1, namespace="batch", owner="db", kind="StatefulSet"),
            is_ready=True,
        )
        for number in range(2)
    )
    db = WorkloadKey("StatefulSet", "batch", "db")
    seen = _seen(ready, other)
    counted = []
    for pod in (
        ready,
        replace(ready, is_ready=False),
        replace(ready, is_ready=False, deleting=True),
        replace(ready, phase="Failed"),
        replace(other, is_ready=False),
    ):
        seen.pod_changed(pod, 2, b"")
        counted.append((seen.unready_of(db), seen.unavailable_of(db)))
    assert counted == [(0, 0), (1, 1), (0, 1), (0, 0), (1, 1)]
    seen.pod_deleted("batch", other.name)
    assert (seen.unready_of(db), seen.unavailable_of(db)) == (0, 0)


def test_namespaces_without_pods_are_forgotten() -> None:
    (pod,) = _pods("batch", 1)
    seen = _seen(pod, pod)
    assert seen.count_of("batch") == 1
    seen.pod_deleted("batch", pod.name)
    assert seen.count_of("batch") == 0
