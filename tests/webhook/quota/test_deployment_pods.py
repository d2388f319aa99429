from __future__ import annotations

from engine.model.deployment_pod import DeploymentPod
from engine.model.pod import Pod
from tests.builders import pod_from
from webhook.quota.deployment_pods import DeploymentPods

_NEW = DeploymentPod("web", "new")


def _pod(name: str, revision: str = "old", *, phase: str = "", deleting: bool = False) -> Pod:
    deployment = name.partition("-")[0]
    metadata: dict[str, object] = {
        "namespace": "shop",
        "name": name,
        "generateName": f"{deployment}-{revision}-",
        "labels": {"pod-template-hash": revision},
        "ownerReferences": [{"kind": "ReplicaSet", "name": f"{deployment}-{revision}"}],
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod_from({"metadata": metadata, "status": {"phase": phase}})


def _observer() -> DeploymentPods:
    observer = DeploymentPods()
    observer.is_tracked = lambda namespace: namespace == "shop"
    return observer


def _see(observer: DeploymentPods, *pods: Pod) -> None:
    for pod in pods:
        observer.pod_changed(pod, 1, b"")


def test_pods_of_older_revisions_of_the_same_deployment_may_be_replaced() -> None:
    observer = _observer()
    _see(observer, _pod("web-1"), _pod("web-2", "new"), _pod("mail-1"))
    assert list(observer.replaced_by("shop", _NEW)) == ["web-1"]
    assert list(observer.replaced_by("other", _NEW)) == []


def test_pods_that_end_are_not() -> None:
    observer = _observer()
    _see(observer, _pod("web-1"), _pod("web-2"), _pod("web-3"), _pod("web-4"))
    observer.pod_deleted("shop", "web-1")
    _see(observer, _pod("web-2", deleting=True), _pod("web-3", phase="Succeeded"))
    assert list(observer.replaced_by("shop", _NEW)) == ["web-4"]


def test_pods_that_were_there_before_are_listed_once() -> None:
    observer = _observer()
    assert not observer.is_listed("shop")
    _see(observer, _pod("web-1", "new"))
    observer.add_listed("shop", [_pod("web-1"), _pod("web-2")])
    assert observer.is_listed("shop")
    assert list(observer.replaced_by("shop", _NEW)) == ["web-2"]  # what is observed is as new


def test_nothing_is_kept_where_no_quota_allows_surges() -> None:
    observer = _observer()
    _see(observer, _pod("web-1"))
    observer.add_listed("shop", [])
    observer.is_tracked = lambda _: False
    _see(observer, _pod("web-2"))
    observer.is_tracked = lambda _: True
    assert not observer.is_listed("shop")
    assert list(observer.replaced_by("shop", _NEW)) == []
