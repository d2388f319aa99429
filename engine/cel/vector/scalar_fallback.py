"""Scalar evaluation of parts without a kernel, once for each distinct combination of values."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.cel.budget import Budget
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.evaluate import BUDGET, Closure, Frame
from engine.cel.values import NUMBERS, Duration, Timestamp
from engine.cel.vector.columns import (
    MOMENTS,
    SPANS,
    Bools,
    Column,
    DictColumn,
    MissingPath,
    NotVectorizableError,
    Path,
    Table,
    constant,
)
from engine.cel.vector.steps import EvalContext, Step, outcome
from engine.cel.vector.time_kernels import refuse_nanoseconds

MOST_DISTINCT: Final = 512
"""Evaluations per request that are free; beyond, each costs an iteration of the budget."""

_FEW: Final = 32  # evaluations that take no longer than a lookup in the cache
_LONGEST_KEY: Final = 4096  # characters
_DENSE: Final = 65_536  # combinations of codes up to which counting them beats sorting them
_COUNTABLE: Final = 2**62  # combinations of codes that fit into an int64


class Accepts(enum.Enum):
    """The values that the position of a part allows."""

    CONDITION = enum.auto()  # a bool, anything else is a fault
    NUMBER = enum.auto()  # any number, as a double, anything else is a fault
    BOOL = enum.auto()  # certain to be of this type, like the next two
    INT = enum.auto()
    DOUBLE = enum.auto()
    TIMESTAMP = enum.auto()
    DURATION = enum.auto()

    def admit(self, value: Any) -> Any:  # noqa: ANN401 (any CEL value to one that numpy takes)
        """Convert a value to the type of the column.

        Raises:
            CelError: it is a fault.
            NotVectorizableError: it is not of the type that was certain.
        """
        kind = type(value)
        if self is Accepts.NUMBER:
            if kind in NUMBERS:
                return float(value)
        elif kind is _KINDS[self]:
            return value if kind not in _TIMES else _time(value)
        if self in {Accepts.CONDITION, Accepts.NUMBER}:
            raise CelError("a value of a type that is not allowed here")
        raise NotVectorizableError


_KINDS: Final = {
    Accepts.CONDITION: bool,
    Accepts.NUMBER: float,
    Accepts.BOOL: bool,
    Accepts.INT: int,
    Accepts.DOUBLE: float,
    Accepts.TIMESTAMP: Timestamp,
    Accepts.DURATION: Duration,
}
_TIMES: Final[Mapping[type, np.dtype[Any]]] = {Timestamp: MOMENTS, Duration: SPANS}


def _time(value: object) -> NDArray[Any]:
    """Return a timestamp or duration as numpy takes it.

    Raises:
        NotVectorizableError: it has nanoseconds.
    """
    column = constant(value)
    refuse_nanoseconds(column)
    return column.values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScalarFallback(Step):
    """Evaluates a part by its closure, once for all rows with equal values.

    Its constants, the sub-expressions that read the request alone, are evaluated first. Their
    values belong to the cache key of the column, so pods of one template share it.

    Attributes:
        accepts: the values that its position allows.
        paths: the leaves that it reads; at least one.
        closure: reads the leaves, and the constants by the names of `constant_name`.
        is_root: whether it is a whole expression.
        in_bulk: gives its values for many strings of its only path, if it can; see `Overload`.
    """

    accepts: Accepts
    paths: tuple[Path, ...]
    closure: Closure
    is_root: bool = False
    in_bulk: Callable[[Sequence[str]], Bools | None] | None = None

    def column(self, context: EvalContext, mask: Bools | None) -> Column:
        """Evaluate the column, or take it from the cache of the table."""
        if not self.constants:
            return context.table.remember(
                (self.accepts, self.text),
                self.paths,
                lambda rows: self.evaluate(rows, {}, None, None),
                for_all_requests=True,
            )
        constants: Frame = {}
        for position, closure in enumerate(self.constants):
            value = outcome(closure, context.frame)
            if not isinstance(value, CelError):  # else reading its name fails
                constants[constant_name(position)] = value
        budget: Budget = context.frame[BUDGET]
        key = None if self._has_few_values(context.table, mask) else memory_key(constants)
        if key is None:
            return self.evaluate(context.table, constants, budget, mask)
        return context.table.remember(
            (self.accepts, self.text, key),
            self.paths,
            lambda rows: self.evaluate(rows, constants, budget, None),
            for_all_requests=False,
        )

    def _has_few_values(self, table: Table, mask: Bools | None) -> bool:
        if mask is not None and np.count_nonzero(mask) <= _FEW:
            return True
        columns = self._dictionaries(table)
        return columns is not None and math.prod(_sizes(columns)) <= _FEW

    def _dictionaries(self, table: Table) -> list[DictColumn] | None:
        """Dictionary columns of all leaves; None if one has none, or they have too many values."""
        columns = [column for path in self.paths if (column := table.dictionary(path)) is not None]
        if len(columns) < len(self.paths) or math.prod(_sizes(columns)) > _COUNTABLE:
            return None
        return columns

    def evaluate(
        self, table: Table, constants: Frame, budget: Budget | None, mask: Bools | None
    ) -> Column:
        """Evaluate the column, shape (n,).

        Args:
            table: the rows.
            constants: the variables of the closure other than the leaves.
            budget: what it may cost; if None, each evaluation has a budget of its own.
            mask: the rows to evaluate, None for all; others may get any value.
        """
        columns = self._dictionaries(table)
        rows: Iterator[Mapping[str, object]]
        if columns is None and self.in_bulk is not None and mask is None:
            found = self._evaluate_in_bulk(table)
            if found is not None:
                return found
        if columns is None:
            numbers = np.arange(len(table)) if mask is None else np.flatnonzero(mask)
            rows = (table.row(number, self.paths) for number in numbers.tolist())
            count, index = len(numbers), _positions(numbers, len(table))
        else:
            combinations, index = _combinations(columns, mask)
            rows = (_row_of(self.paths, columns, codes) for codes in combinations)
            count = len(combinations)
        if budget is not None and count > MOST_DISTINCT:
            budget.spend(count)
        return self._gather(rows, count, index, {**constants, BUDGET: budget})

    def _evaluate_in_bulk(self, table: Table) -> Column | None:
        assert self.in_bulk is not None  # noqa: S101 - INVARIANT: the caller checks
        texts = table.texts(self.paths[0])
        if texts is None:
            return None
        present = np.fromiter((text is not None for text in texts), np.bool_, len(texts))
        found = self.in_bulk([text for text in texts if text is not None])
        if found is None:
            return None
        values = np.zeros(len(texts), np.bool_)
        values[present] = found
        return Column(values, None if present.all() else ~present)

    def _gather(
        self,
        rows: Iterator[Mapping[str, object]],
        count: int,
        index: NDArray[np.intp],
        frame: Frame,
    ) -> Column:
        """Evaluate the closure on each of `count` rows, then take the results by `index`."""
        kind = _KINDS[self.accepts]
        values: NDArray[Any] = np.zeros(max(count, 1), _TIMES.get(kind, kind))
        faults = np.zeros(max(count, 1), np.bool_)
        budget = frame[BUDGET]
        for position, row in enumerate(rows):
            frame.update(row)
            if budget is None:
                frame[BUDGET] = Budget()
            try:
                values[position] = self.accepts.admit(self.closure(frame))
            except BudgetExhaustedError:
                if budget is not None:
                    raise
                faults[position] = True
            except CelError:
                faults[position] = True
            except (RecursionError, OverflowError):
                if not self.is_root:  # the expression around it must not absorb the failure
                    raise NotVectorizableError from None
                faults[position] = True
        return Column(values.take(index), faults.take(index) if faults.any() else None)


def constant_name(position: int) -> str:
    """Return the name of a constant in a frame; no variable of a macro has such a name."""
    return f"@{position}"


def memory_key(values: object) -> str | None:
    """Return a text that differs for different CEL values, None if it would be too long."""
    try:
        text = repr(values)
    except (RecursionError, ValueError):  # the second: an int of thousands of digits
        return None
    return text if len(text) <= _LONGEST_KEY else None


def _sizes(columns: Sequence[DictColumn]) -> tuple[int, ...]:
    return tuple(len(column.values) for column in columns)


def _combinations(
    columns: Sequence[DictColumn], mask: Bools | None
) -> tuple[list[tuple[int, ...]], NDArray[np.intp]]:
    """Return the combinations of codes that occur within the mask, and the index of each row's.

    The index of other rows is arbitrary.
    """
    sizes = _sizes(columns)
    total = math.prod(sizes)
    if len(sizes) == 1 and total <= _FEW:
        return [(code,) for code in range(total)], columns[0].codes.astype(np.intp)
    joint = np.ravel_multi_index([column.codes for column in columns], sizes)
    masked = joint if mask is None else joint[mask]
    if total <= _DENSE:
        present = np.flatnonzero(np.bincount(masked, minlength=total))
        index = _positions(present, total).take(joint)
    else:
        present = np.unique(masked)
        index = np.searchsorted(present, joint).clip(max=max(len(present) - 1, 0))
    codes = (part.tolist() for part in np.unravel_index(present, sizes))
    return list(zip(*codes, strict=True)), index


def _positions(numbers: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Return the inverse of `numbers`: the position of each number below `size`, 0 for others."""
    positions = np.zeros(size, np.intp)
    positions[numbers] = np.arange(len(numbers))
    return positions


def _row_of(
    paths: Sequence[Path], columns: Sequence[DictColumn], codes: Sequence[int]
) -> dict[str, object]:
    """Return the variables of a row with these codes, restricted to `paths`."""
    row: dict[str, object] = {}
    for path, column, code in zip(paths, columns, codes, strict=True):
        value = column.values[code] if code else MissingPath(len(path) - 2)
        path_to_value = path
        if type(value) is MissingPath:
            path_to_value, value = path[: value.found + 1], value.value
        *above, last = path_to_value
        parent: Any = row
        for key in above:
            parent = parent.setdefault(key, {})
        if type(value) is dict and not value:  # other paths may have filled this map
            parent.setdefault(last, {})
        else:
            parent[last] = value
    return row
