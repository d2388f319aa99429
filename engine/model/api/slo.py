"""Koordinator's group `slo.koordinator.sh/v1alpha1`: what agents measure on nodes."""

from __future__ import annotations

from datetime import datetime

from engine.model.api.meta import ObjectMeta, ResourceList, WireStruct


class ResourceMap(WireStruct, frozen=True):
    """Koordinator's wrapper around a resource list."""

    resources: ResourceList | None = None


class AggregatedUsage(WireStruct, frozen=True):
    """Usage percentiles over one duration; keys are avg, p50, p90, p95, p99."""

    duration: str = ""
    usage: dict[str, ResourceMap] | None = None


class NodeMetricInfo(WireStruct, frozen=True):
    """Measured usage of a node."""

    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: list[AggregatedUsage] | None = None


class PodMetricInfo(WireStruct, frozen=True):
    """Measured usage of one pod on a node."""

    namespace: str = ""
    name: str = ""
    priority: str = ""
    pod_usage: ResourceMap = ResourceMap()


class NodeMetricCollectPolicy(WireStruct, frozen=True):
    """How often the agent reports."""

    report_interval_seconds: int | None = None


class NodeMetricSpec(WireStruct, frozen=True):
    """The instructions for the agent."""

    metric_collect_policy: NodeMetricCollectPolicy | None = None


class NodeMetricStatus(WireStruct, frozen=True):
    """The last measurement of the agent."""

    update_time: datetime | None = None
    node_metric: NodeMetricInfo | None = None
    pods_metric: list[PodMetricInfo | None] | None = None


class NodeMetric(WireStruct, frozen=True):
    """Koordinator's `slo.koordinator.sh/v1alpha1` NodeMetric; its name is the node's."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()
