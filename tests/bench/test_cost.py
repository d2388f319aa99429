from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from engine.model.time import micros
from engine.pipeline import decide
from engine.policy import load_policies
from tests.bench.arrivals import Arrivals
from tests.bench.cost_page import Curve, page
from tests.bench.cost_plots import plot
from tests.bench.cost_point import Cost, Point, measured
from tests.bench.cost_rules import policy_set
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import loaded
from tests.bench.texts import NOW

SMALL = Point(nodes=20, pods=600, rules=2)
LARGE = Point(nodes=40, pods=1_200, rules=2)
COST = Cost(
    still_p50=100, still_p99=200, events_p50=300, events_p99=400, resident=90, ready=0.5, floor=190
)
COSTS = {SMALL: [COST], LARGE: [COST, COST]}
CURVE = Curve("nodes", "two rules", {"": [SMALL, LARGE]})


def test_the_first_ten_rules_are_those_that_the_targets_are_set_for() -> None:
    cluster = GeneratedCluster(nodes=50, pods=1_500)
    ours, target = policy_set(10), load_policies([Path(__file__).with_name("policy.yaml")])
    view = loaded(cluster.objects(), target).view()
    for request in islice(Arrivals(cluster.workloads).as_rollouts(), 20):
        found, expected = (decide(request, one, view, micros(NOW)) for one in (ours, target))
        assert found.candidates.tolist() == expected.candidates.tolist()
        assert found.totals.tolist() == expected.totals.tolist()


@pytest.mark.parametrize("rules", [1, 9, 10, 11, 50])
def test_there_are_as_many_rules_as_asked_for(rules: int) -> None:
    policies = policy_set(rules).policies
    assert sum(len(one.filters) + len(one.scores) for one in policies) == rules


def test_a_point_is_measured_in_a_process_of_its_own() -> None:
    told: list[int] = []
    cost = measured(SMALL, decisions=5, advanced=told.append)
    assert 0 < cost.still_p50 <= cost.still_p99
    assert 0 < cost.events_p50 <= cost.events_p99
    assert cost.resident > 0
    assert cost.ready > 0


def test_the_same_figures_make_the_same_plot(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    for path in (first, second):
        plot(CURVE, COSTS, path)
    assert first.read_bytes() == second.read_bytes()


def test_the_page_tells_of_each_point_and_how_decisions_grow() -> None:
    text = page([CURVE], COSTS, command="python -m x", rounds=2, decisions=5)
    assert "| 20 | 600 | 2 | 100 | 200 | 300 | 400 | 90 | 0.50 |" in text
    assert "With 40 nodes a decision takes 1.00 times as long as with 20 still" in text
    assert CURVE.file in text
