from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Environment, compile_program
from engine.cel.budget import Budget
from engine.cel.errors import BudgetExhaustedError
from engine.cel.functions.regex import Pattern, find, find_all
from engine.cel.values import DYN


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


_PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "-",
            ".",
            "\\.",
            "\\d",
            "\\w",
            "[ab]",
            "[0-9]",
            "1",
            "(a|b)",
            "(?:ab|b1)",
            "^",
            "$",
            "|",
        ),
        *("a*", "b+", "a?", ".*", "[ab]{1,2}", "(a-)*"),
        *(
            "\\s",
            "[^a]",
            "(?s).",
            "\\b",
            "\\A",
            "\\z",
            "(?i)B",
            "\\x0a",
            "\\n",
            "\\D",
            "é",
            "(?-m)^",
        ),
    ]
)
_TEXT = st.text(st.sampled_from("ab1-.é B\n"), max_size=6)


@given(st.lists(_PIECES, max_size=5).map("".join), st.lists(_TEXT, max_size=8))
def test_many_texts_at_once_match_as_each_does(source: str, texts: list[str]) -> None:
    pattern = Pattern(source)
    found = pattern.occurs_in_each(texts)
    if found is not None:
        assert found.tolist() == [pattern.occurs_in(text) for text in texts]


@given(st.lists(st.text(st.sampled_from("ab1-."), max_size=6), min_size=1, max_size=20))
def test_plain_patterns_match_many_texts_at_once(texts: list[str]) -> None:
    for source in (
        *("", "a", "^a.*1$", "(a|b)+-", "[0-9]{1,2}\\.b", "b$|^1", "^$", "[^a]", "[^\\s\\d-]$"),
        *("\\Aa\\s*", "1\\z", "(?i)^A|B-", "(?i:B)1", "\\b1", "\\D\\W\\S", "(?P<part>a|b)\\B."),
    ):
        pattern = Pattern(source)
        found = pattern.occurs_in_each(texts)
        assert found is not None
        assert found.tolist() == [pattern.occurs_in(text) for text in texts]


@pytest.mark.parametrize(
    "source", ["(?s).", "(?m)^a", "\\n", "[[:alpha:]]", "[\\D]", "[]a]", "\\pL", "\\Qa\\E"]
)
def test_what_a_newline_may_match_is_searched_text_by_text(source: str) -> None:
    assert Pattern(source).occurs_in_each(["a", "b"]) is None


def test_texts_that_are_not_lines_are_searched_one_by_one() -> None:
    pattern = Pattern("a")
    assert pattern.occurs_in_each([]) is None
    assert pattern.occurs_in_each(["a", "b\n"]) is None
    assert pattern.occurs_in_each(["a", "\ud800"]) is None
    assert pattern.occurs_in_each(["a" * (3 << 20)]) is None
