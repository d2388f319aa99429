from __future__ import annotations

import pytest

from engine.cel import Budget, BudgetExhaustedError
from engine.cel.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("'aé\U0001f431'.charAt(2)", "\U0001f431"),
        ("'abc'.charAt(3)", ""),
        ("'abc'.indexOf('', 3)", 3),
        ("'abc'.indexOf('a', 3)", -1),
        ("'abcabc'.indexOf('bc', 2)", 4),
        ("'abc'.lastIndexOf('')", 3),
        ("'abc'.lastIndexOf('', 1)", 1),
        ("'abcabc'.lastIndexOf('abc', 2)", 0),
        ("'abcabc'.lastIndexOf('abc', 3)", 3),
        ("'abc'.substring(3)", ""),
        ("'abc'.substring(1, 3)", "bc"),
        ("'abc'.replace('', '-')", "-a-b-c-"),
        ("'abc'.replace('', '-', 2)", "-a-bc"),
        ("'abcb'.replace('b', '-', 0)", "abcb"),
        ("'abcb'.replace('b', '-', 1)", "a-cb"),
        ("'abcb'.replace('b', '', -1)", "ac"),
        ("'a,b,c'.split(',')", ["a", "b", "c"]),
        ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
        ("'a,b,c'.split(',', -1)", ["a", "b", "c"]),
        ("'a,b,c'.split(',', 0)", []),
        ("'abc'.split('')", ["a", "b", "c"]),
        ("'abc'.split('', 2)", ["a", "bc"]),
        ("''.split(',')", [""]),
        ("''.split('')", []),
        ("['a', 'b'].join('-')", "a-b"),
        ("[].join('-')", ""),
        ("'\\u2003\\u0085a\\u200b \\t'.trim()", "a\u200b"),
        ("'\\x1ca\\x1f'.trim()", "\x1ca\x1f"),  # blank for Python, not for Unicode
        ("'ÀaZ'.lowerAscii()", "Àaz"),
        ("'àaZ'.upperAscii()", "àAZ"),
        ("'aé\U0001f431'.reverse()", "\U0001f431éa"),
        ("strings.quote('\\a\"\\\\\\x01é')", '"\\a\\"\\\\\x01é"'),
    ],
)
def test_strings(source: str, value: object) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source",
    [
        "'abc'.charAt(4)",
        "'abc'.charAt(-1)",
        "'abc'.indexOf('a', 4)",
        "'abc'.indexOf('', -1)",
        "'abc'.lastIndexOf('a', 4)",
        "'abc'.substring(4)",
        "'abc'.substring(2, 1)",
        "'abc'.substring(0, 4)",
        "['a', 1].join()",
        "[1].join(',')",
        "'a'.replace('a', 1)",
        "'42'.charAt(true)",
    ],
)
def test_positions_and_types_that_do_not_fit_are_errors(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)


def test_a_result_is_measured_before_it_is_built() -> None:
    # 100 times 100 characters; built first, 10**8 of them would be in memory.
    with pytest.raises(BudgetExhaustedError):
        evaluate("x.replace('a', x)", Budget(max_text=9_999), x="a" * 100)
    assert evaluate("x.replace('a', x).size()", Budget(max_text=10_000), x="a" * 100) == 10_000
    with pytest.raises(BudgetExhaustedError):
        evaluate("x.split('')", Budget(max_items=99), x="a" * 100)
