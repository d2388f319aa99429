"""Objects of every kind we read, put into a `ClusterState` in whatever order they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.node import node_of
from engine.model.pod import pod_of
from engine.model.time import Micros, micros
from engine.model.usage import NodeUsage, usage_of_node_metric
from engine.view import ClusterState
from webhook.cluster import metrics_server
from webhook.cluster.objects import ObjectError

_DEFAULT_NAMESPACE = "default"


class Intake:
    """Takes objects; a method either takes all of one or raises and changes nothing.

    Each raises `ValueError` where a value is not what the API would send.

    Attributes:
        newest: the newest moment that any object spoke of, 0 if none did.
    """

    def __init__(self) -> None:
        self.newest = Micros(0)
        self._state = ClusterState()
        self._by_koordinator: set[str] = set()
        self._node_readings: dict[str, NodeUsage] = {}
        self._pod_readings: dict[str, metrics_server.PodReading] = {}

    def finished(self) -> ClusterState:
        """Return the state with what had to wait for all objects: usage by metrics.k8s.io."""
        others = [
            reading
            for node_name, reading in self._node_readings.items()
            if node_name not in self._by_koordinator
        ]
        for usage in metrics_server.joined(others, self._pod_readings.values(), self._state):
            self._state.set_usage(usage)
        return self._state

    def node(self, wire: api.Node) -> None:
        """Take a node."""
        _check_name(wire.metadata)
        self._state.set_node(node_of(wire))
        self._see(wire.metadata.creation_timestamp)
        for condition in wire.status.conditions or ():
            self._see(condition.last_heartbeat_time)

    def pod(self, wire: api.Pod) -> None:
        """Take a pod; a bound one that does not say since when was so from its beginning."""
        _check_name(wire.metadata)
        pod = pod_of(wire, namespace=_DEFAULT_NAMESPACE)
        created = self._see(wire.metadata.creation_timestamp)
        self._state.set_pod(pod, seen_at=created)
        self.newest = max(self.newest, pod.scheduled_at or created, pod.initialized_at or created)

    def namespace(self, wire: api.Namespace) -> None:
        """Take a namespace."""
        _check_name(wire.metadata)
        self._state.set_namespace(wire.metadata.name, wire.metadata.labels or {})
        self._see(wire.metadata.creation_timestamp)

    def quota(self, wire: api.ElasticQuota) -> None:
        """Take an ElasticQuota."""
        _check_name(wire.metadata)
        if not wire.metadata.namespace:
            raise ObjectError(("metadata",), "it has no `namespace`")
        self._state.set_quota(quota_of(wire))
        self._see(wire.metadata.creation_timestamp)

    def node_metric(self, wire: api.NodeMetric) -> None:
        """Take a report of Koordinator's; one that was never filled leaves room for others."""
        _check_name(wire.metadata)
        usage = usage_of_node_metric(wire)
        self._state.set_usage(usage)
        if usage.usage is not None:
            self._by_koordinator.add(usage.node_name)
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

    def _see(self, moment: datetime | None) -> Micros:
        """Take note of a moment; return it, 0 for none."""
        seen = Micros(0) if moment is None else micros(moment)
        self.newest = max(self.newest, seen)
        return seen


@dataclass(frozen=True, slots=True)
class Reader:
    """What objects of a kind are decoded as, and who takes them."""

    wire: type[msgspec.Struct]
    take: Callable[[Intake, Any], None]


READERS: Mapping[tuple[str, str], Reader] = {
    ("", "Node"): Reader(api.Node, Intake.node),
    ("", "Pod"): Reader(api.Pod, Intake.pod),
    ("", "Namespace"): Reader(api.Namespace, Intake.namespace),
    ("scheduling.x-k8s.io", "ElasticQuota"): Reader(api.ElasticQuota, Intake.quota),
    ("scheduling.sigs.k8s.io", "ElasticQuota"): Reader(api.ElasticQuota, Intake.quota),
    ("slo.koordinator.sh", "NodeMetric"): Reader(api.NodeMetric, Intake.node_metric),
    ("metrics.k8s.io", "NodeMetrics"): Reader(metrics_server.NodeMetrics, Intake.node_metrics),
    ("metrics.k8s.io", "PodMetrics"): Reader(metrics_server.PodMetrics, Intake.pod_metrics),
}
"""By API group and kind."""


def _check_name(meta: api.ObjectMeta) -> None:
    if not meta.name:
        raise ObjectError(("metadata",), "it has no `name`")
    if "/" in meta.name or "/" in meta.namespace:
        raise ObjectError(("metadata",), "no name or namespace contains `/`")
