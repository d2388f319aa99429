from __future__ import annotations

import contextlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import CelSyntaxError, Limits, ast
from engine.cel.parser import parse
from engine.cel.values import INT


def _name(name: str) -> ast.Name:
    return ast.Name(name, offset=0)


def _int(value: int) -> ast.Literal:
    return ast.Literal(value, INT, offset=0)


def test_operators_bind_as_the_language_says() -> None:
    product = ast.Binary("*", _int(2), _int(3), offset=6)
    total = ast.Binary("+", _int(1), product, offset=2)
    assert parse("1 + 2 * 3 < x") == ast.Binary("<", total, _name("x"), offset=10)
    assert parse("a - b - c") == parse("(a - b) - c") != parse("a - (b - c)")
    assert parse("a || b && c") == parse("a || (b && c)")
    assert parse("a ? b : c ? d : e") == parse("a ? b : (c ? d : e)")
    assert parse("-a.b") == parse("-(a.b)")


def test_a_chain_of_and_is_one_node() -> None:
    names = (_name("a"), _name("b"), _name("c"))
    assert parse("a && b && c") == ast.And(names, offset=0)


def test_a_minus_before_a_number_belongs_to_it() -> None:
    assert parse("-9223372036854775808") == _int(-(2**63))
    assert parse("--1") == ast.Negate(_int(-1), offset=0)
    assert parse("1-1") == ast.Binary("-", _int(1), _int(1), offset=0)


def test_equal_trees_are_equal_wherever_they_stand() -> None:
    tree = parse("a.b == 1 || a.b == 1")
    assert isinstance(tree, ast.Or)
    first, second = tree.operands
    assert first == second
    assert hash(first) == hash(second)
    assert first.offset < second.offset


@pytest.mark.parametrize("pair", [("1", "1.0"), ("1", "1u"), ("0.0", "-0.0"), ("1", "true")])
def test_literals_that_python_mixes_are_different_trees(pair: tuple[str, str]) -> None:
    first, second = pair
    assert parse(first) != parse(second)


def test_every_node_knows_where_it_stands() -> None:
    tree = parse("  a.bc[0] + f(x)")
    assert {(type(node).__name__, node.offset) for node, _ in ast.walk(tree)} == {
        ("Binary", 10),
        ("Index", 6),
        ("Select", 4),
        ("Name", 2),
        ("Literal", 7),
        ("Call", 12),
        ("Name", 14),
    }


def test_macros_are_nodes_and_plain_calls_without_macros() -> None:
    assert isinstance(parse("a.all(x, x)"), ast.Quantifier)
    assert isinstance(parse("has(a.b)"), ast.Has)
    assert isinstance(parse("a.all(x, x)", macros=False), ast.Call)
    assert isinstance(parse("a.all(x)"), ast.Call)
    assert isinstance(parse("cel.bind(x, 1, x)"), ast.Bind)
    assert isinstance(parse("other.bind(x, 1, x)"), ast.Call)


def test_filter_is_a_transform_whose_result_is_its_variable() -> None:
    assert parse("a.filter(x, x > 1)") == parse("a.map(x, x > 1, x)")


def test_optional_syntax() -> None:
    field = parse("a.?b")
    assert isinstance(field, ast.Select)
    assert field.optional
    index = parse("a[?0]")
    assert isinstance(index, ast.Index)
    assert index.optional
    elements = parse("[?a, b]")
    assert isinstance(elements, ast.ListLiteral)
    assert elements.optionals == {0}
    entries = parse("{?'k': a}")
    assert isinstance(entries, ast.MapLiteral)
    assert entries.entries[0].optional


def test_a_field_in_backticks_may_have_dots_and_dashes() -> None:
    assert parse("a.`b.c-d/e`") == ast.Select(_name("a"), "b.c-d/e", offset=0)


def test_reserved_words_are_fields_but_not_names() -> None:
    assert parse("a.if") == ast.Select(_name("a"), "if", offset=0)
    with pytest.raises(CelSyntaxError, match="`if` is a reserved word"):
        parse("if")


@pytest.mark.parametrize(
    ("source", "offset", "message"),
    [
        ("", 0, "the expression ends too early"),
        ("1 +", 3, "the expression ends too early"),
        ("a b", 2, "unexpected `b`"),
        ("a ? b", 5, "the expression ends too early"),
        ("a = 1", 2, "unexpected character `=`"),
        ("a & b", 2, "unexpected character `&`"),
        ("'abc", 0, "the text that begins with `'` is not closed"),
        ("f(a,)", 4, "unexpected `)`"),
        ("a.map(1, 2)", 6, "expected a plain name for a variable of the macro"),
        ("a.all(x, x, x)", 9, "the variables of a macro need different names"),
        ("M{f: 1}", 1, "messages cannot be built here"),
        ("9223372036854775808", 0, "`9223372036854775808` is out of range of `int`"),
        ("a.true", 2, "unexpected `true`"),
        ("`a`", 0, "unexpected `a`"),
    ],
)
def test_a_mistake_is_reported_where_it_is(source: str, offset: int, message: str) -> None:
    with pytest.raises(CelSyntaxError) as caught:
        parse(source)
    (problem,) = caught.value.problems
    assert (problem.offset, problem.message) == (offset, message)


@pytest.mark.parametrize(
    ("limits", "fits", "too_much"),
    [
        (Limits(source=5), "a + b", "a + bb"),
        (Limits(depth=3), "a.b.c", "a.b.c.d"),
        (Limits(depth=3), "((a))", "(((a)))"),
        (Limits(nodes=3), "a + b", "a + b + c"),
        (Limits(elements=2), "[1, 2]", "[1, 2, 3]"),
        (Limits(elements=2), "{1: 1, 2: 2}", "{1: 1, 2: 2, 3: 3}"),
    ],
)
def test_limits_hold_while_reading(limits: Limits, fits: str, too_much: str) -> None:
    parse(fits, limits)
    with pytest.raises(CelSyntaxError):
        parse(too_much, limits)


def test_a_long_list_of_literals_is_within_the_default_limits() -> None:
    parse(f"a in [{', '.join(map(str, range(1000)))}]")


@pytest.mark.parametrize(
    "unit",
    [
        "(",
        "[",
        "{",
        "-",
        "!",
        "a.",
        "a[",
        "a?",
        "a?a:",
        "a+",
        "a&&",
        "f(",
        "a.all(x,",
        "[1,",
        "'",
        '"',
    ],
)
def test_no_hostile_text_exhausts_the_stack(unit: str) -> None:
    source = unit * (8192 // len(unit))
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(900)  # what a caller deep in a server may have left
        with pytest.raises(CelSyntaxError):
            parse(source)
    finally:
        sys.setrecursionlimit(limit)


@given(st.text(alphabet="ab1.0'\"[]{}()?:,+-*/<>=!&| \\x`rnull\n", max_size=60))
def test_any_text_is_a_tree_or_a_syntax_error(source: str) -> None:
    with contextlib.suppress(CelSyntaxError):
        parse(source)
