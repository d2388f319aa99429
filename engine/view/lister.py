"""Single objects of a cluster, found by name without a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine.model.pod_shape import PodShape
from engine.model.resources import Amounts
from engine.model.usage import NodeUsage
from engine.view.pod_table import NO_ROW, QUEUED, SCHEDULED, PodEntry
from engine.view.shape_contributions import quota_requests
from engine.view.snapshot_store import SnapshotStore


class AssumedPod(NamedTuple):
    """A pod that counts on a node without being bound; its namespace is "" if it is not known."""

    namespace: str
    node_name: str
    requests: Amounts


class ClusterLister:
    """Single nodes, pods, quotas and reports as they are now.

    Args:
        store: what is kept of the cluster.
    """

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._rows = store.rows
        self._pods = store.pods
        self._namespaces = store.namespaces

    @property
    def pod_count(self) -> int:
        """Number of known non-terminal pods."""
        pods = self._pods
        return len(pods.table) - pods.assumed.in_flight - pods.elsewhere

    @property
    def node_count(self) -> int:
        """Number of known nodes, without those known only from pods or usage."""
        return int(np.count_nonzero(self._rows.valid))

    @property
    def version(self) -> int:
        """The version of the next view; grows with every event."""
        return self._rows.version

    def has_node(self, name: str) -> bool:
        """Return whether a node is known, not just pods or usage on one of that name."""
        return self._rows.node(name) is not None

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, None while it is not known."""
        return self._namespaces.labels.get(namespace)

    def has_quota(self, namespace: str) -> bool:
        """Return whether any ElasticQuota limits a namespace."""
        return namespace in self._namespaces.quotas

    @property
    def has_quota_tree(self) -> bool:
        """Whether any ElasticQuota is one of Koordinator's, which limit pods by their labels."""
        return self._namespaces.has_quota_tree

    def allows_surge(self, namespace: str) -> bool:
        """Return whether a quota of a namespace lets Deployments surge above `max`."""
        quotas = self._namespaces.quotas.get(namespace, ())
        return any(quota.allows_surge for quota in quotas)

    def usage(self, node_name: str) -> NodeUsage | None:
        """Return the latest usage report of a node, None where there is none."""
        row = self._rows.of.get(node_name)
        return None if row is None else self._rows.usages[row]

    def placement(self, key: str) -> tuple[str, PodShape] | None:
        """Return the node and the shape of a bound pod, by `namespace/name`."""
        entry = self._pods.table.get(key)
        if entry is None or entry.row == NO_ROW or entry.assumed:
            return None
        return self._rows.names[entry.row], entry.shape

    def assumed_node(self, key: str) -> str:
        """Return the node that a pod counts on without being bound to it, "" for none."""
        entry = self._pods.table.get(key)
        if entry is None or entry.row == NO_ROW or not entry.assumed:
            return ""
        return self._rows.names[entry.row]

    def assumed_pods(self) -> Iterator[AssumedPod]:
        """Yield the pods that count on a node without being bound to it, those in flight too."""
        for namespace, entry in self._pods.assumed_entries():
            name = self._rows.names[entry.row]
            yield AssumedPod(namespace, name, quota_requests(entry.shape))

    def entry(self, key: str) -> PodEntry | None:
        """Return how a pod counts, by `namespace/name`; None if it is unknown.

        Its row is one of the next view.
        """
        return self._pods.table.get(key)

    def is_overdue(self, key: str) -> bool:
        """Return whether a pod is being deleted and should be gone by now."""
        entry = self._pods.table.get(key)
        return entry is not None and entry.is_overdue

    def pods_on(self, node_name: str) -> Sequence[tuple[str, PodEntry]]:
        """Return the pods that count on a node, each with `namespace/name`; any order."""
        row = self._rows.of.get(node_name)
        return () if row is None else [*self._pods.table.on_row(row)]

    def pods_containing(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield `namespace/name` of pods that contain a text, and their nodes; any order.

        It looks at every pod: 150,000 take some 20 ms.
        """
        for key, entry in self._pods.table.containing(text):
            yield key, "" if entry.row == NO_ROW else self._rows.names[entry.row]

    def requests(self, key: str, *, scheduled: bool = False) -> Amounts:
        """Return what a pod adds to the requests of its namespace; nothing if it is unknown.

        Args:
            key: `namespace/name`.
            scheduled: of the requests of pods that are scheduled.
        """
        entry = self._pods.table.get(key)
        if entry is None or entry.standing == QUEUED or entry.is_overdue:
            return {}
        if scheduled and not entry.standing & SCHEDULED:
            return {}
        return quota_requests(entry.shape)

    def pod_requests(self, key: str) -> Amounts:
        """Return what a pod requests as quotas count it, queued or not; nothing if it is unknown.

        Args:
            key: `namespace/name`.
        """
        entry = self._pods.table.get(key)
        return {} if entry is None else quota_requests(entry.shape)

    def pod_key(self, key: str) -> str:
        """Return `namespace/name` as the string object stored here, if the pod is known.

        For others that store keys of pods: copies of 150,000 take 14 MiB.
        """
        return self._pods.table.key(key)
