"""Usage from `metrics.k8s.io/v1beta1`, which metrics-server fills on most clusters.

It knows nodes and pods but not which pod is where, and has neither history nor percentiles.
Source of the fields: k8s.io/metrics, pkg/apis/metrics/v1beta1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from engine.model import api, resources
from engine.model.duration import parse_duration
from engine.model.quantity import in_base_units, quantity_of
from engine.model.resources import Amounts
from engine.model.time import micros
from engine.model.usage import DEFAULT_REPORT_INTERVAL_SECONDS, NodeUsage, PodUsage, PodUsages
from engine.view import ClusterState

_SECOND_NS = 1_000_000_000


class _Wire(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, gc=False
):
    """The common settings of the structs below."""


class NodeMetrics(_Wire, frozen=True):
    """Usage of a node over a short window that ended at `timestamp`."""

    metadata: api.ObjectMeta = api.ObjectMeta()
    timestamp: datetime | None = None
    window: str = ""
    usage: api.ResourceList | None = None


class ContainerMetrics(_Wire, frozen=True):
    """Usage of one container."""

    usage: api.ResourceList | None = None


class PodMetrics(_Wire, frozen=True):
    """Usage of a pod, container by container."""

    metadata: api.ObjectMeta = api.ObjectMeta()
    timestamp: datetime | None = None
    containers: list[ContainerMetrics] | None = None


@dataclass(frozen=True, slots=True)
class PodReading:
    """Usage of a pod, base units; `key` is `namespace/name`."""

    key: str
    usage: Amounts


def node_reading(wire: NodeMetrics) -> NodeUsage:
    """Return the usage of a node, its pods not yet known.

    Its window stands for the report interval: what was bound within it is not measured in full.

    Raises:
        QuantityError: an amount is not a quantity.
        DurationError: the window is not a duration.
    """
    window = -(-parse_duration(wire.window) // _SECOND_NS)
    return NodeUsage(
        node_name=wire.metadata.name,
        update_time=micros(wire.timestamp) if wire.timestamp else None,
        report_interval_seconds=window if window > 0 else DEFAULT_REPORT_INTERVAL_SECONDS,
        usage=resources.amounts(wire.usage),
    )


def pod_reading(wire: PodMetrics, *, namespace: str) -> PodReading:
    """Return the usage of a pod: the sum over its containers, rounded once.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    nanos: dict[str, int] = {}
    for container in wire.containers or ():
        for name, amount in (container.usage or {}).items():
            nanos[name] = nanos.get(name, 0) + quantity_of(amount).nanos
    return PodReading(
        f"{wire.metadata.namespace or namespace}/{wire.metadata.name}",
        {name: in_base_units(name, amount) for name, amount in nanos.items()},
    )


def joined(
    nodes: Iterable[NodeUsage], pods: Iterable[PodReading], state: ClusterState
) -> Iterator[NodeUsage]:
    """Yield the reports of nodes with the readings of the pods that the state knows on them.

    Without any reading of a pod, only nodes were asked for.
    """
    readings = list(pods)
    on_nodes = PodsOnNodes(state)
    for reading in readings:
        on_nodes.add(reading)
    for node in nodes:
        yield on_nodes.joined(node) if readings else replace(node, pods_measured=False)


class PodsOnNodes:
    """Readings of pods, by the node that a state knows each on."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_node: dict[str, dict[str, PodUsage]] = {}

    def add(self, reading: PodReading) -> None:
        """Take a reading.

        The pod counts as production by its own class, for nothing says how it was measured.
        """
        place = self._state.placement(reading.key)
        if place is not None and reading.usage:
            node_name, shape = place
            usage = PodUsage(reading.usage, shape.is_prod)
            self._by_node.setdefault(node_name, {})[reading.key] = usage

    def joined(self, node: NodeUsage) -> NodeUsage:
        """Return the report of a node with what was read of its pods."""
        return replace(node, pods=PodUsages(self._by_node.get(node.node_name, {})))
