"""Declarations for an expression: variables with types, functions, named types, limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from engine.cel.budget import DEFAULT_LIMITS, Limits
from engine.cel.functions import FUNCTIONS, Function
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
    Opaque,
)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectType(CelType):
    """A map with declared fields, so that a misspelt one is a mistake at load.

    Only names and types are declared: any field may be absent at run time.

    Attributes:
        fields: the type of each field.
        hints: what to write instead, by names that people take for fields.
    """

    fields: Mapping[str, CelType] = field(kw_only=True)
    hints: Mapping[str, str] = field(default_factory=dict, kw_only=True)


_BUILT_IN_TYPES: Final = (
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
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Environment:
    """The declarations that an expression is checked against; immutable, and safe to share.

    Attributes:
        variables: the type of each variable by its full name, which may have dots.
        functions: functions by (name, whether it is a member).
        container: the namespace in which names are looked up first, such as `a.b`.
        limits: size limits of an expression.
        macros: whether macros are expanded.
        hints: what to write instead, by names that people take for variables.
    """

    variables: Mapping[str, CelType] = field(default_factory=dict)
    functions: Mapping[tuple[str, bool], Function] = field(
        default_factory=lambda: FUNCTIONS, repr=False
    )
    container: str = ""
    limits: Limits = DEFAULT_LIMITS
    macros: bool = True
    hints: Mapping[str, str] = field(default_factory=dict, repr=False)
    types: Mapping[str, CelType] = field(init=False, repr=False)
    """Types by name: the built-in ones and the opaque types of functions."""
    opaque_classes: Mapping[str, type[Opaque]] = field(init=False, repr=False)
    """The Python class of each opaque type, by its CEL name."""

    def __post_init__(self) -> None:
        opaque = {
            param.cel_type.name: param
            for function in self.functions.values()
            for overload in function.overloads
            for param in overload.params
            if issubclass(param, Opaque)
        }
        types = {built_in.name: built_in for built_in in _BUILT_IN_TYPES}
        types |= {name: param.cel_type for name, param in opaque.items()}
        object.__setattr__(self, "types", MappingProxyType(types))
        object.__setattr__(self, "opaque_classes", MappingProxyType(opaque))

    def candidates(self, name: str, *, absolute: bool = False) -> Iterator[str]:
        """Yield the full names that `name` may refer to, innermost namespace first."""
        container = "" if absolute else self.container
        while container:
            yield f"{container}.{name}"
            container = container.rpartition(".")[0]
        yield name
