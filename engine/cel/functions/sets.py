"""The sets extension: lists compared without regard to order and duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.cel.budget import Budget
from engine.cel.functions.lists import charge_comparisons
from engine.cel.functions.registry import Overload
from engine.cel.operators import contains
from engine.cel.values import BOOL


def _membership(
    budget: Budget, items: Sequence[object], values: Sequence[object]
) -> Iterator[bool]:
    """Yield for each of `items` whether it is in `values`."""
    for value in items:
        charge_comparisons(budget, len(values))
        yield contains(value, values)


def _contains(budget: Budget, values: Sequence[object], items: Sequence[object]) -> bool:
    return all(_membership(budget, items, values))


def _equivalent(budget: Budget, left: Sequence[object], right: Sequence[object]) -> bool:
    return _contains(budget, left, right) and _contains(budget, right, left)


def _intersects(budget: Budget, left: Sequence[object], right: Sequence[object]) -> bool:
    return any(_membership(budget, left, right))


FUNCTIONS: Final = (
    Overload("sets.contains", (list, list), _contains, result=BOOL, budgeted=True),
    Overload("sets.equivalent", (list, list), _equivalent, result=BOOL, budgeted=True),
    Overload("sets.intersects", (list, list), _intersects, result=BOOL, budgeted=True),
)
