"""The sets extension: lists compared without regard to order and duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.cel.budget import Budget
from engine.cel.functions.lists import compare_with
from engine.cel.functions.registry import Overload
from engine.cel.operators import contains
from engine.cel.values import BOOL


def _found(budget: Budget, wanted: Sequence[object], values: Sequence[object]) -> Iterator[bool]:
    """Yield for each of `wanted` whether it is among `values`."""
    for value in wanted:
        compare_with(budget, len(values))
        yield contains(value, values)


def _contains(budget: Budget, values: Sequence[object], wanted: Sequence[object]) -> bool:
    return all(_found(budget, wanted, values))


def _equivalent(budget: Budget, one: Sequence[object], other: Sequence[object]) -> bool:
    return _contains(budget, one, other) and _contains(budget, other, one)


def _intersects(budget: Budget, one: Sequence[object], other: Sequence[object]) -> bool:
    return any(_found(budget, one, other))


FUNCTIONS: Final = (
    Overload("sets.contains", (list, list), _contains, result=BOOL, budgeted=True),
    Overload("sets.equivalent", (list, list), _equivalent, result=BOOL, budgeted=True),
    Overload("sets.intersects", (list, list), _intersects, result=BOOL, budgeted=True),
)
