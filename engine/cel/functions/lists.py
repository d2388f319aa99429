"""Functions of lists: the lists and sets extensions, and those of Kubernetes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from engine.cel.budget import Budget
from engine.cel.functions.registry import Overload
from engine.cel.operators import add, contains, greater, is_nan, less, sorted_by
from engine.cel.values import (
    ABSENT,
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    LIST,
    NUMBERS,
    OPTIONAL,
    UINT,
    BoolKey,
    CelType,
    Duration,
    OptionalValue,
    UInt,
    equal,
    present,
)
from engine.errors import CelError

_COMPARISONS_PER_STEP: Final = 16


def charge_comparisons(budget: Budget, count: int) -> None:
    """Charge the comparison of a value with `count` others."""
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

# List functions of Kubernetes: `isSorted`, `sum`, `min`, `indexOf`, ...
#
# Source: apiserver `pkg/cel/library/lists.go`. The other list functions are cel-go's own.


_SUMMABLE: Final = frozenset({int, UInt, float, Duration})
_ELEMENTS_PER_STEP: Final = 64


def _charge(budget: Budget, values: Sequence[object]) -> None:
    """Charge a visit of every element: within a loop, lists of the request multiply."""
    budget.spend(len(values) // _ELEMENTS_PER_STEP)


TYPED_SUM: Final = "@sum"
"""The name of `sum` of a list whose type is known: its second argument is the sum of none.

No source can name it.
"""

ZEROS: Final[Mapping[CelType, object]] = {
    INT: 0,
    UINT: UInt(0),
    DOUBLE: 0.0,
    DURATION: Duration(0),
}
"""The sum of an empty list, by the type of its elements."""


def is_sorted(budget: Budget, values: Sequence[object]) -> bool:
    """Return whether no element is less than its predecessor."""
    _charge(budget, values)
    previous = values[0] if values else None
    for value in values:
        if _beats(greater, previous, value):
            return False
        previous = value
    return True


def _beats(better: Callable[[object, object], bool], value: object, other: object) -> bool:
    """Return whether a value is better than another; NaN is neither better nor worse than any.

    Here Kubernetes ignores that NaN has no order.
    """
    return not (is_nan(value) or is_nan(other)) and better(value, other)


def sum_of(budget: Budget, values: Sequence[object], zero: object = 0) -> object:
    """Return the sum of numbers of one type, or of durations; `zero` of an empty list."""
    _charge(budget, values)
    total = values[0] if values else zero
    kind = type(total)
    for value in values:
        if type(value) is not kind or kind not in _SUMMABLE:
            raise CelError("only numbers of one type, or durations, have a sum")
    for value in islice(values, 1, None):
        total = add(total, value, budget)
    return total


def _extreme(
    name: str, better: Callable[[object, object], bool]
) -> Callable[[Budget, Sequence[object]], object]:
    def choose(budget: Budget, values: Sequence[object]) -> object:
        _charge(budget, values)
        if not values:
            raise CelError(f"an empty list has no {name}")
        best = values[0]
        for value in values:
            if _beats(better, value, best):
                best = value
        return best

    return choose


minimum: Final = _extreme("minimum", less)
maximum: Final = _extreme("maximum", greater)


def index_of(budget: Budget, values: Sequence[object], item: object) -> int:
    """Return the position of the first element that equals `item`, or -1."""
    _charge(budget, values)
    return next((position for position, value in enumerate(values) if equal(value, item)), -1)


def last_index_of(budget: Budget, values: Sequence[object], item: object) -> int:
    """Return the position of the last element that equals `item`, or -1."""
    _charge(budget, values)
    last = len(values) - 1
    return next(
        (last - back for back, value in enumerate(reversed(values)) if equal(value, item)), -1
    )


def includes(budget: Budget, target: object, item: object) -> bool:
    """Return whether `target` is a list that contains the item, or equals the item."""
    if isinstance(target, list | tuple):
        _charge(budget, target)
        return contains(item, target)
    return equal(target, item)


KUBERNETES_LISTS: Final = (
    Overload("isSorted", (list,), is_sorted, member=True, result=BOOL, budgeted=True),
    Overload("sum", (list,), sum_of, member=True, budgeted=True),
    Overload(TYPED_SUM, (list, object), sum_of, budgeted=True),
    Overload("min", (list,), minimum, member=True, budgeted=True),
    Overload("max", (list,), maximum, member=True, budgeted=True),
    Overload("indexOf", (list, object), index_of, member=True, result=INT, budgeted=True),
    Overload("lastIndexOf", (list, object), last_index_of, member=True, result=INT, budgeted=True),
    Overload("includes", (object, object), includes, member=True, result=BOOL, budgeted=True),
)


# Statistics of numbers: of all there are, and the same in whatever order they are.


def mean(numbers: Sequence[float]) -> float:
    """Return the mean of finite numbers, at least one."""
    return math.fsum(numbers) / len(numbers)


def stddev(numbers: Sequence[float]) -> float:
    """Return the standard deviation of finite numbers, at least one."""
    middle = mean(numbers)
    squares = [(number - middle) * (number - middle) for number in numbers]
    return math.sqrt(math.fsum(squares) / len(numbers))


STATISTICS_BY_NAME: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": mean,
    "stddev": stddev,
}


def _statistic(name: str) -> Callable[[Budget, Sequence[object]], float]:
    def compute(budget: Budget, values: Sequence[object]) -> float:
        _charge(budget, values)
        if not values:
            raise CelError(f"an empty list has no {name}")
        if not all(type(value) in NUMBERS for value in values):
            raise CelError(f"only numbers have a {name}")
        numbers = [float(value) for value in values]  # type: ignore[arg-type]  # one of NUMBERS
        if not all(map(math.isfinite, numbers)):
            raise CelError(f"numbers that are not finite have no {name}")
        return STATISTICS_BY_NAME[name](numbers)

    return compute


STATISTICS: Final = tuple(
    Overload(name, (list,), _statistic(name), member=True, result=DOUBLE, budgeted=True)
    for name in STATISTICS_BY_NAME
)


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


SETS: Final = (
    Overload("sets.contains", (list, list), _contains, result=BOOL, budgeted=True),
    Overload("sets.equivalent", (list, list), _equivalent, result=BOOL, budgeted=True),
    Overload("sets.intersects", (list, list), _intersects, result=BOOL, budgeted=True),
)
