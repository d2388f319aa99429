from __future__ import annotations

import pytest
from hypothesis import given

from engine.cel import Environment, Limits
from engine.cel.ast import Node
from engine.cel.check import check
from engine.cel.parser import parse
from engine.cel.unparse import unparse
from engine.cel.values import DYN
from tests.engine.cel.vector.random_expressions import EXPRESSIONS

_ENVIRONMENT = Environment(
    variables=dict.fromkeys(("a", "b", "c", "node", "pod", "x.y"), DYN), limits=Limits(depth=99)
)


def _parsed(text: str) -> Node:
    return parse(text, _ENVIRONMENT.limits)


def _resolved(text: str) -> Node:
    return check(_parsed(text), _ENVIRONMENT).root


@pytest.mark.parametrize(
    "text",
    [
        "a + b * c - 1",
        "(a + b) * c",
        "a - (b - c)",
        "a && b || !c && (a || b)",
        "a && (b && c)",
        "(a || b) ? c : a ? b : c",
        "(a ? b : c) ? 1 : 2",
        "a ? (b ? 1 : 2) : 3",
        "a < b == (b < c)",
        "!(a in [1, 2u, -3, 1.5, 1e+300])",
        "-(-1)",
        "-(1.abs())",
        "--a",
        "-(a + b)",
        "(-1).abs()",
        "!(!a)",
        "a.b.`c-d/e`.?f[?'g'][0]",
        "a['it\\'s \\u00e9\\n']",
        "a.`true`",
        "has(a.b.`c.d`)",
        "[a, ?b, null, true, false]",
        "{a: b, ?'k': c, 1u: {}}",
        "b'a\\x80' + r\"\\d\"",
        "math.greatest(a, b) + size(c)",
        "a.matches('x').b",
        "duration('90s') + a > duration('1h')",
        "timestamp('2020-02-29T12:30:00.5Z') < a",
        "type(a) == int",
        "a.all(x, x > b) || a.exists(i, v, i == v) || a.exists_one(x, x)",
        "a.map(x, x + 1).filter(y, y > 0)",
        "a.map(x, x > 0, x + 1)",
        "a.map(x, x > 0, x)",
        "a.transformList(i, v, v > 0, i)",
        "a.transformMap(k, v, v).transformMapEntry(k, v, {k: v})",
        "a.sortBy(x, -x)",
        "a.exists(x, b.all(x, x == 1) && x == 2)",
        "cel.bind(t, a + b, t * t)",
        "a.?b.optMap(x, x + 1).orValue(c)",
        "a.?b.or(c.?d).optFlatMap(x, x.?y)",
        "x.y + a",
        "quantity('1Gi').compareTo(quantity(a)) > 0 && url('https://a/b').getHost() == a",
    ],
)
def test_the_text_of_a_tree_parses_to_the_same_tree(text: str) -> None:
    assert _parsed(unparse(_parsed(text))) == _parsed(text)
    assert _resolved(unparse(_resolved(text))) == _resolved(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("((a))+((b*c))", "a + b * c"),
        ('a["b"] == "c"', "a['b'] == 'c'"),
        ("a . b\n  && c", "a.b && c"),
        ("a.map(x, x > 0, x)", "a.filter(x, x > 0)"),
        ("a.existsOne(x, x)", "a.exists_one(x, x)"),
        ("0x10", "16"),
        ("ip('::1') == a", "ip('::1') == a"),
        ("quantity('1Gi').add(quantity('1')) == a", "quantity('1Gi').add(quantity('1')) == a"),
        (
            "format.dns1123Label().validate(a).hasValue()",
            "format.dns1123Label().validate(a).hasValue()",
        ),
        ("format.named('uri') == a", "format.named('uri') == a"),
    ],
)
def test_the_text_is_one_line_without_needless_parentheses(text: str, shown: str) -> None:
    assert unparse(_resolved(text)) == shown


@given(EXPRESSIONS)
def test_the_text_of_a_random_tree_parses_to_the_same_tree(text: str) -> None:
    assert _resolved(unparse(_resolved(text))) == _resolved(text)
