"""Charges of comparisons: without them, a loop over a large list could multiply them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import (
    Budget,
    BudgetExhaustedError,
    CelError,
    Environment,
    Limits,
    compile_node,
    compile_program,
    new_frame,
)
from engine.cel.ast import Binary, Local, walk
from engine.cel.values import DYN, BoolKey, Duration, UInt, present

_ENVIRONMENT = Environment(variables={"x": DYN, "y": DYN})


def _cost(source: str, x: object, y: object = None) -> int:
    """Return the steps that an expression takes."""
    budget = Budget(10_000, max_items=100_000)
    compile_program(source, _ENVIRONMENT).evaluate({"x": x, "y": y}, budget)
    return 10_000 - budget.steps_left


@pytest.mark.parametrize(
    ("source", "x", "y", "steps"),
    [
        ("x == y", 1, 1, 0),
        ("x == y", "a" * 1000, "a" * 1000, 0),
        ("x == y", [1], [1], 0),
        ("x == y", [1] * 1599, [1] * 1599, 100),  # 1,600 comparisons, the lists among them
        ("x != y", [1] * 1599, [1] * 1599, 100),
        ("x == y", {"a": [1] * 1597}, {"a": [1] * 1597}, 100),  # and the maps
        ("x == y", [[]] * 1600, [[]] * 1600, 200),
        ("x == y", [1] * 1599, 1, 0),
        ("optional.of(x) == optional.of(y)", [1] * 1597, [1] * 1597, 100),
        ("y in x", [1] * 1600, 1, 100),
        ("y in x", ["a"] * 1600, "b", 100),
        ("y in x", [[1]] * 1600, [2], 300),  # and 1,600 times a list of one element
        ("y in x", {"a": 1}, "a", 0),
        ("y in [1, 2, 3]", None, 1, 0),
    ],
)
def test_comparisons_cost_a_step_for_every_16(
    source: str, x: object, y: object, steps: int
) -> None:
    assert _cost(source, x, y) == steps


@pytest.mark.parametrize(
    "source", ["x.all(i, i in x)", "x.all(i, x == x)", "cel.bind(z, x.map(i, x), z == z)"]
)
def test_a_loop_of_comparisons_ends_with_its_budget(source: str) -> None:
    with pytest.raises(BudgetExhaustedError):
        _cost(source, list(range(5000)))


ENVIRONMENT = Environment(variables={"m": DYN, "l": DYN}, limits=Limits(nesting=3))


def evaluate(source: str, **activation: object) -> object:
    return compile_program(source, ENVIRONMENT).evaluate(activation)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[1, 2, 3].filter(x, x > 1)", [2, 3]),
        ("[1, 2, 3].map(x, x > 1, x * x)", [4, 9]),
        ("[5, 6].transformList(i, v, i + v)", [5, 7]),
        ("[5, 6].transformList(i, v, i > 0, v)", [6]),
        ("[5, 6].transformMap(i, v, v * v)", {0: 25, 1: 36}),
        ("[5, 6].transformMapEntry(i, v, {v: i})", {5: 0, 6: 1}),
        ("[[1, 2], [3]].map(x, x.map(y, y + size(x)))", [[3, 4], [4]]),
        ("[1].map(x, [2].map(x, x))", [[2]]),
        ("[1, 2].map(x, [x].exists(x, x == 2) ? x : 0)", [0, 2]),
        ("['b', 'a', 'c'].sortBy(x, x)", ["a", "b", "c"]),
        ("[3, 1, 2].sortBy(x, -x)", [3, 2, 1]),
        ("cel.bind(x, 2, x + cel.bind(y, 3, x * y))", 8),
        ("[1, 2].map(x, cel.bind(x, x + 1, x))", [2, 3]),
        ("optional.of(2).optMap(x, x + 1).value()", 3),
        ("optional.of(2).optFlatMap(x, optional.none()).hasValue()", False),
        ("[1, 2, 2].exists_one(x, x == 2)", False),
        ("[1, 2, 3].existsOne(i, v, v == 2)", True),
    ],
)
def test_macros(source: str, value: object) -> None:
    assert evaluate(source) == value


def test_a_loop_over_a_map_goes_through_its_keys() -> None:
    m = {"a": 1, BoolKey.TRUE: 2, UInt(3): 4}
    assert evaluate("m.map(k, k)", m=m) == ["a", True, 3]
    assert evaluate("m.transformMap(k, v, v + 1)", m=m) == {"a": 2, BoolKey.TRUE: 3, 3: 5}


@pytest.mark.parametrize(
    "source",
    [
        "m.all(x, true)",
        "l.transformMapEntry(i, v, {'same': v})",
        "l.transformMapEntry(i, v, dyn(v))",
        "{'a': 1}.transformMap(k, v, 1 / 0)",
        "dyn({}).sortBy(x, x)",
        "l.sortBy(x, x == 1 ? dyn('a') : x)",
        "dyn(1).optMap(x, x)",
        "optional.of(1).optFlatMap(x, dyn(x))",
    ],
)
def test_these_fail(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source, m="not a map", l=[1, 2])


def test_a_node_inside_a_loop_compiles_on_its_own() -> None:
    root = compile_program("l.map(x, x + 1)", ENVIRONMENT).root
    (inner,) = (node for node, _ in walk(root) if isinstance(node, Binary))
    (local,) = (node for node, _ in walk(inner) if isinstance(node, Local))
    assert compile_node(inner, ENVIRONMENT)(new_frame({local.name: 41})) == 42


SHORTCUTS_ENVIRONMENT = Environment(variables={"x": DYN})
ERROR = "error"

VALUES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        2**53,
        2**53 + 1,
        UInt(1),
        UInt(0),
        0.0,
        1.0,
        2.0**53,
        float("nan"),
        "",
        "a",
        "ab",
        "1",
        b"a",
        ["a"],
        [1],
        ("a", 1),
        {"a": 1, "b": {"c": 2}},
        {1: "a", BoolKey.TRUE: "b"},
        {"a": None},
        present({"a": 1}),
        Duration(0),
    ]
)


def _evaluate(source: str, x: object) -> object:
    try:
        value = compile_program(source, SHORTCUTS_ENVIRONMENT).evaluate({"x": x})
    except CelError:
        return ERROR
    return type(value), repr(value)


@pytest.mark.parametrize(
    ("template", "literals"),
    [
        ("x == {}", ["'a'", "1", "0", "1u", "1.0", "true", "null", "9007199254740993", "[1]"]),
        ("{} != x", ["'a'", "1", "0", "1u", "1.0", "false", "null", "9007199254740993"]),
        ("x in {}", ["['a', 'b']", "[1, 2.0]", "[1, true]", "[true]", "[9007199254740993]", "[]"]),
        ("x[{}]", ["'a'", "'b'", "1", "0", "true"]),
        ("x[{}]['c']", ["'b'"]),
        ("x.startsWith({})", ["'a'", "''"]),
        ("x.matches({})", ["'a'", "'^$'", "'a+b'"]),
        ("x.substring({}, 1)", ["0", "2"]),
        ("x.slice({}, 1)", ["0", "2"]),
        ("x.indexOf({})", ["'a'", "1"]),
    ],
)
@given(x=VALUES)
def test_a_shortcut_means_what_the_general_closure_means(
    template: str, literals: list[str], x: object
) -> None:
    for literal in literals:
        general = template.format(f"dyn({literal})")
        assert _evaluate(template.format(literal), x) == _evaluate(general, x)


@given(x=VALUES)
def test_a_path_means_what_its_steps_mean(x: object) -> None:
    assert _evaluate("x.b.c", x) == _evaluate("dyn(dyn(x).b).c", x)
    assert _evaluate("[x].map(y, y.b['c'])", x) == _evaluate("[x].map(y, dyn(dyn(y).b).c)", x)


@given(x=VALUES)
def test_a_list_of_literals_is_the_list_of_their_values(x: object) -> None:
    assert _evaluate("[1, 'a', null] == x", x) == _evaluate("[dyn(1), 'a', null] == x", x)
