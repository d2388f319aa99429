"""The value of an expression for each node of a cluster, for authors who try it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.cel import BOOL, Budget, CelError, CelProblemsError, CelType, Program, can_be
from engine.cel.static_types import NUMERIC
from engine.cel.values import NUMBERS
from engine.documents import Source
from engine.errors import InvalidFileError
from engine.model.decision import PlacementRequest
from engine.model.time import Micros
from engine.policy.compile import compile_expression
from engine.policy.context import MOST_ITERATIONS, RuleContext
from engine.policy.environment import ExpressionScope, reads_owner_pods
from engine.policy.node_statistics import NODES, nodes_value
from engine.policy.node_table import NodeTable
from engine.policy.rules import FilterExpression, NodeExpression, ScoreExpression
from engine.view import ClusterView

_NOT_OF_A_POD: Final = frozenset({"node", "now", "variables"})

Value: TypeAlias = object
"""A value of `engine.cel.values`; a `CelError` where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeValues:
    """The value of an expression for each node.

    Attributes:
        program: the expression.
        by_node: in the order of the view; None where the expression reads no node.
        value: where the expression reads no node; else None.
        expression: how all nodes are evaluated at once, None for one that is neither a filter nor a
            score.
        errors: why variables could not be computed, a line each.
    """

    program: Program
    by_node: Mapping[str, Value] | None
    value: Value
    expression: NodeExpression | None
    errors: tuple[str, ...]


def read_expression(source: str, place: str, variables: Mapping[str, Program]) -> Program:
    """Compile an expression as one of a rule.

    Args:
        source: its text.
        place: what diagnostics call the place where it was written.
        variables: those that it may read.

    Raises:
        InvalidFileError: it has mistakes; carries all of them.
    """
    types: dict[str, CelType] = {name: each.result_type for name, each in variables.items()}
    try:
        return compile_expression(source, ExpressionScope.SCORES, types)
    except CelProblemsError as error:
        written = Source(place, source)
        raise InvalidFileError(
            [written.problem_at(each.offset, each.message, each.hint) for each in error.problems]
        ) from error


def pod_fields_read(program: Program, variables: Mapping[str, Program]) -> frozenset[str]:
    """Return the names of the request that an expression reads, also by its variables."""
    roots, left, seen = set[str](), [program], set[str]()
    while left:
        for root, *path in left.pop().references:
            differs = root == NODES or reads_owner_pods([(root, *path)])
            roots.add("pod" if differs else root)
            for name in (path[:1] or variables) if root == "variables" else ():
                if name in variables and name not in seen:
                    seen.add(name)
                    left.append(variables[name])
    return frozenset(roots - _NOT_OF_A_POD)


def node_values(
    program: Program,
    view: ClusterView,
    now: Micros,
    *,
    request: PlacementRequest,
    variables: Mapping[str, Program],
) -> NodeValues:
    """Evaluate an expression for every node of a view.

    Args:
        program: the expression.
        view: the cluster.
        now: the moment.
        request: the pod; any where `pod_fields_read` is empty.
        variables: those that it may read, in order.
    """
    context = RuleContext(request, view, now, variables=variables)
    activation = {**context.activation(program), **nodes_value(program, context)}
    paths = [path for path in program.references if path[0] == "node"]
    by_node: dict[str, Value] | None = None
    value: Value = None
    if paths:
        table = NodeTable(view, now, request.pod)
        by_node = {
            view.names[row]: _value(program, {**activation, **table.row(row, paths)})
            for row in view.valid.nonzero()[0].tolist()
        }
    else:
        value = _value(program, activation)
    values = [value] if by_node is None else list(by_node.values())
    return NodeValues(
        program=program,
        by_node=by_node,
        value=value,
        expression=_expression(program, values),
        errors=tuple(context.errors),
    )


def _value(program: Program, activation: Mapping[str, object]) -> Value:
    try:
        return program.evaluate(activation, Budget(MOST_ITERATIONS))
    except CelError as error:
        return error


def _expression(program: Program, values: list[Value]) -> NodeExpression | None:
    """Return the filter or the score that it is, by the type of the expression or its values."""
    found = [value for value in values if not isinstance(value, CelError)]
    kind = program.result_type
    if can_be(kind, BOOL) and all(type(value) is bool for value in found):
        return FilterExpression(program)
    if can_be(kind, *NUMERIC) and all(type(value) in NUMBERS for value in found):
        return ScoreExpression(program)
    return None
