"""Expressions that are asked of every node, and how they are evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.cel import BudgetExhaustedError, CelError, Environment, Program, Reference
from engine.cel.values import NUMBERS, type_of
from engine.cel.vector import Column, Plan, plan_condition, plan_number
from engine.model.rule_input import RuleInput, RuleInputs
from engine.model.time import Micros
from engine.plugins import FAULT
from engine.policy.context import PolicyContext
from engine.policy.field_input import field_input
from engine.policy.node_table import NodeLayout, NodeTable, domains_of
from engine.view import BoolColumn, ClusterView, Domain

FALSE: Final = 1
"""The code of a node that a condition is false for; PASS and FAULT are the others."""

_LAYOUT: Final = NodeLayout()
_MOST_FIELDS_TOLD: Final = 8


@dataclass(frozen=True, slots=True)
class NodeExpression:
    """A condition or a number that is asked of every node.

    Attributes:
        program: evaluates it for one node; the last word on what it means.
        plan: evaluates it for all nodes at once.
        checked: returns the value of the program if it is what it has to be, else raises
            `CelError`.
        written: puts what the plan gives into one array; see `column`.
        reads: what of the cluster its value rests on.
        of_node: what it reads of a node, in order.
        is_steady: whether its column lasts, and is cheap to compute for rows that nobody wants.
    """

    program: Program
    plan: Plan
    checked: Callable[[object], float]
    written: Callable[[Column], NDArray[Any]]
    reads: tuple[Domain, ...]
    of_node: tuple[Reference, ...]
    is_steady: bool

    @classmethod
    def of(
        cls,
        program: Program,
        plan: Plan,
        checked: Callable[[object], float],
        written: Callable[[Column], NDArray[Any]],
    ) -> NodeExpression:
        """Return the expression of a program and its plan."""
        of_node = tuple(path for path in sorted(program.references) if path[0] == "node")
        reads = domains_of(of_node)
        is_steady = Domain.PODS not in reads and bool(of_node) and not plan.benefits_from_mask
        return cls(program, plan, checked, written, reads, of_node, is_steady)

    @property
    def reads_labels_alone(self) -> bool:
        """Whether nothing of a node decides its value but its labels."""
        return all(path[1:2] == ("labels",) for path in self.of_node)

    def column(
        self, context: PolicyContext, view: ClusterView, wanted: BoolColumn, now: Micros
    ) -> NDArray[Any]:
        """Return what comes of each row, shape (n,).

        Of a condition that is a code, int8: PASS where it is true, FALSE where it is false, FAULT
        where it cannot be evaluated; the same as bools where that is nowhere. Of a number it is a
        double, where it cannot be evaluated NaN; what is not finite is a fault too.

        It is remembered by what the expression makes of the request, so all pods share it that are
        alike in that, unless it reads what almost every decision changes.

        Args:
            context: the request.
            view: the nodes.
            wanted: the valid rows that matter, shape (n,); others get anything.
            now: the moment to judge the age of reports at.
        """
        table, budget = NodeTable(view, now), context.budget
        activation = context.activation(self.program)
        try:
            key = self.plan.key(activation, budget) if self.is_steady else None
            if key is not None:
                return table.remembered(
                    (self.checked, self.program.source, key),
                    self.of_node,
                    lambda rows: self.written(self.plan.column(rows, activation, budget)),
                    for_all_requests=not key,
                )
        except BudgetExhaustedError:
            return self.written(self.plan.failed(table))
        return self.written(self.plan.evaluate(table, activation, budget, wanted))

    def fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:
        """Return why there is no value for a row."""
        node = NodeTable(view, now).row(row, self.of_node)
        activation = {**context.activation(self.program), **node}
        try:
            self.checked(self.program.evaluate(activation, context.budget))
        except CelError as error:
            return str(error)
        return "the expression could not be evaluated for all nodes together"

    def inputs(self, view: ClusterView, row: int, now: Micros) -> RuleInputs:
        """Return the values of the node's fields that are read, the first few."""
        # Where both `node.usage` and `node.usage.cpu` are read the latter says it all.
        outer = {path[:end] for path in self.of_node for end in range(1, len(path))}
        read = [path for path in self.of_node if path not in outer]
        told = read[:_MOST_FIELDS_TOLD]
        node, source = NodeTable(view, now).row(row, told), self.program.source
        inputs = [field_input(path, node, source) for path in told]
        if len(read) > len(told):
            inputs.append(RuleInput("...", text=f"{len(read) - len(told)} more"))
        return tuple(inputs)


def node_condition(program: Program, environment: Environment) -> NodeExpression:
    """Return an expression that gives a bool for a node."""
    plan = plan_condition(program.root, environment, _LAYOUT)
    return NodeExpression.of(program, plan, checked_bool, _codes)


def node_number(program: Program, environment: Environment) -> NodeExpression:
    """Return an expression that gives a finite number for a node."""
    plan = plan_number(program.root, environment, _LAYOUT)
    return NodeExpression.of(program, plan, checked_number, _numbers)


def _codes(column: Column) -> NDArray[np.bool_] | NDArray[np.int8]:
    is_false: NDArray[np.bool_] = ~column.values
    if column.faults is None:
        return is_false
    codes = is_false.view(np.int8)  # PASS is 0 and FALSE is 1, as of bools
    codes[column.faults] = FAULT
    return codes


def _numbers(column: Column) -> NDArray[np.float64]:
    if column.faults is None:
        return column.values
    return np.where(column.faults, np.nan, column.values)


def checked_bool(value: object) -> bool:
    """Return a bool as it is.

    Raises:
        CelError: the value is something else.
    """
    if type(value) is not bool:
        raise CelError(f"the expression gave a `{type_of(value)}`, not a `bool`")
    return value


def checked_number(value: object) -> float:
    """Return a number as a float.

    Raises:
        CelError: the value is none, or not finite.
    """
    if type(value) not in NUMBERS:
        raise CelError(f"the expression gave a `{type_of(value)}`, not a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # one of NUMBERS
    except OverflowError:  # JSON knows integers of any size
        number = math.inf
    if not math.isfinite(number):
        raise CelError("the expression gave a number that is not finite")
    return number
