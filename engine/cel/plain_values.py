"""CEL values as JSON: for people, and for programs that read what commands print."""

from __future__ import annotations

import math
from base64 import b64encode

from engine.cel.times import format_duration, format_timestamp
from engine.cel.values import CelType, Duration, OptionalValue, Timestamp, key_value, type_of


def plain_value(value: object) -> object:
    """Return a value as dicts with text keys, lists, texts, numbers, bools and None.

    Times and durations are texts as `string()` gives them, bytes are base64, an optional is its
    value or None. Doubles without a number in JSON, types, and values of function families, which
    have no text form, are named in a text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {_key(key_value(key)): plain_value(item) for key, item in value.items()}
    match value:
        case bytes():
            return b64encode(value).decode()
        case Timestamp():
            return format_timestamp(value)
        case Duration():
            return format_duration(value)
        case OptionalValue():
            return plain_value(value.value) if value.present else None
        case CelType():
            return str(value)
    return f"a value of type {type_of(value)}"


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
