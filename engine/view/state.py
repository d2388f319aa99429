"""The cluster as it changes: events go in, views come out."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.view.axis import IntColumn, ResourceAxis
from engine.view.cluster_view import (
    ClusterView,
    Domain,
    Lease,
    Sum,
    counted_requests,
    named_resources,
    shape_vector,
)
from engine.view.column_cache import ColumnCache
from engine.view.dictionary import Dictionaries
from engine.view.load import LoadProfile, LoadTracker, PodChange
from engine.view.pod_table import NO_ROW, PodEntry, PodTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.model.elastic_quota import ElasticQuota
    from engine.model.node import Node
    from engine.model.pod import Pod, PodShape
    from engine.model.time import Micros
    from engine.model.usage import NodeUsage

MOST_RESOURCES = 128
"""Resources on the axis, unless nodes offer more; each costs 48 bytes a node."""

_FIRST_ROWS = 64
_SHARES_REMEMBERED = 65_536
_MOST_CHANGES = 1024  # beyond it, counting whole nodes again is as fast
_NODES, _PODS, _METRICS = map(int, Domain)  # numpy takes plain integers twice as fast
_NODE_COLUMNS = 256  # one per label key, annotation or node-only expression the policies read
_COLUMNS = ("_valid", "_unschedulable", "_allocatable", "_sums", "_metric_time", "_changed")
_COLLECTIONS = (
    "_rows",
    "_nodes",
    "_usages",
    "_namespace_labels",
    "_namespace_requests",
    "_quotas",
)
_POD_COLUMNS = 512  # one per rule and pod template; 40 KiB each at 5,000 nodes


class _Share(NamedTuple):
    """What a pod of one shape adds: to the requests of its namespace, and to the sums of its node.

    The sums are flat, shape (len(Sum) * n_resources,).
    """

    requests: tuple[tuple[str, int], ...]
    sums: IntColumn


class ClusterState:
    """Mutable columns of a cluster, kept by events; rules only ever see `view()`.

    Any order of events that ends in the same objects gives the same view, up to the order of
    rows. Writing is in place; while a view of the current version is still held by someone, the
    columns are copied once before the first write, so a view never changes.
    """

    def __init__(self) -> None:
        self._axis = ResourceAxis()
        self._has_unplaced = False  # whether any pod names a resource that is not on the axis
        self._version = 0
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._pods = PodTable()
        self._shares: dict[PodShape, _Share] = {}
        self._trackers: dict[LoadProfile, LoadTracker] = {}
        self._changes: list[PodChange] | None = None  # since the last view; None is too many
        self._names: list[str] = []
        self._names_now: tuple[str, ...] | None = None
        self._nodes: list[Node | None] = []
        self._usages: list[NodeUsage | None] = []
        self._namespace_labels: dict[str, Mapping[str, str]] = {}
        self._namespace_requests: dict[str, dict[str, int]] = {}
        self._own_requests: set[str] = set()  # namespaces whose totals no view holds
        self._quotas: dict[str, tuple[ElasticQuota, ...]] = {}
        self._valid = np.zeros(_FIRST_ROWS, np.bool_)
        self._unschedulable = np.zeros(_FIRST_ROWS, np.bool_)
        self._allocatable = np.zeros((len(self._axis), _FIRST_ROWS), np.int64)
        self._sums = np.zeros((len(Sum) * len(self._axis), _FIRST_ROWS), np.int64)
        self._metric_time = np.zeros(_FIRST_ROWS, np.int64)
        self._changed = np.zeros((len(Domain), _FIRST_ROWS), np.int64)
        self._latest = [0] * len(Domain)
        self._caches = (ColumnCache(_NODE_COLUMNS), ColumnCache(_POD_COLUMNS))
        self._dictionaries = Dictionaries(_NODE_COLUMNS)
        self._view: ClusterView | None = None
        self._lease: weakref.ref[Lease] = weakref.ref(Lease())  # dead at once: nothing is lent

    @property
    def pod_count(self) -> int:
        """How many non-terminal pods are known."""
        return len(self._pods)

    def placement(self, key: str) -> tuple[str, PodShape] | None:
        """Return the node and the shape of a bound pod, by `namespace/name`."""
        entry = self._pods.get(key)
        if entry is None or entry.row == NO_ROW:
            return None
        return self._names[entry.row], entry.shape

    # Events. Each takes the object as it now is; "set" adds or replaces.

    def set_node(self, node: Node) -> None:
        """Add or replace a node."""
        if self._node(node.name) == node:
            return  # most updates of a node are heartbeats
        self._before_write()
        self._offer(node.allocatable)
        row = self._row(node.name)
        self._nodes[row] = node
        self._valid[row] = True
        self._unschedulable[row] = node.unschedulable
        self._allocatable[:, row] = self._axis.vector(node.allocatable)
        self._touch(row, _NODES)

    def delete_node(self, name: str) -> None:
        """Forget a node; its pods and usage stay known until they are deleted too."""
        if self._node(name) is None:
            return
        self._before_write()
        row = self._rows[name]
        self._nodes[row] = None
        self._valid[row] = self._unschedulable[row] = False
        self._allocatable[:, row] = 0
        self._touch(row, _NODES)
        self._release(row)

    def set_pod(self, pod: Pod, *, seen_at: Micros) -> None:
        """Add or replace a pod; one that has finished is forgotten.

        Args:
            pod: as it now is.
            seen_at: now. A bound pod without a PodScheduled time counts as assigned at the moment
                it was first seen on its node.
        """
        if pod.is_terminal:
            self.delete_pod(pod.key)
            return
        if pod.node_name and pod.node_name not in self._rows:
            self._before_write()
            self._row(pod.node_name)
        row = self._rows[pod.node_name] if pod.node_name else NO_ROW
        key = pod.key
        old = self._pods.get(key)
        if pod.scheduled_at is not None:
            assigned_at: int = pod.scheduled_at
        elif old is not None and old.row == row:
            assigned_at = old.assigned_at
        else:
            assigned_at = seen_at
        new = PodEntry(row, pod.shape, assigned_at, pod.initialized_at or 0)
        if old == new:
            return  # most updates of a pod change nothing that is counted
        self._before_write()
        if old is not None and old.row == row and old.shape is pod.shape:
            self._pods.put(key, new)
            if row != NO_ROW:
                self._note(-1, key, old)
                self._note(1, key, new)
            return
        if old is not None:
            self._uncount(key, old)
        self._pods.put(key, new)
        self._count(key, new)
        if old is not None and old.row not in (NO_ROW, row):
            self._release(old.row)

    def delete_pod(self, key: str) -> None:
        """Forget a pod, by `namespace/name`; what it added is taken off exactly."""
        old = self._pods.get(key)
        if old is None:
            return
        self._before_write()
        self._uncount(key, old)
        self._pods.delete(key)
        if old.row != NO_ROW:
            self._release(old.row)

    def set_usage(self, usage: NodeUsage) -> None:
        """Add or replace the usage report of a node."""
        self._before_write()
        row = self._row(usage.node_name)
        self._usages[row] = usage
        self._metric_time[row] = usage.update_time or 0
        self._touch(row, _METRICS)

    def delete_usage(self, node_name: str) -> None:
        """Forget the usage report of a node."""
        row = self._rows.get(node_name)
        if row is None or self._usages[row] is None:
            return
        self._before_write()
        self._usages[row] = None
        self._metric_time[row] = 0
        self._touch(row, _METRICS)
        self._release(row)

    def set_quota(self, quota: ElasticQuota) -> None:
        """Add or replace an ElasticQuota."""
        self._replace_quotas(quota.namespace, quota.name, quota.group, [quota])

    def delete_quota(self, namespace: str, name: str, group: str) -> None:
        """Forget an ElasticQuota."""
        self._replace_quotas(namespace, name, group, [])

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Add or replace a namespace's labels."""
        self._before_write()
        self._namespace_labels[name] = labels

    def delete_namespace(self, name: str) -> None:
        """Forget a namespace's labels."""
        self._before_write()
        self._namespace_labels.pop(name, None)

    def track(self, profiles: Iterable[LoadProfile]) -> None:
        """Keep LoadAware's sums for exactly these profiles from now on."""
        self._before_write()
        self._trackers = {
            profile: self._trackers.get(profile) or LoadTracker(profile) for profile in profiles
        }

    # Views.

    def view(self) -> ClusterView:
        """Return the cluster as it is now; free while nothing has changed."""
        if self._view is not None:
            return self._view
        n = len(self._names)
        changed, changes = self._changed[:, :n], self._changes
        load = {
            profile: tracker.refreshed(self._pods, self._usages, changed, self._version, changes)
            for profile, tracker in self._trackers.items()
        }
        self._changes = []
        if self._names_now is None:
            self._names_now = tuple(self._names)
        lease = Lease()
        self._lease = weakref.ref(lease)
        self._view = ClusterView(
            version=self._version,
            axis=self._axis,
            names=self._names_now,
            nodes=self._nodes,
            usages=self._usages,
            valid=_frozen(self._valid[:n]),
            unschedulable=_frozen(self._unschedulable[:n]),
            allocatable=_frozen(self._allocatable[:, :n]),
            sums=_frozen(self._sums.reshape(len(Sum), len(self._axis), -1)[:, :, :n]),
            metric_time=_frozen(self._metric_time[:n]),
            changed=_frozen(changed),
            latest=tuple(self._latest),
            load=load,
            rows=self._rows,
            namespace_labels=self._namespace_labels,
            namespace_requests=self._namespace_requests,
            quotas=self._quotas,
            lease=lease,
            caches=self._caches,
            dictionaries=self._dictionaries,
        )
        return self._view

    def _before_write(self) -> None:
        """Start a new version; copy the columns if a view of this one is still held."""
        self._version += 1
        if self._view is None:
            return
        self._view = None
        if self._lease() is None:
            return
        for name in (*_COLLECTIONS, *_COLUMNS):
            setattr(self, name, getattr(self, name).copy())
        for tracker in self._trackers.values():
            tracker.part_with_sums()
        self._own_requests.clear()

    # Rows.

    def _node(self, name: str) -> Node | None:
        row = self._rows.get(name)
        return None if row is None else self._nodes[row]

    def _row(self, name: str) -> int:
        """Return the row of a node name, a fresh one if it has none."""
        row = self._rows.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._names)
            self._names.append("")
            self._nodes.append(None)
            self._usages.append(None)
            if row == len(self._valid):
                self._grow_rows(2 * row)
        self._rows[name] = row
        self._names[row] = name
        self._names_now = None
        self._touch(row, *Domain)
        return row

    def _release(self, row: int) -> None:
        """Free a row that no node, pod or usage report speaks of any more."""
        if self._nodes[row] is None and self._usages[row] is None and not self._pods.count_on(row):
            del self._rows[self._names[row]]
            self._names[row] = ""
            self._names_now = None
            self._touch(row, *Domain)
            self._free.append(row)

    def _touch(self, row: int, *domains: int) -> None:
        """Note that a row changes in some domains."""
        for domain in domains:
            self._changed[domain, row] = self._latest[domain] = self._version

    def _grow_rows(self, rows: int) -> None:
        for name in _COLUMNS:
            old = getattr(self, name)
            new = np.zeros((*old.shape[:-1], rows), old.dtype)
            new[..., : old.shape[-1]] = old
            setattr(self, name, new)

    def _offer(self, resources: Iterable[str]) -> None:
        """Give each resource that a node offers a place, and count what pods have of it."""
        if self._grow_axis(resources) and self._has_unplaced:
            self._sums[:] = 0
            for pod in self._pods.entries():
                if pod.row != NO_ROW:
                    self._sums[:, pod.row] += self._share(pod.shape).sums
                    self._touch(pod.row, _PODS)

    def _name(self, resources: Iterable[str]) -> None:
        """Give resources that a pod names a place while there is room.

        Beyond it only what nodes offer counts: no pod can be placed for anything else, and a pod
        can name thousands.
        """
        new = [name for name in resources if self._axis.find(name) is None]
        room = max(MOST_RESOURCES - len(self._axis), 0)
        self._has_unplaced |= len(new) > room
        self._grow_axis(new[:room])

    def _grow_axis(self, resources: Iterable[str]) -> bool:
        """Give resources a place; says whether any had none."""
        axis = self._axis.including(resources)
        if axis is self._axis:
            return False
        more = len(axis) - len(self._axis)
        self._allocatable = np.pad(self._allocatable, ((0, more), (0, 0)))
        sums = self._sums.reshape(len(Sum), len(self._axis), -1)
        self._sums = np.pad(sums, ((0, 0), (0, more), (0, 0))).reshape(len(Sum) * len(axis), -1)
        self._shares.clear()  # they lack the new resources
        self._axis = axis
        return True

    # Pods and quotas.

    def _count(self, key: str, pod: PodEntry) -> None:
        """Add a pod to the sums of its namespace and, if it has one, of its node."""
        share = self._share(pod.shape)
        total = self._requests_of(_namespace(key))
        for name, amount in share.requests:
            total[name] = total.get(name, 0) + amount
        if pod.row != NO_ROW:
            column = self._sums[:, pod.row]
            column += share.sums
            self._note(1, key, pod)

    def _uncount(self, key: str, pod: PodEntry) -> None:
        """Take a pod off the sums it was added to, exactly."""
        share = self._share(pod.shape)
        namespace = _namespace(key)
        total = self._requests_of(namespace)
        for name, amount in share.requests:
            total[name] -= amount
        if not total["pods"]:
            del self._namespace_requests[namespace]
            self._own_requests.remove(namespace)
        if pod.row != NO_ROW:
            column = self._sums[:, pod.row]
            column -= share.sums
            self._note(-1, key, pod)

    def _note(self, sign: int, key: str, pod: PodEntry) -> None:
        """Remember that a pod came to its node, 1, or went from it, -1."""
        self._touch(pod.row, _PODS)
        if self._changes is not None:
            self._changes.append((sign, key, pod))
            if len(self._changes) > _MOST_CHANGES:
                self._changes = None

    def _requests_of(self, namespace: str) -> dict[str, int]:
        """Return the totals of a namespace, to be written: not those that a view may hold."""
        if namespace not in self._own_requests:
            self._own_requests.add(namespace)
            held = self._namespace_requests.get(namespace, {})
            self._namespace_requests[namespace] = dict(held)
        return self._namespace_requests[namespace]

    def _share(self, shape: PodShape) -> _Share:
        """Return what a pod of a shape adds; remembered, it depends on nothing else."""
        share = self._shares.get(shape)
        if share is None:
            if len(self._shares) > _SHARES_REMEMBERED:
                self._shares.clear()
            self._name(named_resources(shape))
            requests = tuple(counted_requests(shape).items())
            sums = shape_vector(shape, self._axis).reshape(-1)
            share = self._shares[shape] = _Share(requests, sums)
        return share

    def _replace_quotas(
        self, namespace: str, name: str, group: str, new: list[ElasticQuota]
    ) -> None:
        """Put `new` where the quota of that identity stands."""
        self._before_write()
        others = [
            quota
            for quota in self._quotas.pop(namespace, ())
            if (quota.name, quota.group) != (name, group)
        ]
        left = sorted(others + new, key=lambda quota: (quota.name, quota.group))
        if left:
            self._quotas[namespace] = tuple(left)


def _namespace(key: str) -> str:
    return key.partition("/")[0]


_GenericArray = TypeVar("_GenericArray", bound=NDArray[np.generic])


def _frozen(column: _GenericArray) -> _GenericArray:
    """Return a read-only look at a column."""
    look = column.view()
    look.flags.writeable = False
    return look
