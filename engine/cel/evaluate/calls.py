"""Closures for function calls: dispatch on run-time types, prepared at load for literals."""

from __future__ import annotations

from collections.abc import Callable

from engine.cel import ast
from engine.cel.environment import Environment
from engine.cel.errors import CelError
from engine.cel.evaluate.frame import BUDGET, Closure, Compile, Frame, failing
from engine.cel.functions import Function
from engine.cel.operators import no_overload


def call(node: ast.Call, compile_: Compile, environment: Environment) -> Closure:
    """Compile a call of a function."""
    function = environment.functions.get((node.function, node.member))
    if function is None:
        return failing(f"unknown function `{node.function}`")
    args = tuple(map(compile_, node.args))
    overloads = function.with_arity(len(args))
    if any(overload.budgeted for overload in overloads):
        return _any(function, args)
    rest = [arg.value for arg in node.args[1:] if isinstance(arg, ast.Literal)]
    if args and len(rest) == len(args) - 1:
        by_first = _by_first(function, rest)
        if by_first is not None:
            return _on_first(function, args, rest, by_first)
    if any(overload.preparation for overload in overloads):
        return _any(function, args)
    if len(args) == 1:
        return _unary(function, *args)
    if len(args) == 2:  # noqa: PLR2004 (two arguments)
        return _binary(function, *args)
    return _any(function, args)


def _any(function: Function, args: tuple[Closure, ...]) -> Closure:
    """Return the closure of any call; the others below are its shortcuts."""

    def evaluate(frame: Frame) -> object:
        values = [arg(frame) for arg in args]
        overload = function.find(tuple(map(type, values)))
        if overload is None:
            raise no_overload(function.name, *values)
        if overload.preparation is not None:
            position = overload.preparation.position
            values[position] = overload.preparation.prepare(values[position])
        if overload.budgeted:
            return overload.impl(frame[BUDGET], *values)
        return overload.impl(*values)

    return evaluate


def _unary(function: Function, arg: Closure) -> Closure:
    name, find = function.name, function.find

    def evaluate(frame: Frame) -> object:
        value = arg(frame)
        overload = find((type(value),))
        if overload is None:
            raise no_overload(name, value)
        return overload.impl(value)

    return evaluate


def _binary(function: Function, first: Closure, second: Closure) -> Closure:
    name, find = function.name, function.find

    def evaluate(frame: Frame) -> object:
        left, right = first(frame), second(frame)
        overload = find((type(left), type(right)))
        if overload is None:
            raise no_overload(name, left, right)
        return overload.impl(left, right)

    return evaluate


_ByFirst = dict[type, tuple["Callable[..., object]", tuple[object, ...]]]


def _by_first(function: Function, rest: list[object]) -> _ByFirst | None:
    """Return the implementation and its further arguments, by type of the first argument.

    None if the first argument may be of any type, or the literals cannot be prepared: the call
    then has no shortcut.
    """
    kinds = tuple(map(type, rest))
    table: _ByFirst = {}
    for overload in function.with_arity(len(rest) + 1):
        first = overload.params[0]
        if first is object or overload.variadic:
            return None
        if not overload.accepts((first, *kinds)):
            continue
        args = list(rest)
        preparation = overload.preparation
        if preparation is not None:
            if preparation.position == 0:
                return None
            try:
                args[preparation.position - 1] = preparation.prepare(args[preparation.position - 1])
            except CelError:
                return None
        for kind in (list, tuple) if first is list else (first,):
            table.setdefault(kind, (overload.impl, tuple(args)))
    return table


def _on_first(
    function: Function, args: tuple[Closure, ...], rest: list[object], by_first: _ByFirst
) -> Closure:
    """Return the closure of a call whose arguments after the first are literals."""
    first = args[0]

    def evaluate(frame: Frame) -> object:
        value = first(frame)
        target = by_first.get(type(value))
        if target is None:
            raise no_overload(function.name, value, *rest)
        impl, prepared = target
        return impl(value, *prepared)

    return evaluate
