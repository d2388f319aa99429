"""From a checked expression to a plan over the rows of a table, and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.cel import ast
from engine.cel.budget import Budget
from engine.cel.columnar.columns import FAILED, Bools, Column, Layout, Table, constant
from engine.cel.columnar.costs import cost_of_closure, cost_of_columns, cost_of_spread, route_of
from engine.cel.columnar.kernels import (
    FUNCTIONS,
    OPERATORS,
    BeyondColumnsError,
    Kernel,
    as_bool,
    as_number,
    negate,
    not_,
)
from engine.cel.columnar.parts import Part, part_of
from engine.cel.columnar.run import Route, Run, Step, outcome
from engine.cel.columnar.spread import Accepts, Spread, constant_name, memory_key
from engine.cel.columnar.steps import Apply, Choice, Constant, Fixed, Logic, Numbers, Presence
from engine.cel.compiler import BUDGET, Closure, compile_node, new_frame
from engine.cel.environment import Environment
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.unparse import unparse
from engine.cel.values import BOOL, DOUBLE, INT


@dataclass(frozen=True, slots=True)
class Routed:
    """What becomes of a part of an expression.

    Attributes:
        text: the part.
        route: how its column comes about.
        cost: about how many microseconds it takes for 5,000 rows, without its own parts.
    """

    text: str
    route: Route
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
    _whole: Spread | None  # for when columns do not do; None if all rows share the value
    _constants: tuple[Closure, ...]  # what it makes of the variables that all rows share

    @classmethod
    def of(cls, root: Step, convert: Kernel, whole: Spread | None) -> Plan:
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
        except BeyondColumnsError:
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
        run = Run(table, new_frame(activation, budget))
        with np.errstate(all="ignore"):
            return self._in_full(self._column(run, wanted), len(table))

    def failed(self, table: Table) -> Column:
        """Return the column in which all rows are at fault."""
        return self._in_full(FAILED, len(table))

    def _column(self, run: Run, wanted: Bools | None) -> Column:
        try:
            return self._convert(self._root.column(run, wanted))
        except BeyondColumnsError:
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
    def picks(self) -> bool:
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


def plan_condition(root: ast.Node, environment: Environment, layout: Layout) -> Plan:
    """Return the plan of a condition: a row for which it is not a bool is at fault.

    Args:
        root: a resolved tree.
        environment: where its functions are looked up.
        layout: of the tables that it will be evaluated on.
    """
    planner = _Planner(environment, layout)
    part = part_of(root, layout, environment)
    return Plan.of(planner.condition(part), as_bool, planner.whole(part, Accepts.CONDITION))


def plan_number(root: ast.Node, environment: Environment, layout: Layout) -> Plan:
    """Return the plan of a number, which is given as a double.

    A row for which it is no number is at fault. Arguments are those of `plan_condition`.
    """
    planner = _Planner(environment, layout)
    part = part_of(root, layout, environment)
    return Plan.of(planner.number(part), as_number, planner.whole(part, Accepts.NUMBER))


def _lines(step: Step, depth: int) -> list[str]:
    own = f"{step.route.value:18} {step.cost:8.1f} us  {'  ' * depth}{step.text}"
    return [own, *(line for below in step.below for line in _lines(below, depth + 1))]


_TYPED: Final = {BOOL: Accepts.BOOL, INT: Accepts.INT, DOUBLE: Accepts.DOUBLE}


class _Planner:
    """Chooses, for each part, the cheapest route that is exact."""

    def __init__(self, environment: Environment, layout: Layout) -> None:
        self._environment = environment
        self._layout = layout

    # A part where a condition stands, a number, or a value of a type that is certain.

    def condition(self, part: Part) -> Step:
        return self._step(part) or self._spread(part, Accepts.CONDITION)

    def number(self, part: Part) -> Step:
        if isinstance(part.node, ast.Conditional) and not part.constant:
            test, then, otherwise = part.below  # which may be an int and a double
            branches = (self.number(then), self.number(otherwise))
            return self._choice(part, (self.condition(test), *branches), as_number)
        if part.constant or part.type is not None:
            return self._typed(part)
        return self._spread(part, Accepts.NUMBER)

    def _typed(self, part: Part) -> Step:
        step = self._step(part)
        if step is not None:
            return step
        assert part.type is not None  # noqa: S101 - INVARIANT: callers look, constants have a step
        return self._spread(part, _TYPED[part.type])

    def whole(self, part: Part, accepts: Accepts) -> Spread | None:
        """Return the way to evaluate an expression by its closure alone."""
        if part.constant:
            return None
        return Spread(
            text=unparse(part.node),
            route=Route.ROWS,
            cost=cost_of_spread(part, self._layout, Route.ROWS),
            accepts=accepts,
            paths=part.paths(),
            closure=compile_node(part.node, self._environment),
            whole=True,
        )

    # The steps.

    def _step(self, part: Part) -> Step | None:
        """Return the step of a part unless it has to be spread."""
        node = part.node
        if isinstance(node, ast.Literal):
            return Fixed(text=unparse(node), route=Route.ONCE, cost=0, value=constant(node.value))
        if part.constant:
            closure = compile_node(node, self._environment)
            cost = cost_of_closure(part)
            return Constant(text=unparse(node), route=Route.ONCE, cost=cost, constants=(closure,))
        if part.leaf is not None:
            return self._leaf(part)
        match node:
            case ast.Not():
                (operand,) = part.below
                return self._apply(part, not_, (self.condition(operand),))
            case ast.And() | ast.Or():
                return self._logic(part, decisive=isinstance(node, ast.Or))
            case ast.Conditional() if part.type is not None:
                test, then, otherwise = part.below
                branches = (self._typed(then), self._typed(otherwise))
                return self._choice(part, (self.condition(test), *branches))
            case ast.Binary() if node.operator in OPERATORS:
                return self._strict(part, OPERATORS[node.operator])
            case ast.Negate():
                return self._strict(part, negate)
            case ast.Call() if node.function in FUNCTIONS and not node.member:
                return self._strict(part, FUNCTIONS[node.function])
        return None

    def _leaf(self, part: Part) -> Step | None:
        assert part.leaf is not None  # noqa: S101 - INVARIANT: the caller has looked
        text, path = unparse(part.node), part.leaf.path
        if isinstance(part.node, ast.Has | ast.Binary):
            return Presence(text=text, route=Route.COLUMNS, cost=cost_of_columns(1), path=path)
        if part.type is not None:
            return Numbers(text=text, route=Route.COLUMNS, cost=cost_of_columns(1), path=path)
        return None

    def _strict(self, part: Part, kernel: Kernel) -> Step | None:
        """Return the step of an operator or function, if all operands can be columns."""
        if not all(below.constant or below.type is not None for below in part.below):
            return None
        return self._apply(part, kernel, tuple(map(self._typed, part.below)))

    def _apply(self, part: Part, kernel: Kernel, below: tuple[Step, ...]) -> Step:
        return Apply(
            text=unparse(part.node),
            route=Route.COLUMNS,
            cost=cost_of_columns(len(below)),
            below=below,
            kernel=kernel,
        )

    def _logic(self, part: Part, *, decisive: bool) -> Step:
        operands = sorted(
            map(self.condition, part.below),
            key=lambda step: sum(below.cost for below in step.walk()),
        )
        return Logic(
            text=unparse(part.node),
            route=Route.COLUMNS,
            cost=cost_of_columns(len(operands)),
            below=tuple(operands),
            decisive=decisive,
        )

    def _choice(self, part: Part, below: tuple[Step, ...], convert: Kernel | None = None) -> Step:
        return Choice(
            text=unparse(part.node),
            route=Route.COLUMNS,
            cost=cost_of_columns(len(below)),
            below=below,
            convert=convert,
        )

    def _spread(self, part: Part, accepts: Accepts) -> Spread:
        hoisted: list[ast.Node] = []
        body = _without_constants(part, hoisted)
        route = route_of(part, self._layout, requests=bool(hoisted))
        return Spread(
            text=unparse(part.node),
            route=route,
            cost=cost_of_spread(part, self._layout, route),
            accepts=accepts,
            paths=part.paths(),
            closure=compile_node(body, self._environment),
            constants=tuple(compile_node(node, self._environment) for node in hoisted),
        )


def _without_constants(part: Part, hoisted: list[ast.Node]) -> ast.Node:
    """Return the tree of a part with a name in place of each part that reads the request alone.

    Those are added to `hoisted`, in the order of their names.
    """
    if part.constant and part.request and not isinstance(part.node, ast.Entry):
        hoisted.append(part.node)
        return ast.Variable(constant_name(len(hoisted) - 1), offset=part.node.offset)
    if not part.request:
        return part.node
    below = (_without_constants(child, hoisted) for child in part.below)
    return ast.with_children(part.node, list(below))
