"""The standard functions: size, basic string functions, and types."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from engine.cel.functions.regex import PATTERN, Pattern
from engine.cel.functions.registry import Overload
from engine.cel.values import BOOL, INT, TYPE, type_of


def _size(value: Sized) -> int:
    return len(value)  # of a string: code points


def _contains(text: str, part: str) -> bool:
    return part in text


def _matches(text: str, pattern: Pattern) -> bool:
    return pattern.occurs_in(text)


FUNCTIONS: Final = (
    *(
        Overload("size", (kind,), _size, member=member, result=INT)
        for kind in (str, bytes, list, dict)
        for member in (False, True)
    ),
    Overload("contains", (str, str), _contains, member=True, result=BOOL),
    Overload("startsWith", (str, str), str.startswith, member=True, result=BOOL),
    Overload("endsWith", (str, str), str.endswith, member=True, result=BOOL),
    *(
        Overload(
            "matches",
            (str, str),
            _matches,
            member=member,
            result=BOOL,
            preparation=PATTERN,
        )
        for member in (False, True)
    ),
    Overload("dyn", (object,), lambda value: value),
    Overload("type", (object,), type_of, result=TYPE),
)
