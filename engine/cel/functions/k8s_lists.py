"""List functions of Kubernetes: `isSorted`, `sum`, `min`, `indexOf`, ...

Source: apiserver `pkg/cel/library/lists.go`. The other list functions are cel-go's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from engine.cel.budget import Budget
from engine.cel.errors import CelError
from engine.cel.functions.registry import Overload
from engine.cel.operators import add, contains, greater, is_nan, less
from engine.cel.values import BOOL, DOUBLE, DURATION, INT, UINT, CelType, Duration, UInt, equal

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
    """Return whether no element is less than its predecessor.

    Raises:
        CelError: two neighbours cannot be ordered.
    """
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
    """Return the sum of numbers of one type, or of durations; `zero` of an empty list.

    Raises:
        CelError: the elements are of other or mixed types, or an intermediate sum overflows.
    """
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


FUNCTIONS: Final = (
    Overload("isSorted", (list,), is_sorted, member=True, result=BOOL, budgeted=True),
    Overload("sum", (list,), sum_of, member=True, budgeted=True),
    Overload(TYPED_SUM, (list, object), sum_of, budgeted=True),
    Overload("min", (list,), minimum, member=True, budgeted=True),
    Overload("max", (list,), maximum, member=True, budgeted=True),
    Overload("indexOf", (list, object), index_of, member=True, result=INT, budgeted=True),
    Overload("lastIndexOf", (list, object), last_index_of, member=True, result=INT, budgeted=True),
    Overload("includes", (object, object), includes, member=True, result=BOOL, budgeted=True),
)
