"""Shortcuts for literals against the general closures, which `dyn(literal)` compiles to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import CelError, Environment, UInt, compile_program
from engine.cel.values import DYN, BoolKey, Duration, present

ENVIRONMENT = Environment(variables={"x": DYN})
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
        value = compile_program(source, ENVIRONMENT).evaluate({"x": x})
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
