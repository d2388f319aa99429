"""Declarations of functions: overloads, and dispatch on run-time types.

A family is a file that exposes `FUNCTIONS: tuple[Overload, ...]`; `engine.cel.functions` lists the
families. An implementation is a Python function over the values of `engine.cel.values`: it takes
its arguments (the receiver first) and returns a value, or raises the `CelError` that the language
defines. It never mutates an argument and checks no types: it is called only when the run-time
types match `params`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from engine.cel.values import DYN, CelType


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Conversion of an argument, such as to a regular expression; at load if it is a literal.

    `impl` always gets the prepared value: if the argument is computed, `prepare` runs at each call.
    A `CelError` of `prepare` on a literal is reported as a mistake in the expression.
    """

    position: int  # in `params`, so the receiver of a member function is 0
    prepare: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function.

    Attributes:
        name: the name in calls, with its namespace if any (`math.abs`, `ip.isCanonical`).
        params: exact run-time types, the receiver of a member function first. `object` is any
            value, `list` also means a tuple. Dispatch is on `type(x) is`.
        impl: takes an argument for each of `params`, after the `Budget` if `budgeted`.
        member: true for `receiver.name(...)`, false for `name(...)`. A function that can be called
            both ways has two overloads.
        result: static type of the result, dyn if it depends on the arguments.
        variadic: the last of `params` may be repeated any number of times.
        budgeted: `impl` needs the `Budget` because its result or its work outgrows its arguments.
        folds: for constructors such as `duration('1s')`: a call on literals is evaluated once, at
            load, and its `CelError` is reported as a mistake in the expression.
        preparation: see `Preparation`.
    """

    name: str
    params: tuple[type, ...]
    impl: Callable[..., object]
    member: bool = False
    result: CelType = DYN
    variadic: bool = False
    budgeted: bool = False
    folds: bool = False
    preparation: Preparation | None = None

    def takes(self, count: int) -> bool:
        """Return whether it can be called with `count` arguments, the receiver included."""
        return count >= len(self.params) if self.variadic else count == len(self.params)

    def accepts(self, types: tuple[type, ...]) -> bool:
        """Return whether arguments of these run-time types match."""
        if not self.takes(len(types)):
            return False
        params = self.params + self.params[-1:] * (len(types) - len(self.params))
        return all(
            kind in _alternatives(param, kind) for param, kind in zip(params, types, strict=True)
        )


def _alternatives(param: type, kind: type) -> tuple[type, ...]:
    if param is object:
        return (kind,)
    return (list, tuple) if param is list else (param,)


class Function:
    """All overloads of one name in one style (member or not)."""

    __slots__ = ("_by_types", "_open", "member", "name", "overloads")

    def __init__(self, overloads: tuple[Overload, ...]) -> None:
        self.name = overloads[0].name
        self.member = overloads[0].member
        self.overloads = overloads
        # INVARIANT: every overload is in exactly one of the two.
        closed = [o for o in overloads if object not in o.params and not o.variadic]
        self._open = tuple(o for o in overloads if object in o.params or o.variadic)
        self._by_types: dict[tuple[type, ...], Overload] = {
            types: overload
            for overload in closed
            for types in product(*(_alternatives(param, param) for param in overload.params))
        }

    def find(self, types: tuple[type, ...]) -> Overload | None:
        """Return the overload for arguments of these run-time types, the receiver first."""
        closed = self._by_types.get(types)
        if closed is not None:
            return closed
        return next((overload for overload in self._open if overload.accepts(types)), None)

    def with_arity(self, count: int) -> tuple[Overload, ...]:
        """Return the overloads that take `count` arguments, the receiver included."""
        return tuple(overload for overload in self.overloads if overload.takes(count))


def function_table(families: Iterable[Iterable[Overload]]) -> Mapping[tuple[str, bool], Function]:
    """Return the functions of all families, by (name, whether it is a member)."""
    grouped: dict[tuple[str, bool], list[Overload]] = {}
    for family in families:
        for overload in family:
            grouped.setdefault((overload.name, overload.member), []).append(overload)
    return {key: Function(tuple(overloads)) for key, overloads in grouped.items()}
