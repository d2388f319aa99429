from __future__ import annotations

import pytest

from tests.engine.measured_cluster import pod

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
KEPT = "karpenter.sh/do-not-disrupt"
Volumes = list[dict[str, object]]
DISK: Volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/var"}}]
RAM: Volumes = [{"name": "a", "emptyDir": {"medium": "Memory"}}, {"name": "b", "configMap": {}}]


@pytest.mark.parametrize(
    ("owner", "annotations", "volumes", "autoscalers"),
    [
        ("ReplicaSet", {}, [], ()),
        ("Job", {SAFE: "false"}, [], ("ClusterAutoscaler",)),
        ("Job", {KEPT: "true"}, [], ("Karpenter",)),
        ("Job", {KEPT: "true", SAFE: "false"}, [], ("ClusterAutoscaler", "Karpenter")),
        ("Job", {KEPT: "yes", SAFE: "no"}, [], ()),
        ("", {}, [], ("ClusterAutoscaler",)),
        ("Workflow", {}, [], ("ClusterAutoscaler",)),  # a custom controller
        ("", {SAFE: "true"}, DISK, ()),
        ("StatefulSet", {}, DISK, ("ClusterAutoscaler",)),
        ("StatefulSet", {SAFE_VOLUMES: "a"}, DISK, ("ClusterAutoscaler",)),
        ("StatefulSet", {SAFE_VOLUMES: "b,a"}, DISK, ()),
        ("StatefulSet", {}, RAM, ()),
        # They go with their node; Karpenter asks all of its pods.
        ("DaemonSet", {SAFE: "false"}, DISK, ()),
        ("Node", {}, DISK, ()),
        ("DaemonSet", {KEPT: "true"}, [], ("Karpenter",)),
    ],
)
def test_the_autoscalers_that_do_not_evict_a_pod(
    owner: str, annotations: dict[str, str], volumes: Volumes, autoscalers: tuple[str, ...]
) -> None:
    owners = [{"kind": owner}] if owner else []
    metadata = {"annotations": annotations, "ownerReferences": owners}
    assert pod("p", metadata=metadata, volumes=volumes).not_evictable_by == autoscalers
