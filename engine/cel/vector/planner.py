"""Planning: each part of a checked expression gets the cheapest strategy that is exact.

Costs are estimates in microseconds for 5,000 rows on one core, right in order of magnitude: they
order the operands of `&&` and `||`, and warn of slow policies.
"""

from __future__ import annotations

import math
from typing import Final

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.evaluate import compile_node
from engine.cel.unparse import unparse
from engine.cel.values import BOOL, DOUBLE, DURATION, INT, STRING, TIMESTAMP
from engine.cel.vector.columns import Layout, constant
from engine.cel.vector.kernels import (
    DURATION_PARTS,
    FUNCTIONS,
    OPERATORS,
    Kernel,
    as_number,
    negate,
    not_,
)
from engine.cel.vector.parts import Part, part_of, row_path
from engine.cel.vector.plan import Plan
from engine.cel.vector.scalar_fallback import (
    MOST_DISTINCT,
    Accepts,
    ScalarFallback,
    constant_name,
)
from engine.cel.vector.steps import (
    TURNS,
    Apply,
    Conditional,
    Constant,
    Literal,
    Logic,
    Loop,
    Numbers,
    Presence,
    Step,
    Strategy,
    TextLookup,
)

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
