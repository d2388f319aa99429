from __future__ import annotations

import pytest

from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP
from engine.model.pod import DeploymentPod, Pod
from engine.view import ClusterState
from tests.builders import pod_from
from tests.engine.quota.tree.quotas import quota
from webhook.cluster.watch.event_applier import EventApplier
from webhook.cluster.watch.source_status import SourceStatus
from webhook.quota import ObservedPods
from webhook.quota.cache import DeploymentPods, all_synced, observe_cluster


def pod(version: str) -> api.Pod:
    meta = api.ObjectMeta(namespace="shop", name="a", uid="u", resource_version=version)
    return api.Pod(metadata=meta)


def test_a_pod_is_observed_as_soon_as_it_is_in_the_view() -> None:
    pods = ObservedPods()
    applier = EventApplier(observers=[pods])
    assert pods.version("u") == 0
    applier.pod(pod("7"))
    assert pods.version("u") == 7
    applier.delete_pod("shop", "a")
    assert pods.version("u") == 7


def test_a_newer_version_is_not_replaced_by_an_older_one() -> None:
    pods = ObservedPods()
    pods.observe("shop", "u", 9)
    pods.observe("shop", "u", 7)
    assert pods.version("u") == 9


def test_only_the_last_pods_are_remembered() -> None:
    pods = ObservedPods(most=2)
    for uid in ("a", "b", "a", "c"):
        pods.observe("shop", uid, 1)
    assert [bool(pods.version(uid)) for uid in "abc"] == [True, False, True]


def test_pods_that_nobody_limits_take_no_room() -> None:
    pods = ObservedPods()
    pods.is_tracked = lambda namespace: namespace == "shop"
    pods.observe("elsewhere", "u", 1)
    assert pods.version("u") == 0


def test_pods_of_any_namespace_are_remembered_once_a_label_may_name_a_quota() -> None:
    state, pods = ClusterState(), ObservedPods()
    names = ("pods", f"elasticquotas.{KOORDINATOR_GROUP}")
    sources = {
        name: SourceStatus(name=name, domain=None, required=True, synced=True) for name in names
    }
    observe_cluster(state, sources, pods, DeploymentPods())
    pods.observe("shop", "before", 1)
    batch = quota("batch", namespace="quotas")
    state.set_quota(batch)
    pods.observe("shop", "while", 2)
    state.delete_quota(batch.namespace, batch.name, batch.group)
    pods.observe("shop", "after", 3)
    assert [pods.version(uid) for uid in ("before", "while", "after")] == [0, 2, 0]


@pytest.mark.parametrize(
    ("status", "synced"),
    [
        ({}, False),
        ({"synced": True, "present": True}, True),
        ({"last_contact": 1, "present": False}, True),  # there is no such API
        ({"last_contact": 1, "present": True}, False),
        ({"last_error": "forbidden"}, False),  # it may well be there
    ],
)
def test_a_source_is_listed_in_full_or_known_to_be_absent(
    status: dict[str, object], *, synced: bool
) -> None:
    source = SourceStatus(name="elasticquotas", domain=None, required=False)
    for name, value in status.items():
        setattr(source, name, value)
    assert all_synced([source]) is synced


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
