"""What is known of namespaces beside their pods: labels, and how quotas limit them."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.elastic_quota import ElasticQuota


class Namespaces:
    """Labels, quota modes and quotas; see `ClusterView` for what each one is."""

    def __init__(self) -> None:
        self.labels: dict[str, Mapping[str, str]] = {}
        self.quota_modes: dict[str, str] = {}
        self.quotas: dict[str, tuple[ElasticQuota, ...]] = {}

    def unshare(self) -> None:
        """Leave what was given out so far to those who hold it, and write to copies."""
        self.labels = self.labels.copy()
        self.quota_modes = self.quota_modes.copy()
        self.quotas = self.quotas.copy()

    def put(self, name: str, labels: Mapping[str, str], quota_mode: str) -> None:
        """Write a namespace; its quota mode is "" where it says none."""
        self.labels[name] = labels
        self.quota_modes.pop(name, None)
        if quota_mode:
            self.quota_modes[name] = quota_mode

    def drop(self, name: str) -> None:
        """Take out a namespace, if it is there; its quotas stay until they are deleted too."""
        self.labels.pop(name, None)
        self.quota_modes.pop(name, None)

    def put_quota(self, quota: ElasticQuota) -> None:
        """Write a quota, in place of that of the same name and API group."""
        self.drop_quota(quota.namespace, quota.name, quota.group)
        quotas = (*self.quotas.get(quota.namespace, ()), quota)
        self.quotas[quota.namespace] = tuple(sorted(quotas, key=_identity))

    def drop_quota(self, namespace: str, name: str, group: str) -> None:
        """Take out a quota, if it is there."""
        quotas = self.quotas.pop(namespace, ())
        left = tuple(quota for quota in quotas if _identity(quota) != (name, group))
        if left:
            self.quotas[namespace] = left


def _identity(quota: ElasticQuota) -> tuple[str, str]:
    """Return what tells a quota from the others of its namespace."""
    return quota.name, quota.group
