"""Functions of many values at once, against the closures that are asked of one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cel.vector.bulk import bulk_function
from engine.cel.vector.parts import part_of
from tests.engine.cel.vector.rows_table import (
    ENVIRONMENT,
    Row,
    RowsLayout,
    RowsTable,
    by_row,
    condition,
    listed,
    resolved,
)

_MANY = 40  # more than are asked one after the other
_TEXTS = st.text(st.sampled_from("ab1-. \né"), max_size=5)
_LABELS = st.fixed_dictionaries({"a": _TEXTS}, optional={"b": _TEXTS})
_ROWS = st.lists(
    st.builds(
        lambda labels, i, odd: {"labels": labels, "i": i, "odd": odd},
        _LABELS,
        st.integers(-3, 3),
        st.sampled_from(["a", 1, 1.0, True, None, [1], {"k": 1}]),
    ),
    max_size=8,
).map(
    lambda rows: [
        *({"labels": {"a": f"x-{at}.1", "b": "b"}, "i": at, "odd": str(at)} for at in range(_MANY)),
        *rows,
    ]
)
"""Rows with many different values, most of them as one would expect."""

_POD = {"text": "a", "i": 2, "list": ["a", "x-1.1", 1], "pattern": "x-[0-9]+[.]1"}

_TEXT = ("node.labels.a", "node.labels.b", "node.odd", "pod.text", "'x-1.1'")
_OF_TEXT = (
    "{0}",
    "{0}.lowerAscii()",
    "{0}.replace('x', {1})",
    "{0}.split('-')[0]",
    "{0}.substring(1)",
    "{0}.split({1})[1]",
    "{0} + {1}",
    "{0}.find('[0-9]')",
    "string(node.i)",
    "{0}.charAt(0)",
    "[{0}, {1}][0]",
    "{{'k': {0}}}.k",
    "{0}.trim()",
)
_CONDITIONS = (
    "{0} == {1}", "{0} != {1}", "{0} < {1}", "{0}.startsWith({1})", "{0}.contains('1')",
    "{0}.matches('^x-[^2]*$')", "{0}.matches(pod.pattern)", "{0}.matches({1})", "{0} in pod.list",
    "{0} in ['a', 'x-2.1']", "size({0}) > node.i", "{0}.size() + 1 >= pod.i", "int({0}) % 2 == 0",
    "{0}.split('.')[1] == '1'", "{0}.indexOf({1}) == 0", "node.i / pod.i == 1", "-node.i < 0",
    "node.odd == {0}", "type({0}) == string",
    "{0}.split('') == {1}.split('')", "{0} in {{'a': 1}}", "node.odd in [{0}]", "{0}",
)  # fmt: skip


@st.composite
def _expressions(draw: st.DrawFn) -> str:
    def text() -> str:
        form = draw(st.sampled_from(_OF_TEXT))
        ends = [draw(st.sampled_from(_TEXT)) for _ in range(2)]
        return form.format(*ends)

    return draw(st.sampled_from(_CONDITIONS)).format(text(), text())


@settings(max_examples=300)
@given(_expressions(), _ROWS)
def test_many_values_give_what_each_gives(expression: str, rows: list[Row]) -> None:
    plan = condition(expression, RowsLayout(rows))
    found = listed(plan.evaluate(RowsTable(rows), {"pod": _POD}))
    assert found == by_row(expression, rows, _POD, as_number=False)


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels.a.split('-')[1].startsWith('1')",
        "node.labels.a.matches('^x-[^2]*$')",
        "node.labels.a.matches('(?s)x.')",
        "node.labels.a + pod.text == node.labels.b",
        "size(node.labels.a) == 3",
    ],
)
def test_strict_functions_of_leaves_are_asked_of_all_values_at_once(expression: str) -> None:
    rows: list[Row] = [{"labels": {"a": f"x-{at}", "b": f"x-{at}a"}} for at in range(_MANY)]
    part = part_of(resolved(expression), RowsLayout(rows), ENVIRONMENT)
    evaluate = bulk_function(part, ENVIRONMENT)
    assert evaluate is not None
    leaves = {path: [row["labels"][path[-1]] for row in rows] for path in part.paths()}
    found = evaluate(leaves, {"pod": _POD})
    assert found is not None
    values = found.tolist() if isinstance(found, np.ndarray) else found
    assert [repr(value) for value in values] == by_row(expression, rows, _POD, as_number=False)


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels.a.split('-').exists(x, x == '1')",
        "node.labels.?a.orValue('') == ''",
        "has(node.labels.a) == true",
        "(node.labels.a == 'a' ? 1 : 2) == 1",
    ],
)
def test_logic_loops_and_optionals_are_left_to_closures(expression: str) -> None:
    layout = RowsLayout([{"labels": {"a": "x"}}])
    part = part_of(resolved(expression), layout, ENVIRONMENT)
    assert bulk_function(part, ENVIRONMENT) is None


def test_an_error_or_a_charge_to_the_budget_is_left_to_closures() -> None:
    layout = RowsLayout([{"labels": {"a": "x"}}])
    for expression in ("int(node.labels.a) == 1", "node.labels.a + node.labels.a == ''"):
        part = part_of(resolved(expression), layout, ENVIRONMENT)
        evaluate = bulk_function(part, ENVIRONMENT)
        assert evaluate is not None
        (path,) = part.paths()
        assert evaluate({path: ["1", "2"]}, {}) is not None
        assert evaluate({path: ["1", "x" * 2000]}, {}) is None
