"""Measured usage of a node and its pods, from any source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from engine.model import api, resources
from engine.model.quantity import in_base_units, quantity_of
from engine.model.resources import Amounts, AmountsTable
from engine.model.time import NANOSECONDS_PER_SECOND, Micros, micros, parse_duration

DEFAULT_REPORT_INTERVAL_SECONDS = 60
"""Koordinator's default of spec.metricCollectPolicy.reportIntervalSeconds."""

_KOORD_PROD = "koord-prod"


class PodUsage(msgspec.Struct, frozen=True, gc=False):
    """Measured usage of one pod."""

    amounts: Amounts  # base units; never empty (an empty list means "not reported" and is left out)
    is_prod: bool  # whether the agent counted it as production


class PodUsages(Mapping[str, PodUsage]):
    """Measured usage of the pods of one node by `namespace/name`, packed (see `AmountsTable`)."""

    __slots__ = ("_amounts", "_is_prod")

    def __init__(self, usages: Mapping[str, PodUsage]) -> None:
        self._amounts = AmountsTable({key: usage.amounts for key, usage in usages.items()})
        self._is_prod = bytes(usages[key].is_prod for key in self._amounts)

    def __getitem__(self, key: str) -> PodUsage:
        usage: PodUsage | None = self.get(key)
        if usage is None:
            raise KeyError(key)
        return usage

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._amounts.row(key) is not None

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 (as in Mapping)
        """Return the usage of a pod; it is called for every pod, so a miss must not raise."""
        row = self._amounts.row(key)
        if row is None:
            return default
        return PodUsage(self._amounts.at(row), bool(self._is_prod[row]))

    def find(self, key: str, names: tuple[str, ...]) -> tuple[tuple[int, ...], bool] | None:
        """Return the usage of a pod by these names, and whether it is production; None for none.

        For those who look up one pod after the other: a `PodUsage` takes four times as long.
        """
        row = self._amounts.row(key)
        return (
            None if row is None else (self._amounts.values_at(row, names), bool(self._is_prod[row]))
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)


NO_POD_USAGES: Final = PodUsages({})
"""Of a report without pods."""


@dataclass(frozen=True, slots=True)
class AggregatedUsage:
    """Usage of a node over one window of nanoseconds, per type (avg, p50, p90, p95, p99)."""

    duration_ns: int
    by_type: Mapping[str, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """One report about one node."""

    node_name: str
    update_time: Micros | None = None  # moment of the measurement; None if the report has none
    report_interval_seconds: int = DEFAULT_REPORT_INTERVAL_SECONDS  # time between two reports
    usage: Amounts | None = None  # of the whole node, None if the report has no node metric
    system_usage: Amounts = field(default_factory=dict)  # of processes outside pods
    aggregated: tuple[AggregatedUsage, ...] = ()  # windows with a non-empty reading
    # mean usage over the window of `deviation`; empty without a history
    average: Amounts = field(default_factory=dict)
    # population standard deviation of the usage over that window, base units
    deviation: Amounts = field(default_factory=dict)
    pods: PodUsages = field(default_factory=lambda: NO_POD_USAGES)  # by `namespace/name`
    # whether each pod is measured, so that one that is not in `pods` has no part in `usage` yet
    pods_measured: bool = True


def usage_of_node_metric(wire: api.NodeMetric, *, pod_key: Callable[[str], str] = str) -> NodeUsage:
    """Return the report in a Koordinator NodeMetric."""
    status, policy = wire.status, wire.spec.metric_collect_policy
    interval = policy.report_interval_seconds if policy else None
    metric = status.node_metric
    return NodeUsage(
        node_name=wire.metadata.name,
        update_time=micros(status.update_time) if status.update_time else None,
        report_interval_seconds=(DEFAULT_REPORT_INTERVAL_SECONDS if interval is None else interval),
        usage=resources.amounts(metric.node_usage.resources) if metric else None,
        system_usage=resources.amounts(metric.system_usage.resources) if metric else {},
        aggregated=_aggregated(metric) if metric else (),
        pods=PodUsages(
            {
                pod_key(f"{pod.namespace}/{pod.name}"): PodUsage(
                    resources.amounts(pod.pod_usage.resources), pod.priority == _KOORD_PROD
                )
                for pod in status.pods_metric or ()
                if pod is not None and pod.pod_usage.resources
            }
        ),
    )


def _aggregated(metric: api.NodeMetricInfo) -> tuple[AggregatedUsage, ...]:
    return tuple(
        AggregatedUsage(
            parse_duration(window.duration),
            AmountsTable(
                {
                    kind: resources.amounts(reading.resources)
                    for kind, reading in (window.usage or {}).items()
                    if reading.resources
                }
            ),
        )
        for window in metric.aggregated_node_usages or ()
    )


# Usage in `metrics.k8s.io/v1beta1`, which metrics-server serves on most clusters.
#
# It measures nodes and pods, but neither history nor percentiles, nor which node a pod is on.
# Source of the fields: k8s.io/metrics, pkg/apis/metrics/v1beta1/types.go.


class NodeMetrics(api.WireStruct, frozen=True):
    """Usage of a node over a short window that ended at `timestamp`."""

    metadata: api.ObjectMeta = api.ObjectMeta()
    timestamp: datetime | None = None
    window: str = ""
    usage: api.ResourceList | None = None


class ContainerMetrics(api.WireStruct, frozen=True):
    usage: api.ResourceList | None = None


class PodMetrics(api.WireStruct, frozen=True):
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
    """
    window = -(-parse_duration(wire.window) // NANOSECONDS_PER_SECOND)
    return NodeUsage(
        node_name=wire.metadata.name,
        update_time=micros(wire.timestamp) if wire.timestamp else None,
        report_interval_seconds=window if window > 0 else DEFAULT_REPORT_INTERVAL_SECONDS,
        usage=resources.amounts(wire.usage),
    )


def pod_reading(wire: PodMetrics, *, namespace: str = "") -> PodReading:
    """Return the usage of a pod: the sum over its containers, rounded once."""
    nanos: dict[str, int] = {}
    for container in wire.containers or ():
        for name, amount in (container.usage or {}).items():
            nanos[name] = nanos.get(name, 0) + quantity_of(amount).nanos
    return PodReading(
        f"{wire.metadata.namespace or namespace}/{wire.metadata.name}",
        {name: in_base_units(name, amount) for name, amount in nanos.items()},
    )
