"""The strategy of each part, and that it evaluates no more than it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from engine.cel import Budget
from engine.cel.check import check
from engine.cel.functions import FAMILIES, Overload, function_table
from engine.cel.parser import parse
from engine.cel.values import BOOL, DOUBLE, INT, MAP
from engine.cel.vector import Leaf, Path, Plan, Strategy, plan_condition, plan_number
from tests.engine.cel.vector.rows_table import (
    ENVIRONMENT,
    Memory,
    Row,
    RowsLayout,
    RowsTable,
    by_row,
    condition,
    listed,
)

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


_TYPES = {"flag": BOOL, "i": INT, "d": DOUBLE, "labels": MAP}


class _Nodes:
    """A layout of many rows: most labels are the same on many, `host` is not."""

    variables = frozenset({"node"})

    def leaf(self, path: Path) -> Leaf:
        name = path[-1]
        if len(path) == 1 or name == "labels":
            return Leaf(path, MAP, distinct=5000)
        return Leaf(path[:3], _TYPES.get(name), distinct=5000 if name == "host" else 4)

    def elements(self, path: Path, variable: str) -> None:  # noqa: ARG002 (protocol)
        return None


class _PlanProbe:
    """A function `seen(x)` that gives `x` and counts its calls by value."""

    def __init__(self) -> None:
        self.calls: Counter[object] = Counter()
        overload = Overload("seen", (object,), self._seen)
        families = (*FAMILIES, (overload,))
        self._environment = replace(ENVIRONMENT, functions=function_table(families))

    def _seen(self, value: object) -> object:
        self.calls[value] += 1
        return value

    def condition(self, expression: str) -> Plan:
        root = check(parse(expression), self._environment).root
        return plan_condition(root, self._environment, _Nodes())

    def number(self, expression: str) -> Plan:
        root = check(parse(expression), self._environment).root
        return plan_number(root, self._environment, _Nodes())


def _strategies(expression: str, *, is_number: bool = False) -> list[tuple[str, Strategy]]:
    plan = _PlanProbe().number(expression) if is_number else _PlanProbe().condition(expression)
    return [(part.text, part.strategy) for part in plan.parts]


def _rows(count: int, **more: object) -> list[Row]:
    return [
        {"labels": {"zone": f"z{at % 3}", "host": f"h{at}"}, "d": float(at), "flag": at < 2, **more}
        for at in range(count)
    ]


# Strategies.


@pytest.mark.parametrize(
    ("expression", "strategy"),
    [
        ("pod.priority > 5", Strategy.ONCE),
        ("1 < 2", Strategy.ONCE),
        ("node.labels.zone == 'a'", Strategy.REMEMBERED),
        ("node.labels.exists(k, k.startsWith('x'))", Strategy.REMEMBERED),
        ("node.labels.host.matches('x$')", Strategy.REMEMBERED),
        ("node.labels.zone == pod.zone", Strategy.DISTINCT),
        ("node.tags.all(t, t in pod.tags)", Strategy.DISTINCT),
        ("node.labels.zone + node.labels.pool == pod.x", Strategy.DISTINCT),
        ("node.d > 0.5", Strategy.COLUMNS),
        ("node.flag", Strategy.COLUMNS),
        ("has(node.labels.zone)", Strategy.COLUMNS),
        ("'zone' in node.labels", Strategy.COLUMNS),
        ("node.labels.host == pod.host", Strategy.ROWS),
        ("pod.tags.all(t, t in node.labels)", Strategy.ROWS),
        ("node.labels[pod.key] == 'x'", Strategy.ROWS),
        ("node == pod.x", Strategy.ROWS),
    ],
)
def test_an_expression_gets_the_cheapest_strategy_that_is_exact(
    expression: str, strategy: Strategy
) -> None:
    assert _strategies(expression)[0] == (expression, strategy)


def test_the_parts_of_a_condition_have_their_own_strategies_cheap_ones_first() -> None:
    expression = "node.labels.host == pod.host && node.labels.zone == 'a' && node.d / 2.0 < pod.d"
    assert _strategies(expression) == [
        (expression, Strategy.COLUMNS),
        ("node.labels.zone == 'a'", Strategy.REMEMBERED),
        ("node.d / 2.0 < pod.d", Strategy.COLUMNS),
        ("node.d / 2.0", Strategy.COLUMNS),
        ("node.d", Strategy.COLUMNS),
        ("2.0", Strategy.ONCE),
        ("pod.d", Strategy.ONCE),
        ("node.labels.host == pod.host", Strategy.ROWS),
    ]


def test_a_number_computed_from_a_label_is_an_operand_of_columns() -> None:
    expression = "math.greatest(int(node.labels.gen) * 2, pod.i) > 7"
    assert _strategies(expression)[1:] == [
        ("math.greatest(int(node.labels.gen) * 2, pod.i)", Strategy.COLUMNS),
        ("int(node.labels.gen) * 2", Strategy.COLUMNS),
        ("int(node.labels.gen)", Strategy.REMEMBERED),
        ("2", Strategy.ONCE),
        ("pod.i", Strategy.ONCE),
        ("7", Strategy.ONCE),
    ]


def test_a_score_by_cases_is_made_of_columns() -> None:
    expression = "node.labels.zone == pod.zone ? 1 : has(node.d) ? -node.d : 0.5"
    strategies = dict(_strategies(expression, is_number=True))
    assert strategies[expression] is strategies["-node.d"] is Strategy.COLUMNS
    assert strategies["node.labels.zone == pod.zone"] is Strategy.DISTINCT


def test_a_plan_describes_itself_in_a_line_for_each_part() -> None:
    lines = _PlanProbe().condition("node.d > 0.5 && pod.x").describe().splitlines()
    assert [line.split(" us  ")[1] for line in lines] == [
        "node.d > 0.5 && pod.x",
        "  pod.x",
        "  node.d > 0.5",
        "    0.5" if "0.5" in lines[3] else "    node.d",
        "    node.d" if "node.d" in lines[4] else "    0.5",
    ]
    assert lines[0].startswith("columns ")


def test_what_is_slow_costs_more_than_what_is_not() -> None:
    texts = (
        "node.labels.zone == pod.zone",
        "node.labels.host == pod.host",
        "pod.tags.all(t, node.labels[t] == pod.host)",
    )
    plans = [_PlanProbe().condition(text) for text in texts]
    fast, slow, looping = (sum(part.cost for part in plan.parts) for plan in plans)
    assert fast < 200 < slow < looping


# What is evaluated.


def test_a_part_of_the_request_is_evaluated_once() -> None:
    probe = _PlanProbe()
    plan = probe.condition("node.labels.host == seen(pod.x) && node.d < seen(pod.y)")
    plan.evaluate(RowsTable(_rows(100)), {"pod": {"x": "h1", "y": 5.0}})
    assert probe.calls == {"h1": 1, 5.0: 1}


def test_few_distinct_values_are_evaluated_once_each() -> None:
    probe = _PlanProbe()
    table = RowsTable(_rows(100))
    plan = probe.condition("seen(node.labels.zone) == pod.x")
    assert listed(plan.evaluate(table, {"pod": {"x": "z1"}}))[:3] == ["False", "True", "False"]
    assert probe.calls == {"z0": 1, "z1": 1, "z2": 1}
    assert table.reads == []


def test_combinations_of_values_are_evaluated_once_each() -> None:
    probe = _PlanProbe()
    rows = [{"labels": {"a": f"{at % 7}", "b": f"{at % 5}"}} for at in range(210)]
    plan = probe.condition("seen(node.labels.a + node.labels.b) == pod.x")
    found = listed(plan.evaluate(RowsTable(rows), {"pod": {"x": "00"}}))
    assert found == [str(at % 35 == 0) for at in range(210)]
    assert set(probe.calls.values()) == {1}
    assert len(probe.calls) == 35


def test_very_many_combinations_are_no_different() -> None:
    rows = [{"labels": {"a": f"{at}", "b": f"{at}", "c": f"{at}"}} for at in range(100)]
    plan = _PlanProbe().condition("node.labels.a + node.labels.b + node.labels.c == pod.x")
    found = listed(plan.evaluate(RowsTable(rows), {"pod": {"x": "777"}}))
    assert found == [str(at == 7) for at in range(100)]


def test_a_slow_operand_is_not_evaluated_for_decided_rows() -> None:
    probe = _PlanProbe()
    rows = _rows(100)
    pod = {"pod": {"x": "h1"}}
    plan = probe.condition("seen(node.labels.host) == pod.x && node.flag")
    assert listed(plan.evaluate(RowsTable(rows), pod))[:3] == ["False", "True", "False"]
    assert probe.calls == {"h0": 1, "h1": 1}  # the rows with the flag
    probe.calls.clear()
    chosen = probe.number("node.flag ? double(seen(node.labels.host) == pod.x ? 1 : 0) : 0.5")
    assert listed(chosen.evaluate(RowsTable(rows), pod))[:3] == ["0.0", "1.0", "0.5"]
    assert probe.calls == {"h0": 1, "h1": 1}


def test_a_slow_part_is_not_evaluated_for_rows_outside_the_mask() -> None:
    probe = _PlanProbe()
    mask = np.arange(100) < 3
    plan = probe.condition("seen(node.labels.host) == pod.x")
    plan.evaluate(RowsTable(_rows(100)), {"pod": {"x": "h1"}}, mask=mask)
    assert set(probe.calls) == {"h0", "h1", "h2"}


def test_a_constant_that_decides_leaves_nothing_to_do() -> None:
    probe = _PlanProbe()
    plan = probe.condition("pod.x && seen(node.labels.host) == pod.y")
    found = listed(plan.evaluate(RowsTable(_rows(3)), {"pod": {"x": False}}))
    assert found == ["False"] * 3
    assert not probe.calls


# What is remembered.


def _evaluate(plan: Plan, rows: Sequence[Row], memory: Memory, **pod: object) -> None:
    plan.evaluate(RowsTable(rows, memory), {"pod": pod})


def test_what_depends_on_rows_alone_is_evaluated_again_for_changed_rows_only() -> None:
    probe = _PlanProbe()
    rows = _rows(100)
    memory: Memory = {}
    plan = probe.condition("seen(node.labels.host).endsWith('1')")
    _evaluate(plan, rows, memory)
    assert len(probe.calls) == 100
    probe.calls.clear()
    _evaluate(plan, [{"labels": {"host": "new"}}, *rows[1:]], memory)
    assert probe.calls == {"new": 1}


def test_requests_that_read_alike_share_what_is_remembered() -> None:
    probe = _PlanProbe()
    rows = _rows(100)
    memory: Memory = {}
    plan = probe.condition("seen(node.labels.host) == pod.x[0]")
    for x, name in ((["h1"], "p"), (["h1"], "q"), (["h1", "h2"], "r")):
        _evaluate(plan, rows, memory, x=x, name=name)
    assert set(probe.calls.values()) == {1}
    _evaluate(plan, rows, memory, x=[1])  # 1 and "1" are two keys, as are all unlike constants
    assert set(probe.calls.values()) == {2}


def test_a_key_holds_the_values_computed_from_a_request() -> None:
    plan = _PlanProbe().condition("pod.x > 2.0 || node.labels.host == pod.y[0]")
    same = [{"x": 3.0, "y": ["a"]}, {"x": 9.5, "y": ["a", "b"], "z": 1}]
    other = [{"x": 1.0, "y": ["a"]}, {"x": 3.0, "y": ["b"]}, {"x": 3.0, "y": [1]}, {"x": 3.0}]
    keys = [plan.key({"pod": pod}) for pod in (*same, *other)]
    assert keys[0] == keys[1]
    assert len({*keys}) == 1 + len(other)  # the last one has no `y`, which is a fault


def test_there_is_no_key_where_no_request_is_read_or_it_would_be_too_long() -> None:
    assert _PlanProbe().condition("node.labels.host == 'a'").key({}) == ""
    assert (
        _PlanProbe().condition("node.labels.host == pod.x").key({"pod": {"x": "x" * 5000}}) is None
    )


def test_a_condition_and_a_number_are_remembered_apart() -> None:
    rows = _rows(40)
    memory: Memory = {}
    expression = "[pod.x, node.labels.host][0]"
    as_condition, as_number = _PlanProbe().condition(expression), _PlanProbe().number(expression)
    table = RowsTable(rows, memory)
    assert listed(as_condition.evaluate(table, {"pod": {"x": 1}})) == ["error"] * 40
    assert listed(as_number.evaluate(table, {"pod": {"x": 1}})) == ["1.0"] * 40


def test_a_request_too_large_for_a_key_is_not_remembered() -> None:
    probe = _PlanProbe()
    rows = _rows(40)
    memory: Memory = {}
    plan = probe.condition("seen(node.labels.host) == pod.x")
    for _ in range(2):
        _evaluate(plan, rows, memory, x="x" * 5000)
    assert set(probe.calls.values()) == {2}
    assert not memory


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("node.labels.absent in []", False),
        ("!(node.labels.absent in [])", True),
        ("pod.absent in []", False),
        ("node.d / 0.0 in [] || node.flag", None),
        ("node.taints.exists(t, t.absent in [])", False),
    ],
)
def test_nothing_is_in_an_empty_list_not_even_an_error(
    expression: str, *, holds: bool | None
) -> None:
    rows = _rows(3, taints=[{"key": "a"}])
    found = listed(_PlanProbe().condition(expression).evaluate(RowsTable(rows), {"pod": {}}))
    assert found == [str(row["flag"] if holds is None else holds) for row in rows]


def test_what_is_asked_of_an_empty_list_is_shown_as_it_was_written() -> None:
    expression = "node.labels.zone in []"
    assert _strategies(expression) == [(expression, Strategy.ONCE)]


@pytest.mark.parametrize("depth", [10, 10_000])
def test_a_request_of_any_depth_is_evaluated(depth: int) -> None:
    nested: list[object] = []
    for _ in range(depth):
        nested = [nested]
    plan = _PlanProbe().condition("[pod.x, node.labels.host][1] == 'h1'")
    found = listed(plan.evaluate(RowsTable(_rows(40)), {"pod": {"x": nested}}))
    assert found == [str(at == 1) for at in range(40)]


def test_parts_that_read_the_same_share_what_is_remembered() -> None:
    probe = _PlanProbe()
    rows = _rows(40)
    memory: Memory = {}
    for expression in ("seen(node.labels.zone) == 'z1'", "!( seen(node.labels['zone'])=='z1' )"):
        _evaluate(probe.condition(expression), rows, memory)
    assert set(probe.calls.values()) == {2}  # once each: their texts differ
    _evaluate(probe.condition('(seen(node.labels.zone)) == "z1"'), rows, memory)
    assert set(probe.calls.values()) == {2}


# Budgets.


def test_each_row_that_has_to_be_evaluated_costs_an_iteration() -> None:
    budget = Budget(2000)
    plan = _PlanProbe().condition("node.labels.host == pod.x")
    plan.evaluate(RowsTable(_rows(600)), {"pod": {"x": "a"}}, budget)
    assert budget.steps_left == 1400
    plan.evaluate(RowsTable(_rows(500)), {"pod": {"x": "a"}}, budget)
    assert budget.steps_left == 1400  # up to 512 are free


def test_a_budget_is_shared_by_all_rows_and_its_end_is_a_fault_of_all() -> None:
    rows = _rows(40, tags=list(range(30)))
    plan = _PlanProbe().condition("node.flag || node.tags.all(t, t != pod.x || node.d < 0.0)")
    table = RowsTable(rows)
    enough = listed(plan.evaluate(table, {"pod": {"x": -1}}, Budget(30 * 40)))
    assert enough == ["True"] * 40
    assert listed(plan.evaluate(table, {"pod": {"x": -1}}, Budget(600))) == ["error"] * 40


def test_what_is_remembered_for_all_has_a_budget_for_each_value() -> None:
    rows: list[Row] = [{"tags": [0] * 20_000}, {"tags": [0] * 5_000}, {"tags": [0] * 8_000}]
    plan = _PlanProbe().condition("node.tags.all(t, t == 0)")
    budget = Budget(10)
    found = listed(plan.evaluate(RowsTable(rows), {"pod": {}}, budget))
    assert found == ["error", "True", "True"]  # 10,000 iterations each
    assert budget.steps_left == 10


def test_a_table_without_rows_gives_columns_without_rows() -> None:
    for expression in ("true", "node.flag", "node.labels.a == pod.x", "node.labels.a == 'x'"):
        assert listed(_PlanProbe().condition(expression).evaluate(RowsTable([]), {"pod": {}})) == []


def test_an_expression_on_many_different_texts_is_matched_in_one_go() -> None:
    rows: list[Row] = [{"labels": {"host": f"h{i}"} if i % 7 else {}} for i in range(200)]

    class Table(RowsTable):
        def dictionary(self, path: Path) -> None:  # noqa: ARG002 (of many values)
            return None

    table = Table(rows)
    plan = condition("node.labels.host.matches('^h1[0-9]*$')", RowsLayout(rows))
    expected = by_row("node.labels.host.matches('^h1[0-9]*$')", rows, None, as_number=False)
    assert listed(plan.evaluate(table, {})) == expected
    assert not table.reads


def test_values_that_are_no_texts_are_matched_one_by_one() -> None:
    rows: list[Row] = [{"labels": {"host": value}} for value in ("h1", 1, None, "x")]

    class Table(RowsTable):
        def dictionary(self, path: Path) -> None:  # noqa: ARG002 (of many values)
            return None

    plan = condition("node.labels.host.matches('^h')", RowsLayout(rows))
    assert listed(plan.evaluate(Table(rows), {})) == ["True", "error", "error", "False"]
