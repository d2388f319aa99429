"""Expressions over the rows of a cluster: the one place that knows how they are evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.cel import CelError, Program
from engine.cel.values import NUMBERS, type_of
from engine.model.time import Micros
from engine.policy.activation import NODE_FIELDS, node_value
from engine.policy.context import PolicyContext
from engine.view import BoolColumn, ClusterView

_Scalar = TypeVar("_Scalar", np.bool_, np.float64)


@dataclass(frozen=True, slots=True)
class Column(Generic[_Scalar]):
    """What an expression gave for some rows.

    Attributes:
        values: one per row; 0 where `faults` is True.
        faults: where it could not be evaluated, or gave something else than it should.
    """

    values: NDArray[_Scalar]
    faults: BoolColumn


@dataclass(frozen=True, slots=True)
class NodeExpression:
    """An expression that is asked of every node.

    Attributes:
        program: the compiled expression.
        node_fields: the fields of `node` that it reads.
    """

    program: Program
    node_fields: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        read = [fields for root, *fields in self.program.references if root == "node"]
        whole = any(not fields for fields in read)
        names = NODE_FIELDS if whole else {fields[0] for fields in read}
        object.__setattr__(self, "node_fields", tuple(sorted(names)))

    def bools(
        self, context: PolicyContext, view: ClusterView, rows: NDArray[np.intp], now: Micros
    ) -> Column[np.bool_]:
        """Return what a condition says of some valid rows."""
        return self._column(context, view, rows, now, _BOOL)

    def numbers(
        self, context: PolicyContext, view: ClusterView, rows: NDArray[np.intp], now: Micros
    ) -> Column[np.float64]:
        """Return the finite numbers that some valid rows give."""
        return self._column(context, view, rows, now, _NUMBER)

    def bool_fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:
        """Return why a condition could not be evaluated for a row."""
        return self._fault(context, view, row, now, _BOOL)

    def number_fault(self, context: PolicyContext, view: ClusterView, row: int, now: Micros) -> str:
        """Return why a number could not be had for a row."""
        return self._fault(context, view, row, now, _NUMBER)

    def _column(
        self,
        context: PolicyContext,
        view: ClusterView,
        rows: NDArray[np.intp],
        now: Micros,
        result: _Result[_Scalar],
    ) -> Column[_Scalar]:
        """Evaluate for each row, or once for all if nothing of the node is read."""
        distinct = rows if self.node_fields else rows[:1]
        activation = context.activation(self.program)
        values = np.zeros(distinct.size, result.kind)
        faults = np.zeros(distinct.size, np.bool_)
        for i, row in enumerate(distinct.tolist()):
            activation["node"] = node_value(self.node_fields, view, row, now)
            try:
                values[i] = result.checked(self.program.evaluate(activation, context.budget))
            except CelError:
                faults[i] = True
        if distinct.size < rows.size:
            return Column(np.repeat(values, rows.size), np.repeat(faults, rows.size))
        return Column(values, faults)

    def _fault(
        self,
        context: PolicyContext,
        view: ClusterView,
        row: int,
        now: Micros,
        result: _Result[_Scalar],
    ) -> str:
        activation = context.activation(self.program)
        activation["node"] = node_value(self.node_fields, view, row, now)
        try:
            result.checked(self.program.evaluate(activation, context.budget))
        except CelError as error:
            return str(error)
        return ""


@dataclass(frozen=True, slots=True)
class _Result(Generic[_Scalar]):
    """What an expression has to give.

    Attributes:
        kind: the type of its column.
        checked: takes any CEL value, raises `CelError` for one that will not do.
    """

    kind: type[_Scalar]
    checked: Callable[[object], float]


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
    number = float(value)  # type: ignore[arg-type]  # one of NUMBERS
    if not math.isfinite(number):
        raise CelError("the expression gave a number that is not finite")
    return number


_BOOL = _Result(np.bool_, checked_bool)
_NUMBER = _Result(np.float64, checked_number)
