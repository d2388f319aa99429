"""Optional values. `or` and `orValue` are operators, because their argument is lazy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.cel.errors import CelError
from engine.cel.functions.registry import Overload
from engine.cel.operators import no_overload
from engine.cel.values import (
    ABSENT,
    BOOL,
    LIST,
    OPTIONAL,
    Duration,
    OptionalValue,
    Timestamp,
    equal,
    present,
)

_ZEROS: Final[tuple[object, ...]] = (None, False, 0, "", b"", [], {}, Duration(0), Timestamp(0))


def _of_non_zero(value: object) -> OptionalValue:
    return ABSENT if any(equal(value, zero) for zero in _ZEROS) else present(value)


def _value(optional: OptionalValue) -> object:
    if optional.present:
        return optional.value
    raise CelError("the optional has no value")


def _unwrap(optionals: Sequence[object]) -> list[object]:
    values = []
    for optional in optionals:
        if type(optional) is not OptionalValue:
            raise no_overload("optional.unwrap", optionals)
        if optional.present:
            values.append(optional.value)
    return values


FUNCTIONS: Final = (
    Overload("optional.of", (object,), present, result=OPTIONAL),
    Overload("optional.ofNonZeroValue", (object,), _of_non_zero, result=OPTIONAL),
    Overload("optional.none", (), lambda: ABSENT, result=OPTIONAL),
    Overload("optional.unwrap", (list,), _unwrap, result=LIST),
    Overload("unwrapOpt", (list,), _unwrap, member=True, result=LIST),
    Overload(
        "hasValue", (OptionalValue,), lambda optional: optional.present, member=True, result=BOOL
    ),
    Overload("value", (OptionalValue,), _value, member=True),
)
