"""What has no kernel: the scalar evaluator, run once for each distinct value that rows have."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.cel.budget import Budget
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.evaluate import BUDGET, Closure, Frame
from engine.cel.values import NUMBERS
from engine.cel.vector.columns import Bools, Column, DictColumn, MissingPath, Path, Table
from engine.cel.vector.eval_context import EvalContext, Step, outcome
from engine.cel.vector.kernels import NotVectorizableError

MOST_DISTINCT: Final = 512
"""Evaluations of one request that are free; of more, each costs an iteration of the budget."""

_FEW: Final = 32  # evaluations that take no longer than to look for what is remembered
_LONGEST_KEY: Final = 4096  # characters of values that may name what is remembered
_DENSE: Final = 65_536  # combinations of codes up to which counting them beats sorting them
_COUNTABLE: Final = 2**62  # combinations of codes that a number can tell apart


class Accepts(enum.Enum):
    """Which values a part may give, where it stands."""

    CONDITION = enum.auto()  # a bool, anything else is a fault
    NUMBER = enum.auto()  # any number, as a double, anything else is a fault
    BOOL = enum.auto()  # always of this type, as the next two
    INT = enum.auto()
    DOUBLE = enum.auto()

    def admit(self, value: Any) -> Any:  # noqa: ANN401 (any CEL value to one that numpy takes)
        """Return a value as it stands in a column.

        Raises:
            CelError: it is a fault.
            NotVectorizableError: it is not what was thought certain.
        """
        kind = type(value)
        if self is Accepts.NUMBER:
            if kind in NUMBERS:
                return float(value)
        elif kind is _KINDS[self]:
            return value
        if self in {Accepts.CONDITION, Accepts.NUMBER}:
            raise CelError("a value of another type than may stand here")
        raise NotVectorizableError


_KINDS: Final = {
    Accepts.CONDITION: bool,
    Accepts.NUMBER: float,
    Accepts.BOOL: bool,
    Accepts.INT: int,
    Accepts.DOUBLE: float,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScalarFallback(Step):
    """Evaluates a part by its closure, on values that stand for many rows.

    What the part reads of the request is evaluated once, beforehand, and is part of the name under
    which the column is remembered, so pods of one template share it.

    Attributes:
        accepts: what its values may be.
        paths: the leaves that it reads; at least one.
        closure: reads the leaves, and the constants by the names of `constant_name`.
        whole: whether it is all of an expression.
    """

    accepts: Accepts
    paths: tuple[Path, ...]
    closure: Closure
    whole: bool = False

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:
        """Return the column, remembered if that may pay."""
        if not self.constants:
            return run.table.remember(
                (self.accepts, self.text),
                self.paths,
                lambda rows: self.over(rows, {}, None, None),
                for_all_requests=True,
            )
        constants: Frame = {}
        for position, closure in enumerate(self.constants):
            value = outcome(closure, run.frame)
            if not isinstance(value, CelError):  # else its name stays unknown, which is an error
                constants[constant_name(position)] = value
        budget: Budget = run.frame[BUDGET]
        key = None if self._are_few(run.table, wanted) else memory_key(constants)
        if key is None:
            return self.over(run.table, constants, budget, wanted)
        return run.table.remember(
            (self.accepts, self.text, key),
            self.paths,
            lambda rows: self.over(rows, constants, budget, None),
            for_all_requests=False,
        )

    def _are_few(self, table: Table, wanted: Bools | None) -> bool:
        if wanted is not None and np.count_nonzero(wanted) <= _FEW:
            return True
        columns = self._coded(table)
        return columns is not None and math.prod(_sizes(columns)) <= _FEW

    def _coded(self, table: Table) -> list[DictColumn] | None:
        """Return what it reads by code, None if that is not to be had or there are too many."""
        columns = [column for path in self.paths if (column := table.coded(path)) is not None]
        whole = len(columns) == len(self.paths) and math.prod(_sizes(columns)) <= _COUNTABLE
        return columns if whole else None

    def over(
        self, table: Table, constants: Frame, budget: Budget | None, wanted: Bools | None
    ) -> Column:
        """Return the column for a table, shape (n,).

        Args:
            table: the rows.
            constants: all that the closure reads beside the leaves, by name.
            budget: what it may cost; if None, each value has a budget of its own.
            wanted: the rows that matter; others get anything.
        """
        columns = self._coded(table)
        rows: Iterator[Mapping[str, object]]
        if columns is None:
            numbers = np.arange(len(table)) if wanted is None else np.flatnonzero(wanted)
            rows = (table.row(number, self.paths) for number in numbers.tolist())
            count, index = len(numbers), _positions(numbers, len(table))
        else:
            combinations, index = _combinations(columns, wanted)
            rows = (_assembled(self.paths, columns, codes) for codes in combinations)
            count = len(combinations)
        if budget is not None and count > MOST_DISTINCT:
            budget.spend(count)
        return self._taken(rows, count, index, {**constants, BUDGET: budget})

    def _taken(
        self,
        rows: Iterator[Mapping[str, object]],
        count: int,
        index: NDArray[np.intp],
        frame: Frame,
    ) -> Column:
        """Return, for each row, the outcome at its index."""
        values: NDArray[Any] = np.zeros(max(count, 1), _KINDS[self.accepts])
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
                if not self.whole:  # then what is around it must not absorb the failure
                    raise NotVectorizableError from None
                faults[position] = True
        return Column(values.take(index), faults.take(index) if faults.any() else None)


def constant_name(position: int) -> str:
    """Return the name that a constant has in a frame; no variable of a macro has such a one."""
    return f"@{position}"


def memory_key(values: object) -> str | None:
    """Return a text that is another one for other CEL values, None if it would be too long."""
    try:
        text = repr(values)
    except (RecursionError, ValueError):  # the second: an int of thousands of digits
        return None
    return text if len(text) <= _LONGEST_KEY else None


def _sizes(columns: Sequence[DictColumn]) -> tuple[int, ...]:
    return tuple(len(column.values) for column in columns)


def _combinations(
    columns: Sequence[DictColumn], wanted: Bools | None
) -> tuple[list[tuple[int, ...]], NDArray[np.intp]]:
    """Return the combinations of codes that wanted rows have, and which one each row has.

    Rows that are not wanted get any.
    """
    sizes = _sizes(columns)
    total = math.prod(sizes)
    if len(sizes) == 1 and total <= _FEW:
        return [(code,) for code in range(total)], columns[0].codes.astype(np.intp)
    joint = np.ravel_multi_index([column.codes for column in columns], sizes)
    asked = joint if wanted is None else joint[wanted]
    if total <= _DENSE:
        present = np.flatnonzero(np.bincount(asked, minlength=total))
        index = _positions(present, total).take(joint)
    else:
        present = np.unique(asked)
        index = np.searchsorted(present, joint).clip(max=max(len(present) - 1, 0))
    codes = (part.tolist() for part in np.unravel_index(present, sizes))
    return list(zip(*codes, strict=True)), index


def _positions(numbers: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Return, for each number below `size`, where it stands among `numbers`; 0 for others."""
    positions = np.zeros(size, np.intp)
    positions[numbers] = np.arange(len(numbers))
    return positions


def _assembled(
    paths: Sequence[Path], columns: Sequence[DictColumn], codes: Sequence[int]
) -> dict[str, object]:
    """Return the variables of a row that has these codes, with nothing but what `paths` read."""
    row: dict[str, object] = {}
    for path, column, code in zip(paths, columns, codes, strict=True):
        value = column.values[code] if code else MissingPath(len(path) - 2)
        whole = path
        if type(value) is MissingPath:
            whole, value = path[: value.found + 1], value.value
        *above, last = whole
        into: Any = row
        for key in above:
            into = into.setdefault(key, {})
        if type(value) is dict and not value:  # a map that other paths may put something into
            into.setdefault(last, {})
        else:
            into[last] = value
    return row
