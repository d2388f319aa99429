"""Usage in `metrics.k8s.io/v1beta1`, which metrics-server serves on most clusters.

It measures nodes and pods, but neither history nor percentiles, nor which node a pod is on.
Source of the fields: k8s.io/metrics, pkg/apis/metrics/v1beta1/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.model import api, resources
from engine.model.duration import SECOND, parse_duration
from engine.model.quantity import in_base_units, quantity_of
from engine.model.resources import Amounts
from engine.model.time import micros
from engine.model.usage import DEFAULT_REPORT_INTERVAL_SECONDS, NodeUsage


class NodeMetrics(api.WireStruct, frozen=True):
    """Usage of a node over a short window that ended at `timestamp`."""

    metadata: api.ObjectMeta = api.ObjectMeta()
    timestamp: datetime | None = None
    window: str = ""
    usage: api.ResourceList | None = None


class ContainerMetrics(api.WireStruct, frozen=True):
    """Usage of one container."""

    usage: api.ResourceList | None = None


class PodMetrics(api.WireStruct, frozen=True):
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
    """Return the usage of a node, without that of its pods.

    The window is its report interval: pods bound within it are not measured in full.

    Raises:
        QuantityError: an amount is not a quantity.
        DurationError: the window is not a duration.
    """
    window = -(-parse_duration(wire.window) // SECOND)
    return NodeUsage(
        node_name=wire.metadata.name,
        update_time=micros(wire.timestamp) if wire.timestamp else None,
        report_interval_seconds=window if window > 0 else DEFAULT_REPORT_INTERVAL_SECONDS,
        usage=resources.amounts(wire.usage),
    )


def pod_reading(wire: PodMetrics, *, namespace: str = "") -> PodReading:
    """Return the usage of a pod: the sum over its containers, rounded once.

    Args:
        wire: the measured pod.
        namespace: its namespace where the object has none.

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
