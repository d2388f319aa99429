"""Types of args that several plugins take, and annotations of nodes that overlay them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Final, TypeAlias

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from engine.documents import mistake, warn
from engine.errors import QuantityError
from engine.model.quantity import quantity_of
from engine.model.time import NANOSECONDS_PER_SECOND, DurationError, parse_duration
from engine.view import ClusterView, IntColumn, annotation_column

_WHOLE = 100  # percent

Flag: TypeAlias = Annotated[bool, Field(strict=True)]
"""True or false, and no text that reads like it."""


def _whole_percent(value: object) -> object:
    if isinstance(value, float):
        percent = _WHOLE * value if 0 <= value <= 1 else value
        hint = f"write {round(percent)} for {round(percent)} %" if 0 <= percent <= _WHOLE else ""
        raise mistake("expected a whole number of percent", hint)
    if isinstance(value, str) and value[-1:] not in "%0123456789":
        raise mistake(
            "expected a whole number of percent", "percent of what a node has, such as 90"
        )
    return value


WholePercent: TypeAlias = Annotated[int, Field(strict=True), BeforeValidator(_whole_percent)]
Percent: TypeAlias = Annotated[WholePercent, Field(ge=0, le=100)]
Share: TypeAlias = Annotated[WholePercent, Field(ge=1, le=100)]
"""A percentage above 0."""


def _whole_seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        seconds = parse_duration(value) // NANOSECONDS_PER_SECOND
    except DurationError:
        return value
    raise mistake("expected a whole number of seconds", f"write {seconds}")


def _readable(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise mistake("expected a quantity", "such as 2, `500m` or `4Gi`")
    try:
        quantity_of(value)
    except QuantityError as error:
        raise mistake(str(error), "such as 2, `500m` or `4Gi`") from error
    return value


Seconds = BeforeValidator(_whole_seconds)
"""Marks whole seconds, so that a duration in their place gets a hint."""

Quantity: TypeAlias = Annotated[str | int | float, BeforeValidator(_readable)]


def _of_one_pod(amounts: dict[str, Quantity], info: ValidationInfo) -> dict[str, Quantity]:
    """Warn of amounts that lack a suffix: hundreds of cores, or a few bytes."""
    cpu, memory = (amounts.get(name) for name in ("cpu", "memory"))
    if isinstance(cpu, int | float) and cpu >= _MANY_CORES:
        warn(info, f"`cpu: {cpu}` are {cpu} cores", f"for millicores write `{cpu}m`")
    if isinstance(memory, str) and memory.endswith("m"):
        meant = f"for mebibytes write `{memory.removesuffix('m')}Mi`"
        warn(info, f"`memory: {memory}` are thousandths of a byte", meant)
    if isinstance(memory, int | float) and 0 < memory < _FEW_BYTES:
        warn(info, f"`memory: {memory}` are bytes", f"for mebibytes write `{memory}Mi`")
    return amounts


_MANY_CORES: Final = 64  # that hardly any pod has
_FEW_BYTES: Final = 1 << 20

Quantities: TypeAlias = Annotated[dict[str, Quantity], AfterValidator(_of_one_pod)]
"""Quantities of a pod by resource name, as people write them; `base_units` reads each."""


def read_annotation(
    view: ClusterView, key: str, width: int, read: Callable[[str | None], Iterable[int]]
) -> IntColumn:
    """Return what `read` makes of an annotation on each node, shape (width, n)."""
    column = annotation_column(view, key)
    table = np.zeros((width, len(column.counts)), np.int64)
    for number in np.flatnonzero(column.counts).tolist():
        table[:, number] = tuple(read(column.values[number]))
    return table.take(column.codes, axis=1)
