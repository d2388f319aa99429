from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Environment, compile_program
from engine.cel.budget import Budget
from engine.cel.functions.regex import Pattern, find, find_all
from engine.cel.values import DYN
from engine.errors import BudgetExhaustedError


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("abc 123", "[0-9]+", "123"),
        ("abc 123", "[0-9]*", ""),  # the leftmost match is the empty one before `a`
        ("abc 123", "xyz", ""),
        ("node-münchen-7", "[^-]+-[0-9]", "münchen-7"),
        ("Größe", "(?i)GRÖ", "Grö"),
        ("line one\nline two", "(?m)^line t.*$", "line two"),
    ],
)
def test_find_returns_the_leftmost_match(text: str, pattern: str, expected: str) -> None:
    assert find(text, Pattern(pattern)) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "limit", "expected"),
    [
        ("123 abc 456", "[0-9]+", -1, ["123", "456"]),
        ("123 abc 456", "[0-9]+", 1, ["123"]),
        ("123 abc 456", "[0-9]+", 0, []),
        ("123 abc 456", "[0-9]+", -7, ["123", "456"]),
        ("123 abc 456", "xyz", -1, []),
        ("", "", -1, [""]),
        # Empty before each of `a`, `b`, `c` and the second space; those that touch a match, at
        # either space or at the ends, do not count.
        ("123 abc 456", "[0-9]*", -1, ["123", "", "", "", "", "456"]),
        ("aXbX", "X|", -1, ["", "X", "X"]),
        # One empty match before `é`, one after it: not one within its two bytes.
        ("é1é", "[0-9]*", -1, ["", "1", ""]),
        ("foo bar", r"\b", -1, ["", "", "", ""]),
        ("a=1,b=22", r"([a-z])=([0-9]+)", -1, ["a=1", "b=22"]),  # the match, not its groups
    ],
)
def test_find_all_returns_matches_that_do_not_touch_empty_ones(
    text: str, pattern: str, limit: int, expected: list[str]
) -> None:
    assert find_all(Budget(), text, Pattern(pattern), limit) == expected


def test_find_all_pays_for_every_match() -> None:
    budget = Budget(iterations=100)
    find_all(budget, "a" * 60, Pattern("a"))
    assert budget.steps_left == 40
    with pytest.raises(BudgetExhaustedError):
        find_all(budget, "a" * 60, Pattern("a"))


def test_find_all_refuses_a_text_that_it_might_scan_once_per_match() -> None:
    with pytest.raises(BudgetExhaustedError):
        find_all(Budget(), "a" * 70_000, Pattern("a(.*b)?"))


@given(
    st.text("ab1 é\n", max_size=20),
    st.sampled_from(["a", "a|b", "[0-9]", "ab?", "é+", r"a[^b]*", "(?:ab|a)"]),
)
def test_matches_that_are_never_empty_are_those_of_any_regular_expression(
    text: str, pattern: str
) -> None:
    expected = [match.group() for match in re.finditer(pattern, text)]
    assert find_all(Budget(), text, Pattern(pattern)) == expected
    assert find(text, Pattern(pattern)) == (expected[0] if expected else "")


@pytest.mark.parametrize(
    "expression",
    [
        "x.find('[0-9]+') == '7' && x.findAll('[a-z]+', 1) == ['node']",
        "x.findAll('[a-z]+').size() == 2",
    ],
)
def test_the_functions_are_part_of_the_language(expression: str) -> None:
    program = compile_program(expression, Environment(variables={"x": DYN}))
    assert program.evaluate({"x": "node-a-7"}) is True
