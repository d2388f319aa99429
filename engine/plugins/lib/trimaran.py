"""Measured load of nodes in the terms of load-watcher, and the args of Trimaran plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from pydantic import model_validator

from engine.model.node import Node
from engine.model.quantity import CPU, MEMORY
from engine.model.resources import Amounts
from engine.model.rule_outcomes import RuleInput, RuleInputs, unit_of
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.plugins.base import Args
from engine.plugins.lib.args import Flag
from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.lib.reporting import report_age
from engine.view import BoolColumn, ClusterView, Domain

# Args of every Trimaran plugin: the source of upstream's metrics.
#
# Source: scheduler-plugins, apis/config/v1/types.go, TrimaranSpec, and pkg/trimaran/collector.go.


_PROVIDERS = ("KubernetesMetricsServer", "Prometheus", "SignalFx")


class MetricProvider(Args):
    """The source that upstream's embedded load-watcher reads."""

    type: str = ""
    address: str = ""
    token: str = ""
    insecure_skip_verify: Flag | None = None


class TrimaranArgs(Args):
    """TrimaranSpec: accepted and checked as upstream does, and not used.

    Usage comes from the sources of the cluster view, the same for all rules.

    Attributes:
        metric_provider: of the embedded load-watcher.
        watcher_address: of a load-watcher that runs as a service.
    """

    metric_provider: MetricProvider = MetricProvider()
    watcher_address: str = ""

    @model_validator(mode="after")
    def _provider_is_known(self) -> Self:
        provider = self.metric_provider.type
        if provider and not self.watcher_address and provider not in _PROVIDERS:
            raise ValueError(f"invalid `metricProvider.type`, got `{provider}`")
        return self


# Measured load of nodes, in the terms of load-watcher, which feeds Trimaran.
#
# Source: scheduler-plugins, pkg/trimaran/resourcestats.go and collector.go. load-watcher gives a
# list of metrics per node, each of a type (CPU, Memory) and an operator, in percent of the node's
# capacity. They are found in a `NodeUsage` as follows:
#
# - AVG is the average of the usage history over 15, 10 or 5 minutes, the windows of load-watcher;
#   where no history is kept, the window of averages nearest to 15 minutes.
# - Latest is the usage as of now. It counts where there is no AVG: a list has one of the two, as
#   metrics-server gives no AVG and Prometheus no Latest.
# - STD is the deviation of the usage history, over the window of its average.
#
# A metric is missing where the report does not name its resource, and a node has none at all
# without a report that holds any usage. Amounts are absolute, so a percentage is what they are of
# capacity.
#
# load-watcher forgets a node that it gets nothing of for 5 minutes. A report is not taken back when
# its agent falls silent, so here one of that age counts as none.


RESOURCES = (CPU, MEMORY)
"""The measured resources: the first axis of the tables below."""

_FORGOTTEN_AFTER = 300 * SECOND
_PREFERRED_WINDOW_NS = 15 * 60 * 10**9


class MeasuredLoad(NamedTuple):
    """The measured load of each node, (n_resources, n) each, in millicores and bytes."""

    average: FloatColumn  # AVG, else Latest, else 0
    deviation: FloatColumn  # STD, else 0
    is_averaged: BoolColumn  # where there is AVG or Latest
    is_measured: BoolColumn  # where there is any metric of the resource


class LoadStats(NamedTuple):
    """Load as Trimaran's risk plugins hold it against what nodes offer, (n_resources, n) each."""

    offered: FloatColumn  # allocatable, in millicores and bytes
    average: FloatColumn  # the same share of that as was measured of capacity
    deviation: FloatColumn  # the same
    is_measured: BoolColumn  # where there is any metric of the resource


def measured_load(view: ClusterView) -> MeasuredLoad:
    """Return what reports say of each node."""
    table = view.node_column("measured load", (Domain.METRICS,), _load_table)
    average, deviation, is_averaged, is_measured = np.split(table, 4)
    return MeasuredLoad(average, deviation, is_averaged != 0, is_measured != 0)


def capacity(view: ClusterView) -> FloatColumn:
    """Return what each node has in all, (n_resources, n), in millicores and bytes."""
    return view.node_column("capacity", (Domain.NODES,), _capacity)


def is_reported(view: ClusterView) -> BoolColumn:
    """Return where a node has metrics, whatever they are of, (n,)."""
    return view.node_column(
        "has metrics",
        (Domain.METRICS,),
        lambda part: np.array([_has_metrics(report) for report in part.usages], np.bool_),
    )


def is_recent(view: ClusterView, now: Micros) -> BoolColumn:
    """Return where a report is not too old to count, (n,); false where there is none."""
    return view.metric_time > now - _FORGOTTEN_AFTER


def load_stats(view: ClusterView) -> LoadStats:
    """Return the load of each node against what it offers."""
    table = view.node_column("load stats", (Domain.NODES, Domain.METRICS), _stats_table)
    offered, average, deviation, is_measured = np.split(table, 4)
    return LoadStats(offered, average, deviation, is_measured != 0)


def load_inputs(view: ClusterView, row: int, now: Micros) -> RuleInputs:
    """Return the `load_stats` of a node, and the age of its report."""
    inputs = []
    for name, *load, is_measured in zip(
        RESOURCES, *(each[:, row].tolist() for each in load_stats(view)), strict=True
    ):
        offered, average, deviation = map(round, load)
        if is_measured:
            inputs.append(
                RuleInput(
                    f"{name} load",
                    average,
                    unit_of(name),
                    capacity=offered,
                    deviation=deviation or None,
                )
            )
    return (*inputs, report_age(view, row, now))


def share(amounts: FloatColumn, offered: FloatColumn) -> FloatColumn:
    """Return which part of what is offered amounts are, 0 to 1; 0 where nothing is."""
    part = np.divide(amounts, offered, out=np.zeros_like(offered), where=offered > 0)
    return np.clip(part, 0, 1, out=part)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The metrics of one node."""

    average: Amounts
    deviation: Amounts

    @classmethod
    def of(cls, report: NodeUsage) -> _Reading:
        latest = report.usage or {}
        return cls({**latest, **_averages(report)}, report.deviation)

    def column(self) -> list[float]:
        """Return the fields of `MeasuredLoad` one after the other."""
        average, deviation = self.average, self.deviation
        return [
            *(average.get(name, 0) for name in RESOURCES),
            *(deviation.get(name, 0) for name in RESOURCES),
            *(name in average for name in RESOURCES),
            *(name in average or name in deviation for name in RESOURCES),
        ]


def _averages(report: NodeUsage) -> Amounts:
    """Return the averages in a report, of the window that load-watcher would take."""
    if report.average:
        return report.average
    windows = [window for window in report.aggregated if "avg" in window.by_type]
    if not windows:
        return {}
    nearest = min(windows, key=lambda window: abs(window.duration_ns - _PREFERRED_WINDOW_NS))
    return nearest.by_type["avg"]


def _has_metrics(report: NodeUsage | None) -> bool:
    if report is None:
        return False
    return bool(report.usage or _averages(report) or report.deviation)


def _load_table(view: ClusterView) -> FloatColumn:
    table = np.zeros((4 * len(RESOURCES), len(view)))
    for row, report in enumerate(view.usages):
        if report is not None:
            table[:, row] = _Reading.of(report).column()
    return table


def _capacity(view: ClusterView) -> FloatColumn:
    def amounts(node: Node | None) -> list[int]:
        return [node.capacity.get(name, 0) if node else 0 for name in RESOURCES]

    table = [amounts(node) for node in view.nodes]
    return np.array(table, np.float64).reshape(len(view), len(RESOURCES)).T.copy()


def _stats_table(view: ClusterView) -> FloatColumn:
    load, whole = measured_load(view), capacity(view)
    offered = view.amounts(view.allocatable, RESOURCES).astype(np.float64)
    scale = np.divide(offered, whole, out=np.zeros_like(offered), where=whole > 0)
    return np.vstack([offered, load.average * scale, load.deviation * scale, load.is_measured])
