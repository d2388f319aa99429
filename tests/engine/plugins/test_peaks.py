from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.peaks import PeaksArgs, PeaksScore
from tests.engine.measured_cluster import NOW, by_node, cluster, node, pod, report

if TYPE_CHECKING:
    from collections.abc import Mapping

STEEP, FLAT = {"k0": 100, "k1": 20, "k2": 0.05}, {"k0": 100, "k1": 20, "k2": 0.01}


def rule(**models: Mapping[str, float]) -> PeaksScore:
    return PeaksScore(PeaksArgs.model_validate({"nodePowerModel": models}))


def costs_and_points(scorer: PeaksScore, **used: int | None) -> tuple[dict[str, int], list[int]]:
    """Return what a pod of 1 core costs on nodes of 10 with so many millicores used, and points."""
    reports = [report(name, {"cpu": cpu}) for name, cpu in used.items() if cpu is not None]
    view = cluster([node(name, cpu="10") for name in used], reports=reports)
    costs = scorer.score(Cycle(pod(requests={"cpu": "1"}), view, NOW)).values
    return by_node(view, costs), [int(each) for each in scorer.normalize(costs)]


def points(*costs: int) -> list[int]:
    return [int(each) for each in rule(a=FLAT).normalize(np.array(costs, np.int64))]


def test_the_cost_is_the_rise_of_the_power() -> None:
    costs, _ = costs_and_points(rule(a=STEEP), a=5000)
    assert costs["a"] == pytest.approx(1e15 * 20 * (math.exp(0.05 * 60) - math.exp(0.05 * 50)))


def test_overhead_alone_costs_nothing() -> None:
    view = cluster([node("a", cpu="10")], reports=[report("a", {"cpu": 5000})])
    overhead = {"cpu": "1"}
    assert rule(a=STEEP).score(Cycle(pod(overhead=overhead), view, NOW)).values.tolist() == [0]
    both = (
        rule(a=STEEP).score(Cycle(pod(requests={"cpu": "1"}, overhead=overhead), view, NOW)).values
    )
    assert both[0] == pytest.approx(1e15 * 20 * (math.exp(0.05 * 70) - math.exp(0.05 * 50)))


def test_the_least_rise_wins() -> None:
    # 20 * (e^3 - e^2.5) = 158.1, 20 * (e^0.6 - e^0.5) = 3.5, 20 * (e^1 - e^0.5) = 21.4
    assert costs_and_points(rule(a=STEEP, b=FLAT, c=STEEP), a=5000, b=5000, c=1000)[1] == [
        0,
        100,
        89,
    ]


def test_a_node_of_which_nothing_is_known_or_that_is_overfilled_is_the_worst() -> None:
    models = dict.fromkeys(("a", "b", "c"), FLAT)
    assert costs_and_points(rule(**models), a=5000, b=None, c=9500, d=5000)[1] == [100, 0, 0, 0]


def test_costs_are_put_on_the_scale_truncated() -> None:
    assert points(0, 100) == [100, 0]
    assert points(10, 13, 16) == [100, 50, 0]
    assert points(1, 2, 4) == [100, 67, 0]  # 100 - int(33.3)


def test_equal_costs_are_equally_good_and_no_cost_is_no_points() -> None:
    assert points(7, 7) == [100, 100]
    assert points(0, 0) == [0, 0]
    assert points() == []


def test_a_model_beyond_all_numbers_is_no_error() -> None:
    # The power of `a` is infinite already, that of `b` becomes so.
    hot, hotter = {"k1": 1, "k2": 8}, {"k1": 1, "k2": 7.5}
    costs, got = costs_and_points(rule(a=hot, b=hotter, c=FLAT), a=9000, b=9000, c=0)
    assert costs["b"] == 2**61 < costs["a"]
    assert got == [0, 0, 100]


@pytest.mark.parametrize(
    "args",
    [{}, {"nodePowerModel": {}}, {"nodePowerModel": {"a": {"k3": 1}}}, {"nodePowerModel": 7}],
)
def test_args_need_a_model(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PeaksArgs.model_validate(args)


def test_the_address_of_a_watcher_is_accepted_and_not_used() -> None:
    model = {"nodePowerModel": {"a": {"k1": 1}}}
    args = PeaksArgs.model_validate({**model, "watcherAddress": "http://nowhere.example"})
    view = cluster([node("a", cpu="4")], reports=[report("a", {"cpu": 1_000})])
    one, same = (
        PeaksScore(each).score(Cycle(pod(requests={"cpu": "1"}), view, NOW)).values.tolist()
        for each in (args, PeaksArgs.model_validate(model))
    )
    assert one == same
