"""The state of a cluster: events go in, views come out.

Columns are copied on write: a view of them never changes. Single objects are found without a view.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import Advice, advice_in
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import ElasticQuota
from engine.model.kinds import AuxObject, Domain
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.node import Node
from engine.model.pod import Pod, traits_of
from engine.model.pod_shape import PodShape
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.model.usage import NodeUsage
from engine.view.assumed import (
    DEFAULT_ASSUMED_SECONDS,
    DEFAULT_IN_FLIGHT_SECONDS,
    AssumedPods,
)
from engine.view.cluster_view import ClusterView, Memo
from engine.view.namespaces import Namespaces
from engine.view.pod_accounting import PodAccounting, PodSumProfile, TrackedSums
from engine.view.pod_table import GATED, NO_ROW, QUEUED, SCHEDULED, PodEntry, PodTable
from engine.view.rows import NodeRows, Sum, quota_requests
from engine.view.trait_book import ExhaustedBudgets


class AssumedPod(NamedTuple):
    """A pod that counts on a node without being bound; its namespace is "" if it is not known."""

    namespace: str
    node_name: str
    requests: Amounts


_MOST_UNSEEN = 64  # writes between two views; a view of these takes 8 ms at most


class SnapshotStore:
    """All that is kept of a cluster, and the views made of it.

    Writing is in place; while a view of the current version is still alive, the columns are copied
    once before the first write, so a view never changes.

    INVARIANT: `before_write` is called before each change of a part.
    """

    def __init__(self, assumed: AssumedPods) -> None:
        table = PodTable()
        self.rows: Final = NodeRows(table)  # the nodes, one a row
        # the pods, and what is counted of them
        self.pods: Final = PodAccounting(table, self.rows, assumed)
        self.namespaces: Final = Namespaces()  # namespaces and their quotas
        self.kubernetes = ASSUMED  # the version by which pods are counted
        # objects that only some rules read, by kind and key
        self.extras: dict[tuple[type[AuxObject], str], AuxObject] = {}
        # the PodDisruptionBudgets among them that allow no disruption
        self.budgets: Final = ExhaustedBudgets()
        self.tracked: Final = TrackedSums()  # sums that only some rules read
        self._memo = Memo()
        self._view: ClusterView | None = None  # of the current version
        self._latest_view: weakref.ref[ClusterView] | None = None
        self._unseen = 0  # writes since the last view

    def view(self) -> ClusterView:
        """Return the cluster as it is now; free while nothing has changed."""
        if self._view is not None:
            return self._view
        self._unseen = 0
        rows, pods = self.rows, self.pods
        rows.touch_pods_of(pods.table.traits, self.budgets.take_changed())
        n = len(rows.names)
        self._view = ClusterView(
            version=rows.version,
            axis=rows.axis,
            names=rows.names_now,
            nodes=rows.nodes,
            usages=rows.usages,
            traits=rows.traits,
            trait_book=pods.table.traits,
            valid=_frozen(rows.valid[:n]),
            unschedulable=_frozen(rows.unschedulable[:n]),
            allocatable=_frozen(rows.allocatable[:, :n]),
            sums=_frozen(rows.sums.reshape(len(Sum), len(rows.axis), -1)[:, :, :n]),
            assumed=_frozen(rows.assumed[:n]),
            metric_time=_frozen(rows.metric_time[:n]),
            changed=_frozen(rows.changed[:, :n]),
            latest=tuple(rows.latest),
            pod_sums=self.tracked.refreshed(pods.table, rows, pods.take_changes()),
            transitions=pods.transitions.snapshot(),
            rows=rows.of,
            namespaces=self.namespaces.facts(
                pods.totals, pods.queued, pods.queued_pods, pods.labelled, pods.labelled_queued
            ),
            kubernetes=self.kubernetes,
            extras=self.extras,
            exhausted_budgets=self.budgets.snapshot(),
            workloads=pods.workloads.counts,
            memo=self._memo,
        )
        self._latest_view = weakref.ref(self._view)
        self._memo.images.catch_up(
            rows.nodes, rows.changed[Domain.NODES, :n], rows.latest[Domain.NODES]
        )
        return self._view

    def before_write(self) -> None:
        """Start a new version; copy the columns of a view of this one, if it is still alive.

        A view is made after some writes without a request, to bring sums and indices up to date:
        after a whole list, doing so at once would delay the next review.
        """
        if self._unseen >= _MOST_UNSEEN:
            self.view()
        self._unseen += 1
        self.rows.version += 1
        if self._view is None:
            return
        self._view = None
        if self._latest_view is None or self._latest_view() is None:
            return
        self.extras = self.extras.copy()
        for part in (self.rows, self.pods, self.namespaces, self.tracked):
            part.unshare()


_GenericArray = TypeVar("_GenericArray", bound=NDArray[np.generic])


def _frozen(column: _GenericArray) -> _GenericArray:
    frozen = column.view()
    frozen.flags.writeable = False
    return frozen


class ClusterState:
    """Mutable columns of a cluster, changed by events; rules only ever see `view()`.

    Any order of events that ends in the same objects gives the same view, up to the order of
    rows.

    A pod that waits for the scheduler counts on the first node of its advice that exists and that
    could run it, as if it were bound there: the next pod must see it. One with scheduling gates
    does not: it may stay so for hours, and competes with nobody until its gates are gone. Unless it
    is held or released by us, and nominated to a node: then it counts there and nowhere else. One
    whose binding is on its way counts on each node that it may be bound to, see `expect_binding`.

    Args:
        assumed_seconds: the longest time that a pod is assumed on its advised node, from its
            creation or the end of its gates.
        in_flight_seconds: the longest time from its advice, while it is not seen.
        leave_out_queued: whether pods that wait for quota are not counted as used. It must be so
            only where the end of each wait is judged as a creation.
    """

    def __init__(
        self,
        *,
        assumed_seconds: int = DEFAULT_ASSUMED_SECONDS,
        in_flight_seconds: int = DEFAULT_IN_FLIGHT_SECONDS,
        leave_out_queued: bool = True,
    ) -> None:
        store = SnapshotStore(AssumedPods(assumed_seconds, in_flight_seconds))
        self._store = store
        self._rows = store.rows
        self._pods = store.pods
        self._namespaces = store.namespaces
        self._leave_out_queued = leave_out_queued
        self._before_write = self._store.before_write

    @property
    def kubernetes(self) -> KubernetesVersion:
        """The version by which the pods that are set are to be counted, see `pod_of`."""
        return self._store.kubernetes

    # Single objects as they are now.

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
        """Yield `namespace/name` of seen pods that contain a text, and their nodes; any order.

        It looks at every pod: 150,000 take some 20 ms.
        """
        for key, entry in self._pods.table.containing(text):
            yield key, "" if entry.row == NO_ROW else self._rows.names[entry.row]

    def requests(self, key: str, *, scheduled: bool = False) -> Amounts:
        """Return what a pod adds to the requests of its namespace; nothing if it is unknown."""
        entry = self._pods.table.get(key)
        if entry is None or entry.standing & QUEUED or entry.is_overdue:
            return {}
        if scheduled and not entry.standing & SCHEDULED:
            return {}
        return quota_requests(entry.shape)

    def pod_requests(self, key: str) -> Amounts:
        """Return what a pod requests as quotas count it, queued or not; none if unknown."""
        entry = self._pods.table.get(key)
        return {} if entry is None else quota_requests(entry.shape)

    def pod_key(self, key: str) -> str:
        """Return `namespace/name` as the string object stored here, if the pod is known.

        For others that store keys of pods: copies of 150,000 take 14 MiB.
        """
        return self._pods.table.key(key)

    # Events. Each takes the object as it now is; "set" adds or replaces.

    def set_kubernetes(self, version: KubernetesVersion) -> None:
        """Note the version of the cluster; pods that are known stay counted as they are."""
        if version == self._store.kubernetes:
            return
        self._before_write()
        self._store.kubernetes = version
        for row in self._rows.of.values():
            self._rows.touch(row, Domain.NODES)  # rules may rate each node otherwise

    def set_node(self, node: Node) -> None:
        """Add or replace a node."""
        old = self._rows.node(node.name)
        if old == node:
            return  # most updates of a node are heartbeats
        self._before_write()
        self._pods.offer(node.allocatable)
        self._rows.put_node(node)
        if old is None or not node.takes_the_same_pods_as(old):
            self._place_again(node.name)

    def _place_again(self, node_name: str) -> None:
        """Move pods that are not bound, and may count on a node that has come, gone or changed."""
        pods = self._pods
        pods.place_assumed(pods.assumed.advised_to(node_name))
        pods.place_expected(pods.expected_on(node_name))

    def delete_node(self, name: str) -> None:
        """Forget a node; its pods and usage stay known until they are deleted too.

        Pods that are only assumed on it are assumed on the next node of their advice.
        """
        if self._rows.node(name) is None:
            return
        self._before_write()
        row = self._rows.of[name]
        self._rows.drop_node(name)
        self._place_again(name)
        self._rows.release(row)

    def set_pod(self, pod: Pod, *, seen_at: Micros) -> None:
        """Add or replace a pod; one that has finished is forgotten.

        Args:
            pod: as it now is.
            seen_at: now. A bound pod without a PodScheduled time counts as assigned when it was
                first seen on its node.
        """
        pods, key = self._pods, pod.key
        old = pods.table.get(key)
        if old is None:
            self.withdraw(pod)
        if pod.is_terminal:
            self.delete_pod(key)
            return
        if pod.node_name:
            pods.nominations.forget(key)
        else:
            pod = pods.nominations.current(pod)
        if pods.transitions.would_change(key, pod):
            self._before_write()
            pods.update_transition(key, pod)
        if pod.node_name:
            if pods.is_expected(key):
                self._before_write()
                pods.expect_no_more(key)
            pods.assumed.forget(key)
            row = self._rows.of.get(pod.node_name)
            if row is None:
                self._before_write()
                row = self._rows.row(pod.node_name)
            new = pods.bound(pod, row, old, seen_at)
        else:
            pods.assumed.waiting(pod, is_new=old is None, seen_at=seen_at)
            standing = _queued_standing(pod) if self._leave_out_queued else 0
            new = pods.waiting(key, pod.shape, traits_of(pod), standing)
        new = pods.charged_until_gone(pod, new, seen_at)
        if old == new:
            return  # most updates of a pod change nothing that is counted
        self._before_write()
        pods.recount(pod.namespace, old, new)
        pods.move(key, old, new)
        if pods.is_expected(key):
            pods.place_expected([key])

    def delete_pod(self, key: str) -> None:
        """Forget a pod, by `namespace/name`; its amounts are taken off exactly."""
        pods = self._pods
        old = pods.table.get(key)
        if old is None:
            return
        self._before_write()
        if pods.transitions.would_change(key, None):
            pods.update_transition(key, None)
        pods.expect_no_more(key)
        pods.assumed.forget(key)
        pods.nominations.forget(key)
        pods.departures.put(key, None)
        pods.recount(key.partition("/")[0], old, None)
        pods.move(key, old, None)

    def nominate(self, key: str, node_name: str) -> None:
        """Count a held pod on a node from now on, exactly as if it were bound there.

        It does so until it is seen nominated to another node than before, or bound, or gone. A pod
        that is not known, or bound already, is left as it is.

        Args:
            key: `namespace/name`.
            node_name: name of the node, "" to take a nomination back.
        """
        entry = self._pods.table.get(key)
        if entry is not None and (entry.row == NO_ROW or entry.assumed):
            self._before_write()
            self._pods.nominate(key, node_name)

    def expect_binding(self, key: str, nodes: Sequence[str], *, at: Micros) -> None:
        """Count a pod on the nodes that it may be bound to at any moment, on each as if it were.

        It counts on them, and nowhere else, whatever is seen of it, until it is seen bound or gone.
        A pod that is not known, or bound already, is left as it is.

        Args:
            key: `namespace/name`.
            nodes: names of the nodes, none where no binding of it is on its way any more.
            at: now.
        """
        entry = self._pods.table.get(key)
        is_waiting = entry is not None and (entry.row == NO_ROW or entry.assumed)
        if is_waiting and (nodes or self._pods.is_expected(key)):
            self._before_write()
            self._pods.expect(key, tuple(dict.fromkeys(nodes)), at)

    def assume(self, pod: Pod, advice: Advice, *, at: Micros) -> None:
        """Count a pod that was just advised, until it is seen or its time is up.

        It does not count for its namespace: quotas have accounts of their own.

        Args:
            pod: as it was reviewed; has no uid yet, and maybe no name.
            advice: as written on it; its id identifies the pod when it is seen.
            at: now.
        """
        pods = self._pods
        key = pods.assumed.advised(pod, advice, at)
        if key is not None:
            self._before_write()
            new = pods.waiting(key, pod.shape, traits_of(pod))
            pods.move(key, pods.table.get(key), new)

    def withdraw(self, pod: Pod) -> Advice | None:
        """Take off a pod that is in flight by its advice; return that advice, None if it is not.

        For a pod that is reviewed again, as happens after other webhooks have changed it: it must
        not compete with itself.
        """
        key = self._pods.assumed.pop_in_flight(pod)
        if key is None:
            return None
        self._before_write()
        self._pods.place_assumed([key])
        return advice_in(pod.annotations)

    def release_assumed(self, now: Micros, *, most: int | None = None) -> bool:
        """Take off the pods that were assumed for too long; free while there are none.

        Pods that are being deleted and should be gone count for their namespaces no longer.

        Call before `view`: time passes without events.

        Args:
            now: now.
            most: the greatest number of each, the oldest first; one takes some 10 us. None for all.

        Returns:
            Whether some are left.
        """
        assumed, departures = self._pods.assumed, self._pods.departures
        keys, overdue = assumed.expire(now, most), departures.take(now, most)
        if keys or overdue:
            self._before_write()
            self._pods.place_assumed(keys)
            self._pods.stop_charging(overdue)
        return assumed.is_due(now) or departures.is_due(now)

    def set_usage(self, usage: NodeUsage) -> None:
        """Add or replace the usage report of a node."""
        self._before_write()
        self._rows.put_usage(usage)

    def delete_usage(self, node_name: str) -> None:
        """Forget the usage report of a node."""
        row = self._rows.of.get(node_name)
        if row is None or self._rows.usages[row] is None:
            return
        self._before_write()
        self._rows.drop_usage(node_name)
        self._rows.release(row)

    def set_quota(self, quota: ElasticQuota) -> None:
        """Add or replace an ElasticQuota."""
        self._before_write()
        self._namespaces.put_quota(quota)

    def delete_quota(self, namespace: str, name: str, group: str) -> None:
        """Forget an ElasticQuota."""
        self._before_write()
        self._namespaces.drop_quota(namespace, name, group)

    def set_namespace(self, name: str, labels: Mapping[str, str], *, quota_mode: str = "") -> None:
        """Add or replace a namespace.

        Args:
            name: its name.
            labels: all it has.
            quota_mode: its annotation `stowplan.dev/quota-mode`, if it has one.
        """
        self._before_write()
        self._namespaces.put(name, labels, quota_mode)

    def delete_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._before_write()
        self._namespaces.drop(name)

    def set_extra(self, extra: AuxObject) -> None:
        """Add or replace an object that only some rules read."""
        self._before_write()
        self._store.extras[type(extra), extra.key] = extra
        if isinstance(extra, DisruptionBudget):
            self._store.budgets.put(extra)
        self._touch_topology(extra.node_name)

    def delete_extra(self, kind: type[AuxObject], key: str) -> None:
        """Forget an object that only some rules read."""
        if (kind, key) in self._store.extras:
            self._before_write()
            self._touch_topology(self._store.extras.pop((kind, key)).node_name)
            if kind is DisruptionBudget:
                self._store.budgets.drop(key)

    def track_sums(self, profiles: Iterable[PodSumProfile]) -> None:
        """Keep the sums of exactly these profiles from now on.

        The next view counts for those that are new, some 5 us for each pod; see `prepare_sums`.
        """
        self._before_write()
        self._store.tracked.track(profiles)

    def prepare_sums(self, profiles: Iterable[PodSumProfile]) -> Iterator[None]:
        """Count for profiles before they are tracked, a few nodes between one yield and the next.

        Reviews can be served between the steps, and events in between are counted too.
        """
        self._store.tracked.prepare(profiles)
        while not self._store.tracked.is_prepared:
            self._before_write()
            self.view()
            yield

    def view(self) -> ClusterView:
        """Return the cluster as it is now; free while nothing has changed."""
        return self._store.view()

    def _touch_topology(self, node_name: str) -> None:
        """Mark the row of a known node as changed in an object that only some rules read."""
        row = self._rows.of.get(node_name)
        if row is not None:
            self._rows.touch(row, Domain.TOPOLOGY)


def _queued_standing(pod: Pod) -> int:
    """Return the standing of a pod that waits for quota, 0 of one that does not."""
    if not pod.is_queued:
        return 0
    return QUEUED if pod.is_held_by_us_alone else QUEUED | GATED
