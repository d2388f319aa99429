from __future__ import annotations

from engine.model.rule_input import RuleInput, Unit
from engine.model.time import SECOND, Micros
from engine.plugins.lib.inputs import report_age
from engine.view import ClusterState
from tests.engine.policy.worlds import node, usage


def test_the_age_of_a_report_is_an_input() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_node(node("b"))
    state.set_usage(usage("a", cpu=100))
    view = state.view()
    now = Micros(int(view.metric_time[view.rows["a"]]) + 7 * SECOND)
    age = report_age(view, view.rows["a"], now)
    assert age == RuleInput("report", 7, Unit.SECONDS)
    assert age.describe() == "7 s old"
    assert report_age(view, view.rows["b"], now) == RuleInput("report", text="none")
