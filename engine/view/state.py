"""The state of a cluster: events go in, views come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine.model.advice import Advice, advice_in
from engine.model.aux_object import AuxObject
from engine.model.disruption_budget import DisruptionBudget
from engine.model.domain import Domain
from engine.model.elastic_quota import ElasticQuota
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.pod_traits import traits_of
from engine.model.time import Micros
from engine.model.usage import NodeUsage
from engine.view.assumed import (
    DEFAULT_ASSUMED_SECONDS,
    DEFAULT_IN_FLIGHT_SECONDS,
    AssumedPods,
)
from engine.view.cluster_view import ClusterView
from engine.view.lister import ClusterLister
from engine.view.pod_sums import PodSumProfile
from engine.view.pod_table import NO_ROW, QUEUED
from engine.view.snapshot_store import SnapshotStore


class ClusterState(ClusterLister):
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
        super().__init__(SnapshotStore(AssumedPods(assumed_seconds, in_flight_seconds)))
        self._leave_out_queued = leave_out_queued
        self._before_write = self._store.before_write

    @property
    def kubernetes(self) -> KubernetesVersion:
        """The version by which the pods that are set are to be counted, see `pod_of`."""
        return self._store.kubernetes

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
            is_queued = self._leave_out_queued and pod.is_queued
            new = pods.waiting(key, pod.shape, traits_of(pod), QUEUED if is_queued else 0)
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

        Reviews can be served meanwhile, and events that come meanwhile are counted too.
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
