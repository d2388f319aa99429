"""What a plan is made of: steps, each giving one column in the course of a run."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.evaluate import Closure, Frame
from engine.cel.vector.columns import Bools, Column, Table
from engine.cel.vector.kernels import NotVectorizableError


class Strategy(enum.Enum):
    """How a part of an expression gets its column, and so how its cost grows."""

    ONCE = "once"  # it is the same for all rows
    REMEMBERED = "remembered"  # it depends on the rows alone: only changed ones are redone
    DISTINCT = "per distinct value"  # of a few columns, for each request
    COLUMNS = "columns"  # as an operation on whole columns
    ROWS = "per row"  # for each request: slow


class EvalContext(NamedTuple):
    """One evaluation of a plan.

    Attributes:
        table: the rows.
        frame: the variables that all rows share, and the budget.
    """

    table: Table
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step(ABC):
    """One part of an expression.

    Attributes:
        text: the part, as text.
        route: how its column comes about.
        cost: about how many microseconds it takes for 5,000 rows, without the steps below it.
        below: the steps whose columns it works on.
        constants: the parts of it that are evaluated once, for all rows share them.
        picks: whether it does less when fewer rows are wanted.
    """

    text: str
    route: Strategy
    cost: float
    below: tuple[Step, ...] = ()
    constants: tuple[Closure, ...] = ()
    picks: bool = field(init=False)

    def __post_init__(self) -> None:
        slow = self.route in {Strategy.DISTINCT, Strategy.ROWS}
        object.__setattr__(self, "picks", slow or any(step.picks for step in self.below))

    @abstractmethod
    def column(self, run: EvalContext, wanted: Bools | None) -> Column:
        """Return the column; rows that are not `wanted`, shape (n,), may get anything.

        Raises:
            BudgetExhaustedError: it costs too much.
            NotVectorizableError: columns do not do for what it is evaluated on.
        """

    def walk(self) -> Iterator[Step]:
        """Yield this step and all below it."""
        yield self
        for step in self.below:
            yield from step.walk()


def outcome(closure: Closure, frame: Frame) -> object:
    """Return the value of a closure, or the `CelError` by which it failed.

    Raises:
        BudgetExhaustedError: it cost too much.
        NotVectorizableError: it failed in a way that `&&` and `||` do not absorb.
    """
    try:
        return closure(frame)
    except BudgetExhaustedError:
        raise
    except CelError as error:
        return error
    except (RecursionError, OverflowError):
        raise NotVectorizableError from None
