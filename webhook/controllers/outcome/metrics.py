"""Metrics of outcomes, read from the figures at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.report import POINT, RANK_BOUNDS, OutcomeFigures
from webhook.controllers.outcome.controller import OutcomeController

_SERIES: Final = ("policy", "mode", "pod_namespace")


def _bands() -> Iterator[str]:
    """Yield the name of each band of ranks."""
    for lower, upper in pairwise((0, *RANK_BOUNDS)):
        yield f"{upper}" if upper == lower + 1 else f"{lower + 1}-{upper}"
    yield f"{RANK_BOUNDS[-1] + 1}-"


_BANDS: Final = tuple(_bands())


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeCollector(Collector):
    """Outcomes by policy and namespace; they stand still on replicas that do not lead.

    Attributes:
        controller: counts them.
    """

    controller: OutcomeController

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield self._counter(
            "stowplan_outcome_pods",
            "Pods that were bound, advised or decided at their binding, by whether they landed"
            " where they were meant to.",
            "landed",
            lambda each: {"as-meant": each.landed, "elsewhere": each.pods - each.landed},
        )
        yield self._counter(
            "stowplan_outcome_ranks",
            "Pods that were decided at their binding, by the rank of their node among the"
            " candidates of the policies.",
            "rank",
            lambda each: dict(
                zip((*_BANDS, "rejected"), (*each.ranks, each.rejected), strict=True)
            ),
        )
        yield self._counter(
            "stowplan_outcome_points",
            "Points by the scores of a policy, added up over the pods that it scored: of the node"
            " that they landed on, and of the one ranked first.",
            "node",
            lambda each: {"landed": each.points / POINT, "best": each.best / POINT},
        )
        yield self._counter(
            "stowplan_outcome_scored_pods",
            "Pods in these points.",
            "",
            lambda each: {"": each.scored},
        )
        yield self._counter(
            "stowplan_outcome_compared_points",
            "Points by the scores of a policy, added up over the pods that it has a node for at"
            " their binding: of that node, and of the one that the scheduler took.",
            "node",
            lambda each: {
                "chosen": each.compared_points / POINT,
                "stock": each.stock_points / POINT,
            },
        )
        yield self._counter(
            "stowplan_outcome_compared_pods",
            "Pods in these points.",
            "",
            lambda each: {"": each.compared},
        )
        yield self._counter(
            "stowplan_outcome_hot_pods",
            "Pods for which the node of the policies, or the one that the scheduler took, was above"
            " the threshold of usage.",
            "node",
            lambda each: {"chosen": each.hot, "stock": each.stock_hot},
        )
        yield from self._of_rules()
        yield from self._of_policies()

    def _counter(
        self, name: str, text: str, label: str, values: Callable[[OutcomeFigures], dict[str, float]]
    ) -> Metric:
        labels = (*_SERIES, label) if label else _SERIES
        metric = CounterMetricFamily(name, text, labels=labels)
        for series, figures in self.controller.counts.figures.items():
            for value, count in values(figures).items():
                metric.add_metric([*series, value] if label else [*series], count)
        return metric

    def _of_rules(self) -> Iterator[Metric]:
        rejections = CounterMetricFamily(
            "stowplan_outcome_rule_rejections",
            "Pods that landed on a node which a filter of a policy rejects.",
            labels=("policy", "mode", "rule"),
        )
        for series, pods in self.controller.counts.rules.items():
            rejections.add_metric([*series], pods)
        yield rejections

    def _of_policies(self) -> Iterator[Metric]:
        worse = GaugeMetricFamily(
            "stowplan_outcome_policy_worse",
            "1 for a policy that makes things worse than the scheduler alone would.",
            labels=["policy"],
        )
        for name in self.controller.worse:
            worse.add_metric([name], 1)
        audited = GaugeMetricFamily(
            "stowplan_outcome_policy_audited",
            "1 for a policy that is in Audit mode for what it did.",
            labels=["policy"],
        )
        for name in self.controller.audited_policies:
            audited.add_metric([name], 1)
        yield from (worse, audited)
