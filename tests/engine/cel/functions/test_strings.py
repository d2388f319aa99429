from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Budget, BudgetExhaustedError
from engine.errors import CelError
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


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("'%s is %d%%'.format(['cpu', 65])", "cpu is 65%"),
        ("'%s'.format([1.0])", "1"),
        ("'%s'.format([1e21])", "1000000000000000000000"),
        ("'%s'.format([duration('1.5s')])", "1.5s"),
        ("'%s'.format([timestamp(0)])", "1970-01-01T00:00:00Z"),
        ("'%s'.format([[1, 'a', null, [true, b'b'], {}, []]])", "[1, a, null, [true, b], {}, []]"),
        ("'%s'.format([{'b': 1, 'a': [2], true: 3, 1u: 4}])", "{1: 4, a: [2], b: 1, true: 3}"),
        ("'%s'.format([int])", "int"),
        ("'%d'.format([1.5])", "1.5"),
        ("'%d'.format([-0.0/0.0])", "NaN"),
        ("'%f'.format([1])", "1.000000"),
        ("'%.2f'.format([0.125])", "0.12"),  # a tie, to even
        ("'%.0f'.format([2.5])", "2"),
        ("'%e'.format([1e100])", "1.000000e+100"),
        ("'%.1e'.format([1052.03])", "1.1e+03"),
        ("'%e'.format([-1.0/0.0])", "-Infinity"),
        ("'%b %b'.format([-5, true])", "-101 1"),
        ("'%o'.format([8u])", "10"),
        ("'%x %X %x'.format([-255, 'hé', b'\\xab'])", "-ff 68C3A9 ab"),
        ("'%s'.format([1, 'unused'])", "1"),
    ],
)
def test_clauses(source: str, text: str) -> None:
    assert evaluate(source) == text


@pytest.mark.parametrize(
    "source",
    [
        "'%s'.format([])",
        "'%'.format([1])",
        "'%a'.format([1])",
        "'%5d'.format([1])",
        "'%.'.format([1])",
        "'%.f'.format([1.0])",
        "'%.1001f'.format([1.0])",
        "'%.99999999999f'.format([1.0])",
        "'%d'.format([true])",
        "'%d'.format(['1'])",
        "'%f'.format(['NaN'])",
        "'%b'.format([1.0])",
        "'%o'.format([true])",
        "'%x'.format([1.0])",
        "'%s'.format([optional.of(1)])",
        "'%s'.format(['a'].map(x, optional.of(x)))",
    ],
)
def test_a_clause_that_does_not_fit_its_argument_is_an_error(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)


def test_a_huge_text_is_stopped_on_the_way() -> None:
    shared = ["x" * 1000] * 1000
    with pytest.raises(BudgetExhaustedError):
        evaluate("'%s'.format([x])", Budget(max_text=5000), x=[shared] * 1000)


@given(st.binary(max_size=20))
def test_bytes_come_back_from_base64_with_or_without_padding(value: bytes) -> None:
    assert evaluate("base64.decode(base64.encode(x))", x=value) == value
    assert evaluate("base64.decode(base64.encode(x).replace('=', ''))", x=value) == value


@pytest.mark.parametrize("text", ["a", "a-b_", "!", "=", "aGVsbG8==="])
def test_what_is_not_base64_is_an_error(text: str) -> None:
    with pytest.raises(CelError):
        evaluate("base64.decode(x)", x=text)
