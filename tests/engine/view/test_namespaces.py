from __future__ import annotations

import numpy as np

from engine.view.namespaces import REQUESTED, NamespaceTotals
from engine.view.pod_table import RUNNING, SCHEDULED
from engine.view.rows import Contribution


def contribution(bare_cpu: int = 0, **requests: int) -> Contribution:
    bare = (("cpu", bare_cpu), ("pods", 1))
    return Contribution((*requests.items(), ("pods", 1)), bare, np.zeros(0, np.int64))


SMALL = contribution(cpu=100)
LARGE = contribution(cpu=900, memory=5)


def test_the_pods_of_a_namespace_add_up_and_an_empty_one_is_forgotten() -> None:
    totals = NamespaceTotals()
    totals.add("a", SMALL, REQUESTED)
    totals.add("a", LARGE, REQUESTED)
    totals.add("b", SMALL, REQUESTED)
    # 100 + 900 of cpu, two pods.
    assert totals.requested["a"] == {"cpu": 1000, "memory": 5, "pods": 2}
    totals.subtract("a", LARGE, REQUESTED)
    assert totals.requested["a"] == {"cpu": 100, "pods": 1}
    totals.subtract("a", SMALL, REQUESTED)
    assert totals.requested.keys() == {"b"}


def test_a_pod_counts_in_the_totals_of_its_standing_and_in_those_of_all() -> None:
    totals = NamespaceTotals()
    totals.add("a", SMALL, REQUESTED)
    totals.add("a", contribution(cpu=30), REQUESTED + SCHEDULED)
    totals.add("a", contribution(cpu=20, bare_cpu=15), REQUESTED + SCHEDULED + RUNNING)
    assert totals.requested["a"] == {"cpu": 150, "pods": 3}
    assert totals.scheduled["a"] == {"cpu": 50, "pods": 2}
    assert totals.running["a"] == {"cpu": 15, "pods": 1}
    totals.subtract("a", contribution(cpu=20, bare_cpu=15), REQUESTED + SCHEDULED + RUNNING)
    assert (totals.scheduled["a"], totals.running) == ({"cpu": 30, "pods": 1}, {})


def test_what_was_given_out_stays_as_it_was() -> None:
    totals = NamespaceTotals()
    totals.add("a", SMALL, REQUESTED + SCHEDULED)
    held = totals.requested, totals.scheduled
    totals.unshare()
    totals.add("a", LARGE, REQUESTED + SCHEDULED)
    totals.add("b", SMALL, REQUESTED)
    totals.unshare()
    totals.subtract("b", SMALL, REQUESTED)
    assert held == ({"a": {"cpu": 100, "pods": 1}},) * 2
    assert totals.requested == {"a": {"cpu": 1000, "memory": 5, "pods": 2}}
