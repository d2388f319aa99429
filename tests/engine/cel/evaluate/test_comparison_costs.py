"""Charges of comparisons: without them, a loop over a large list could multiply them."""

from __future__ import annotations

import pytest

from engine.cel import Budget, BudgetExhaustedError, Environment, compile_program
from engine.cel.values import DYN

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
