from __future__ import annotations

import pytest

from engine.cel import Budget, BudgetExhaustedError
from engine.cel.errors import CelError
from engine.cel.values import ABSENT, equal, present
from tests.engine.cel.functions.evaluating import evaluate


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[1, 2, 3].slice(1, 3)", [2, 3]),
        ("[1, 2, 3].slice(3, 3)", []),
        ("[1, [2, [3]]].flatten()", [1, 2, [3]]),
        ("[1, [2, [3]]].flatten(2)", [1, 2, 3]),
        ("[[1]].flatten(0)", [[1]]),
        ("[1, 1.0, 1u, true, 'a', 'a', null, null].distinct()", [1, True, "a", None]),
        ("[[1], [1.0], {'a': 1}, {'a': 1u}].distinct()", [[1], {"a": 1}]),
        ("[0.0/0.0, 0.0/0.0].distinct().size()", 2),
        ("lists.range(3)", [0, 1, 2]),
        ("[1, 2].reverse()", [2, 1]),
        ("['b', 'a'].sort()", ["a", "b"]),
        ("[].sort()", []),
        ("[1, 2].first()", present(1)),
        ("[1, 2].last()", present(2)),
        ("[].first()", ABSENT),
    ],
)
def test_lists(source: str, value: object) -> None:
    assert equal(evaluate(source), value)


@pytest.mark.parametrize(
    "source",
    [
        "[1].slice(-1, 1)",
        "[1].slice(1, 0)",
        "[1].slice(0, 2)",
        "[1].flatten(-1)",
        "lists.range(-1)",
        "[1, 'a'].sort()",
        "[1, 1.0].sort()",
        "[[1]].sort()",
    ],
)
def test_these_fail(source: str) -> None:
    with pytest.raises(CelError):
        evaluate(source)


def test_comparing_all_with_all_is_paid_for() -> None:
    # Lists cannot be hashed, so each of 1,000 is compared with all before it.
    lists = [[number] for number in range(1000)]
    assert evaluate("x.distinct().size()", Budget(100_000), x=lists) == 1000
    with pytest.raises(BudgetExhaustedError):
        evaluate("x.distinct().size()", Budget(10_000), x=lists)
    assert evaluate("x.distinct().size()", Budget(100), x=list(range(1000))) == 1000
