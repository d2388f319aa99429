"""An expression over the rows of a table, and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from engine.cel.budget import Budget
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.evaluate import BUDGET, Closure, new_frame
from engine.cel.vector.columns import FAILED, Bools, Column, NotVectorizableError, Table
from engine.cel.vector.kernels import Kernel, as_bool, as_number
from engine.cel.vector.scalar_fallback import ScalarFallback, memory_key
from engine.cel.vector.steps import (
    EvalContext,
    Loop,
    Numbers,
    Presence,
    Step,
    Strategy,
    TextLookup,
    outcome,
)


def refresh(step: Step, table: Table) -> None:
    """Compute the columns below a step that depend on rows alone, unless they are remembered.

    Errors are left to the evaluation, which meets them again.
    """
    with suppress(BudgetExhaustedError, NotVectorizableError):
        match step:
            case Loop(reads_request=True):
                for elements, _ in table.elements(step.path, step.variable) or ():
                    _refresh_below(step, elements)
            case Loop() | ScalarFallback(constants=()):
                step.column(EvalContext(table, new_frame({}, None)), None)
            case _:
                _read_leaves(step, table)
                _refresh_below(step, table)


def _refresh_below(step: Step, table: Table) -> None:
    for below in step.below:
        refresh(below, table)


def _read_leaves(step: Step, table: Table) -> None:
    """Let a table remember the leaves that a step reads itself."""
    match step:
        case Numbers():
            table.numbers(step.path)
        case Presence():
            table.presence(step.path)
        case TextLookup():
            table.texts(step.path)
        case ScalarFallback():
            for path in step.paths:
                if table.dictionary(path) is None:
                    table.texts(path)


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """One part of an expression, as planned.

    Attributes:
        text: source text of the part.
        strategy: how its column is computed.
        cost: estimated microseconds for 5,000 rows, without its own parts.
    """

    text: str
    strategy: Strategy
    cost: float


@dataclass(frozen=True, slots=True)
class Plan:
    """An expression that is evaluated for all rows of a table at once; immutable.

    For each row it gives what `Program.evaluate` gives with the variables of that row, except for
    the limits of the evaluator (the budget, the depth of a value, an int beyond all doubles): all
    rows share one budget, and where an operand of `&&` or `||` decides, another that would have
    hit a limit may not be evaluated.
    """

    _root: Step
    _convert: Kernel
    _dtype: type[np.bool_ | np.float64]
    _fallback: ScalarFallback | None
    _constants: tuple[Closure, ...]

    @classmethod
    def condition(cls, root: Step, fallback: ScalarFallback | None) -> Plan:
        """Build the plan of a condition: any value other than a bool is a fault.

        Args:
            root: computes its column.
            fallback: computes it when columns cannot; None if all rows share its value.
        """
        return cls(root, as_bool, np.bool_, fallback, _constants(root))

    @classmethod
    def number(cls, root: Step, fallback: ScalarFallback | None) -> Plan:
        """Build the plan of a number; arguments are those of `condition`."""
        return cls(root, as_number, np.float64, fallback, _constants(root))

    def key(self, activation: Mapping[str, object], budget: Budget | None = None) -> str | None:
        """Key of the column for this activation: equal keys mean equal columns for a table.

        It holds the values of all sub-expressions that read no row: `pod.cpu > 2.0` is true for
        pods of many sizes, which share a key. Empty if the column depends on rows alone, None if
        the key would be too long.

        Args:
            activation: the variables that all rows share.
            budget: what the evaluation may cost.

        Raises:
            BudgetExhaustedError: it costs more.
        """
        if not self._constants:
            return ""
        frame = new_frame(activation, budget)
        try:
            values = [outcome(closure, frame) for closure in self._constants]
        except NotVectorizableError:
            return None
        return memory_key([... if isinstance(value, CelError) else value for value in values])

    def evaluate(
        self,
        table: Table,
        activation: Mapping[str, object],
        budget: Budget | None = None,
        mask: Bools | None = None,
    ) -> Column:
        """Value of each row, bool or float64, shape (n,).

        Args:
            table: the rows.
            activation: the variables that all rows share.
            budget: what the evaluation may cost; if it is exhausted, all rows are at fault.
            mask: the rows to evaluate, shape (n,), None for all; others may get any value.
        """
        try:
            return self.column(table, activation, budget, mask)
        except BudgetExhaustedError:
            return self.failed(table)

    def column(
        self,
        table: Table,
        activation: Mapping[str, object],
        budget: Budget | None = None,
        mask: Bools | None = None,
    ) -> Column:
        """Value of each row, as `evaluate`, but safe to cache: independent of the budget.

        Raises:
            BudgetExhaustedError: the evaluation costs more than the budget.
        """
        context = EvalContext(table, new_frame(activation, budget))
        with np.errstate(all="ignore"):
            return self._expanded(self._column(context, mask), table)

    def refresh(self, table: Table) -> None:
        """Let a table remember all that evaluations for any activation share."""
        with np.errstate(all="ignore"):
            refresh(self._root, table)

    def failed(self, table: Table) -> Column:
        """Column in which all rows are at fault."""
        return self._expanded(FAILED, table)

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
        try:
            return self._convert(self._root.column(context, mask))
        except NotVectorizableError:
            if self._fallback is None:
                return FAILED
            frame = context.frame
            return self._fallback.evaluate(context.table, frame, frame[BUDGET], mask)

    def _expanded(self, column: Column, table: Table) -> Column:
        """Bring a column to shape (n,) and the type of the plan."""
        values, faults = column.values, column.faults
        if values.ndim and faults is None and values.dtype == self._dtype:
            return column
        values = values.astype(self._dtype, copy=False)
        if faults is not None and not faults.any():
            faults = None
        if not values.ndim:
            values = np.broadcast_to(values, len(table))
        if faults is not None and not faults.ndim:
            faults = np.broadcast_to(faults, len(table))
        return Column(values, faults)

    @property
    def reads_rows_alone(self) -> bool:
        """Whether nothing that all rows share decides its values."""
        return not self._constants

    @property
    def benefits_from_mask(self) -> bool:
        """Whether a mask with fewer rows makes the evaluation cheaper."""
        return self._root.benefits_from_mask

    @property
    def parts(self) -> tuple[PlannedPart, ...]:
        """Each part of the expression as planned, the whole expression first."""
        return tuple(PlannedPart(step.text, step.strategy, step.cost) for step in self._root.walk())

    @property
    def cost(self) -> float:
        """Estimated microseconds for 5,000 rows when everything that is cached is current."""
        return sum(step.cost for step in self._root.walk())

    @property
    def refresh_cost(self) -> float:
        """Estimated microseconds to compute again all that is remembered of 5,000 rows."""
        return sum(step.refresh_cost for step in self._root.walk())

    def steps(self, rows: int) -> int:
        """Return what an evaluation for so many rows is charged at most, loops over values aside.

        Where lists are of unusual length, or columns cannot hold the values, it may be more.
        """
        return self._root.steps(rows)

    def describe(self) -> str:
        """Return a line for each part: its strategy, cost and text, indented by depth."""
        return "\n".join(_lines(self._root, 0))


def _constants(root: Step) -> tuple[Closure, ...]:
    return tuple(closure for step in root.walk() for closure in step.constants)


def _lines(step: Step, depth: int) -> list[str]:
    line = f"{step.strategy.value:18} {step.cost:8.1f} us  {'  ' * depth}{step.text}"
    return [line, *(line for below in step.below for line in _lines(below, depth + 1))]
