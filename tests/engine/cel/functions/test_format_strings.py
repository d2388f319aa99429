from __future__ import annotations

import pytest

from engine.cel import Budget, BudgetExhaustedError
from engine.cel.errors import CelError
from tests.engine.cel.functions.evaluating import evaluate


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
