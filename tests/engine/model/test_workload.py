from __future__ import annotations

from typing import Any

from engine.model.workload import (
    WORKLOADS,
    pinned_to,
    pod_of_workload,
    workload_of,
)


def made(kind: str, number: int = 0) -> dict[str, Any]:
    workload = workload_of(None, kind)
    assert workload is not None
    template: dict[str, Any] = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}}
    manifest: dict[str, Any] = {"metadata": {"name": "db"}, "spec": {"template": template}}
    pod: dict[str, Any] = pod_of_workload(manifest, workload, number)
    return pod


def test_pods_of_a_stateful_set_are_named_and_others_get_their_names_later() -> None:
    assert [made("StatefulSet", number)["metadata"]["name"] for number in (0, 7)] == [
        "db-0",
        "db-7",
    ]
    metadata = made("ReplicaSet", 7)["metadata"]
    assert (metadata.get("name"), metadata["generateName"]) == (None, "db-")


def test_a_stateful_set_and_a_job_add_their_labels() -> None:
    assert made("StatefulSet", 2)["metadata"]["labels"] == {
        "app": "db",
        "apps.kubernetes.io/pod-index": "2",
        "statefulset.kubernetes.io/pod-name": "db-2",
    }
    assert made("Job")["metadata"]["labels"] == {
        "app": "db",
        "batch.kubernetes.io/job-name": "db",
        "job-name": "db",
    }
    assert made("Deployment")["metadata"]["labels"] == {"app": "db"}


def test_pods_of_a_daemon_set_tolerate_a_cordon_and_require_their_node() -> None:
    pod = made("DaemonSet")
    tolerated = {(each["key"], each["effect"]) for each in pod["spec"]["tolerations"]}
    assert ("node.kubernetes.io/unschedulable", "NoSchedule") in tolerated
    pod["spec"]["affinity"] = {
        "podAffinity": {},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}, "preferred": 1},
    }
    affinity = pinned_to(pod, "a")["spec"]["affinity"]
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    assert affinity["podAffinity"] == {}
    assert affinity["nodeAffinity"]["preferred"] == 1


def test_a_kind_of_another_group_is_no_workload() -> None:
    for workload in WORKLOADS:
        assert workload_of(f"{workload.group}/v1", workload.kind) is workload
        assert workload_of("batch.volcano.sh/v1alpha1", workload.kind) is None
    assert workload_of(None, "Service") is None
    assert workload_of(None, ["Job"]) is None
