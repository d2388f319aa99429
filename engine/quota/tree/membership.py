"""Which of Koordinator's quotas a pod belongs to.

Source: koordinator, pkg/scheduler/plugins/elasticquota/plugin_helper.go and
pkg/webhook/elasticquota/pod_check.go.
"""

from __future__ import annotations

from engine.model.koordinator_quota import DEFAULT_QUOTA
from engine.quota.tree.tree import QuotaTree


def quota_name(tree: QuotaTree, namespace: str, label: str) -> str:
    """Return the name of the quota that a label names, or its namespace implies.

    Args:
        tree: the quotas.
        namespace: of the pod.
        label: value of its label `quota.scheduling.koordinator.sh/name`, "" if it has none.
    """
    if label:
        return label
    named = tree.get(namespace)
    if named is not None and named.namespace == namespace:
        return namespace
    return tree.listing(namespace) or DEFAULT_QUOTA


def known_quota_name(tree: QuotaTree, namespace: str, label: str) -> str:
    """Return `quota_name`, or the name of the default quota where there is no such quota."""
    name = quota_name(tree, namespace, label)
    return name if name in tree else DEFAULT_QUOTA
