"""Closures for `&&`, `||`, `!`, `?:`, `or` and `orValue`.

`&&` and `||` are commutative in their errors: a false (or true) operand decides, even if another
fails. An exhausted budget is different: it ends the evaluation.
"""

from __future__ import annotations

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.evaluate.frame import Closure, Compile, Frame
from engine.cel.operators import no_overload, not_bool, optional_index
from engine.cel.values import OptionalValue


def and_(node: ast.And, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `a && b && ...`."""
    return _logic(tuple(map(compile_, node.operands)), decisive=False)


def or_(node: ast.Or, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `a || b || ...`."""
    return _logic(tuple(map(compile_, node.operands)), decisive=True)


def _logic(operands: tuple[Closure, ...], *, decisive: bool) -> Closure:
    undecided = not decisive

    def evaluate(frame: Frame) -> object:
        failure: CelError | None = None
        for operand in operands:
            try:
                value = operand(frame)
            except BudgetExhaustedError:
                raise
            except CelError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value is not undecided:
                failure = failure or not_bool(value)
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # it holds this frame and all its callers, and so the view
        return undecided

    return evaluate


def not_(node: ast.Not, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `!operand`."""
    operand = compile_(node.operand)

    def evaluate(frame: Frame) -> object:
        value = operand(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise not_bool(value)

    return evaluate


def conditional(node: ast.Conditional, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `test ? then : otherwise`; only the branch taken is evaluated."""
    test, then, otherwise = map(compile_, (node.test, node.then, node.otherwise))

    def evaluate(frame: Frame) -> object:
        value = test(frame)
        if value is True:
            return then(frame)
        if value is False:
            return otherwise(frame)
        raise not_bool(value)

    return evaluate


def alternative(node: ast.Alternative, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `operand.or(other)` or `operand.orValue(other)`."""
    operand, other, unwraps = compile_(node.operand), compile_(node.other), node.unwraps
    if unwraps and isinstance(node.operand, ast.Index) and node.operand.optional:
        return _entry_or(compile_(node.operand.operand), compile_(node.operand.index), other)

    def evaluate(frame: Frame) -> object:
        value = operand(frame)
        if type(value) is not OptionalValue:
            raise no_overload("orValue" if unwraps else "or", value)
        if value.present:
            return value.value if unwraps else value
        replacement = other(frame)
        if not unwraps and type(replacement) is not OptionalValue:
            raise no_overload("or", value, replacement)
        return replacement

    return evaluate


def _entry_or(container: Closure, key: Closure, other: Closure) -> Closure:
    """Return the closure of `container[?key].orValue(other)`, mostly without an optional."""

    def evaluate(frame: Frame) -> object:
        entries, name = container(frame), key(frame)
        if type(entries) is dict and type(name) is str:
            return entries[name] if name in entries else other(frame)
        found = optional_index(entries, name)
        return found.value if found.present else other(frame)

    return evaluate
