"""Plans: each part of a checked expression gets the cheapest strategy that is exact.

A plan evaluates them over the rows of a table. Costs are estimates in microseconds for 5,000 rows
on one core, right in order of magnitude: they order the operands of `&&` and `||`, and warn of slow
policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from engine.cel import ast, static_types
from engine.cel.budget import Budget
from engine.cel.environment import Environment
from engine.cel.evaluate import BUDGET, Closure, compile_node, new_frame
from engine.cel.unparse import unparse
from engine.cel.values import BOOL, DOUBLE, DURATION, DYN, INT, MAP, STRING, TIMESTAMP, CelType
from engine.cel.vector.columns import (
    COLUMN_TYPES,
    FAILED,
    Bools,
    Column,
    Layout,
    Leaf,
    NotVectorizableError,
    Path,
    Table,
    constant,
)
from engine.cel.vector.kernels import (
    DURATION_PARTS,
    FUNCTIONS,
    OPERATORS,
    Kernel,
    as_bool,
    as_number,
    negate,
    not_,
)
from engine.cel.vector.steps import (
    MOST_DISTINCT,
    TURNS,
    Accepts,
    Apply,
    Conditional,
    Constant,
    EvalContext,
    Literal,
    Logic,
    Loop,
    Numbers,
    Presence,
    ScalarFallback,
    Step,
    Strategy,
    TextLookup,
    constant_name,
    memory_key,
    outcome,
)
from engine.errors import BudgetExhaustedError, CelError


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A node of a resolved tree with its dependencies and its type."""

    node: ast.Node  # the node
    # the parts directly below, in source order; empty if the node is one path of a row
    below: tuple[Part, ...] = ()
    # of its values wherever it has one, if certain to be one of `COLUMN_TYPES`, else None
    type: CelType | None = None
    leaf: Leaf | None = None  # the leaf whose value or presence the node is, if it is exactly that
    rows: frozenset[Path] = frozenset()  # paths of the leaves that it reads
    request: bool = False  # whether it reads a variable that all rows share
    free: frozenset[str] = frozenset()  # variables of enclosing macros that it reads

    @property
    def constant(self) -> bool:
        """Whether all rows share its value."""
        return not self.rows and not self.free

    def paths(self) -> tuple[Path, ...]:
        """Return the leaves that it needs, without those that lie within another."""
        return tuple(
            path
            for path in sorted(self.rows)
            if not any(path[:end] in self.rows for end in range(1, len(path)))
        )


def part_of(node: ast.Node, layout: Layout, environment: Environment) -> Part:
    """Return the part for a node of a resolved tree, with all parts below it."""
    read = _row_value(node, layout) or _row_presence(node, layout)
    if read is not None:
        return read
    below = tuple(part_of(child, layout, environment) for child in ast.children(node))
    part = Part(
        node,
        below,
        rows=frozenset().union(*(child.rows for child in below)),
        request=isinstance(node, ast.Variable | ast.Name) or any(child.request for child in below),
        free=frozenset()
        .union(*(child.free for child in below))
        .difference(ast.bound_variables(node)),
    )
    if isinstance(node, ast.Local):
        return replace(part, free=frozenset({node.name}))
    return replace(part, type=_type_of(part, environment))


# Paths of a row.


def _row_value(node: ast.Node, layout: Layout) -> Part | None:
    """Return the part of a node that selects constant keys from a variable of the rows."""
    path = row_path(node, layout)
    if path is None:
        return None
    leaf = layout.leaf(path)
    if leaf.path != path or ast.field_path(node).optional:
        return Part(node, rows=frozenset({leaf.path}))
    of_type = leaf.type if leaf.type in COLUMN_TYPES else None
    return Part(node, type=of_type, leaf=leaf, rows=frozenset({path}))


def _row_presence(node: ast.Node, layout: Layout) -> Part | None:
    """Return the part of `has(a.k)` or `'k' in a`, where `a` is a path of a row."""
    match node:
        case ast.Has(operand=operand, field=key):
            is_map = True
        case ast.Binary(operator="in", left=ast.Literal(value=str(key)), right=operand):
            is_map = False  # `'k' in x` may also search a list
        case _:
            return None
    above = row_path(operand, layout)
    if above is None:
        return None
    path = (*above, key)
    leaf = layout.leaf(path)
    is_map = is_map or layout.leaf(above).type == MAP
    exact = is_map and leaf.path == path and not ast.field_path(operand).optional
    return Part(node, type=BOOL, leaf=leaf if exact else None, rows=frozenset({leaf.path}))


def row_path(node: ast.Node, layout: Layout) -> Path | None:
    """Return the path that a node selects from a variable of the rows, if it does."""
    root, keys, _ = ast.field_path(node)
    if isinstance(root, ast.Variable | ast.Local) and root.name in layout.variables:
        return (root.name, *keys)
    return None


# Types.

_CONDITIONS: Final = (ast.And, ast.Has, ast.Not, ast.Or, ast.Quantifier)
_TIMES: Final = frozenset({DURATION, TIMESTAMP})
_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


def _type_of(part: Part, environment: Environment) -> CelType | None:
    node = part.node
    if isinstance(node, ast.Literal):
        return node.type if node.type in COLUMN_TYPES else None
    if isinstance(node, _CONDITIONS):
        return BOOL
    if isinstance(node, ast.Binary):
        return BOOL if node.operator in _RELATIONS else _of_arithmetic(node.operator, part.below)
    if isinstance(node, ast.Variable):
        declared = environment.variables.get(node.name)
        return declared if declared in COLUMN_TYPES else None
    if isinstance(node, ast.Negate):
        return part.below[0].type
    if isinstance(node, ast.Conditional):
        return _common(part.below[1:])
    if isinstance(node, ast.Call):
        return _type_of_call(node, part, environment)
    return None


def _of_arithmetic(operator: str, parts: tuple[Part, ...]) -> CelType | None:
    """Return the only type that the result may have; that of a constant may be unknown."""
    if not any(part.type in _TIMES for part in parts):
        return _common(parts)
    if any(part.type is None and not part.constant for part in parts):
        return None
    left, right = (part.type or DYN for part in parts)
    result = static_types.binary(operator, left, right)
    return result if result in COLUMN_TYPES else None


def _common(parts: tuple[Part, ...]) -> CelType | None:
    """Return the only type of the parts; a constant of unknown type takes that of the others."""
    types = {part.type for part in parts if part.type is not None or not part.constant}
    return types.pop() if len(types) == 1 else None


def _type_of_call(node: ast.Call, part: Part, environment: Environment) -> CelType | None:
    if node.function in _TYPE_OF_ARGUMENTS and not node.member:
        return _common(part.below)
    function = environment.functions.get((node.function, node.member))
    overloads = () if function is None else function.with_arity(len(node.args))
    results = {overload.result for overload in overloads}
    return results.pop() if len(results) == 1 and results <= COLUMN_TYPES else None


_TYPE_OF_ARGUMENTS: Final = frozenset({"math.abs", "math.greatest", "math.least"})


# Strategies.

_ROWS: Final = 5000
_COST_OF_EVALUATION: Final = 0.8
_COST_OF_NODE: Final = 0.15
_COST_OF_COLUMN: Final = 2.0
_COST_OF_CACHED: Final = 6.0
_COST_OF_FALLBACK: Final = 20.0  # beside its evaluations
_LOOPS: Final = (ast.Quantifier, ast.SortBy, ast.Transform)
_TYPED: Final = {
    BOOL: Accepts.BOOL,
    INT: Accepts.INT,
    DOUBLE: Accepts.DOUBLE,
    TIMESTAMP: Accepts.TIMESTAMP,
    DURATION: Accepts.DURATION,
}


def plan_condition(root: ast.Node, environment: Environment, layout: Layout) -> Plan:
    """Plan a condition: a row for which it is not a bool is at fault.

    Args:
        root: a resolved tree.
        environment: where its functions are looked up.
        layout: of the tables that it will be evaluated on.
    """
    planner = _Planner(environment, layout)
    part = part_of(root, layout, environment)
    return Plan.condition(planner.condition(part), planner.root_fallback(part, Accepts.CONDITION))


def plan_number(root: ast.Node, environment: Environment, layout: Layout) -> Plan:
    """Plan a number, evaluated to a double; arguments are those of `plan_condition`.

    A row for which it is not a number is at fault.
    """
    planner = _Planner(environment, layout)
    part = part_of(root, layout, environment)
    return Plan.number(planner.number(part), planner.root_fallback(part, Accepts.NUMBER))


class _Planner:
    def __init__(self, environment: Environment, layout: Layout) -> None:
        self._environment = environment
        self._layout = layout

    # Parts by position: a condition, a number, or a value of a certain type.

    def condition(self, part: Part) -> Step:
        return self._vectorized(part) or self._fallback(part, Accepts.CONDITION)

    def number(self, part: Part) -> Step:
        if isinstance(part.node, ast.Conditional) and not part.constant:
            test, then, otherwise = part.below  # the branches may be an int and a double
            branches = (self.number(then), self.number(otherwise))
            return self._conditional(part, (self.condition(test), *branches), as_number)
        if part.constant or part.type is not None:
            return self._typed(part)
        return self._fallback(part, Accepts.NUMBER)

    def _typed(self, part: Part) -> Step:
        step = self._vectorized(part)
        if step is not None:
            return step
        assert part.type is not None  # noqa: S101 - INVARIANT: callers check, constants have a step
        return self._fallback(part, _TYPED[part.type])

    # Steps.

    def _vectorized(self, part: Part) -> Step | None:
        """Return a step without per-row evaluation, None if only the fallback computes the part."""
        node = part.node
        if isinstance(node, ast.Literal):
            return Literal(
                text=unparse(node), strategy=Strategy.ONCE, cost=0, value=constant(node.value)
            )
        if part.constant:
            return Constant(
                text=unparse(node),
                strategy=Strategy.ONCE,
                cost=evaluation_cost(part.node),
                constants=(compile_node(node, self._environment),),
            )
        if part.leaf is not None:
            return self._leaf(part)
        return self._operation(part)

    def _operation(self, part: Part) -> Step | None:
        node = part.node
        match node:
            case ast.Not():
                (operand,) = part.below
                return self._apply(part, not_, (self.condition(operand),))
            case ast.And() | ast.Or():
                return self._logic(part, decisive=isinstance(node, ast.Or))
            case ast.Conditional() if part.type is not None:
                test, then, otherwise = part.below
                branches = (self._typed(then), self._typed(otherwise))
                return self._conditional(part, (self.condition(test), *branches))
            case ast.Quantifier():
                return self._loop(part, node)
            case ast.Binary(operator="in") if part.below:
                return self._lookup(part, node.operator, *part.below)
            case ast.Binary(operator="==" | "!="):
                left, right = part.below
                lookup = self._lookup(part, node.operator, left, right) or self._lookup(
                    part, node.operator, right, left
                )
                return lookup or self._strict(part, OPERATORS[node.operator])
            case ast.Binary() if node.operator in OPERATORS:
                return self._strict(part, OPERATORS[node.operator])
            case ast.Negate():
                return self._strict(part, negate)
            case ast.Call():
                return self._call(part, node)
        return None

    def _call(self, part: Part, node: ast.Call) -> Step | None:
        kernel = None
        if not node.member:
            kernel = FUNCTIONS.get(node.function)
        elif len(part.below) == 1 and part.below[0].type == DURATION:
            kernel = DURATION_PARTS.get(node.function)
        return self._strict(part, kernel) if kernel else None

    def _leaf(self, part: Part) -> Step | None:
        assert part.leaf is not None  # noqa: S101 - INVARIANT: the caller checks
        text, path, cost = unparse(part.node), part.leaf.path, _cost_of_columns(1)
        if isinstance(part.node, ast.Has | ast.Binary):
            return Presence(text=text, strategy=Strategy.COLUMNS, cost=cost, path=path)
        if part.type is not None:
            return Numbers(text=text, strategy=Strategy.COLUMNS, cost=cost, path=path)
        return None

    def _lookup(self, part: Part, operator: str, leaf: Part, value: Part) -> Step | None:
        """Return the step that compares a string of each row with a value that all rows share.

        None if the operands are not these.
        """
        if leaf.leaf is None or leaf.leaf.type != STRING or leaf.type or not value.constant:
            return None
        closure = compile_node(value.node, self._environment)
        return TextLookup(
            text=unparse(part.node),
            strategy=Strategy.COLUMNS,
            cost=_cost_of_columns(2),
            constants=(closure,) if value.request else (),
            path=leaf.leaf.path,
            operator=operator,
            value=closure,
        )

    def _strict(self, part: Part, kernel: Kernel) -> Step | None:
        """Return the step of an operator or function, None if an operand cannot be a column."""
        if not all(below.constant or below.type is not None for below in part.below):
            return None
        return self._apply(part, kernel, tuple(map(self._typed, part.below)))

    def _apply(self, part: Part, kernel: Kernel, below: tuple[Step, ...]) -> Step:
        return Apply(
            text=unparse(part.node),
            strategy=Strategy.COLUMNS,
            cost=_cost_of_columns(len(below)),
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
            strategy=Strategy.COLUMNS,
            cost=_cost_of_columns(len(operands)),
            below=tuple(operands),
            decisive=decisive,
        )

    def _loop(self, part: Part, node: ast.Quantifier) -> Step | None:
        """Return the step of a loop over a list of each row, None for any other loop."""
        path = row_path(node.range, self._layout)
        if path is None or len(node.variables) != 1:
            return None
        (variable,) = node.variables
        layout = self._layout.elements(path, variable)
        if layout is None:
            return None
        body = part_of(node.predicate, layout, self._environment)
        return Loop(
            text=unparse(part.node),
            strategy=Strategy.COLUMNS,
            cost=TURNS * _cost_of_columns(2),
            below=(_Planner(self._environment, layout).condition(body),),
            path=path,
            paths=part.paths(),
            variable=variable,
            how_many=node.how_many,
            reads_request=part.request,
        )

    def _conditional(
        self, part: Part, below: tuple[Step, ...], convert: Kernel | None = None
    ) -> Step:
        return Conditional(
            text=unparse(part.node),
            strategy=Strategy.COLUMNS,
            cost=_cost_of_columns(len(below)),
            below=below,
            convert=convert,
        )

    def _fallback(self, part: Part, accepts: Accepts) -> ScalarFallback:
        constants: list[ast.Node] = []
        body = _without_constants(part, constants)
        evaluations = _evaluations(part, self._layout)
        cost, refresh_cost = _COST_OF_FALLBACK + evaluations * evaluation_cost(part.node), 0.0
        if not constants:
            strategy, cost, refresh_cost = Strategy.REMEMBERED, _COST_OF_CACHED, cost
        elif evaluations <= MOST_DISTINCT:
            strategy = Strategy.DISTINCT
        else:
            strategy = Strategy.ROWS
        return ScalarFallback(
            text=unparse(part.node),
            strategy=strategy,
            cost=cost,
            refresh_cost=refresh_cost,
            accepts=accepts,
            paths=part.paths(),
            closure=compile_node(body, self._environment),
            evaluation_steps=math.ceil(evaluation_cost(body)),
            constants=tuple(compile_node(node, self._environment) for node in constants),
        )

    def root_fallback(self, part: Part, accepts: Accepts) -> ScalarFallback | None:
        """Evaluate a whole expression by its closure alone; None if all rows share its value."""
        if part.constant:
            return None
        return ScalarFallback(
            text=unparse(part.node),
            strategy=Strategy.ROWS,
            cost=_COST_OF_FALLBACK + _evaluations(part, self._layout) * evaluation_cost(part.node),
            accepts=accepts,
            paths=part.paths(),
            closure=compile_node(part.node, self._environment),
            evaluation_steps=math.ceil(evaluation_cost(part.node)),
            is_root=True,
        )


def _without_constants(part: Part, constants: list[ast.Node]) -> ast.Node:
    """Replace each sub-expression that reads the request alone by a variable.

    The sub-expressions are appended to `constants`, in the order of the variables' names.
    """
    if part.constant and part.request and not isinstance(part.node, ast.Entry):
        constants.append(part.node)
        return ast.Variable(constant_name(len(constants) - 1), offset=part.node.offset)
    if not part.request:
        return part.node
    below = (_without_constants(child, constants) for child in part.below)
    return ast.with_children(part.node, list(below))


# Costs.


def _cost_of_columns(columns: int) -> float:
    return _COST_OF_COLUMN * columns


def evaluation_cost(node: ast.Node) -> float:
    """Return the estimated microseconds of one evaluation of a closure."""
    return _COST_OF_EVALUATION + _COST_OF_NODE * _evaluated_nodes(node)


def _evaluations(part: Part, layout: Layout) -> int:
    """Evaluations of a closure for all rows: one for each combination of distinct values."""
    distinct = math.prod(layout.leaf(path).distinct for path in part.paths())
    return min(distinct, _ROWS)


def evaluated_calls(node: ast.Node) -> int:
    """Return how many functions one evaluation of a closure calls, in loops once per turn."""
    below = sum(map(evaluated_calls, ast.children(node)))
    return isinstance(node, ast.Call) + below * (TURNS if isinstance(node, _LOOPS) else 1)


def _evaluated_nodes(node: ast.Node) -> int:
    """Nodes that one evaluation visits, those of a loop's body once per turn."""
    below = sum(map(_evaluated_nodes, ast.children(node)))
    return 1 + below * (TURNS if isinstance(node, _LOOPS) else 1)


# Evaluation.


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
