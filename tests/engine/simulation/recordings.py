"""Small recordings, written in as few words as a test needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from engine.model import api
from engine.model.pod import pod_of
from engine.policy import PolicySet, load_policies
from engine.simulation import RecordedCluster, RecordedPod
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.model.elastic_quota import ElasticQuota
    from engine.model.node import Node
    from engine.model.usage import NodeUsage

_FIRST = datetime(2023, 11, 1, tzinfo=UTC)

LARGE = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def recorded_pod(
    name: str,
    on: str = "",
    *,
    cpu: str = "1",
    limit: str = "",
    second: int = 0,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,  # noqa: ANN401 - any part of a pod's spec
) -> RecordedPod:
    """Return a pod of one container, created so many seconds after the first moment."""
    created = (_FIRST + timedelta(seconds=second)).isoformat()
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": limit or cpu}}
    wire = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            **(metadata or {}),
        },
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": resources}], **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }
    raw = msgspec.json.encode(wire)
    return RecordedPod(pod_of(msgspec.json.decode(raw, type=api.Pod)), raw)


def of_deployment(name: str, number: int, on: str = "", **more: Any) -> RecordedPod:  # noqa: ANN401
    """Return a pod of a Deployment."""
    metadata = {
        "labels": {"app": name, "pod-template-hash": "abc"},
        "generateName": f"{name}-abc-",
        "ownerReferences": [{"kind": "ReplicaSet", "name": f"{name}-abc", "uid": name}],
    }
    return recorded_pod(f"{name}-abc-{number}", on, metadata=metadata, **more)


def of_daemon_set(name: str, on: str, **more: Any) -> RecordedPod:  # noqa: ANN401 - of `recorded_pod`
    """Return a pod of a DaemonSet."""
    metadata = {"ownerReferences": [{"kind": "DaemonSet", "name": name, "uid": name}]}
    return recorded_pod(f"{name}-{on}", on, metadata=metadata, **more)


def large_node(name: str) -> Node:
    """Return a node of 8 cores and 32Gi."""
    return node(name, **LARGE)


def recording(
    nodes: Iterable[Node],
    pods: Iterable[RecordedPod] = (),
    reports: Iterable[NodeUsage] = (),
    quotas: Iterable[ElasticQuota] = (),
    quota_modes: Mapping[str, str] = MappingProxyType({}),
) -> RecordedCluster:
    """Return the recording of these objects; namespaces are known by their mode of quotas."""
    state, listed = ClusterState(), list(pods)
    for namespace, mode in quota_modes.items():
        state.set_namespace(namespace, {}, quota_mode=mode)
    for each in nodes:
        state.set_node(each)
    for recorded in listed:
        state.set_pod(recorded.pod, seen_at=NOW)
    for report in reports:
        state.set_usage(report)
    for quota in quotas:
        state.set_quota(quota)
    return RecordedCluster.of(state.view(), listed, NOW)


def policies(spec: str, name: str = "rules") -> PolicySet:
    """Return one policy; `spec` is in flow style."""
    head = "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\n"
    text = f"{head}metadata: {{name: {name}}}\nspec: {spec}\n"
    return load_policies([], {"policy.yaml": text.encode()})
