from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.eviction import WorkloadKey, most_unavailable
from engine.eviction.workloads import workload_key_of
from engine.model.pod import Pod
from tests.engine.eviction.worlds import running


def _pod(name: str, *, kind: str, generate_name: str = "", template_hash: str = "") -> Pod:
    labels = {"pod-template-hash": template_hash} if template_hash else {}
    made = running(name, "a", 1, namespace="batch", owner="set", kind=kind, labels=labels)
    return replace(made, generate_name=generate_name)


@pytest.mark.parametrize(
    ("max_unavailable", "replicas", "expected"),
    [
        (None, 10, None),
        (3, 10, 3),
        (0, 10, 1),  # an eviction cannot begin with a further pod
        ("25%", 10, 2),  # 2.5, rounded down
        ("25%", 3, 1),  # 0.75
        ("100%", 7, 7),
        ("0%", 7, 1),
        ("25", 10, None),
        ("-5%", 10, None),
        ("25%", 0, 1),
    ],
)
def test_percentages_are_rounded_down_to_one_at_least(
    max_unavailable: int | str | None, replicas: int, expected: int | None
) -> None:
    assert most_unavailable(max_unavailable, replicas) == expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (
            _pod("web-5f7-x", kind="ReplicaSet", generate_name="web-5f7-", template_hash="5f7"),
            WorkloadKey("Deployment", "batch", "web"),
        ),
        (_pod("web-x", kind="ReplicaSet", generate_name="web-"), None),
        (_pod("a-db-12", kind="StatefulSet"), WorkloadKey("StatefulSet", "batch", "a-db")),
        (_pod("db", kind="StatefulSet"), None),
        (_pod("db-1", kind="Job"), None),
    ],
)
def test_a_pod_tells_of_which_workload_it_is(pod: Pod, expected: WorkloadKey | None) -> None:
    assert workload_key_of(pod) == expected


def test_pods_of_one_workload_share_its_key() -> None:
    keys = [workload_key_of(_pod(f"db-{number}", kind="StatefulSet")) for number in range(2)]
    assert keys[0] is keys[1]
