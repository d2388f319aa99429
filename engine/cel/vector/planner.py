"""From a checked expression to its plan: which part takes which route to its column."""

from __future__ import annotations

from typing import Final

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.evaluate import compile_node
from engine.cel.unparse import unparse
from engine.cel.values import BOOL, DOUBLE, INT
from engine.cel.vector.columns import Layout, constant
from engine.cel.vector.costs import cost_of_closure, cost_of_columns, cost_of_spread, strategy_of
from engine.cel.vector.eval_context import Step, Strategy
from engine.cel.vector.kernels import (
    FUNCTIONS,
    OPERATORS,
    Kernel,
    as_bool,
    as_number,
    negate,
    not_,
)
from engine.cel.vector.parts import Part, part_of
from engine.cel.vector.plan import Plan
from engine.cel.vector.scalar_fallback import Accepts, ScalarFallback, constant_name
from engine.cel.vector.steps import Apply, Choice, Constant, Fixed, Logic, Numbers, Presence


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

    def whole(self, part: Part, accepts: Accepts) -> ScalarFallback | None:
        """Return the way to evaluate an expression by its closure alone."""
        if part.constant:
            return None
        return ScalarFallback(
            text=unparse(part.node),
            route=Strategy.ROWS,
            cost=cost_of_spread(part, self._layout, Strategy.ROWS),
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
            return Fixed(
                text=unparse(node), route=Strategy.ONCE, cost=0, value=constant(node.value)
            )
        if part.constant:
            closure = compile_node(node, self._environment)
            cost = cost_of_closure(part)
            return Constant(
                text=unparse(node), route=Strategy.ONCE, cost=cost, constants=(closure,)
            )
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
            return Presence(text=text, route=Strategy.COLUMNS, cost=cost_of_columns(1), path=path)
        if part.type is not None:
            return Numbers(text=text, route=Strategy.COLUMNS, cost=cost_of_columns(1), path=path)
        return None

    def _strict(self, part: Part, kernel: Kernel) -> Step | None:
        """Return the step of an operator or function, if all operands can be columns."""
        if not all(below.constant or below.type is not None for below in part.below):
            return None
        return self._apply(part, kernel, tuple(map(self._typed, part.below)))

    def _apply(self, part: Part, kernel: Kernel, below: tuple[Step, ...]) -> Step:
        return Apply(
            text=unparse(part.node),
            route=Strategy.COLUMNS,
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
            route=Strategy.COLUMNS,
            cost=cost_of_columns(len(operands)),
            below=tuple(operands),
            decisive=decisive,
        )

    def _choice(self, part: Part, below: tuple[Step, ...], convert: Kernel | None = None) -> Step:
        return Choice(
            text=unparse(part.node),
            route=Strategy.COLUMNS,
            cost=cost_of_columns(len(below)),
            below=below,
            convert=convert,
        )

    def _spread(self, part: Part, accepts: Accepts) -> ScalarFallback:
        hoisted: list[ast.Node] = []
        body = _without_constants(part, hoisted)
        route = strategy_of(part, self._layout, requests=bool(hoisted))
        return ScalarFallback(
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
