"""Static types of an expression; whatever is not certain is `dyn`.

A rule may refuse only what is certain to fail, or certain to be pointless, at run time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.cel.environment import ObjectType
from engine.cel.values import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    NULL,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
)

NUMERIC: Final = frozenset({INT, UINT, DOUBLE})
_ORDERED: Final = frozenset({BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION})

_ARITHMETIC: Final[dict[str, dict[tuple[CelType, CelType], CelType]]] = {
    "+": {
        **{(kind, kind): kind for kind in (INT, UINT, DOUBLE, STRING, BYTES, LIST, DURATION)},
        (TIMESTAMP, DURATION): TIMESTAMP,
        (DURATION, TIMESTAMP): TIMESTAMP,
    },
    "-": {
        **{(kind, kind): kind for kind in (INT, UINT, DOUBLE, DURATION)},
        (TIMESTAMP, TIMESTAMP): DURATION,
        (TIMESTAMP, DURATION): TIMESTAMP,
    },
    "*": {(kind, kind): kind for kind in (INT, UINT, DOUBLE)},
    "/": {(kind, kind): kind for kind in (INT, UINT, DOUBLE)},
    "%": {(kind, kind): kind for kind in (INT, UINT)},
}


def kind_of(of_type: CelType) -> CelType:
    """Return the run-time type: without parameters, and `map` for an object."""
    if isinstance(of_type, ObjectType):
        return MAP
    return CelType(of_type.name) if of_type.parameters else of_type


def list_of(element: CelType) -> CelType:
    """Return the type of lists of `element`."""
    return CelType(LIST.name, (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    """Return the type of maps from `key` to `value`."""
    return CelType(MAP.name, (key, value))


def optional_of(value: CelType) -> CelType:
    return CelType(OPTIONAL.name, (value,))


def parameter(of_type: CelType, position: int = 0) -> CelType:
    """Return the type within a list or optional, or of the key (0) or value (1) of a map."""
    return of_type.parameters[position] if of_type.parameters else DYN


def join(types: Iterable[CelType]) -> CelType:
    """Return the most specific type that covers all of `types`."""
    distinct = list(dict.fromkeys(types))
    if len(distinct) == 1:
        return distinct[0]
    kinds = {kind_of(of_type) for of_type in distinct}
    return kinds.pop() if len(kinds) == 1 else DYN


def can_be(of_type: CelType, *kinds: CelType) -> bool:
    """Return whether a value of the type may turn out to be one of `kinds`."""
    kind = kind_of(of_type)
    return kind == DYN or kind in kinds


def are_unlike(types: Iterable[CelType]) -> bool:
    """Return whether values are certain to be of more than one type; null goes with any."""
    kinds = {kind_of(of_type) for of_type in types}
    return DYN not in kinds and len(kinds - {NULL}) > 1


def unwrapped(of_type: CelType) -> CelType:
    """Return the type of the value of an optional; any other as it is."""
    return parameter(of_type) if of_type.name == OPTIONAL.name else of_type


def loop_variables(range_: CelType, count: int) -> list[CelType]:
    """Return the types of one or two variables of a loop over a list, a map or an object."""
    if range_.name == LIST.name:
        return [INT, parameter(range_)][-count:]
    if range_.name == MAP.name:
        return [parameter(range_), parameter(range_, 1)][:count]
    if isinstance(range_, ObjectType):
        return [STRING, DYN][:count]
    return [DYN] * count


def binary(operator: str, left: CelType, right: CelType) -> CelType | None:
    """Return the type of `left operator right`, or None if it cannot succeed (`==`: be true)."""
    if operator in _ARITHMETIC:
        return _arithmetic(operator, left, right)
    if operator == "in":
        return BOOL if can_be(right, LIST, MAP) else None
    kinds = {kind_of(left), kind_of(right)}
    if DYN in kinds or kinds <= NUMERIC:
        possible = operator in {"==", "!="} or kinds <= _ORDERED | {DYN}
    elif operator in {"==", "!="}:
        possible = len(kinds) == 1 or NULL in kinds
    else:
        possible = len(kinds) == 1 and kinds <= _ORDERED
    return BOOL if possible else None


def _arithmetic(operator: str, left: CelType, right: CelType) -> CelType | None:
    left_kind, right_kind = kind_of(left), kind_of(right)
    results = [
        result
        for (first, second), result in _ARITHMETIC[operator].items()
        if left_kind in {first, DYN} and right_kind in {second, DYN}
    ]
    if not results:
        return None
    if LIST in {left_kind, right_kind}:
        return join((left, right)) if left_kind == right_kind else LIST
    return join(results)
