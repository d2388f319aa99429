"""The words for mistakes of calls and names, with the help that is at hand."""

from __future__ import annotations

from collections.abc import Sequence

from engine.cel import ast, macros
from engine.cel.environment import Environment
from engine.cel.functions import Function
from engine.cel.values import CelType
from engine.errors import did_you_mean


def unknown_function(call: ast.Call, environment: Environment) -> tuple[str, str]:
    """Return message and hint for a call of a function that does not exist."""
    name = call.function.removeprefix(".")
    functions = environment.functions
    if (name, not call.member) in functions:
        hint = f"write `{name}(x)`" if call.member else f"write `x.{name}()`"
    elif name in macros.NAMES and environment.macros:
        hint = f"the macro `{name}` takes other arguments"
    else:
        known = {known for known, member in functions if member is call.member}
        if call.member and environment.macros:
            known |= macros.NAMES
        hint = did_you_mean(name, sorted(known))
    return f"unknown function `{name}`", hint


def mismatch(function: Function, types: Sequence[CelType]) -> str:
    """Return the message for a call that no overload takes; the receiver is among `types`."""
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
