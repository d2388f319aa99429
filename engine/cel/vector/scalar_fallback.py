"""Scalar evaluation of parts without a kernel, once for each distinct combination of values."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.cel.budget import Budget
from engine.cel.evaluate import BUDGET, Closure, Frame
from engine.cel.values import NUMBERS, Duration, Timestamp
from engine.cel.vector.columns import (
    FEW,
    MOMENTS,
    SPANS,
    Bools,
    Column,
    DictColumn,
    NotVectorizableError,
    Path,
    Table,
    combinations_of,
    constant,
    positions_of,
    rows_of,
    sizes_of,
)
from engine.cel.vector.kernels import refuse_nanoseconds
from engine.cel.vector.steps import EvalContext, Step, outcome
from engine.errors import BudgetExhaustedError, CelError

MOST_DISTINCT: Final = 512
"""Evaluations per request that are free; beyond, each costs an iteration of the budget."""

_LONGEST_KEY: Final = 4096  # characters
_COUNTABLE: Final = 2**62  # combinations of codes that fit into an int64
_NOTHING: Final = object()  # in place of a value where an evaluation failed


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
        """Convert a value to the type of the column."""
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
_PLAIN: Final = frozenset({bool, float})  # types of which numpy takes any value as it is
_TIMES: Final[Mapping[type, np.dtype[Any]]] = {Timestamp: MOMENTS, Duration: SPANS}


def _time(value: object) -> NDArray[Any]:
    """Return a timestamp or duration as numpy takes it."""
    column = constant(value)
    refuse_nanoseconds(column)
    return column.values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScalarFallback(Step):
    """Evaluates a part by its closure, once for all rows with equal values.

    Its constants, the sub-expressions that read the request alone, are evaluated first. Their
    values belong to the cache key of the column, so pods of one template share it.
    """

    accepts: Accepts  # the values that its position allows
    paths: tuple[Path, ...]  # the leaves that it reads; at least one
    closure: Closure  # reads the leaves, and the constants by the names of `constant_name`
    evaluation_steps: int  # what one evaluation costs of the budget for columns
    is_root: bool = False  # whether it is a whole expression

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
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
        if mask is not None and np.count_nonzero(mask) <= FEW:
            return True
        columns = self._dictionaries(table)
        return columns is not None and math.prod(sizes_of(columns)) <= FEW

    def _dictionaries(self, table: Table) -> list[DictColumn] | None:
        """Dictionary columns of all leaves; None if one has none, or they have too many values."""
        columns: list[DictColumn] = []
        for path in self.paths:
            column = table.dictionary(path) or table.texts(path)
            if column is None:
                return None
            columns.append(column)
        return columns if math.prod(sizes_of(columns)) <= _COUNTABLE else None

    def evaluate(
        self, table: Table, constants: Frame, budget: Budget | None, mask: Bools | None
    ) -> Column:
        """Evaluate the column, shape (n,)."""
        columns = self._dictionaries(table)
        if columns is None:
            numbers = np.arange(len(table)) if mask is None else np.flatnonzero(mask)
            rows = table.rows_at(numbers.tolist(), self.paths)
            count, index = len(numbers), positions_of(numbers, len(table))
        else:
            combinations, index = combinations_of(columns, mask)
            rows = rows_of(self.paths, columns, combinations)
            count = combinations.shape[1]
        if budget is not None and count > MOST_DISTINCT:
            budget.spend(count)
            budget.spend_on_columns(count * self.evaluation_steps)
        return _taken(self._values(rows, {**constants, BUDGET: budget}), index)

    def _values(self, rows: Iterator[Mapping[str, object]], frame: Frame) -> Column:
        """Evaluate the closure on each row."""
        closure, budget = self.closure, frame[BUDGET]
        if budget is None:
            frame[BUDGET] = Budget()
        found: list[object] = []
        for row in rows:
            frame.update(row)
            if budget is None and frame[BUDGET].is_charged:
                frame[BUDGET] = Budget()
            try:
                found.append(closure(frame))
            except BudgetExhaustedError:
                if budget is not None:
                    raise
                found.append(_NOTHING)
            except CelError:
                found.append(_NOTHING)
            except (RecursionError, OverflowError):
                if not self.is_root:  # the expression around it must not absorb the failure
                    raise NotVectorizableError from None
                found.append(_NOTHING)
        return self._admitted(found)

    def _admitted(self, found: Sequence[object]) -> Column:
        """Return values of the language as a column."""
        kind = _KINDS[self.accepts]
        if kind in _PLAIN and {kind}.issuperset(map(type, found)):
            return Column(np.array(found, kind))
        values: NDArray[Any] = np.zeros(len(found), _TIMES.get(kind, kind))
        faults = np.zeros(len(found), np.bool_)
        for position, value in enumerate(found):
            if value is _NOTHING:
                faults[position] = True
                continue
            try:
                values[position] = self.accepts.admit(value)
            except CelError:
                faults[position] = True
            except OverflowError:
                if not self.is_root:
                    raise NotVectorizableError from None
                faults[position] = True
        return Column(values, faults)


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


def _taken(found: Column, index: NDArray[np.intp]) -> Column:
    """Return the values at `index`, shape (n,); any where there are no values."""
    if not len(found.values):
        return Column(np.zeros(len(index), found.values.dtype))
    faults = found.faults
    if faults is None or not faults.any():
        return Column(found.values.take(index))
    return Column(found.values.take(index), faults.take(index))
