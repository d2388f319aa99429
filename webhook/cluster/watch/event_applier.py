"""Events of every kind that is read, applied to one `ClusterState` in whatever order they come.

Recorded and live clusters have this one way in. It wraps no library: client caches keep objects,
while a `ClusterState` keeps columns of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import msgspec

from engine.model import api, usage
from engine.model.elastic_quota import quota_of
from engine.model.kinds import DEFAULT_NAMESPACE, KINDS, AuxObject, Kind
from engine.model.namespace import namespace_of
from engine.model.node import DeviceClass, device_class_of, node_of
from engine.model.pod import Pod, pod_of
from engine.model.policy_resource import (
    PolicyKind,
    PolicyResource,
    policy_name,
    policy_resource_of,
)
from engine.model.time import Micros, micros
from engine.model.usage import NodeUsage, usage_of_node_metric
from engine.view import ClusterState
from webhook.cluster.objects import ObjectError
from webhook.cluster.usage import join_readings

_MOST_BUFFERED = 32  # reports; the sums over the pods of their nodes take some 4 ms


class PodObserver(Protocol):
    """Follows the pods of a cluster; called for every event, so it must be quick."""

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:
        """Handle a pod that was added or replaced; the state has it."""

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Handle a pod that is gone; the state no longer has it."""


class PolicyObserver(Protocol):
    def set(self, resource: PolicyResource) -> None:
        """Handle a policy that was added or replaced."""

    def delete(self, kind: PolicyKind, policy_name: str) -> None:
        """Handle a policy that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindApplier:
    kind: Kind  # the kind
    # adds or replaces an object; raises `ValueError` and changes nothing if it cannot be used
    apply: Callable[[Any], None]
    delete: Callable[[str, str], object]  # by namespace, "" for none, and name
    # returns the string to hold for `namespace/name`, so that equal ones are one object
    intern: Callable[[str], str] = str
    # does what of `apply` needs no state, and so may run in a thread; returns the rest. Gets the
    # object as it was sent too. None where `apply` is all there is
    prepare: Callable[[Any, msgspec.Raw], Callable[[], None]] | None = None


class EventApplier:
    """Applies events to a `ClusterState`."""

    def __init__(
        self,
        state: ClusterState | None = None,
        *,
        now: Callable[[], Micros] | None = None,
        observers: Sequence[PodObserver] = (),
        policies: PolicyObserver | None = None,
        buffers_usage: bool = False,
    ) -> None:
        # the objects, except for those that wait for `finished` or `flush_usage`
        self.state = ClusterState() if state is None else state
        self.newest = Micros(0)  # the latest moment in any object, 0 if none has one
        # the applier of each kind, by API group and `kind`
        self.by_kind: Mapping[tuple[str, str], KindApplier] = {
            (kind.group, kind.kind): self._applier_of(kind) for kind in KINDS
        }
        self._now = now
        self._observers = tuple(observers)
        self._policies = policies
        self._buffers_usage = buffers_usage
        self._buffered: dict[str, NodeUsage] = {}
        self._by_koordinator: set[str] = set()
        self._aux: dict[tuple[type[msgspec.Struct], str], AuxObject] = {}
        self._device_classes: dict[str, DeviceClass] = {}
        self._node_readings: dict[str, NodeUsage] = {}
        self._pod_readings: dict[str, usage.PodReading] = {}

    def finished(self) -> ClusterState:
        """Return the state with usage by metrics.k8s.io, which waits for all objects."""
        others = [
            reading
            for node_name, reading in self._node_readings.items()
            if node_name not in self._by_koordinator
        ]
        for report in join_readings(others, self._pod_readings.values(), self.state):
            self.state.set_usage(report)
        self.state.release_assumed(self.newest)
        return self.state

    def measured_by_koordinator(self, node_name: str) -> bool:
        """Return whether a node's usage comes from a filled NodeMetric, which precedes others."""
        buffered = self._buffered.get(node_name)
        is_filled = buffered is not None and buffered.usage is not None
        return is_filled or node_name in self._by_koordinator

    def flush_usage(self) -> None:
        """Apply the buffered reports."""
        for report in self._buffered.values():
            self._report(report)
        self._buffered.clear()

    def _applier_of(self, kind: Kind) -> KindApplier:
        state = self.state
        if kind.wire is api.Pod:
            return KindApplier(
                kind=kind,
                apply=self.pod,
                delete=self.delete_pod,
                intern=state.pod_key,
                prepare=self.prepare_pod,
            )
        policy = self.policy, partial(self.delete_policy, kind=kind.kind)
        aux = partial(self.aux, decode=kind.decode), partial(self.delete_aux, wire=kind.wire)
        appliers: dict[object, tuple[Callable[[Any], None], Callable[[str, str], object]]] = {
            api.Node: (self.node, lambda _, name: state.delete_node(name)),
            api.Namespace: (self.namespace, lambda _, name: state.delete_namespace(name)),
            api.ElasticQuota: (self.quota, partial(state.delete_quota, group=kind.group)),
            api.NodeMetric: (self.node_metric, self.delete_node_metric),
            usage.NodeMetrics: (
                self.node_metrics,
                lambda _, name: self._node_readings.pop(name, None),
            ),
            usage.PodMetrics: (
                self.pod_metrics,
                lambda namespace, name: self._pod_readings.pop(f"{namespace}/{name}", None),
            ),
            api.PlacementPolicy: policy,
            api.NamespacedPlacementPolicy: policy,
            api.DeviceClass: (self.device_class, self.delete_device_class),
        }
        apply, delete = appliers.get(kind.wire, aux)
        return KindApplier(kind=kind, apply=apply, delete=delete)

    # Nodes, pods, namespaces and quotas.

    def node(self, wire: api.Node) -> None:
        _check_name(wire.metadata)
        self.state.set_node(node_of(wire))
        self._observe_time(wire.metadata.creation_timestamp)
        for condition in wire.status.conditions or ():
            self._observe_time(condition.last_heartbeat_time)

    def pod(self, wire: api.Pod) -> None:
        """Apply a pod; the state drops one that has finished."""
        self.prepare_pod(wire)()

    def prepare_pod(self, wire: api.Pod, raw: bytes | msgspec.Raw = b"") -> Callable[[], None]:
        """Return what applies a pod; for a large one making its model takes nearly all the time."""
        _check_name(wire.metadata)
        pod = pod_of(wire, namespace=DEFAULT_NAMESPACE, kubernetes=self.state.kubernetes)
        return partial(self._pod, wire, pod, raw)

    def _pod(self, wire: api.Pod, pod: Pod, raw: bytes | msgspec.Raw) -> None:
        created = self._observe_time(wire.metadata.creation_timestamp)
        self.state.set_pod(pod, seen_at=self._now() if self._now else created)
        version = wire.metadata.version
        for observer in self._observers:
            observer.pod_changed(pod, version, raw)
        self.newest = max(self.newest, pod.scheduled_at or created, pod.initialized_at or created)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod."""
        self.state.delete_pod(f"{namespace}/{name}")
        for observer in self._observers:
            observer.pod_deleted(namespace, name)

    def namespace(self, wire: api.Namespace) -> None:
        _check_name(wire.metadata)
        namespace = namespace_of(wire)
        self.state.set_namespace(namespace.name, namespace.labels, quota_mode=namespace.quota_mode)
        self._observe_time(wire.metadata.creation_timestamp)

    def quota(self, wire: api.ElasticQuota) -> None:
        _check_name(wire.metadata)
        if not wire.metadata.namespace:
            raise ObjectError(("metadata",), "it has no `namespace`")
        self.state.set_quota(quota_of(wire))
        self._observe_time(wire.metadata.creation_timestamp)

    def policy(self, wire: api.PlacementPolicy) -> None:
        """Hand on a policy of either kind."""
        _check_name(wire.metadata)
        if self._policies is not None:
            self._policies.set(policy_resource_of(wire))

    def delete_policy(self, namespace: str, name: str, *, kind: str) -> None:
        if self._policies is not None:
            self._policies.delete(PolicyKind(kind), policy_name(namespace, name))

    # Usage.

    def node_metric(self, wire: api.NodeMetric) -> None:
        """Apply a report of Koordinator's; one that was never filled leaves room for others."""
        _check_name(wire.metadata)
        usage = usage_of_node_metric(wire, pod_key=self.state.pod_key)
        self._buffered[usage.node_name] = usage
        if not self._buffers_usage or len(self._buffered) >= _MOST_BUFFERED:
            self.flush_usage()
        self._observe_time(wire.status.update_time)

    def delete_node_metric(self, _namespace: str, name: str) -> None:
        """Delete a report of Koordinator's; the next one from another source takes its place."""
        self._buffered.pop(name, None)
        if not self._measured_by_others(name):
            self._by_koordinator.discard(name)
            self.state.delete_usage(name)

    def node_metrics(self, wire: usage.NodeMetrics) -> None:
        """Hold the usage of a node by metrics.k8s.io until `finished`."""
        _check_name(wire.metadata)
        self._node_readings[wire.metadata.name] = usage.node_reading(wire)
        self._observe_time(wire.timestamp)

    def pod_metrics(self, wire: usage.PodMetrics) -> None:
        """Hold the usage of a pod by metrics.k8s.io until `finished`."""
        _check_name(wire.metadata)
        reading = usage.pod_reading(wire, namespace=DEFAULT_NAMESPACE)
        self._pod_readings[reading.key] = reading
        self._observe_time(wire.timestamp)

    # Objects that only some rules read.

    def device_class(self, wire: api.DeviceClass) -> None:
        """Apply a DeviceClass; several may stand for one resource, unlike other such objects."""
        _check_name(wire.metadata)
        self.delete_device_class("", wire.metadata.name)
        made = self._device_classes[wire.metadata.name] = device_class_of(wire)
        if made.resource:
            self.state.set_extra(made)
        self._observe_time(wire.metadata.creation_timestamp)

    def delete_device_class(self, _namespace: str, name: str) -> None:
        """Delete a DeviceClass; its resource is left to others that stand for it."""
        gone = self._device_classes.pop(name, None)
        others = {each.resource for each in self._device_classes.values()}
        if gone is not None and gone.resource not in others:
            self.state.delete_extra(DeviceClass, gone.key)

    def aux(self, wire: Any, *, decode: Callable[[Any], AuxObject]) -> None:  # noqa: ANN401 - any struct with metadata
        """Apply an object that only some rules read."""
        meta = wire.metadata
        _check_name(meta)
        aux, name = decode(wire), (type(wire), f"{meta.namespace}/{meta.name}")
        known = self._aux.get(name)
        if known is not None and known.key != aux.key:
            self.state.delete_extra(type(known), known.key)
        self._aux[name] = aux
        self.state.set_extra(aux)
        self._observe_time(meta.creation_timestamp)

    def delete_aux(self, namespace: str, name: str, *, wire: type[msgspec.Struct]) -> None:
        """Delete an object that only some rules read."""
        aux = self._aux.pop((wire, f"{namespace}/{name}"), None)
        if aux is not None:
            self.state.delete_extra(type(aux), aux.key)

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

    def _observe_time(self, moment: datetime | None) -> Micros:
        """Advance `newest` to a moment; return it, 0 for none."""
        observed = Micros(0) if moment is None else micros(moment)
        self.newest = max(self.newest, observed)
        return observed


def _check_name(meta: api.ObjectMeta) -> None:
    if not meta.name:
        raise ObjectError(("metadata",), "it has no `name`")
    if "/" in meta.name or "/" in meta.namespace:
        raise ObjectError(("metadata",), "no name or namespace contains `/`")
