"""Scalar evaluation: compiles a resolved tree to Python closures over plain values.

The composition of closures and their shortcuts belong here; the semantics of operators never do:
they are in `engine.cel.operators`. Any node of a resolved tree compiles on its own, given a frame
that holds the variables that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from engine.cel import ast, operators
from engine.cel.budget import Budget
from engine.cel.environment import Environment
from engine.cel.functions import Function
from engine.cel.operators import no_overload, not_bool, optional_index
from engine.cel.values import (
    ABSENT,
    EXACT,
    NUMBERS,
    OptionalValue,
    map_key,
    present,
    type_of,
)
from engine.errors import BudgetExhaustedError, CelError

Frame = dict[str, Any]
"""Variables by name, with the budget under `BUDGET`.

Loops add their variables as `name@depth`, a name that no variable of an environment has.
"""

Closure = Callable[[Frame], object]
"""Returns a value or raises `CelError`; stateless."""

Compile = Callable[[ast.Node], Closure]
"""Compiles a child node."""

BUDGET: Final = "@budget"


def new_frame(activation: Mapping[str, object], budget: Budget | None = None) -> Frame:
    """Return a frame with the variables of `activation`, and a new budget if none is given."""
    frame: Frame = {**activation}
    frame[BUDGET] = Budget() if budget is None else budget
    return frame


def failing(message: str) -> Closure:
    def fail(_frame: Frame) -> object:
        raise CelError(message)

    return fail


def literal(node: ast.Literal, _compile: Compile, _environment: Environment) -> Closure:
    return constant(node.value)


def constant(value: object) -> Closure:
    return lambda _frame: value


def unknown(node: ast.Name, _compile: Compile, _environment: Environment) -> Closure:
    return failing(f"unknown name `{node.name}`")


def variable(
    node: ast.Variable | ast.Local, _compile: Compile, _environment: Environment
) -> Closure:
    """Compile a variable; reading one that the frame lacks is an error."""
    return _path(node.name, ())


def select(node: ast.Select, compile_: Compile, _environment: Environment) -> Closure:
    path = _variable_path(node)
    if path is not None:
        return path
    operand, field = compile_(node.operand), node.field
    selection = operators.optional_select if node.optional else operators.select
    return lambda frame: selection(operand(frame), field)


def index(node: ast.Index, compile_: Compile, _environment: Environment) -> Closure:
    path = _variable_path(node)
    if path is not None:
        return path
    operand, key = compile_(node.operand), compile_(node.index)
    if node.optional:
        return lambda frame: operators.optional_index(operand(frame), key(frame))

    def evaluate(frame: Frame) -> object:
        container, name = operand(frame), key(frame)
        if type(container) is dict and type(name) is str and name in container:
            return container[name]
        return operators.index(container, name)

    return evaluate


def has(node: ast.Has, compile_: Compile, _environment: Environment) -> Closure:
    operand, field = compile_(node.operand), node.field

    def evaluate(frame: Frame) -> bool:
        value = operand(frame)
        return field in value if type(value) is dict else operators.has(value, field)

    return evaluate


def _variable_path(node: ast.Node) -> Closure | None:
    """Compile constant selections from a variable, None if the node is something else."""
    root, keys, optional = ast.field_path(node)
    if optional or not isinstance(root, ast.Variable | ast.Local):
        return None
    return _path(root.name, keys)


def _path(name: str, keys: tuple[str, ...]) -> Closure:
    """Follow string keys from a variable: the most frequent closure."""

    def evaluate(frame: Frame) -> object:
        try:
            value = frame[name]
            for key in keys:
                value = value[key] if type(value) is dict else operators.select(value, key)
        except KeyError as error:
            raise CelError(f"no such key: `{error.args[0]}`") from None
        return value

    return evaluate


def list_literal(node: ast.ListLiteral, compile_: Compile, _environment: Environment) -> Closure:
    """Compile a list; a list of literals is built once."""
    if all(isinstance(element, ast.Literal) for element in node.elements) and not node.optionals:
        return constant(tuple(element.value for element in node.elements))  # type: ignore[attr-defined]
    parts = tuple(compile_(element) for element in node.elements)
    if not node.optionals:
        return lambda frame: [part(frame) for part in parts]
    marked = tuple((part, at in node.optionals) for at, part in enumerate(parts))

    def evaluate(frame: Frame) -> object:
        elements: list[object] = []
        for part, optional in marked:
            value = part(frame)
            if not optional:
                elements.append(value)
            elif _optional(value).present:
                elements.append(value.value)  # type: ignore[attr-defined]
        return elements

    return evaluate


def map_literal(node: ast.MapLiteral, compile_: Compile, _environment: Environment) -> Closure:
    parts = tuple(
        (compile_(entry.key), compile_(entry.value), entry.optional) for entry in node.entries
    )

    def evaluate(frame: Frame) -> object:
        entries: dict[object, object] = {}
        for key_part, value_part, optional in parts:
            key = map_key(key_part(frame))
            if key in entries:
                raise CelError(f"a map has the key `{key_part(frame)}` twice")
            value = value_part(frame)
            if not optional:
                entries[key] = value
            elif _optional(value).present:
                entries[key] = value.value  # type: ignore[attr-defined]
        return entries

    return evaluate


def _optional(value: object) -> OptionalValue:
    if type(value) is OptionalValue:
        return value
    raise CelError(f"expected an optional, not a value of type `{type_of(value)}`")


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
    operand = compile_(node.operand)
    return lambda frame: operators.negate(operand(frame))


def _equality(node: ast.Binary, compile_: Compile) -> Closure:
    expected = node.operator == "=="
    first, second = compile_(node.left), compile_(node.right)

    def evaluate(frame: Frame) -> bool:
        value, other = first(frame), second(frame)
        if type(value) is str:  # equal to an equal string alone
            return (value == other) is expected
        return operators.equals(value, other, frame[BUDGET]) is expected

    return evaluate


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


def call(node: ast.Call, compile_: Compile, environment: Environment) -> Closure:
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


# Closures for `&&`, `||`, `!`, `?:`, `or` and `orValue`.
#
# `&&` and `||` are commutative in their errors: a false (or true) operand decides, even if another
# fails. An exhausted budget is different: it ends the evaluation.


def and_(node: ast.And, compile_: Compile, _environment: Environment) -> Closure:
    operands = tuple(map(compile_, node.operands))
    return _logic(lambda _: operands, decisive=False)


def or_(node: ast.Or, compile_: Compile, _environment: Environment) -> Closure:
    operands = tuple(map(compile_, node.operands))
    return _logic(lambda _: operands, decisive=True)


def _logic(operands_of: Callable[[Frame], Iterable[Closure]], *, decisive: bool) -> Closure:
    """Return what evaluates operands until one is decisive, which hides faults of others."""
    undecided = not decisive

    def evaluate(frame: Frame) -> object:
        failure: CelError | None = None
        for operand in operands_of(frame):
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
    loop = _loop(compile_(node.range), node.variables)
    predicate = compile_(node.predicate)
    if node.how_many is ast.HowMany.ONE:
        return lambda frame: sum(_holds(predicate, frame) for _ in loop(frame)) == 1
    is_some = node.how_many is ast.HowMany.SOME
    return _logic(lambda frame: (predicate for _ in loop(frame)), decisive=is_some)


def transform(node: ast.Transform, compile_: Compile, _environment: Environment) -> Closure:
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


def compile_node(node: ast.Node, environment: Environment) -> Closure:
    """Compile a node of a resolved tree.

    A name or function missing in the environment is an error when it is evaluated.
    """

    def compile_(child: ast.Node) -> Closure:
        return _COMPILERS[type(child)](child, compile_, environment)

    return compile_(node)


_COMPILERS: Final[Mapping[type[ast.Node], Callable[[Any, Any, Environment], Closure]]] = {
    ast.Alternative: alternative,
    ast.And: and_,
    ast.Binary: binary,
    ast.Bind: bind,
    ast.Call: call,
    ast.Conditional: conditional,
    ast.Has: has,
    ast.Index: index,
    ast.ListLiteral: list_literal,
    ast.Literal: literal,
    ast.Local: variable,
    ast.MapLiteral: map_literal,
    ast.Name: unknown,
    ast.Negate: negate,
    ast.Not: not_,
    ast.OptionalMap: optional_map,
    ast.Or: or_,
    ast.Quantifier: quantifier,
    ast.Select: select,
    ast.SortBy: sort_by,
    ast.Transform: transform,
    ast.Variable: variable,
}

__all__ = ["BUDGET", "Closure", "Frame", "compile_node", "new_frame"]
