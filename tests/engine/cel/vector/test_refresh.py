"""Which functions a plan calls before any evaluation, and that none of these are called again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from engine.cel.check import check
from engine.cel.functions import FAMILIES, Overload, function_table
from engine.cel.parser import parse
from engine.cel.vector import Plan, plan_condition
from tests.engine.cel.vector.rows_table import ENVIRONMENT, RowsLayout, RowsTable, listed

_ROWS = [
    {"zone": "a", "host": "h1", "list": [{"x": 1}]},
    {"zone": "b", "host": "h2", "list": [{"x": 2}, {"x": 3}]},
]
_POD = {"pod": {"zone": "a", "x": 3}}


@dataclass
class _Probe:
    """A function `seen(x)` that gives `x` and keeps it."""

    calls: list[object] = field(default_factory=list)

    def _seen(self, value: object) -> object:
        self.calls.append(value)
        return value

    def condition(self, expression: str) -> Plan:
        families = (*FAMILIES, (Overload("seen", (object,), self._seen),))
        environment = replace(ENVIRONMENT, functions=function_table(families))
        root = check(parse(expression), environment).root
        return plan_condition(root, environment, RowsLayout(_ROWS))


@pytest.mark.parametrize(
    ("expression", "before", "after"),
    [
        ("seen(node.zone) == 'a'", ["a", "b"], []),
        ("seen(node.zone) == 'a' && pod.x == 3", ["a", "b"], []),
        (
            "pod.x == 3 ? seen(node.zone) == 'a' : seen(node.host) == 'h1'",
            ["a", "b", "h1", "h2"],
            [],
        ),
        ("seen(node.zone) == pod.zone", [], ["a", "b"]),
        ("seen(pod.x) == 3", [], [3]),
        ("node.list.exists(e, seen(e.x) > 1)", [1, 2, 3], []),
    ],
)
def test_parts_that_read_rows_alone_are_evaluated_ahead_and_once(
    expression: str, before: list[object], after: list[object]
) -> None:
    probe = _Probe()
    plan, table = probe.condition(expression), RowsTable(_ROWS, {})
    plan.refresh(table)
    assert sorted(set(probe.calls), key=str) == before
    probe.calls.clear()
    found = listed(plan.evaluate(table, _POD))
    assert sorted(set(probe.calls), key=str) == after
    assert found == listed(_Probe().condition(expression).evaluate(RowsTable(_ROWS), _POD))


def test_of_a_loop_that_reads_the_request_the_part_on_elements_can_be_read() -> None:
    plan = _Probe().condition("node.list.exists(e, e.x == pod.x)")
    table = RowsTable(_ROWS, {})
    plan.refresh(table)
    assert listed(plan.evaluate(table, _POD)) == ["False", "True"]


def test_what_fails_ahead_fails_where_it_is_evaluated() -> None:
    plan, table = (
        _Probe().condition("int(node.zone) + 9223372036854775807 > pod.x"),
        RowsTable(_ROWS, {}),
    )
    plan.refresh(table)
    assert listed(plan.evaluate(table, _POD)) == ["error", "error"]
