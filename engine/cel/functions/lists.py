"""The lists extension: slices, order and duplicates of lists. `sortBy` is a macro."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from engine.cel.budget import Budget
from engine.cel.errors import CelError
from engine.cel.functions.registry import Overload
from engine.cel.operators import sorted_by
from engine.cel.values import (
    ABSENT,
    INT,
    LIST,
    OPTIONAL,
    BoolKey,
    CelType,
    OptionalValue,
    UInt,
    equal,
    present,
)

_COMPARISONS_PER_STEP: Final = 16


def charge_comparisons(budget: Budget, count: int) -> None:
    """Charge the comparison of a value with `count` others.

    Raises:
        BudgetExhaustedError: the budget does not cover it.
    """
    budget.spend(1 + count // _COMPARISONS_PER_STEP)


def _slice(values: Sequence[object], start: int, end: int) -> Sequence[object]:
    if 0 <= start <= end <= len(values):
        return values[start:end]
    raise CelError(f"no slice from {start} to {end} in a list of {len(values)}")


def _flatten(budget: Budget, values: Sequence[object], depth: int = 1) -> list[object]:
    if depth < 0:
        raise CelError("the depth of `flatten` is negative")
    return budget.collect(_flat(values, depth))


def _flat(values: Sequence[object], depth: int) -> Iterator[object]:
    for value in values:
        if depth and isinstance(value, list | tuple):
            yield from _flat(value, depth - 1)
        else:
            yield value


def _distinct(budget: Budget, values: Sequence[object]) -> list[object]:
    seen: set[Hashable] = set()
    unhashable: list[object] = []
    distinct: list[object] = []
    for value in values:
        if type(value) in _HASHED:
            key = BoolKey(value) if type(value) is bool else value
            if key in seen:
                continue
            if equal(value, value):  # NaN is distinct from itself
                seen.add(key)
        else:
            charge_comparisons(budget, len(unhashable))
            if any(equal(value, other) for other in unhashable):
                continue
            unhashable.append(value)
        distinct.append(value)
    return distinct


# Python's equality and hash agree with CEL's for values of these types, except for integers beyond
# 2**53 beside doubles, where CEL's equality is not transitive and "distinct" has no meaning.
_HASHED: Final = frozenset({bool, int, UInt, float, str, bytes, type(None)})


def _range(budget: Budget, count: int) -> list[object]:
    if count < 0:
        raise CelError("the size of `lists.range` is negative")
    budget.check_items(count)
    return list(range(count))


def _reverse(values: Sequence[object]) -> Sequence[object]:
    return values[::-1]


def _sort(values: Sequence[object]) -> list[object]:
    return sorted_by(values, values)


def _first(values: Sequence[object]) -> OptionalValue:
    return present(values[0]) if values else ABSENT


def _last(values: Sequence[object]) -> OptionalValue:
    return present(values[-1]) if values else ABSENT


FUNCTIONS: Final = (
    Overload("slice", (list, int, int), _slice, member=True, result=LIST),
    Overload("flatten", (list,), _flatten, member=True, result=LIST, budgeted=True),
    Overload("flatten", (list, int), _flatten, member=True, result=LIST, budgeted=True),
    Overload("distinct", (list,), _distinct, member=True, result=LIST, budgeted=True),
    Overload("lists.range", (int,), _range, result=CelType("list", (INT,)), budgeted=True),
    Overload("reverse", (list,), _reverse, member=True, result=LIST),
    Overload("sort", (list,), _sort, member=True, result=LIST),
    Overload("first", (list,), _first, member=True, result=OPTIONAL),
    Overload("last", (list,), _last, member=True, result=OPTIONAL),
)
