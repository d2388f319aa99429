"""The cluster as it changes: events go in, views come out."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from engine.model.resource_names import PODS
from engine.view.assumed import (
    DEFAULT_ASSUMED_SECONDS,
    DEFAULT_IN_FLIGHT_SECONDS,
    AssumedPods,
)
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
from engine.view.images import ImageIndex
from engine.view.load import LoadProfile, LoadTracker, SumProfile
from engine.view.namespace_totals import NamespaceTotals
from engine.view.pod_sums import PodChange, PodSumProfile, ProfiledPodSums
from engine.view.pod_table import NO_ROW, RUNNING, SCHEDULED, PodEntry, PodTable
from engine.view.turnover import TurnoverBook
from engine.view.workloads import WorkloadBook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.model.advice import Advice
    from engine.model.elastic_quota import ElasticQuota
    from engine.model.extra import Extra
    from engine.model.node import Node
    from engine.model.pod import Pod, PodShape
    from engine.model.time import Micros
    from engine.model.usage import NodeUsage

MOST_RESOURCES = 128
"""Resources on the axis, unless nodes offer more; each costs 48 bytes a node."""

_FIRST_ROWS = 64
_SHARES_REMEMBERED = 65_536
_MOST_CHANGES = 1024  # beyond it, counting whole nodes again is as fast
_NODES, _PODS, _METRICS, _TOPOLOGY = map(int, Domain)  # numpy takes plain integers twice as fast
_NODE_COLUMNS = 256  # one per label key, annotation or node-only expression the policies read
_COLUMNS = (
    "_valid",
    "_unschedulable",
    "_allocatable",
    "_sums",
    "_assumed_on",
    "_metric_time",
    "_changed",
)
_COLLECTIONS = (
    "_rows",
    "_nodes",
    "_usages",
    "_namespace_labels",
    "_quota_modes",
    "_quotas",
    "_extras",
)
_POD_COLUMNS = 512  # one per rule and pod template; 40 KiB each at 5,000 nodes


class _Share(NamedTuple):
    """What a pod of one shape adds: to the requests of its namespace, and to the sums of its node.

    The sums are flat, shape (len(Sum) * n_resources,).
    """

    requests: tuple[tuple[str, int], ...]
    bare_requests: tuple[tuple[str, int], ...]
    sums: IntColumn


class ClusterState:
    """Mutable columns of a cluster, kept by events; rules only ever see `view()`.

    Any order of events that ends in the same objects gives the same view, up to the order of
    rows. Writing is in place; while a view of the current version is still held by someone, the
    columns are copied once before the first write, so a view never changes.

    A pod that waits for the scheduler counts on the node it was advised to take, the first of them
    that exists, as if it were bound there: the next pod must see it. One with scheduling gates does
    not: it may stay so for hours, and competes with nobody until its gates are gone.

    Args:
        assumed_seconds: for how long after its creation, or the end of its gates, a pod is assumed
            on its advised node at most.
        in_flight_seconds: for how long after its advice, while it is not seen.
    """

    def __init__(
        self,
        *,
        assumed_seconds: int = DEFAULT_ASSUMED_SECONDS,
        in_flight_seconds: int = DEFAULT_IN_FLIGHT_SECONDS,
    ) -> None:
        self._axis = ResourceAxis()
        self._has_unplaced = False  # whether any pod names a resource that is not on the axis
        self._version = 0
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._pods = PodTable()
        self._assumed = AssumedPods(assumed_seconds, in_flight_seconds)
        self._shares: dict[PodShape, _Share] = {}
        self._trackers: dict[LoadProfile, LoadTracker] = {}
        self._pod_sums: dict[PodSumProfile, ProfiledPodSums] = {}
        self._changes: list[PodChange] | None = None  # since the last view; None is too many
        self._names: list[str] = []
        self._names_now: tuple[str, ...] | None = None
        self._nodes: list[Node | None] = []
        self._usages: list[NodeUsage | None] = []
        self._namespace_labels: dict[str, Mapping[str, str]] = {}
        self._quota_modes: dict[str, str] = {}
        self._requested, self._scheduled, self._running = (NamespaceTotals() for _ in range(3))
        self._turnover = TurnoverBook()
        self._quotas: dict[str, tuple[ElasticQuota, ...]] = {}
        self._extras: dict[tuple[type[Extra], str], Extra] = {}
        self._workloads = WorkloadBook()
        self._valid = np.zeros(_FIRST_ROWS, np.bool_)
        self._unschedulable = np.zeros(_FIRST_ROWS, np.bool_)
        self._allocatable = np.zeros((len(self._axis), _FIRST_ROWS), np.int64)
        self._sums = np.zeros((len(Sum) * len(self._axis), _FIRST_ROWS), np.int64)
        self._assumed_on = np.zeros(_FIRST_ROWS, np.int64)
        self._metric_time = np.zeros(_FIRST_ROWS, np.int64)
        self._changed = np.zeros((len(Domain), _FIRST_ROWS), np.int64)
        self._latest = [0] * len(Domain)
        self._caches = (ColumnCache(_NODE_COLUMNS), ColumnCache(_POD_COLUMNS))
        self._dictionaries = Dictionaries(_NODE_COLUMNS)
        self._images = ImageIndex()
        self._view: ClusterView | None = None
        self._lease: weakref.ref[Lease] = weakref.ref(Lease())  # dead at once: nothing is lent

    @property
    def pod_count(self) -> int:
        """How many non-terminal pods are known."""
        return len(self._pods) - self._assumed.in_flight

    def has_node(self, name: str) -> bool:
        """Return whether a node is known, rather than pods or usage on one of that name."""
        return self._node(name) is not None

    def has_quota(self, namespace: str) -> bool:
        """Return whether any ElasticQuota limits a namespace."""
        return namespace in self._quotas

    def usage(self, node_name: str) -> NodeUsage | None:
        """Return the latest usage report of a node, None where there is none."""
        row = self._rows.get(node_name)
        return None if row is None else self._usages[row]

    def placement(self, key: str) -> tuple[str, PodShape] | None:
        """Return the node and the shape of a bound pod, by `namespace/name`."""
        entry = self._pods.get(key)
        if entry is None or entry.row == NO_ROW or entry.assumed:
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
        is_new = self._nodes[row] is None
        self._nodes[row] = node
        self._valid[row] = True
        self._unschedulable[row] = node.unschedulable
        self._allocatable[:, row] = self._axis.vector(node.allocatable)
        self._touch(row, _NODES)
        if is_new:
            self._place_assumed(self._assumed.naming(node.name))

    def delete_node(self, name: str) -> None:
        """Forget a node; its pods and usage stay known until they are deleted too.

        Those that are only assumed on it are assumed on the next one they were advised to take.
        """
        if self._node(name) is None:
            return
        self._before_write()
        row = self._rows[name]
        self._nodes[row] = None
        self._valid[row] = self._unschedulable[row] = False
        self._allocatable[:, row] = 0
        self._touch(row, _NODES)
        self._place_assumed(self._assumed.naming(name))
        self._release(row)

    def set_pod(self, pod: Pod, *, seen_at: Micros) -> None:
        """Add or replace a pod; one that has finished is forgotten.

        Args:
            pod: as it now is.
            seen_at: now. A bound pod without a PodScheduled time counts as assigned at the moment
                it was first seen on its node.
        """
        key = pod.key
        old = self._pods.get(key)
        landed = self._assumed.landed(pod) if old is None else None
        if landed is not None:
            self._before_write()
            self._place_assumed([landed])
        if pod.is_terminal:
            self.delete_pod(key)
            return
        self._turn(key, pod)
        if pod.node_name:
            self._assumed.forget(key)
            new = self._bound_entry(pod, old, seen_at)
        else:
            self._assumed.waiting(pod, is_new=old is None, seen_at=seen_at)
            new = self._assumed_entry(key, pod.shape)
        if old == new:
            return  # most updates of a pod change nothing that is counted
        self._before_write()
        self._recount(pod.namespace, old, new)
        self._move(key, old, new)

    def delete_pod(self, key: str) -> None:
        """Forget a pod, by `namespace/name`; what it added is taken off exactly."""
        old = self._pods.get(key)
        if old is None:
            return
        self._before_write()
        self._turn(key, None)
        self._assumed.forget(key)
        self._recount(key.partition("/")[0], old, None)
        self._move(key, old, None)

    def assume(self, pod: Pod, advice: Advice, *, at: Micros) -> None:
        """Count a pod that was just advised, until it is seen or its time is up.

        It does not count for its namespace: those who guard quotas keep books of their own.

        Args:
            pod: as it was judged; has no uid yet, and maybe no name.
            advice: what was written on it; its id tells the pod when it comes.
            at: now.
        """
        key = self._assumed.advised(pod, advice, at)
        if key is not None:
            self._before_write()
            self._move(key, self._pods.get(key), self._assumed_entry(key, pod.shape))

    def release_assumed(self, now: Micros) -> None:
        """Take off the pods that were assumed for too long; free while there are none.

        For whoever asks for a view to call before: events alone don't tell that time goes by.
        """
        keys = self._assumed.expire(now)
        if keys:
            self._before_write()
            self._place_assumed(keys)

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

    def set_namespace(self, name: str, labels: Mapping[str, str], *, quota_mode: str = "") -> None:
        """Add or replace a namespace.

        Args:
            name: its name.
            labels: all it has.
            quota_mode: what its annotation `stowplan.dev/quota-mode` says, if it has one.
        """
        self._before_write()
        self._namespace_labels[name] = labels
        self._quota_modes.pop(name, None)
        if quota_mode:
            self._quota_modes[name] = quota_mode

    def delete_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._before_write()
        self._namespace_labels.pop(name, None)
        self._quota_modes.pop(name, None)

    def set_extra(self, extra: Extra) -> None:
        """Add or replace an object that only some rules read."""
        self._put_extra(type(extra), extra.key, extra.node_name, extra)

    def delete_extra(self, kind: type[Extra], key: str) -> None:
        """Forget an object that only some rules read."""
        old = self._extras.get((kind, key))
        if old is not None:
            self._put_extra(kind, key, old.node_name, None)

    def track(self, profiles: Iterable[SumProfile]) -> None:
        """Keep the sums of exactly these profiles from now on, LoadAware's and others."""
        self._before_write()
        trackers, self._trackers = self._trackers, {}
        pod_sums, self._pod_sums = self._pod_sums, {}
        for profile in profiles:
            if isinstance(profile, LoadProfile):
                self._trackers[profile] = trackers.get(profile) or LoadTracker(profile)
            else:
                self._pod_sums[profile] = pod_sums.get(profile) or ProfiledPodSums(profile)

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
        pod_sums = {
            profile: sums.refresh(self._pods, self._usages, changed, self._version, changes)
            for profile, sums in self._pod_sums.items()
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
            assumed=_frozen(self._assumed_on[:n]),
            metric_time=_frozen(self._metric_time[:n]),
            changed=_frozen(changed),
            latest=tuple(self._latest),
            load=load,
            pod_sums=pod_sums,
            turnover=self._turnover.lent(),
            rows=self._rows,
            namespace_labels=self._namespace_labels,
            namespace_requests=self._requested.lent(),
            namespace_scheduled=self._scheduled.lent(),
            namespace_running=self._running.lent(),
            quota_modes=self._quota_modes,
            quotas=self._quotas,
            extras=self._extras,
            workloads=self._workloads.lent(),
            lease=lease,
            caches=self._caches,
            dictionaries=self._dictionaries,
            images=self._images,
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
        for sums in (*self._trackers.values(), *self._pod_sums.values()):
            sums.part_with_sums()
        for totals in (self._requested, self._scheduled, self._running):
            totals.part_with()
        self._turnover.part_with()
        self._workloads.part_with()

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
        if not self._names[row]:
            return  # free already
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

    def _bound_entry(self, pod: Pod, old: PodEntry | None, seen_at: Micros) -> PodEntry:
        """Return how a pod counts that is bound to a node."""
        row = self._rows.get(pod.node_name)
        if row is None:
            self._before_write()
            row = self._row(pod.node_name)
        if pod.scheduled_at is not None:
            assigned_at: int = pod.scheduled_at
        elif old is not None and old.row == row and not old.assumed:
            assigned_at = old.assigned_at
        else:
            assigned_at = seen_at
        return PodEntry(
            row, pod.shape, assigned_at, pod.initialized_at or 0, standing=_standing(pod.phase)
        )

    def _assumed_entry(self, key: str, shape: PodShape) -> PodEntry:
        """Return how a pod counts that is not bound: on the first advised node that exists."""
        held = self._assumed.get(key)
        if held is not None:
            for name in held.nodes:
                if self._node(name) is not None:
                    return PodEntry(self._rows[name], shape, held.since, 0, assumed=True)
        return PodEntry(NO_ROW, shape, 0, 0)

    def _place_assumed(self, keys: Iterable[str]) -> None:
        """Count pods that are or were assumed where they are assumed now, if they are."""
        for key in keys:
            old, new = self._pods.get(key), None
            if old is None:
                raise AssertionError("who is held is known")
            if not self._assumed.flight_is_over(key):
                new = self._assumed_entry(key, old.shape)
            if new != old:
                self._move(key, old, new)

    def _recount(self, namespace: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Count a pod for its namespace as it now is, and no longer as it was."""
        if old and new and old.shape is new.shape and old.standing == new.standing:
            return
        for entry in (old, new):
            if entry is None:
                continue
            share = self._share(entry.shape)
            counted = [(self._requested, share.requests)]
            if entry.standing & SCHEDULED:
                counted.append((self._scheduled, share.requests))
            if entry.standing & RUNNING:
                counted.append((self._running, share.bare_requests))
            for totals, amounts in counted:
                (totals.subtract if entry is old else totals.add)(namespace, amounts)

    def _move(self, key: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Count a pod on its node as it now is, and no longer as it was."""
        if new is None:
            self._pods.delete(key)
        else:
            self._pods.put(key, new)
            if old is not None and replace(old, standing=new.standing) == new:
                return  # for its node nothing changed
        leaves = old is not None and (new is None or new.row != old.row)
        recount = old is None or new is None or leaves or new.shape is not old.shape
        if old is not None and old.row != NO_ROW:
            if recount:
                share = self._share(old.shape).sums  # before the sums: it may make room in them
                column = self._sums[:, old.row]
                column -= share
            if old.assumed:
                self._assumed_on[old.row] -= 1
            self._note(-1, key, old)
            if leaves:
                self._release(old.row)
        if new is not None and new.row != NO_ROW:
            if recount:
                share = self._share(new.shape).sums
                column = self._sums[:, new.row]
                column += share
            if new.assumed:
                self._assumed_on[new.row] += 1
            self._note(1, key, new)

    def _note(self, sign: int, key: str, pod: PodEntry) -> None:
        """Remember that a pod came to its node, 1, or went from it, -1."""
        self._touch(pod.row, _PODS)
        if pod.shape.workload is not None:
            self._workloads.count(pod.shape.workload, self._names[pod.row], sign)
        if self._changes is not None:
            self._changes.append((sign, key, pod))
            if len(self._changes) > _MOST_CHANGES:
                self._changes = None

    def _turn(self, key: str, pod: Pod | None) -> None:
        """Note whether a pod is about to leave its node or to come to one; None if it is gone."""
        if self._turnover.would_change(key, pod):
            self._before_write()
            for name in self._turnover.put(key, pod):
                if name in self._rows:
                    self._touch(self._rows[name], _PODS)

    def _share(self, shape: PodShape) -> _Share:
        """Return what a pod of a shape adds; remembered, it depends on nothing else."""
        share = self._shares.get(shape)
        if share is None:
            if len(self._shares) > _SHARES_REMEMBERED:
                self._shares.clear()
            self._name(named_resources(shape))
            requests = tuple(counted_requests(shape).items())
            bare = (*shape.bare_requests.items(), (PODS, 1))
            sums = shape_vector(shape, self._axis).reshape(-1)
            share = self._shares[shape] = _Share(requests, bare, sums)
        return share

    def _put_extra(self, kind: type[Extra], key: str, node_name: str, new: Extra | None) -> None:
        """Put an object, or none, where that of this kind and key stands."""
        self._before_write()
        if new is None:
            del self._extras[kind, key]
        else:
            self._extras[kind, key] = new
        if node_name in self._rows:
            self._touch(self._rows[node_name], _TOPOLOGY)

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


def _standing(phase: str) -> int:
    """Return how a bound pod counts for its namespace; one whose node is lost does not."""
    if phase == "Running":
        return SCHEDULED + RUNNING
    return SCHEDULED if phase in {"", "Pending"} else 0


_GenericArray = TypeVar("_GenericArray", bound=NDArray[np.generic])


def _frozen(column: _GenericArray) -> _GenericArray:
    """Return a read-only look at a column."""
    look = column.view()
    look.flags.writeable = False
    return look
