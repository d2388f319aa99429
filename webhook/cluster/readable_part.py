"""The part of an object that can be read, for kinds of which a part is better than nothing."""

from __future__ import annotations

from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.quantity import quantity_of
from webhook.cluster.shallow_json import shallow

_Wire = TypeVar("_Wire", bound=msgspec.Struct)

_NOTHING: Final = object()


def readable_part(raw: bytes | msgspec.Raw, wire: type[_Wire]) -> _Wire:
    """Return an object without the fields, items and amounts that cannot be read.

    Raises:
        ValueError: it is no JSON object.
    """
    plain = msgspec.json.decode(shallow(raw))
    part = _part(plain, wire)
    return msgspec.convert({} if part is _NOTHING else part, wire)


def _part(value: Any, kind: Any) -> Any:  # noqa: ANN401 - JSON, and any type of a field
    """Return the part of a value that converts to a type, `_NOTHING` if none does."""
    options = get_args(kind)
    for option in options if NoneType in options else (kind,):
        if option == api.ResourceList and isinstance(value, dict):
            return {name: amount for name, amount in value.items() if _is_quantity(amount)}
        if get_origin(option) is list and isinstance(value, list):
            (item,) = get_args(option)
            parts = (_part(inner, item) for inner in value)
            return [part for part in parts if part is not _NOTHING]
        is_struct = isinstance(option, type) and issubclass(option, msgspec.Struct)
        if is_struct and isinstance(value, dict):
            return _fields(value, option)
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return _NOTHING
    return value


def _fields(value: dict[str, Any], wire: type[msgspec.Struct]) -> dict[str, Any]:
    parts = (
        (field.encode_name, _part(value[field.encode_name], field.type))
        for field in msgspec.structs.fields(wire)
        if field.encode_name in value
    )
    return {name: part for name, part in parts if part is not _NOTHING}


def _is_quantity(amount: Any) -> bool:  # noqa: ANN401 - JSON
    try:
        quantity_of(msgspec.convert(amount, str | int | float | None))
    except (msgspec.ValidationError, QuantityError):
        return False
    return True
