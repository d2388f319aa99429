"""Metrics of bindings: what was decided, what escaped, and what is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.binding.decider import BindingDecider


@dataclass(frozen=True, slots=True, eq=False)
class BindingCollector(Collector):
    """What became of bindings, read at each scrape; the counts stand still on other replicas.

    Their time is in `stowplan_review_seconds` of the path `bind`.

    Attributes:
        decider: of this replica.
    """

    decider: BindingDecider

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        decider, status = self.decider, self.decider.status()
        decided = CounterMetricFamily(
            "stowplan_bindings",
            "Bindings that were decided, by what became of them and why.",
            labels=["action", "reason"],
        )
        for (action, reason), count in decider.counters.decided.items():
            decided.add_metric([str(action), str(reason)], count)
        yield decided
        moved = CounterMetricFamily(
            "stowplan_bindings_moved",
            "Pods that were moved at their binding, or would have been, by policy and its mode.",
            labels=["policy", "mode"],
        )
        for of_policy, count in decider.moved.items():
            moved.add_metric(of_policy, count)
        yield moved
        yield CounterMetricFamily(
            "stowplan_bindings_escaped",
            "Pods that were bound without our answer, or elsewhere than answered.",
            value=status.escaped,
        )
        yield CounterMetricFamily(
            "stowplan_binding_answers_lost",
            "Answers to bindings that the API server cannot have got.",
            value=status.lost,
        )
        yield GaugeMetricFamily(
            "stowplan_binding_moves_paused",
            "Whether no pod is moved for a while, of the replica that decides.",
            value=bool(status.paused),
        )
        yield GaugeMetricFamily(
            "stowplan_waiting_pods",
            "Pods that wait for the scheduler, as this replica sees them.",
            value=decider.waiting,
        )
