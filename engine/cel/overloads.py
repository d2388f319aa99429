"""Overload resolution: to which overloads of a function a call may dispatch, and why to none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.cel import ast, hints, macros
from engine.cel.environment import Environment
from engine.cel.functions import Function, Overload
from engine.cel.functions.k8s_lists import TYPED_SUM
from engine.cel.static_types import kind_of
from engine.cel.values import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    LIST,
    MAP,
    NULL,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    CelType,
    Duration,
    Opaque,
    OptionalValue,
    Timestamp,
    UInt,
    type_of,
)
from engine.errors import did_you_mean

_CLASSES: Final[Mapping[CelType, type]] = {
    BOOL: bool,
    BYTES: bytes,
    DOUBLE: float,
    DURATION: Duration,
    INT: int,
    LIST: list,
    MAP: dict,
    NULL: type(None),
    OPTIONAL: OptionalValue,
    STRING: str,
    TIMESTAMP: Timestamp,
    TYPE: CelType,
    UINT: UInt,
}

_WRITABLE: Final = frozenset({BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, UINT})
"""Types whose values have literals, or a function that makes them of one."""


def fits(overload: Overload, args: tuple[CelType, ...], opaque: Mapping[str, type[Opaque]]) -> bool:
    """Return whether a call with arguments of these types may dispatch to the overload."""
    if not overload.takes(len(args)):
        return False
    params = overload.params + overload.params[-1:] * (len(args) - len(overload.params))
    return all(
        object in {param, given} or param is given
        for param, given in zip(params, (_class_of(arg, opaque) for arg in args), strict=True)
    )


def _class_of(of_type: CelType, opaque: Mapping[str, type[Opaque]]) -> type:
    """Return the Python class of values of the type, `object` if it is not certain."""
    kind = kind_of(of_type)
    known = _CLASSES.get(kind)
    return opaque.get(kind.name, object) if known is None else known


def folded(call: ast.Call, fitting: Iterable[Overload]) -> ast.Node:
    """Return what literal arguments allow to evaluate at load; the call itself if they do not.

    Args:
        call: with resolved arguments.
        fitting: the overloads that it may dispatch to.

    Raises:
        CelError: the call fails whatever the rest of the expression is.
    """
    literals = {
        position: arg.value
        for position, arg in enumerate(call.args)
        if isinstance(arg, ast.Literal)
    }
    for overload in fitting:
        preparation = overload.preparation
        if preparation is not None and preparation.position in literals:
            preparation.prepare(literals[preparation.position])
        if overload.folds and len(literals) == len(call.args):
            value = overload.impl(*literals.values())
            of_type = type_of(value)
            said = None if of_type in _WRITABLE else call
            return ast.Literal(value, of_type, call=said, offset=call.offset)
    return call


def is_like_a_macro(call: ast.Call) -> bool:
    """Return whether a call of an unknown function has the name of a macro, or one much like it."""
    return call.member and (
        call.function in macros.NAMES or bool(did_you_mean(call.function, macros.NAMES))
    )


def unknown_function(call: ast.Call, environment: Environment) -> tuple[str, str]:
    """Return the message and hint for a call of an unknown function."""
    name = call.function.removeprefix(".")
    functions = environment.functions
    if hint := hints.for_function(call):
        return f"unknown function `{name}`", hint
    if name in environment.variables and not call.args:
        return f"`{name}` is no function", f"write `{name}`"
    if (name, not call.member) in functions:
        hint = f"write `{name}(x)`" if call.member else f"write `x.{name}()`"
    elif name in macros.NAMES and environment.macros:
        hint = f"the macro `{name}` takes other arguments"
    else:
        names = {known for known, member in functions if member is call.member}
        if call.member and environment.macros:
            names |= macros.NAMES
        hint = did_you_mean(name, sorted(names - {TYPED_SUM}))
    return f"unknown function `{name}`", hint


def mismatch(function: Function, types: Sequence[CelType]) -> str:
    """Return the message for a call that no overload accepts; `types` begin with the receiver."""
    receiver = 1 if function.member else 0
    if not function.with_arity(len(types)):
        counts = sorted({len(overload.params) - receiver for overload in function.overloads})
        expected = " or ".join(map(str, counts))
        more = " or more" if any(overload.variadic for overload in function.overloads) else ""
        plural = "" if expected == "1" and not more else "s"
        given = len(types) - receiver
        return f"`{function.name}` takes {expected}{more} argument{plural}, not {given}"
    given_types = ", ".join(map(str, types[receiver:]))
    if function.member:
        return f"`{types[0]}` has no function `{function.name}({given_types})`"
    return f"`{function.name}` does not take ({given_types})"
