"""Statistics over nodes in an expression: `nodes.map(n, value).mean()`, and likewise `stddev`.

`nodes` is the list of the nodes that the pod's own rules on labels allow. As the language has it,
an expression makes a list of values from it for each node that it is evaluated for. So nothing may
read `nodes` but a statistic: each is computed once, by columns, and then stands for a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np

from engine.cel import (
    BudgetExhaustedError,
    CelError,
    CelProblem,
    Environment,
    Program,
    Reference,
    ast,
    references,
    resolved_program,
)
from engine.cel.functions.lists import STATISTICS_BY_NAME
from engine.cel.unparse import unparse
from engine.cel.values import DOUBLE
from engine.cel.vector import Plan, PlannedPart, Strategy, plan_condition, plan_number
from engine.plugins import allowed_by_labels
from engine.policy.context import RuleContext
from engine.policy.node_table import NodeLayout, NodeTable
from engine.view import BoolColumn, ClusterView

NODES: Final = "nodes"
_NODE: Final = "node"
_LAYOUT: Final = NodeLayout()

COST_MICROS: Final = 300
"""Of a statistic of 5,000 nodes, beside the value of each; right in order of magnitude."""

_MISUSE: Final = "`nodes` is read only by `nodes.map(n, ..).mean()` and `.stddev()`"
_MISUSE_HINT: Final = (
    "write `nodes.map(n, n.requested.cpu / n.allocatable.cpu).mean()`, or "
    "`nodes.filter(n, ..).map(n, ..)` to leave nodes out"
)
_OUTSIDE: Final = "a loop over `nodes` reads the request and the node that it is at, and no `{}`"
_OUTSIDE_HINT: Final = "write `n.` in the loop, and compare its result with `node` outside of it"


@dataclass(frozen=True, slots=True)
class WrittenStatistic:
    """A statistic as it is written."""

    node: ast.Call  # where it stands in the resolved tree
    # the parts that are evaluated for each node, and the variable of each: first the value, then
    # the conditions
    loops: tuple[tuple[ast.Node, str], ...]

    @property
    def parts(self) -> tuple[ast.Node, ...]:
        """The value and the conditions as expressions on `node`."""
        return tuple(_on_node(part, variable) for part, variable in self.loops)


def _on_node(part: ast.Node, variable: str) -> ast.Node:
    if isinstance(part, ast.Local) and part.name == variable:
        return ast.Variable(_NODE, offset=part.offset)
    return ast.with_children(part, [_on_node(below, variable) for below in ast.children(part)])


def _written(node: ast.Node) -> WrittenStatistic | None:
    """Return a part of a resolved tree as a statistic over nodes, None if it is none."""
    if not (isinstance(node, ast.Call) and node.member and node.function in STATISTICS_BY_NAME):
        return None
    loop, loops = node.args[0], list[tuple[ast.Node, str]]()
    while isinstance(loop, ast.Transform):
        if loop.shape is not ast.Shape.LIST or len(loop.variables) != 1:
            return None
        (variable,) = loop.variables
        if not loops:
            loops.append((loop.result, variable))
        elif not (isinstance(loop.result, ast.Local) and loop.result.name == variable):
            return None  # the outer loop goes through other values
        if loop.condition is not None:
            loops.append((loop.condition, variable))
        loop = loop.range
    if not loops or not (isinstance(loop, ast.Variable) and loop.name == NODES):
        return None
    return WrittenStatistic(node, tuple(loops))


def written_statistics(root: ast.Node) -> Iterator[WrittenStatistic]:
    """Yield the statistics over nodes in a resolved tree."""
    found = _written(root)
    if found is not None:
        yield found
        return
    for below in ast.children(root):
        yield from written_statistics(below)


def misuses(root: ast.Node) -> Iterator[CelProblem]:
    """Yield a problem for each place where a resolved tree reads `nodes` in another way."""
    statistic = _written(root)
    if statistic is not None:
        for part, variable in statistic.loops:
            yield from _read_outside(part, variable)
    elif isinstance(root, ast.Variable) and root.name == NODES:
        yield CelProblem(root.offset, _MISUSE, _MISUSE_HINT)
    else:
        for below in ast.children(root):
            yield from misuses(below)


def _read_outside(part: ast.Node, variable: str) -> Iterator[CelProblem]:
    """Yield a problem for each read of what differs by the node that a score is evaluated for."""
    nodes = [node for node, _ in ast.walk(part)]
    inside = {variable}.union(*(ast.bound_variables(node) for node in nodes))
    for node in nodes:
        is_cluster = isinstance(node, ast.Variable) and node.name in {_NODE, NODES}
        if is_cluster or (isinstance(node, ast.Local) and node.name not in inside):
            yield CelProblem(node.offset, _OUTSIDE.format(unparse(node)), _OUTSIDE_HINT)


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic over nodes, planned."""

    text: str  # its source, which is its name in the tree where it stands for a number
    program: Program  # evaluates it for a list of nodes; the definition of its meaning
    function: str  # `mean` or `stddev`
    value: Plan  # of each node
    conditions: tuple[Plan, ...]  # that nodes meet
    references: frozenset[Reference]  # the paths below `node` that these read

    @property
    def plans(self) -> tuple[Plan, ...]:
        """How all nodes are evaluated at once."""
        return (self.value, *self.conditions)

    @property
    def parts(self) -> tuple[PlannedPart, ...]:
        """Each part as planned, the statistic itself first."""
        own = PlannedPart(self.text, Strategy.ONCE, COST_MICROS)
        return (own, *chain.from_iterable(plan.parts for plan in self.plans))

    def evaluate(self, context: RuleContext, activation: Mapping[str, object]) -> float | str:
        """Return its value for a request, or why it has none.

        Raises:
            BudgetExhaustedError: it costs more than is left.
        """
        known = context.statistics
        if self.text not in known:
            try:
                known[self.text] = self._computed(context, activation)
            except BudgetExhaustedError:
                raise
            except CelError as error:
                known[self.text] = str(error)
        return known[self.text]

    def _computed(self, context: RuleContext, activation: Mapping[str, object]) -> float:
        table, rows = _whole_table(context)
        for plan in reversed(self.conditions):  # as they are written
            met = plan.column(table, activation, context.budget, rows)
            if met.faults is not None:
                self._refuse(met.faults & rows, table, context, activation)
            rows = rows & met.values
        column = self.value.column(table, activation, context.budget, rows)
        if column.faults is not None:
            self._refuse(column.faults & rows, table, context, activation)
        self._refuse(~np.isfinite(column.values) & rows, table, context, activation)
        numbers = column.values[rows]
        if not numbers.size:
            raise CelError(f"an empty list has no {self.function}")
        try:
            return STATISTICS_BY_NAME[self.function](numbers.tolist())
        except OverflowError:
            raise CelError(f"the numbers are too large for a {self.function}") from None

    def _refuse(
        self,
        faulty: BoolColumn,
        table: NodeTable,
        context: RuleContext,
        activation: Mapping[str, object],
    ) -> None:
        """Raise the error of the first faulty row, if any, as of a list of that node alone."""
        if not faulty.any():
            return
        row = int(faulty.argmax())
        node = table.row(row, sorted(self.references))[_NODE]
        reason = "it could not be evaluated for all nodes together"
        try:
            self.program.evaluate({**activation, NODES: [node]}, context.budget)
        except BudgetExhaustedError:
            raise
        except CelError as error:
            reason = str(error)
        raise CelError(f"node `{_whole_view(context).names[row]}`: {reason}")


def _whole_view(context: RuleContext) -> ClusterView:
    """Return the view of all nodes, whatever rows are asked for."""
    return context.view if context.view.parent is None else context.view.parent[0]


def _whole_table(context: RuleContext) -> tuple[NodeTable, BoolColumn]:
    """Return all nodes, and which of them are in `nodes`, (n,)."""
    view = _whole_view(context)
    table = context.table if view is context.view else NodeTable(view, context.now, context.pod)
    return table, view.valid & allowed_by_labels(context.pod, view)


def planned(
    program: Program, environment: Environment
) -> tuple[Program, Environment, tuple[Statistic, ...]]:
    """Return a program in which statistics are variables, where these are declared, and each.

    Args:
        program: one without misuses.
        environment: of the program.
    """
    written = {unparse(each.node): each for each in written_statistics(program.root)}
    if not written:
        return program, environment, ()
    statistics = tuple(_planned(text, each, environment) for text, each in written.items())
    variables = {**environment.variables, **dict.fromkeys(written, DOUBLE)}
    names = replace(environment, variables=variables)
    root = _without(program.root)
    return resolved_program(program.source, root, program.result_type, names), names, statistics


def _without(node: ast.Node) -> ast.Node:
    if _written(node) is not None:
        return ast.Variable(unparse(node), offset=node.offset)
    return ast.with_children(node, [_without(below) for below in ast.children(node)])


def _planned(text: str, written: WrittenStatistic, environment: Environment) -> Statistic:
    value, *conditions = written.parts
    return Statistic(
        text=text,
        program=resolved_program(text, written.node, DOUBLE, environment),
        function=written.node.function,
        value=plan_number(value, environment, _LAYOUT),
        conditions=tuple(plan_condition(each, environment, _LAYOUT) for each in conditions),
        references=node_references(written.parts),
    )


def node_references(parts: Iterable[ast.Node]) -> frozenset[Reference]:
    """Return the paths below `node` that parts of a tree read."""
    return frozenset(path for part in parts for path in references(part) if path[0] == _NODE)


def nodes_value(program: Program, context: RuleContext) -> dict[str, object]:
    """Return the list of nodes by its name, as far as a program reads them; nothing if it does not.

    For tools that evaluate node by node: no decision may, as it takes as long as there are nodes.
    """
    if (NODES,) not in program.references:
        return {}
    parts = [part for each in written_statistics(program.root) for part in each.parts]
    table, rows = _whole_table(context)
    found = table.rows_at(rows.nonzero()[0].tolist(), sorted(node_references(parts)))
    return {NODES: [each[_NODE] for each in found]}
