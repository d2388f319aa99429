from __future__ import annotations

import msgspec
import pytest

from engine.model import api
from engine.model.disruption_budget import DisruptionBudget, disruption_budget_of
from tests.engine.measured_cluster import pod


def budget(**spec: object) -> DisruptionBudget:
    wire = {
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": spec,
        "status": {"disruptionsAllowed": 1, "currentHealthy": 3},
    }
    return disruption_budget_of(msgspec.convert(wire, api.PodDisruptionBudget))


def test_it_protects_the_pods_that_it_selects_in_its_namespace() -> None:
    found = budget(selector={"matchLabels": {"app": "web"}})
    assert found.key == "shop/web"
    assert found.disruptions_allowed == 1
    assert found.selects("shop", {"app": "web", "tier": "1"})
    assert not found.selects("shop", {"app": "db"})
    assert not found.selects("mail", {"app": "web"})


def test_an_empty_selector_selects_all_and_none_at_all_nothing() -> None:
    assert budget(selector={}).selects("shop", {})
    assert not budget().selects("shop", {})


def test_a_selector_that_cannot_be_read_is_an_error() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
    with pytest.raises(ValueError, match=r"spec\.selector\.matchExpressions\[0\]"):
        budget(selector=wrong)


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
