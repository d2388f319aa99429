"""Quotas of Koordinator, and their pods, for tests."""

from __future__ import annotations

from engine.model.elastic_quota import (
    KOORDINATOR_GROUP,
    NAME_LABEL,
    ROOT_QUOTA,
    ElasticQuota,
    TreeSettings,
)
from engine.model.pod import Pod
from engine.model.resources import Amounts
from tests.builders import elastic_quota, pod_from


def quota(
    name: str,
    parent: str = ROOT_QUOTA,
    *,
    least: Amounts | None = None,
    most: Amounts | None = None,
    namespace: str = "koordinator-system",
    tree: TreeSettings | None = None,
) -> ElasticQuota:
    """Return a quota of a tree; with settings of its own, `parent` does not matter."""
    return elastic_quota(
        name,
        namespace=namespace,
        group=KOORDINATOR_GROUP,
        least=least,
        most=most,
        tree=tree or TreeSettings(parent=parent),
    )


def tree_pod(namespace: str, name: str, cpu: str, label: str = "", *, queued: bool = False) -> Pod:
    """Return a pod with one container, whose label may name a quota, and that may wait for it."""
    metadata: dict[str, object] = {"namespace": namespace, "name": name, "uid": name}
    spec: dict[str, object] = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    if label:
        metadata["labels"] = {NAME_LABEL: label}
    if queued:
        metadata["annotations"] = {"stowplan.dev/hold-reasons": "quota"}
        spec["schedulingGates"] = [{"name": "stowplan.dev/hold"}]
    return pod_from({"metadata": metadata, "spec": spec})
