"""Each kernel on worked examples, and on all pairs of edges against the scalar evaluator."""

from __future__ import annotations

import math
from itertools import product

import pytest

from engine.cel.vector import Strategy
from tests.engine.cel.vector.rows_table import (
    Row,
    RowsLayout,
    RowsTable,
    by_row,
    condition,
    listed,
    number,
)

T, F, E = "True", "False", "error"
_FLAGS: dict[str, Row] = {T: {"v": True}, F: {"v": False}, E: {}}
_MIN, _MAX = -(2**63), 2**63 - 1
_INTS = [0, 1, -1, 2, -7, 2**32 + 1, 2**53, 2**53 + 1, 2**62, -(2**62) - 1]
_INTS += [_MAX, _MAX - 1, _MIN, _MIN + 1]
_DOUBLES = [0.0, -0.0, 0.5, -0.5, 1.0, 2.5, -2.5, 0.49999999999999994, 9007199254740992.0]
_DOUBLES += [9.223372036854775e18, 9.223372036854776e18, -9.223372036854776e18, 1e308, 5e-324]
_DOUBLES += [float("inf"), float("-inf"), float("nan")]


def _columns_of(expression: str, rows: list[Row], pod: object = None) -> list[str]:
    """Return what a condition gives by operations on columns alone, as the scalar one does."""
    plan = condition(expression, RowsLayout(rows))
    assert {part.strategy for part in plan.parts} <= {Strategy.COLUMNS, Strategy.ONCE}
    found = listed(plan.evaluate(RowsTable(rows), {"pod": pod}))
    assert found == by_row(expression, rows, pod, as_number=False)
    return found


def _numbers_of(expression: str, rows: list[Row], pod: object = None) -> list[str]:
    """Return the same for a number."""
    plan = number(expression, RowsLayout(rows))
    assert {part.strategy for part in plan.parts} <= {Strategy.COLUMNS, Strategy.ONCE}
    found = listed(plan.evaluate(RowsTable(rows), {"pod": pod}))
    assert found == by_row(expression, rows, pod, as_number=True)
    return found


def _rows_of(values: list[object]) -> list[Row]:
    return [{"a": left, "b": right} for left, right in product(values, values)]


# Logic.


def test_a_false_decides_a_conjunction_whatever_failed_beside_it() -> None:
    rows = [{"a": _FLAGS[a], "b": _FLAGS[b]} for a, b in product((T, F, E), repeat=2)]
    assert _columns_of("node.a.v && node.b.v", rows) == [
        T, F, E,
        F, F, F,
        E, F, E,
    ]  # fmt: skip


def test_a_true_decides_a_disjunction_whatever_failed_beside_it() -> None:
    rows = [{"a": _FLAGS[a], "b": _FLAGS[b]} for a, b in product((T, F, E), repeat=2)]
    assert _columns_of("node.a.v || node.b.v", rows) == [
        T, T, T,
        T, F, E,
        T, E, E,
    ]  # fmt: skip


def test_of_a_conditional_the_branch_not_taken_does_not_matter() -> None:
    choices = list(product((T, F, E), repeat=3))
    rows = [{"c": _FLAGS[c], "a": _FLAGS[a], "b": _FLAGS[b]} for c, a, b in choices]
    expected = [{T: a, F: b, E: E}[c] for c, a, b in choices]
    assert _columns_of("node.c.v ? node.a.v : node.b.v", rows) == expected


def test_a_negation_keeps_the_fault() -> None:
    assert _columns_of("!node.v", list(_FLAGS.values())) == [F, T, E]


@pytest.mark.parametrize("value", [True, False, None, 1, "x", "missing"])
@pytest.mark.parametrize("logic", ["{} && {}", "{} || {}", "({} ? {} : node.v)", "!{} || {}"])
def test_a_constant_takes_part_as_a_row_would(logic: str, value: object) -> None:
    pod = {} if value == "missing" else {"x": value}
    rows = list(_FLAGS.values())
    for operands in (("pod.x", "node.v"), ("node.v", "pod.x")):
        expression = logic.format(*operands)
        found = listed(
            condition(expression, RowsLayout(rows)).evaluate(RowsTable(rows), {"pod": pod})
        )
        assert found == by_row(expression, rows, pod, as_number=False)


def test_what_is_no_bool_is_a_fault_where_only_a_bool_may_stand() -> None:
    rows: list[Row] = [{"i": 1, "v": True}, {"i": 0, "v": False}]
    assert _columns_of("node.i && node.v", rows) == [E, F]
    assert _columns_of("node.i || node.v", rows) == [T, E]
    assert _columns_of("!node.i", rows) == [E, E]
    assert _columns_of("node.i ? true : true", rows) == [E, E]


# Arithmetic.


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("node.a + 1 == -9223372036854775808", E),  # 2**63 - 1, and one more
        ("node.a - -1 == 0", E),
        ("node.a * 2 == -2", E),
        ("-(-node.a - 1) == 0", E),  # there is no 2**63
        ("(-node.a - 1) / -1 == 0", E),  # nor here
        ("(-node.a - 1) % -1 == 0", E),
        ("node.a / 0 == 0", E),
        ("node.a % 0 == 0", E),
        ("math.abs(-node.a - 1) > 0", E),
        ("node.a + -1 == 9223372036854775806", T),
        ("(node.a - 9223372036854775800) / 2 == 3", T),  # 7 / 2
        ("-(node.a - 9223372036854775800) / 2 == -3", T),  # truncated, not -4
        ("-(node.a - 9223372036854775800) % 2 == -1", T),  # the sign of the left
        ("node.a + pod.one > 0.0", E),  # no overload for an int and a double
        ("node.a % pod.one > 0.0", E),
    ],
)
def test_integers_that_do_not_fit_are_faults(expression: str, expected: str) -> None:
    assert _columns_of(expression, [{"a": _MAX}], {"one": 1.0}) == [expected]


def test_a_double_over_zero_is_infinite_and_no_fault() -> None:
    rows: list[Row] = [
        {"a": a, "b": b} for a, b in ((1.0, 0.0), (-1.0, 0.0), (1.0, -0.0), (0.0, 0.0))
    ]
    assert _numbers_of("node.a / node.b", rows) == ["inf", "-inf", "-inf", "nan"]


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("values", [_INTS, _DOUBLES, [True, False]], ids=["int", "double", "bool"])
def test_an_operator_gives_what_the_scalar_one_gives(operator: str, values: list[object]) -> None:
    expression = f"node.a {operator} node.b"
    if operator in "+-*/%":
        _numbers_of(expression, _rows_of(values))
    else:
        _columns_of(expression, _rows_of(values))


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "==", "<", "%"])
@pytest.mark.parametrize("value", [3, 2.5])
def test_an_operator_needs_both_operands(operator: str, value: float) -> None:
    rows: list[Row] = [{"a": value, "b": value}, {"a": value}, {"b": value}, {}]
    expected = [T if operator != "%" or value == 3 else E, E, E, E]
    assert (
        _columns_of(f"(node.a {operator} node.b) == (node.a {operator} node.b)", rows) == expected
    )
    assert (
        _columns_of(f"(node.a {operator} pod.x) == (node.b {operator} pod.x)", rows, {}) == [E] * 4
    )


@pytest.mark.parametrize(
    "function",
    [
        "-node.a",
        "double(node.a)",
        "int(node.a)",
        "math.abs(node.a)",
        "math.ceil(node.a)",
        "math.greatest(node.b, node.a)",
        "math.least(node.b, node.a)",
    ],
)
def test_a_function_needs_its_arguments(function: str) -> None:
    rows: list[Row] = [{"a": 2.5, "b": 1.0}, {"b": 1.0}]
    assert _columns_of(f"{function} == {function}", rows) == [T, E]


def test_numbers_alone_have_extremes() -> None:
    rows: list[Row] = [{"v": True, "w": False, "d": 0.5}]
    assert _columns_of("math.greatest(node.v, node.w) == true", rows) == [E]
    assert _columns_of("math.least(node.d, pod.x) == 0.5", rows, {"x": True}) == [E]


# Comparison.


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
def test_an_int_and_a_double_compare_as_the_scalar_evaluator_has_it(operator: str) -> None:
    rows: list[Row] = [{"i": i, "d": d} for i, d in product(_INTS, _DOUBLES)]
    _columns_of(f"node.i {operator} node.d", rows)
    _columns_of(f"node.d {operator} node.i", rows)
    # 2**53 + 1 is rounded to 2**53 beside a double.
    assert _columns_of("node.i == 9007199254740992.0", [{"i": 2**53 + 1}]) == [T]
    assert _columns_of("node.i == 9007199254740992", [{"i": 2**53 + 1}]) == [F]


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "text",
    ["0u", "1u", "9223372036854775808u", "18446744073709551615u", "'1'", "null", "true", "[1]"],
)
def test_a_constant_of_any_type_compares_as_with_a_single_value(operator: str, text: str) -> None:
    rows: list[Row] = [{"i": i, "d": d, "v": i > 0} for i, d in product(_INTS, _DOUBLES)]
    for column in ("i", "d", "v"):
        _columns_of(f"node.{column} {operator} dyn({text})", rows)
        _columns_of(f"dyn({text}) {operator} node.{column}", rows)


@pytest.mark.parametrize("operator", ["==", "<", ">=", "+", "*", "%", "/"])
def test_an_integer_of_json_beyond_64_bits_is_no_different(operator: str) -> None:
    rows: list[Row] = [{"i": i, "d": d} for i, d in product(_INTS, _DOUBLES)]
    for huge in (10**30, -(10**30), 2**63, 10**400):
        for expression in (f"node.i {operator} pod.x", f"pod.x {operator} node.d"):
            for as_number, build in ((False, condition), (True, number)):
                plan = build(expression, RowsLayout(rows))
                found = listed(plan.evaluate(RowsTable(rows), {"pod": {"x": huge}}))
                assert found == by_row(expression, rows, {"x": huge}, as_number=as_number)


@pytest.mark.parametrize(
    "expression",
    [
        "int({'a': pod.x, 'b': 1}[node.a]) > 0",  # a function that gives an int, here a huge one
        "node.a == 'a' ? pod.x < 1.5 : true",
        "{'a': pod.x, 'b': 0}[node.a] < 1.5 || node.v",  # no `||` absorbs a number beyond doubles
        "pod.x < 1.5 || node.v",
        "pod.x < node.d || node.v",
    ],
)
@pytest.mark.parametrize("huge", [10**30, 10**400])
def test_what_columns_cannot_hold_is_evaluated_row_by_row(expression: str, huge: int) -> None:
    rows: list[Row] = [{"a": a, "v": v, "d": 0.5} for a in "abc" for v in (True, False)]
    plan = condition(expression, RowsLayout(rows))
    found = listed(plan.evaluate(RowsTable(rows), {"pod": {"x": huge}}))
    assert found == by_row(expression, rows, {"x": huge}, as_number=False)


def test_an_entry_of_a_map_may_be_of_the_request_alone() -> None:
    rows: list[Row] = [{"a": "x"}, {"a": "y"}, {"a": 1.5}]
    expression = "{'x': pod.x, node.a: 1}.x == 2"
    found = listed(
        condition(expression, RowsLayout(rows)).evaluate(RowsTable(rows), {"pod": {"x": 2}})
    )
    assert found == [E, T, E]  # a key twice, and one that cannot be


# Conversions and functions.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.9, "2.0"),
        (-2.9, "-2.0"),
        (9.223372036854775e18, "9.223372036854775e+18"),
        (9.223372036854776e18, E),  # 2**63
        (-9.223372036854776e18, E),  # both bounds are excluded
        (float("nan"), E),
    ],
)
def test_a_double_becomes_an_int_if_it_fits(value: float, expected: str) -> None:
    assert _numbers_of("int(node.d)", [{"d": value}]) == [expected]


@pytest.mark.parametrize(
    "function",
    [
        "double",
        "int",
        "math.abs",
        "math.ceil",
        "math.floor",
        "math.round",
        "math.sqrt",
        "math.trunc",
    ],
)
def test_a_function_gives_what_the_scalar_one_gives(function: str) -> None:
    rows: list[Row] = [{"i": i, "d": d, "v": i > 0} for i, d in product(_INTS, _DOUBLES)]
    for column in ("i", "d", "v"):
        _numbers_of(f"{function}(node.{column})", rows)


@pytest.mark.parametrize("function", ["math.greatest", "math.least"])
def test_of_equals_and_nan_the_first_stays(function: str) -> None:
    for values in (_INTS, _DOUBLES):
        found = _numbers_of(f"{function}(node.a, node.b)", _rows_of(list(values)))
        assert found[0] == repr(float(values[0]))
    _numbers_of(f"{function}(node.a, node.b)", _rows_of([True, False]))
    # 0.0 and -0.0 are equal.
    assert _numbers_of(f"{function}(node.a, node.b)", [{"a": -0.0, "b": 0.0}]) == ["-0.0"]


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_nan_has_no_order(operator: str) -> None:
    rows: list[Row] = [{"a": math.nan, "i": 1}, {"a": 1.0, "i": 1}, {"a": math.inf, "i": 1}]
    for expression in (
        f"node.a {operator} 0.5",
        f"node.i {operator} node.a",
        f"2 {operator} node.a",
    ):
        assert [row == E for row in _columns_of(expression, rows)] == [True, False, False]
    assert _columns_of("node.a == node.a", rows) == [F, T, T]
    assert _columns_of("math.greatest(node.a, 0.5) > 0.0", rows) == [E, T, T]


def test_the_keys_of_a_map_are_tested() -> None:
    rows: list[Row] = [{"m": {"k": 1}}, {"m": {}}, {"m": {"j": 2}}, {}]
    assert _columns_of("has(node.m.k)", rows) == [T, F, F, E]
    assert _columns_of("'k' in node.m", rows) == [T, F, F, E]
    assert _columns_of("has(node.m)", rows) == [T, T, T, F]


def test_a_list_may_be_searched_for_a_text_too() -> None:
    rows: list[Row] = [{"m": {"k": 1}}, {"m": ["k"]}, {"m": ["j"]}, {"m": 1}, {}]
    found = listed(condition("'k' in node.m", RowsLayout(rows)).evaluate(RowsTable(rows), {}))
    assert found == [T, T, F, E, E]
    assert _columns_of("has(node.m.k)", rows) == [T, E, E, F, E]


def test_an_optional_is_not_the_value_it_may_hold() -> None:
    rows: list[Row] = [{"m": {"d": 0.5}}, {"m": {}}, {}]
    for expression, expected in (
        ("node.?m.d == 0.5", [F, F, F]),
        ("node.?m.d == optional.of(0.5)", [T, F, F]),
        ("node.m[?'d'].orValue(1.0) == 0.5", [T, F, E]),
        ("has(node.?m.d)", [T, F, F]),
        ("node.?m.d.hasValue()", [T, F, F]),
    ):
        found = listed(condition(expression, RowsLayout(rows)).evaluate(RowsTable(rows), {}))
        assert found == by_row(expression, rows, {}, as_number=False) == expected


def test_branches_of_unlike_types_are_converted_where_a_number_is_expected() -> None:
    rows: list[Row] = [{"v": True, "i": 3, "d": 0.5}, {"v": False, "i": 3, "d": 0.5}]
    assert _numbers_of("node.v ? node.i : node.d", rows) == ["3.0", "0.5"]
    assert _numbers_of("node.v ? pod.x : node.d", rows, {"x": 7}) == ["7.0", "0.5"]
    assert _numbers_of("node.v ? pod.x : node.d", rows, {"x": "7"}) == [E, "0.5"]
