"""Metrics of marks on nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


@dataclass(slots=True, eq=False)
class NodeMarkCollector(Collector):
    """Marked nodes by mark, which the leader alone shows, and writes by outcome."""

    _nodes: Mapping[str, int] = field(default_factory=dict)
    _writes: dict[str, int] = field(default_factory=dict)

    def show(self, nodes_by_key: Mapping[str, int]) -> None:
        """Show the number of nodes that carry each mark."""
        self._nodes = nodes_by_key

    def count_write(self, outcome: str) -> None:
        """Count one write."""
        self._writes[outcome] = self._writes.get(outcome, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Yield both metrics."""
        marked = GaugeMetricFamily(
            "stowplan_marked_nodes",
            "Nodes that carry a mark, by the key of the taint or label.",
            labels=["mark"],
        )
        for key, nodes in sorted(self._nodes.items()):
            marked.add_metric([key], nodes)
        writes = CounterMetricFamily(
            "stowplan_node_mark_writes", "Writes of marks on nodes, by outcome.", labels=["outcome"]
        )
        for outcome, count in sorted(self._writes.items()):
            writes.add_metric([outcome], count)
        yield from (marked, writes)
