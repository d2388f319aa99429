"""Closures for macros: loops, and single bindings of a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engine.cel import ast, operators
from engine.cel.environment import Environment
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.evaluate.frame import BUDGET, Closure, Compile, Frame
from engine.cel.operators import no_overload, not_bool
from engine.cel.values import ABSENT, OptionalValue, map_key, present, type_of

_Loop = Callable[[Frame], Iterator[object]]


def _loop(range_: Closure, variables: tuple[str, ...]) -> _Loop:
    """Return a generator that binds the variables, charges each turn, and yields the first."""
    if len(variables) == 1:
        (name,) = variables

        def over_elements(frame: Frame) -> Iterator[object]:
            spend = frame[BUDGET].spend
            for element in operators.elements(range_(frame)):
                spend()
                frame[name] = element
                yield element

        return over_elements
    first, second = variables

    def over_pairs(frame: Frame) -> Iterator[object]:
        spend = frame[BUDGET].spend
        for key, value in operators.pairs(range_(frame)):
            spend()
            frame[first] = key
            frame[second] = value
            yield key

    return over_pairs


def _holds(condition: Closure, frame: Frame) -> bool:
    value = condition(frame)
    if value is True or value is False:
        return value
    raise not_bool(value)


def quantifier(node: ast.Quantifier, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `all`, `exists` or `exists_one`."""
    loop = _loop(compile_(node.range), node.variables)
    predicate = compile_(node.predicate)
    if node.how_many is ast.HowMany.ONE:
        return lambda frame: sum(_holds(predicate, frame) for _ in loop(frame)) == 1
    decisive = node.how_many is ast.HowMany.SOME
    undecided = not decisive

    def evaluate(frame: Frame) -> bool:
        failure: CelError | None = None
        for _ in loop(frame):
            try:
                value = predicate(frame)
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
                del failure  # as in `_logic`
        return undecided

    return evaluate


def transform(node: ast.Transform, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `map`, `filter` and the `transform...` macros."""
    loop = _loop(compile_(node.range), node.variables)
    result = compile_(node.result)
    if node.condition is not None:
        loop = _filtered(loop, compile_(node.condition))
    if node.shape is ast.Shape.LIST:
        return _to_list(loop, result)
    if node.shape is ast.Shape.MAP:
        return _to_map(loop, result)
    return _to_entries(loop, result)


def _filtered(loop: _Loop, condition: Closure) -> _Loop:
    return lambda frame: (key for key in loop(frame) if _holds(condition, frame))


def _to_list(loop: _Loop, result: Closure) -> Closure:
    def evaluate(frame: Frame) -> list[object]:
        results = [result(frame) for _ in loop(frame)]
        frame[BUDGET].check_items(len(results))
        return results

    return evaluate


def _to_map(loop: _Loop, result: Closure) -> Closure:
    def evaluate(frame: Frame) -> dict[object, object]:
        results = {map_key(key): result(frame) for key in loop(frame)}
        frame[BUDGET].check_items(len(results))
        return results

    return evaluate


def _to_entries(loop: _Loop, result: Closure) -> Closure:
    def evaluate(frame: Frame) -> dict[object, object]:
        merged: dict[object, object] = {}
        for _ in loop(frame):
            entries: Any = result(frame)
            if type(entries) is not dict:
                raise CelError(f"expected a map of entries, not `{type_of(entries)}`")
            if not merged.keys().isdisjoint(entries):
                raise CelError("a map has a key twice")
            merged |= entries
            frame[BUDGET].check_items(len(merged))
        return merged

    return evaluate


def sort_by(node: ast.SortBy, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `range.sortBy(x, key)`."""
    range_, key_of = compile_(node.range), compile_(node.key)

    def checked(frame: Frame) -> object:
        values = range_(frame)
        if type(values) is list or type(values) is tuple:
            return values
        raise no_overload("sortBy", values)

    loop = _loop(checked, (node.variable,))

    def evaluate(frame: Frame) -> list[object]:
        keyed = [(value, key_of(frame)) for value in loop(frame)]
        values, keys = [value for value, _ in keyed], [key for _, key in keyed]
        return operators.sorted_by(values, keys)

    return evaluate


def bind(node: ast.Bind, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `cel.bind(variable, value, body)`; a value fails only where it is used."""
    name, value, body = node.variable, compile_(node.value), compile_(node.body)

    def evaluate(frame: Frame) -> object:
        try:
            frame[name] = value(frame)
        except BudgetExhaustedError:
            raise
        except CelError as failure:
            return without(frame, failure)
        return body(frame)

    def without(frame: Frame, failure: CelError) -> object:
        frame.pop(name, None)
        try:
            return body(frame)
        except BudgetExhaustedError:
            raise
        except CelError:
            try:
                raise failure from None
            finally:
                del failure  # as in `_logic`

    return evaluate


def optional_map(node: ast.OptionalMap, compile_: Compile, _environment: Environment) -> Closure:
    """Compile `operand.optMap(x, body)` or `optFlatMap`."""
    operand, name, body, flat = (
        compile_(node.operand),
        node.variable,
        compile_(node.body),
        node.flat,
    )
    function = "optFlatMap" if flat else "optMap"

    def evaluate(frame: Frame) -> object:
        value = operand(frame)
        if type(value) is not OptionalValue:
            raise no_overload(function, value)
        if not value.present:
            return ABSENT
        frame[name] = value.value
        result = body(frame)
        if not flat:
            return present(result)
        if type(result) is not OptionalValue:
            raise no_overload(function, value, result)
        return result

    return evaluate
