"""An expression over the rows of a table, and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.cel.budget import Budget
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.evaluate import BUDGET, Closure, new_frame
from engine.cel.vector.columns import FAILED, Bools, Column, Table
from engine.cel.vector.eval_context import EvalContext, Step, Strategy, outcome
from engine.cel.vector.kernels import Kernel, NotVectorizableError, as_bool
from engine.cel.vector.scalar_fallback import ScalarFallback, memory_key


@dataclass(frozen=True, slots=True)
class Routed:
    """What becomes of a part of an expression.

    Attributes:
        text: the part.
        route: how its column comes about.
        cost: about how many microseconds it takes for 5,000 rows, without its own parts.
    """

    text: str
    route: Strategy
    cost: float


@dataclass(frozen=True, slots=True)
class Plan:
    """An expression that is evaluated for all rows of a table at once; immutable.

    For each row it gives what `Program.evaluate` gives with the variables of that row, but for the
    limits of the evaluator (the budget, the depth of a value, an int beyond all doubles): one
    budget is there for all rows together, and where an operand of `&&` or `||` decides, another
    may not be evaluated that would have come up against a limit.
    """

    _root: Step
    _convert: Kernel
    _whole: ScalarFallback | None  # for when columns do not do; None if all rows share the value
    _constants: tuple[Closure, ...]  # what it makes of the variables that all rows share

    @classmethod
    def of(cls, root: Step, convert: Kernel, whole: ScalarFallback | None) -> Plan:
        """Return the plan of an expression.

        Args:
            root: gives its column.
            convert: brings that into the type that is asked for.
            whole: gives it where columns do not do, None if all rows share its value.
        """
        constants = (closure for step in root.walk() for closure in step.constants)
        return cls(root, convert, whole, tuple(constants))

    def key(self, activation: Mapping[str, object], budget: Budget | None = None) -> str | None:
        """Return a text that is another one where `column` may give another one for the same table.

        It tells what the expression makes of the activation before it looks at any row: `pod.cpu >
        2.0` is true for pods of many sizes. Empty where rows alone have a say, None where it would
        be too long.

        Args:
            activation: the variables that all rows share.
            budget: what it may cost.

        Raises:
            BudgetExhaustedError: it costs too much.
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
        wanted: Bools | None = None,
    ) -> Column:
        """Return the value of each row, bool or float64, shape (n,).

        Args:
            table: the rows.
            activation: the variables that all rows share.
            budget: what it may cost; if it is exhausted, all rows are at fault.
            wanted: the rows that matter, shape (n,), None for all; others get anything.
        """
        try:
            return self.column(table, activation, budget, wanted)
        except BudgetExhaustedError:
            return self.failed(table)

    def column(
        self,
        table: Table,
        activation: Mapping[str, object],
        budget: Budget | None = None,
        wanted: Bools | None = None,
    ) -> Column:
        """Return what `evaluate` does, but what depends on the budget: fit to be remembered.

        Raises:
            BudgetExhaustedError: it costs too much.
        """
        run = EvalContext(table, new_frame(activation, budget))
        with np.errstate(all="ignore"):
            return self._in_full(self._column(run, wanted), len(table))

    def failed(self, table: Table) -> Column:
        """Return the column in which all rows are at fault."""
        return self._in_full(FAILED, len(table))

    def _column(self, run: EvalContext, wanted: Bools | None) -> Column:
        try:
            return self._convert(self._root.column(run, wanted))
        except NotVectorizableError:
            if self._whole is None:
                return FAILED
            return self._whole.over(run.table, run.frame, run.frame[BUDGET], wanted)

    def _in_full(self, column: Column, rows: int) -> Column:
        """Return a column in shape (n,), always of one type."""
        values, faults = column.values.astype(self._dtype, copy=False), column.faults
        if faults is not None and not faults.any():
            faults = None
        if not values.ndim:
            values = np.broadcast_to(values, rows)
        if faults is not None and not faults.ndim:
            faults = np.broadcast_to(faults, rows)
        return Column(values, faults)

    @property
    def _dtype(self) -> type[np.bool_ | np.float64]:
        return np.bool_ if self._convert is as_bool else np.float64

    @property
    def benefits_from_mask(self) -> bool:
        """Whether it does less when fewer rows are wanted."""
        return self._root.picks

    @property
    def routes(self) -> tuple[Routed, ...]:
        """What becomes of each part, the whole expression first."""
        return tuple(Routed(step.text, step.route, step.cost) for step in self._root.walk())

    @property
    def cost(self) -> float:
        """About how many microseconds it takes for 5,000 rows, with all that can be remembered."""
        return sum(step.cost for step in self._root.walk())

    def describe(self) -> str:
        """Return a line for each part: its route, its cost, its text, indented by depth."""
        return "\n".join(_lines(self._root, 0))


def _lines(step: Step, depth: int) -> list[str]:
    own = f"{step.route.value:18} {step.cost:8.1f} us  {'  ' * depth}{step.text}"
    return [own, *(line for below in step.below for line in _lines(below, depth + 1))]
