"""Objects of every kind we read, put into a `ClusterState` in whatever order they come.

This is the only way in, for recorded and for live clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from engine.model import api, topology_api
from engine.model.aux_object import AuxObject
from engine.model.disk_io import NodeDisks, node_disks_of
from engine.model.elastic_quota import QUOTA_MODE_ANNOTATION, quota_of
from engine.model.network import AppGroup, NetworkTopology, app_group_of, network_topology_of
from engine.model.node import node_of
from engine.model.numa import NodeZones, node_zones_of
from engine.model.pod import pod_of
from engine.model.time import Micros, micros
from engine.model.usage import NodeUsage, usage_of_node_metric
from engine.view import ClusterState
from webhook.cluster.objects import ObjectError
from webhook.cluster.usage import metrics_server

_DEFAULT_NAMESPACE = "default"
_MOST_GATHERED = 32  # reports; the sums over the pods of their nodes take some 4 ms


class EventApplier:
    """Takes objects, and forgets them again.

    A method that takes one either takes all of it or raises `ValueError`, where a value is not what
    the API would send, and changes nothing.

    Args:
        state: where they go; a new one if not given.
        now: the time of day where objects are taken as they happen. In a recording, without it,
            each was there from its creation on.
        pod_seen: told of each pod once it is in the state: namespace, uid and version.
        gathers: whether reports of Koordinator's wait until `take_up`, or until there are many. One
            makes columns of many rules out of date, and they are brought up to date for all rows
            that changed in about the time it takes for one.

    Attributes:
        state: what was taken, except for what waits for `finished` or `take_up`.
        newest: the newest moment that any object spoke of, 0 if none did.
    """

    def __init__(
        self,
        state: ClusterState | None = None,
        *,
        now: Callable[[], Micros] | None = None,
        pod_seen: Callable[[str, str, int], None] = lambda _namespace, _uid, _version: None,
        buffers_usage: bool = False,
    ) -> None:
        self.state = ClusterState() if state is None else state
        self.newest = Micros(0)
        self._now = now
        self._pod_seen = pod_seen
        self._gathers = buffers_usage
        self._gathered: dict[str, NodeUsage] = {}
        self._by_koordinator: set[str] = set()
        self._extra_keys: dict[tuple[type[AuxObject], str], str] = {}
        self._node_readings: dict[str, NodeUsage] = {}
        self._pod_readings: dict[str, metrics_server.PodReading] = {}

    def finished(self) -> ClusterState:
        """Return the state with what had to wait for all objects: usage by metrics.k8s.io."""
        others = [
            reading
            for node_name, reading in self._node_readings.items()
            if node_name not in self._by_koordinator
        ]
        for usage in metrics_server.joined(others, self._pod_readings.values(), self.state):
            self.state.set_usage(usage)
        self.state.release_assumed(self.newest)
        return self.state

    def measured_by_koordinator(self, node_name: str) -> bool:
        """Return whether a NodeMetric that was filled tells the usage of a node: others wait."""
        gathered = self._gathered.get(node_name)
        is_to_come = gathered is not None and gathered.usage is not None
        return is_to_come or node_name in self._by_koordinator

    def flush_usage(self) -> None:
        """Take the reports that were gathered."""
        for usage in self._gathered.values():
            self._report(usage)
        self._gathered.clear()

    def node(self, wire: api.Node) -> None:
        """Take a node."""
        _check_name(wire.metadata)
        self.state.set_node(node_of(wire))
        self._see(wire.metadata.creation_timestamp)
        for condition in wire.status.conditions or ():
            self._see(condition.last_heartbeat_time)

    def pod(self, wire: api.Pod) -> None:
        """Take a pod; one that has finished is forgotten."""
        _check_name(wire.metadata)
        pod = pod_of(wire, namespace=_DEFAULT_NAMESPACE)
        created = self._see(wire.metadata.creation_timestamp)
        self.state.set_pod(pod, seen_at=self._now() if self._now else created)
        self._pod_seen(pod.namespace, pod.uid, wire.metadata.version)
        self.newest = max(self.newest, pod.scheduled_at or created, pod.initialized_at or created)

    def namespace(self, wire: api.Namespace) -> None:
        """Take a namespace."""
        _check_name(wire.metadata)
        meta = wire.metadata
        mode = (meta.annotations or {}).get(QUOTA_MODE_ANNOTATION, "")
        self.state.set_namespace(meta.name, meta.labels or {}, quota_mode=mode)
        self._see(wire.metadata.creation_timestamp)

    def quota(self, wire: api.ElasticQuota) -> None:
        """Take an ElasticQuota."""
        _check_name(wire.metadata)
        if not wire.metadata.namespace:
            raise ObjectError(("metadata",), "it has no `namespace`")
        self.state.set_quota(quota_of(wire))
        self._see(wire.metadata.creation_timestamp)

    def node_metric(self, wire: api.NodeMetric) -> None:
        """Take a report of Koordinator's; one that was never filled leaves room for others."""
        _check_name(wire.metadata)
        usage = usage_of_node_metric(wire, pod_key=self.state.pod_key)
        self._gathered[usage.node_name] = usage
        if not self._gathers or len(self._gathered) >= _MOST_GATHERED:
            self.flush_usage()
        self._see(wire.status.update_time)

    def node_metrics(self, wire: metrics_server.NodeMetrics) -> None:
        """Take the usage of a node by metrics.k8s.io."""
        _check_name(wire.metadata)
        self._node_readings[wire.metadata.name] = metrics_server.node_reading(wire)
        self._see(wire.timestamp)

    def pod_metrics(self, wire: metrics_server.PodMetrics) -> None:
        """Take the usage of a pod by metrics.k8s.io."""
        _check_name(wire.metadata)
        reading = metrics_server.pod_reading(wire, namespace=_DEFAULT_NAMESPACE)
        self._pod_readings[reading.key] = reading
        self._see(wire.timestamp)

    def aux(self, wire: Any, made: Callable[[Any], AuxObject]) -> None:  # noqa: ANN401 - any struct with metadata
        """Take an object that only some rules read."""
        _check_name(wire.metadata)
        extra, name = made(wire), f"{wire.metadata.namespace}/{wire.metadata.name}"
        if self._extra_keys.get((type(extra), name), extra.key) != extra.key:
            self.delete_aux(wire.metadata.namespace, wire.metadata.name, kind=type(extra))
        self._extra_keys[type(extra), name] = extra.key
        self.state.set_extra(extra)
        self._see(wire.metadata.creation_timestamp)

    def pod_key(self, key: str) -> str:
        """Return the string to keep for the `namespace/name` of a pod."""
        return self.state.pod_key(key)

    def delete_node(self, _namespace: str, name: str) -> None:
        """Forget a node."""
        self.state.delete_node(name)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        self.state.delete_pod(f"{namespace}/{name}")

    def delete_namespace(self, _namespace: str, name: str) -> None:
        """Forget a namespace."""
        self.state.delete_namespace(name)

    def delete_quota(self, namespace: str, name: str, *, group: str) -> None:
        """Forget an ElasticQuota."""
        self.state.delete_quota(namespace, name, group)

    def delete_node_metric(self, _namespace: str, name: str) -> None:
        """Forget a report of Koordinator's; the next one by anything else takes its place."""
        self._gathered.pop(name, None)
        if not self._measured_by_others(name):
            self._by_koordinator.discard(name)
            self.state.delete_usage(name)

    def delete_aux(self, namespace: str, name: str, *, kind: type[AuxObject]) -> None:
        """Forget an object that only some rules read."""
        key = self._extra_keys.pop((kind, f"{namespace}/{name}"), None)
        if key is not None:
            self.state.delete_extra(kind, key)

    def _report(self, usage: NodeUsage) -> None:
        name = usage.node_name
        if usage.usage is not None:
            self._by_koordinator.add(name)
        elif self._measured_by_others(name):
            return
        else:
            self._by_koordinator.discard(name)
        self.state.set_usage(usage)

    def _measured_by_others(self, node_name: str) -> bool:
        known = self.state.usage(node_name)
        measured = known is not None and known.usage is not None
        return measured and node_name not in self._by_koordinator

    def _see(self, moment: datetime | None) -> Micros:
        """Take note of a moment; return it, 0 for none."""
        seen = Micros(0) if moment is None else micros(moment)
        self.newest = max(self.newest, seen)
        return seen


@dataclass(frozen=True, slots=True)
class Reader:
    """What objects of a kind are decoded as, who takes them, and who forgets them.

    Attributes:
        wire: what they are decoded as.
        take: adds or replaces one.
        forget: by namespace and name; None for what is asked for again and again as a whole.
        key: returns the string to keep for `namespace/name`; None where any will do.
    """

    wire: type[msgspec.Struct]
    take: Callable[[EventApplier, Any], None]
    forget: Callable[[EventApplier, str, str], None] | None = None
    key: Callable[[EventApplier, str], str] | None = None


def _quota_reader(group: str) -> Reader:
    return Reader(
        api.ElasticQuota, EventApplier.quota, partial(EventApplier.delete_quota, group=group)
    )


def _extra_reader(
    kind: type[AuxObject], wire: type[msgspec.Struct], made: Callable[[Any], AuxObject]
) -> Reader:
    return Reader(
        wire, partial(EventApplier.aux, made=made), partial(EventApplier.delete_aux, kind=kind)
    )


_DISKS = _extra_reader(NodeDisks, topology_api.NodeDiskIO, node_disks_of)

READERS: Mapping[tuple[str, str], Reader] = {
    ("", "Node"): Reader(api.Node, EventApplier.node, EventApplier.delete_node),
    ("", "Pod"): Reader(api.Pod, EventApplier.pod, EventApplier.delete_pod, EventApplier.pod_key),
    ("", "Namespace"): Reader(api.Namespace, EventApplier.namespace, EventApplier.delete_namespace),
    ("scheduling.x-k8s.io", "ElasticQuota"): _quota_reader("scheduling.x-k8s.io"),
    ("scheduling.sigs.k8s.io", "ElasticQuota"): _quota_reader("scheduling.sigs.k8s.io"),
    ("slo.koordinator.sh", "NodeMetric"): Reader(
        api.NodeMetric, EventApplier.node_metric, EventApplier.delete_node_metric
    ),
    ("topology.node.k8s.io", "NodeResourceTopology"): _extra_reader(
        NodeZones, topology_api.NodeResourceTopology, node_zones_of
    ),
    ("appgroup.diktyo.x-k8s.io", "AppGroup"): _extra_reader(
        AppGroup, topology_api.AppGroup, app_group_of
    ),
    ("networktopology.diktyo.x-k8s.io", "NetworkTopology"): _extra_reader(
        NetworkTopology, topology_api.NetworkTopology, network_topology_of
    ),
    ("diskio.x-k8s.io", "NodeDiskIOStats"): _DISKS,
    ("ioi.intel.com", "NodeDiskIOInfo"): _DISKS,
    ("metrics.k8s.io", "NodeMetrics"): Reader(
        metrics_server.NodeMetrics, EventApplier.node_metrics
    ),
    ("metrics.k8s.io", "PodMetrics"): Reader(metrics_server.PodMetrics, EventApplier.pod_metrics),
}
"""By API group and kind."""


def _check_name(meta: api.ObjectMeta) -> None:
    if not meta.name:
        raise ObjectError(("metadata",), "it has no `name`")
    if "/" in meta.name or "/" in meta.namespace:
        raise ObjectError(("metadata",), "no name or namespace contains `/`")
