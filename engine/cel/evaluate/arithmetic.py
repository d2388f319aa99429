"""Closures for arithmetic, comparison and membership, with shortcuts for literals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.cel import ast, operators
from engine.cel.budget import Budget
from engine.cel.environment import Environment
from engine.cel.evaluate.frame import BUDGET, Closure, Compile, Frame
from engine.cel.values import EXACT, INT, NUMBERS, STRING

OPERATORS: Final[Mapping[str, Callable[[object, object], object]]] = {
    "-": operators.subtract,
    "*": operators.multiply,
    "/": operators.divide,
    "%": operators.modulo,
    "<": operators.less,
    "<=": operators.less_or_equal,
    ">": operators.greater,
    ">=": operators.greater_or_equal,
}
"""Binary operators by symbol, but for the equalities and those below."""

BUDGETED_OPERATORS: Final[Mapping[str, Callable[[object, object, Budget], object]]] = {
    "+": operators.add,
    "in": operators.member,
}
"""Those whose work outgrows their operands."""


def binary(node: ast.Binary, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `left operator right`."""
    if node.operator in {"==", "!="}:
        return _equality(node, compile_)
    if node.operator == "in":
        shortcut = _membership(node, compile_)
        if shortcut is not None:
            return shortcut
    left, right = compile_(node.left), compile_(node.right)
    if node.operator in BUDGETED_OPERATORS:
        apply_budgeted = BUDGETED_OPERATORS[node.operator]
        return lambda frame: apply_budgeted(left(frame), right(frame), frame[BUDGET])
    apply = OPERATORS[node.operator]
    return lambda frame: apply(left(frame), right(frame))


def negate(node: ast.Negate, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `-operand`."""
    operand = compile_(node.operand)
    return lambda frame: operators.negate(operand(frame))


def _equality(node: ast.Binary, compile_: Compile) -> Closure:
    expected = node.operator == "=="
    left, right = node.left, node.right
    if isinstance(left, ast.Literal):
        left, right = right, left
    if isinstance(right, ast.Literal) and not isinstance(left, ast.Literal):
        shortcut = _equal_to_literal(compile_(left), right, expected=expected)
        if shortcut is not None:
            return shortcut
    first, second = compile_(left), compile_(right)

    def evaluate(frame: Frame) -> bool:
        value, other = first(frame), second(frame)
        if type(value) is str:  # equal to an equal string alone
            return (value == other) is expected
        return operators.equals(value, other, frame[BUDGET]) is expected

    return evaluate


def _equal_to_literal(operand: Closure, literal: ast.Literal, *, expected: bool) -> Closure | None:
    """Return the closure of a comparison with a literal, None if it has no shortcut."""
    value = literal.value
    if literal.type == STRING:
        # A Python string equals only an equal string, so types need no check.
        if expected:
            return lambda frame: operand(frame) == value
        return lambda frame: operand(frame) != value
    if value is None or value is True or value is False:
        return lambda frame: (operand(frame) is value) is expected
    if isinstance(value, int) and literal.type == INT and abs(value) < EXACT:

        def evaluate(frame: Frame) -> bool:
            number = operand(frame)
            return (number == value and type(number) is not bool) is expected

        return evaluate
    return None


def _membership(node: ast.Binary, compile_: Compile) -> Closure | None:
    """Return the closure of `x in [literals]` as a set lookup, None unless all are of one kind."""
    if not isinstance(node.right, ast.ListLiteral) or node.right.optionals:
        return None
    literals = [element for element in node.right.elements if isinstance(element, ast.Literal)]
    if len(literals) < len(node.right.elements):
        return None
    values: list[Any] = [literal.value for literal in literals]
    kinds = frozenset(map(type, values))
    if kinds <= {str}:
        accepted: frozenset[type] = frozenset({str})
    elif kinds <= NUMBERS and all(abs(value) < EXACT for value in values):
        accepted = NUMBERS  # where no double is rounded, Python's equality and hash are CEL's
    else:
        return None
    element, members = compile_(node.left), frozenset(values)

    def evaluate(frame: Frame) -> bool:
        value = element(frame)
        return type(value) in accepted and value in members

    return evaluate
