from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pydantic import ValidationError

from engine.model.usage import AggregatedUsage
from engine.plugins.lib.trimaran import (
    TrimaranArgs,
    capacity,
    is_recent,
    is_reported,
    load_stats,
    measured_load,
    share,
)
from tests.engine.measured_cluster import GI, NOW, cluster, node, report

if TYPE_CHECKING:
    from engine.model.usage import NodeUsage


def test_a_provider_of_upstream_is_accepted() -> None:
    provider = {"type": "Prometheus", "address": "http://metrics:9090", "insecureSkipVerify": True}
    args = TrimaranArgs.model_validate({"metricProvider": provider, "watcherAddress": None})
    assert args.metric_provider.address == "http://metrics:9090"


def test_an_unknown_provider_is_refused_unless_a_service_stands_in() -> None:
    provider = {"metricProvider": {"type": "Guess"}}
    with pytest.raises(ValidationError, match=r"invalid `metricProvider\.type`, got `Guess`"):
        TrimaranArgs.model_validate(provider)
    TrimaranArgs.model_validate(provider | {"watcherAddress": "http://load-watcher:2020"})


MINUTE_NS = 60 * 10**9


def averages(**of_minutes: int) -> tuple[AggregatedUsage, ...]:
    """Return windows by `m5`, `m10`, each with an average of cpu."""
    return tuple(
        AggregatedUsage(int(name[1:]) * MINUTE_NS, {"avg": {"cpu": cpu}, "p95": {"cpu": 9}})
        for name, cpu in of_minutes.items()
    )


def cpu_of(the_report: NodeUsage) -> tuple[float, float, bool, bool]:
    load = measured_load(cluster([node("a", cpu="4")], reports=[the_report]))
    average, deviation, is_averaged, is_measured = (column[0, 0] for column in load)
    return float(average), float(deviation), bool(is_averaged), bool(is_measured)


def test_the_average_of_the_history_comes_before_windows_and_those_before_the_usage_of_now() -> (
    None
):
    now = {"cpu": 1}
    assert cpu_of(report("a", now)) == (1, 0, True, True)
    assert cpu_of(report("a", now, aggregated=averages(m5=2))) == (2, 0, True, True)
    with_history = report("a", now, aggregated=averages(m5=2), average={"cpu": 3})
    assert cpu_of(with_history) == (3, 0, True, True)


def test_of_several_windows_that_nearest_to_fifteen_minutes_is_read() -> None:
    assert cpu_of(report("a", None, aggregated=averages(m5=1, m10=2, m30=3)))[0] == 2


def test_a_deviation_alone_is_a_metric_but_no_load() -> None:
    assert cpu_of(report("a", None, deviation={"cpu": 7})) == (0, 7, False, True)


def test_a_resource_that_is_not_named_has_no_metric() -> None:
    assert cpu_of(report("a", {"memory": GI})) == (0, 0, False, False)


def test_a_node_has_metrics_once_anything_was_measured() -> None:
    nodes = [node(name) for name in ("none", "empty", "storage", "spread")]
    reports = [
        report("empty", None),
        report("storage", {"ephemeral-storage": 1}),
        report("spread", None, deviation={"cpu": 1}),
    ]
    assert is_reported(cluster(nodes, reports=reports)).tolist() == [False, False, True, True]


def test_a_report_is_forgotten_after_five_minutes() -> None:
    ages = {"new": 0, "old": 299, "older": 300, "timeless": None}
    nodes = [node(name) for name in (*ages, "none")]
    view = cluster(nodes, reports=[report(name, {}, age=age) for name, age in ages.items()])
    assert is_recent(view, NOW).tolist() == [True, True, False, False, False]


def test_load_is_the_share_of_capacity_applied_to_what_is_offered() -> None:
    # 1000m of 4000m is a quarter; of the 2000m that pods may have it is 500m.
    one = replace(node("a", cpu="2", memory="8Gi"), capacity={"cpu": 4000, "memory": 8 * GI})
    view = cluster([one], reports=[report("a", {"cpu": 1000}, deviation={"cpu": 400})])
    stats = load_stats(view)
    assert capacity(view)[:, 0].tolist() == [4000, 8 * GI]
    assert [float(column[0, 0]) for column in stats] == [2000, 500, 200, 1]
    assert stats.is_measured[1, 0] == False  # noqa: E712 (numpy's)


def test_a_node_without_capacity_has_no_load() -> None:
    one = replace(node("a", cpu="2"), capacity={})
    stats = load_stats(cluster([one], reports=[report("a", {"cpu": 1000})]))
    assert stats.average[0, 0] == 0


def test_a_share_is_bounded_and_nothing_of_nothing() -> None:
    amounts, offered = np.array([1.0, 9, -1, 5]), np.array([4.0, 4, 4, 0])
    assert share(amounts, offered).tolist() == [0.25, 1, 0, 0]
