"""Values of an expression's fields in words, so that people can follow what it came to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from engine.model.resource_names import CPU, counts_bytes
from engine.plugins.lib.humanize import amount_words

_LONGEST: Final = 60
_MILLI: Final = 1000
_AMOUNTS: Final = frozenset({"allocatable", "limits", "requested", "usage"})
_DEPTH_OF_AMOUNT: Final = 3  # `node.usage.cpu`


def field_words(path: tuple[str, ...], values: Mapping[str, object], source: str) -> str:
    """Return what stands at a path, short: `5.2 cores`, `8 GiB`, `"a"`; `absent` if nothing does.

    Of a map, as all labels of a node, it is what the expression names.

    Args:
        path: names from the outermost to the innermost.
        values: maps in maps, as expressions see them.
        source: the expression.
    """
    value: object = values
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return "absent"
        value = value[name]
    if len(path) == _DEPTH_OF_AMOUNT and path[1] in _AMOUNTS and isinstance(value, float):
        return _amount(path[-1], value)
    if isinstance(value, Mapping):
        named = {key: one for key, one in value.items() if key in source}
        if value and not named:
            return f"none of its {len(value)} keys is named"
        value = named
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _amount(resource: str, value: float) -> str:
    """Return an amount as expressions see it, cpu in cores, in words."""
    if resource == CPU:
        return amount_words(resource, value * _MILLI)
    return amount_words(resource, value) if counts_bytes(resource) else f"{value:g}"
