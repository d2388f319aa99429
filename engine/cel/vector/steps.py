"""The steps that work on whole columns, and those that read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cel.errors import CelError
from engine.cel.vector.columns import FAILED, Bools, Column, Path, constant
from engine.cel.vector.eval_context import EvalContext, Step, outcome
from engine.cel.vector.kernels import Kernel, LogicAccumulator, as_bool, choose


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constant(Step):
    """A part that all rows share: its one constant."""

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        """Return the one value."""
        (closure,) = self.constants
        value = outcome(closure, run.frame)
        return FAILED if isinstance(value, CelError) else constant(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fixed(Step):
    """A literal."""

    value: Column

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        """Return the literal."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers(Step):
    """A leaf that the table has as numbers or bools."""

    path: Path

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        """Return the leaf."""
        return run.table.numbers(self.path)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Presence(Step):
    """The question whether a map has a key."""

    path: Path

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        """Return the answers."""
        return run.table.presence(self.path)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Apply(Step):
    """An operator or function that needs all of its operands, which are `below`."""

    kernel: Kernel

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:
        """Return the kernel's result."""
        return self.kernel(*[step.column(run, wanted) for step in self.below])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logic(Step):
    """`&&` or `||`; the operands are `below`, cheapest first, for their order does not matter.

    What is slow is asked only for rows that no operand before it has decided.
    """

    decisive: bool

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:
        """Return the conjunction or disjunction."""
        deciding = LogicAccumulator(decisive=self.decisive)
        for step in self.below:
            open_ = wanted
            if deciding.decided is not None and (step.picks or not deciding.decided.ndim):
                open_ = _within(~deciding.decided, wanted, run)
                if not open_.any():
                    break
            deciding.add(as_bool(step.column(run, open_)))
        return deciding.result()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice(Step):
    """`test ? then : otherwise`, the three of `below`; each branch for the rows that take it.

    Attributes:
        convert: what is done to the branches, None if they are of one type as they are.
    """

    convert: Kernel | None = None

    def column(self, run: EvalContext, wanted: Bools | None) -> Column:
        """Return the branches taken."""
        test_step, then_step, otherwise_step = self.below
        test = as_bool(test_step.column(run, wanted))
        if test is FAILED:
            return FAILED
        if not test.values.ndim and test.faults is None:
            return self._branch(then_step if test.values else otherwise_step, run, wanted)
        branches = []
        for step, taken in ((then_step, test.values), (otherwise_step, ~test.values)):
            takers = _within(taken, wanted, run) if step.picks else wanted
            branches.append(self._branch(step, run, takers))
        return choose(test, *branches)

    def _branch(self, step: Step, run: EvalContext, wanted: Bools | None) -> Column:
        column = step.column(run, wanted)
        return column if self.convert is None else self.convert(column)


def _within(mask: Bools, wanted: Bools | None, run: EvalContext) -> Bools:
    """Return a mask of shape () or (n,) in shape (n,), for wanted rows alone."""
    if wanted is not None and not mask.ndim and mask:
        return wanted
    whole: Bools = np.broadcast_to(mask, len(run.table))
    return whole if wanted is None else whole & wanted
