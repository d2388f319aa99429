"""Steps of a plan: each computes the column of one part of an expression.

Most work on whole columns; `ScalarFallback` evaluates the closure of a part without a kernel, once
for each distinct combination of values.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.cel.ast import HowMany
from engine.cel.budget import Budget
from engine.cel.evaluate import BUDGET, Closure, Frame, new_frame
from engine.cel.values import NUMBERS, Duration, Timestamp
from engine.cel.vector.columns import (
    FAILED,
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
from engine.cel.vector.kernels import (
    Kernel,
    LogicAccumulator,
    LoopAccumulator,
    as_bool,
    choose,
    refuse_nanoseconds,
)
from engine.errors import BudgetExhaustedError, CelError

_ROWS_PER_STEP: Final = 512


class Strategy(enum.Enum):
    """The way to compute the column of a part, which decides how its cost grows."""

    ONCE = "once"  # the value is the same in all rows
    REMEMBERED = "remembered"  # depends on the rows alone: only changed rows are recomputed
    DISTINCT = "per distinct value"  # of a few columns, for each request
    COLUMNS = "columns"  # as an operation on whole columns
    ROWS = "per row"  # for each request: slow


class EvalContext(NamedTuple):
    """Input of one evaluation of a plan."""

    table: Table  # the rows
    frame: Frame  # the variables that all rows share, and the budget


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step(ABC):
    """The evaluation of one part of an expression.

    Attributes:
        text: source text of the part.
        strategy: how its column is computed.
        cost: estimated microseconds for 5,000 rows, without the steps below it.
        refresh_cost: the same to compute all rows again, where it is remembered; otherwise 0.
        below: the steps whose columns it works on.
        constants: sub-expressions that are evaluated once, because all rows share them.
        benefits_from_mask: whether a mask with fewer rows makes it cheaper.
    """

    text: str
    strategy: Strategy
    cost: float
    below: tuple[Step, ...] = ()
    constants: tuple[Closure, ...] = ()
    refresh_cost: float = 0.0
    benefits_from_mask: bool = field(init=False)
    _steps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        slow = self.strategy in {Strategy.DISTINCT, Strategy.ROWS}
        benefits = slow or any(step.benefits_from_mask for step in self.below)
        object.__setattr__(self, "benefits_from_mask", benefits)
        object.__setattr__(self, "_steps", math.ceil(self.cost))

    def column(self, context: EvalContext, mask: Bools | None) -> Column:
        """Compute the column; rows outside `mask`, shape (n,), may get any value.

        Raises:
            BudgetExhaustedError: it costs more than the budget.
            NotVectorizableError: columns cannot hold the values of this table or request.
        """
        if (budget := context.frame[BUDGET]).limits_columns:
            budget.spend_on_columns(self._own_steps(len(context.table)))
        return self._column(context, mask)

    @abstractmethod
    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
        """Compute the column; see `column`."""

    def steps(self, rows: int) -> int:
        """Return what it costs of a budget, with all below it: a microsecond is about a step."""
        return self._own_steps(rows) + sum(step.steps(rows) for step in self.below)

    def _own_steps(self, rows: int) -> int:
        """Return what it costs alone: what does not depend on the rows, and their share."""
        return (
            self._steps if self.strategy is Strategy.ONCE else self._steps + rows // _ROWS_PER_STEP
        )

    def walk(self) -> Iterator[Step]:
        """Yield this step and all below it."""
        yield self
        for step in self.below:
            yield from step.walk()


def outcome(closure: Closure, frame: Frame) -> object:
    """Return the value of a closure, or the `CelError` that it raised."""
    try:
        return closure(frame)
    except BudgetExhaustedError:
        raise
    except CelError as error:
        # A new one: the frames that this one holds hold the view, which would not die in time.
        return CelError(str(error))
    except (RecursionError, OverflowError):
        raise NotVectorizableError from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constant(Step):
    """A part whose value all rows share: its only constant."""

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        (closure,) = self.constants
        value = outcome(closure, context.frame)
        return FAILED if isinstance(value, CelError) else constant(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Literal(Step):
    value: Column

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers(Step):
    """A leaf that the table stores as numbers or bools."""

    path: Path

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        return context.table.numbers(self.path)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Presence(Step):
    """The presence of a key in a map."""

    path: Path

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        return context.table.presence(self.path)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextLookup(Step):
    """Compares a leaf of type `STRING` with a value that all rows share."""

    path: Path  # the leaf
    operator: str  # `==`, `!=` or `in`, of the leaf and the value
    value: Closure  # the value

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:  # noqa: ARG002 (protocol)
        """Look the value up among the strings that rows have, then compare codes."""
        value = outcome(self.value, context.frame)
        if isinstance(value, CelError):
            return FAILED
        accepted: Iterable[object] = (value,)
        if self.operator == "in":
            if not isinstance(value, list | tuple | dict):
                return FAILED
            accepted = value
        texts = context.table.texts(self.path)
        assert texts is not None  # noqa: S101 - INVARIANT: the planner has asked the layout
        found = [texts.find(each) for each in accepted if type(each) is str]
        codes = [code for code in found if code is not None]
        if len(codes) == 1:
            values = texts.codes == codes[0]
        else:
            table = np.zeros(len(texts.values), np.bool_)
            table[codes] = True
            values = table.take(texts.codes)
        return Column(~values if self.operator == "!=" else values, texts.absent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Apply(Step):
    """A strict operator or function; its operands are `below`."""

    kernel: Kernel

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
        return self.kernel(*[step.column(context, mask) for step in self.below])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logic(Step):
    """`&&` or `||`; the operands are `below`, cheapest first, because their order is irrelevant.

    A slow operand is evaluated only for rows that no operand before it has decided.
    """

    decisive: bool

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
        logic = LogicAccumulator(decisive=self.decisive)
        for step in self.below:
            undecided = mask
            decided = logic.decided
            if decided is not None and (step.benefits_from_mask or not decided.ndim):
                undecided = _intersect(~decided, mask, context)
                if not undecided.any():
                    break
            logic.add(as_bool(step.column(context, undecided)))
        return logic.result()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conditional(Step):
    """`test ? then : otherwise`, the three of `below`; each branch for the rows that take it."""

    convert: Kernel | None = None  # applied to both branches, None if they are of one type already

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
        test_step, then_step, otherwise_step = self.below
        test = as_bool(test_step.column(context, mask))
        if test is FAILED:
            return FAILED
        if not test.values.ndim and test.faults is None:
            return self._branch(then_step if test.values else otherwise_step, context, mask)
        branches = []
        for step, taken in ((then_step, test.values), (otherwise_step, ~test.values)):
            rows = _intersect(taken, mask, context) if step.benefits_from_mask else mask
            branches.append(self._branch(step, context, rows))
        return choose(test, *branches)

    def _branch(self, step: Step, context: EvalContext, mask: Bools | None) -> Column:
        column = step.column(context, mask)
        return column if self.convert is None else self.convert(column)


def _intersect(rows: Bools, mask: Bools | None, context: EvalContext) -> Bools:
    """Intersect rows, shape () or (n,), with a mask; shape (n,)."""
    if mask is not None and not rows.ndim and rows:
        return mask
    expanded: Bools = np.broadcast_to(rows, len(context.table))
    return expanded if mask is None else expanded & mask


TURNS: Final = 8
"""Turns that are assumed for every loop when costs are estimated."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loop(Step):
    """`all`, `exists` or `exists_one` over a list of each row; the predicate is `below`.

    It is evaluated for one element of every row at a time, so as often as the longest list is long.
    """

    path: Path  # the list
    paths: tuple[Path, ...]  # the leaves that it reads, the list among them
    variable: str  # the name of an element
    how_many: HowMany  # the elements that must satisfy the predicate
    reads_request: bool  # whether the predicate depends on more than rows

    def _column(self, context: EvalContext, mask: Bools | None) -> Column:
        """Combine the predicate of all elements; taken from the cache if it reads rows alone."""
        if self.reads_request:
            return self._evaluate(context, mask)
        return context.table.remember(
            (type(self), self.text),
            self.paths,
            lambda rows: self._evaluate(EvalContext(rows, new_frame({}, None)), None),
            for_all_requests=True,
        )

    def steps(self, rows: int) -> int:
        """Return what it costs of a budget where lists are of usual length."""
        return self._own_steps(rows) + TURNS * sum(step.steps(rows) for step in self.below)

    def _evaluate(self, context: EvalContext, mask: Bools | None) -> Column:
        found = context.table.elements(self.path, self.variable)
        if found is None:
            raise NotVectorizableError
        (predicate,) = self.below
        count = LoopAccumulator(self.how_many, len(context.table))
        for table, present in found:
            rows = present if mask is None else present & mask
            count.add(as_bool(predicate.column(EvalContext(table, context.frame), rows)), present)
        return count.result()


# Parts without a kernel.

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
