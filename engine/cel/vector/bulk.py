"""Strict functions and operators over many values at once: one pass of each over lists of values.

A part that reads the values of leaves alone, and has no logic, loops or optionals, is computed by
function instead of value by value. The values are plain ones, as the functions of the language take
them. Where that is not possible (types that differ, any error, a charge to the budget) there is no
result, and the closure of the part decides, value by value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.cel import ast, operators
from engine.cel.budget import Budget
from engine.cel.environment import Environment
from engine.cel.errors import CelError
from engine.cel.evaluate import BUDGET, Closure, Frame, compile_node
from engine.cel.evaluate.arithmetic import BUDGETED_OPERATORS, OPERATORS
from engine.cel.functions import Function
from engine.cel.values import BOOL
from engine.cel.vector.columns import Path
from engine.cel.vector.parts import Part

Leaves: TypeAlias = Mapping[Path, Sequence[object]]
"""The values of each leaf, all equally many: one for each evaluation."""

BulkFunction: TypeAlias = Callable[[Leaves, Frame], "Sequence[object] | NDArray[np.bool_] | None"]
"""Gives the value of each evaluation, None where closures have to. The frame has the constants."""


class _NotInBulkError(Exception):
    """The values are not of one type, or the function does not take it."""


class _Shared(NamedTuple):
    """A value that all evaluations share."""

    value: object


_Values: TypeAlias = "Sequence[object] | NDArray[np.bool_] | _Shared"
_Step: TypeAlias = Callable[[Leaves, Frame], _Values]

_Apply: TypeAlias = Callable[[Sequence[_Values], Budget], "Sequence[object] | NDArray[np.bool_]"]
"""Applies a function to the values of its operands, at least one of which differs."""

_EQUALITIES: Final[Mapping[str, Callable[[object, object], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
}


def bulk_function(part: Part, environment: Environment) -> BulkFunction | None:
    """Return what computes a part for many values of its leaves, None if nothing does.

    Args:
        part: what it reads beside leaves is constants, in variables of the frame.
        environment: where its functions are looked up.
    """
    step = _step(part, environment)
    if step is None:
        return None

    def evaluate(leaves: Leaves, frame: Frame) -> Sequence[object] | NDArray[np.bool_] | None:
        budget = Budget()
        try:
            values = step(leaves, {**frame, BUDGET: budget})
        except (CelError, _NotInBulkError, RecursionError, OverflowError):
            return None
        return None if budget.is_charged or isinstance(values, _Shared) else values

    return evaluate


def _step(part: Part, environment: Environment) -> _Step | None:
    node = part.node
    if part.constant:
        return _constant(compile_node(node, environment))
    if part.leaf is not None and not isinstance(node, ast.Has | ast.Binary):
        path = part.leaf.path
        return lambda leaves, _frame: leaves[path]
    apply = _apply(node, environment)
    operands = [] if apply is None else [_step(below, environment) for below in part.below]
    steps = [step for step in operands if step is not None]
    if apply is None or not steps or len(steps) < len(operands):
        return None
    return lambda leaves, frame: apply(
        [_listed(step(leaves, frame)) for step in steps], frame[BUDGET]
    )


def _apply(node: ast.Node, environment: Environment) -> _Apply | None:
    """Return what applies the function or operator of a node, None if it is not a strict one."""
    match node:
        case ast.Call():
            function = environment.functions.get((node.function, node.member))
            return None if function is None else _call(function)
        case ast.Binary(operator="==" | "!="):
            return _equality(node.operator)
        case ast.Binary() if node.operator in BUDGETED_OPERATORS:
            return _budgeted(BUDGETED_OPERATORS[node.operator])
        case ast.Binary():
            return _plain(OPERATORS[node.operator])
        case ast.Index(optional=False):
            return _plain(operators.index)
        case ast.Select(optional=False):
            field = node.field
            return _plain(lambda value: operators.select(value, field))
    return None


def _listed(values: _Values) -> Sequence[object] | _Shared:
    """Return values as those of the language."""
    return values.tolist() if isinstance(values, np.ndarray) else values


def _constant(closure: Closure) -> _Step:
    return lambda _leaves, frame: _Shared(closure(frame))


def _plain(function: Callable[..., object]) -> _Apply:
    return lambda operands, _budget: list(map(function, *map(_repeated, operands)))


def _budgeted(function: Callable[..., object]) -> _Apply:
    return lambda operands, budget: list(map(function, *map(_repeated, operands), repeat(budget)))


def _equality(symbol: str) -> _Apply:
    compare = _EQUALITIES[symbol]

    def apply(operands: Sequence[_Values], budget: Budget) -> Sequence[object]:
        left, right = operands
        if any(kinds == {str} for kinds in map(_kinds, operands)):
            # A Python string equals only an equal string.
            return list(map(compare, _repeated(left), _repeated(right)))
        equal = map(operators.equals, _repeated(left), _repeated(right), repeat(budget))
        return [compare(found, True) for found in equal]  # noqa: FBT003 (an operand)

    return apply


def _call(function: Function) -> _Apply:
    prepare = {
        overload.preparation.position: lru_cache(maxsize=2)(overload.preparation.prepare)
        for overload in function.overloads
        if overload.preparation is not None
    }

    def apply(operands: Sequence[_Values], budget: Budget) -> Sequence[object] | NDArray[np.bool_]:
        overload = function.find(tuple(map(_kind, operands)))
        if overload is None:
            raise _NotInBulkError
        arguments = list(operands)
        if overload.preparation is not None:
            position = overload.preparation.position
            argument = arguments[position]
            if not isinstance(argument, _Shared):
                raise _NotInBulkError
            arguments[position] = _Shared(prepare[position](argument.value))
        if overload.in_bulk is not None:
            found = _found(overload.in_bulk, *arguments)
            if found is not None:
                return found
        iterables = map(_repeated, arguments)
        if overload.result == BOOL and not overload.budgeted:
            return np.fromiter(map(overload.impl, *iterables), np.bool_)
        if overload.budgeted:
            return list(map(overload.impl, repeat(budget), *iterables))
        return list(map(overload.impl, *iterables))

    return apply


def _found(
    in_bulk: Callable[[Any, Any], NDArray[np.bool_] | None], texts: _Values, argument: _Values
) -> NDArray[np.bool_] | None:
    """Return what a function of many texts gives, None if it does not take these."""
    if isinstance(texts, _Shared) or not isinstance(argument, _Shared):
        return None
    return in_bulk(texts, argument.value)


def _kind(values: _Values) -> type:
    """Return the type of values.

    Raises:
        _NotInBulkError: they are of several types.
    """
    kinds = _kinds(values)
    if len(kinds) > 1:
        raise _NotInBulkError
    return kinds.pop()


def _kinds(values: _Values) -> set[type]:
    return {type(values.value)} if isinstance(values, _Shared) else set(map(type, values))


def _repeated(values: _Values) -> Iterable[Any]:
    return repeat(values.value) if isinstance(values, _Shared) else values
