from __future__ import annotations

from itertools import repeat

import pytest

from engine.cel.budget import Budget
from engine.errors import BudgetExhaustedError


def test_a_budget_covers_as_many_steps_as_it_has() -> None:
    budget = Budget(3)
    budget.spend(2)
    budget.spend()
    assert budget.steps_left == 0
    with pytest.raises(BudgetExhaustedError):
        budget.spend()


def test_the_time_is_polled_every_hundred_steps() -> None:
    polls = []

    def expired() -> bool:
        polls.append(True)
        return len(polls) == 3

    budget = Budget(10_000, expired=expired)
    for _ in range(299):
        budget.spend()
    assert len(polls) == 2
    with pytest.raises(BudgetExhaustedError, match="out of time"):
        budget.spend()


def test_large_results_cost_steps() -> None:
    budget = Budget(10_000)
    budget.check_text(1023)
    budget.check_items(63)
    assert budget.steps_left == 10_000
    budget.check_text(65_536)  # 64 steps of 1024 characters
    budget.check_items(640)  # 10 steps of 64 items
    assert budget.steps_left == 10_000 - 64 - 10


def test_results_beyond_the_caps_are_refused() -> None:
    budget = Budget(max_text=10, max_items=10)
    with pytest.raises(BudgetExhaustedError):
        budget.check_text(11)
    with pytest.raises(BudgetExhaustedError):
        budget.check_items(11)


def test_an_endless_result_is_stopped() -> None:
    assert Budget().join(["a", "b"]) == "ab"
    assert Budget().collect(iter([1, 2])) == [1, 2]
    with pytest.raises(BudgetExhaustedError):
        Budget().join(repeat("abc"))
    with pytest.raises(BudgetExhaustedError):
        Budget().collect(repeat(1))
