"""Closures for literals, variables, fields and elements."""

from __future__ import annotations

from engine.cel import ast, operators
from engine.cel.environment import Environment
from engine.cel.errors import CelError
from engine.cel.evaluate.frame import Closure, Compile, Frame, failing
from engine.cel.values import OptionalValue, map_key, type_of


def literal(node: ast.Literal, _compile: Compile, _environment: Environment) -> Closure:
    """Compile a literal."""
    return constant(node.value)


def constant(value: object) -> Closure:
    """Return the closure of a constant value."""
    return lambda _frame: value


def unknown(node: ast.Name, _compile: Compile, _environment: Environment) -> Closure:
    """Compile an unresolved name."""
    return failing(f"unknown name `{node.name}`")


def variable(
    node: ast.Variable | ast.Local, _compile: Compile, _environment: Environment
) -> Closure:
    """Compile a variable; reading one that the frame lacks is an error."""
    return _path(node.name, ())


def select(node: ast.Select, compile_: Compile, _environment: Environment) -> Closure:
    """Compile a field selection."""
    path = _variable_path(node)
    if path is not None:
        return path
    operand, field = compile_(node.operand), node.field
    selection = operators.optional_select if node.optional else operators.select
    return lambda frame: selection(operand(frame), field)


def index(node: ast.Index, compile_: Compile, _environment: Environment) -> Closure:
    """Compile an element selection."""
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
    """Compile `has(operand.field)`."""
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
    """Compile a map."""
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
