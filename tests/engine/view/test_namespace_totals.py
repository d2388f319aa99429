from __future__ import annotations

from engine.view.namespace_totals import NamespaceTotals

SMALL = (("cpu", 100), ("pods", 1))
LARGE = (("cpu", 900), ("memory", 5), ("pods", 1))


def test_the_pods_of_a_namespace_add_up_and_an_empty_one_is_forgotten() -> None:
    totals = NamespaceTotals()
    totals.add("a", SMALL)
    totals.add("a", LARGE)
    totals.add("b", SMALL)
    # 100 + 900 of cpu, two pods.
    assert totals.lent()["a"] == {"cpu": 1000, "memory": 5, "pods": 2}
    totals.subtract("a", LARGE)
    assert totals.lent()["a"] == {"cpu": 100, "memory": 0, "pods": 1}
    totals.subtract("a", SMALL)
    assert totals.lent().keys() == {"b"}


def test_what_was_given_out_stays_as_it_was() -> None:
    totals = NamespaceTotals()
    totals.add("a", SMALL)
    held = totals.lent()
    totals.part_with()
    totals.add("a", LARGE)
    totals.add("b", SMALL)
    assert held == {"a": {"cpu": 100, "pods": 1}}
    totals.part_with()
    totals.subtract("b", SMALL)
    assert held == {"a": {"cpu": 100, "pods": 1}}
    assert totals.lent() == {"a": {"cpu": 1000, "memory": 5, "pods": 2}}
