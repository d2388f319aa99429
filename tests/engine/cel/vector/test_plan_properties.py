"""Random expressions over random tables: the plan gives what the scalar evaluator gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import compress

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cel.vector import Plan
from tests.engine.cel.vector.random_expressions import EXPRESSIONS, PODS, ROWS
from tests.engine.cel.vector.rows_table import (
    Memory,
    Row,
    RowsLayout,
    RowsTable,
    by_row,
    condition,
    listed,
    number,
)


def _plans(expression: str, layout: RowsLayout) -> list[Plan]:
    return [condition(expression, layout), number(expression, layout)]


def _results(expression: str, layout: RowsLayout, table: RowsTable, pod: object) -> list[list[str]]:
    return [listed(plan.evaluate(table, {"pod": pod})) for plan in _plans(expression, layout)]


def _expected(expression: str, rows: Sequence[Row], pod: object) -> list[list[str]]:
    return [by_row(expression, rows, pod, as_number=as_number) for as_number in (False, True)]


@settings(max_examples=300)
@given(EXPRESSIONS, ROWS, PODS)
def test_a_plan_gives_for_every_row_what_the_scalar_evaluator_gives(
    expression: str, rows: list[Row], pod: object
) -> None:
    found = _results(expression, RowsLayout(rows), RowsTable(rows), pod)
    assert found == _expected(expression, rows, pod)


@given(EXPRESSIONS, ROWS, PODS)
def test_row_by_row_gives_what_the_chosen_strategies_give(
    expression: str, rows: list[Row], pod: object
) -> None:
    table = RowsTable(rows)
    hidden = _results(expression, RowsLayout(rows, hidden=True), table, pod)
    assert hidden == _results(expression, RowsLayout(rows), table, pod)


@given(EXPRESSIONS, ROWS, PODS, st.randoms(use_true_random=False))
def test_any_choice_of_rows_in_any_order_gives_the_same_answers(
    expression: str, rows: list[Row], pod: object, source: random.Random
) -> None:
    layout = RowsLayout(rows)
    chosen = [source.randrange(len(rows)) for _ in rows * 2]
    sample = RowsTable([rows[at] for at in chosen])
    whole = _results(expression, layout, RowsTable(rows), pod)
    expected = [[column[at] for at in chosen] for column in whole]
    assert _results(expression, layout, sample, pod) == expected


@given(EXPRESSIONS, ROWS, ROWS, PODS, PODS)
def test_what_is_remembered_changes_no_answer_when_rows_and_requests_change(
    expression: str, rows: list[Row], others: list[Row], pod: object, other: object
) -> None:
    changed = [
        after if at % 2 else before
        for at, (before, after) in enumerate(zip(rows, others, strict=False))
    ]
    memory: Memory = {}
    # Row by row, what a request adds is remembered even for a few rows.
    for hidden in (False, True):
        for plan in _plans(expression, RowsLayout(rows + others, hidden=hidden)):
            for table in (rows, changed, others):
                for request in (pod, other, pod):
                    fresh = listed(plan.evaluate(RowsTable(table), {"pod": request}))
                    assert (
                        listed(plan.evaluate(RowsTable(table, memory), {"pod": request})) == fresh
                    )


@given(EXPRESSIONS, ROWS, PODS, st.randoms(use_true_random=False))
def test_rows_within_a_mask_get_the_same_values_as_without_it(
    expression: str, rows: list[Row], pod: object, source: random.Random
) -> None:
    mask = np.array([source.random() < 0.5 for _ in rows], np.bool_)
    for plan in _plans(expression, RowsLayout(rows)):
        all_rows = listed(plan.evaluate(RowsTable(rows), {"pod": pod}))
        masked = listed(plan.evaluate(RowsTable(rows), {"pod": pod}, mask=mask))
        assert list(compress(masked, mask)) == list(compress(all_rows, mask))
