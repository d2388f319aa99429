"""What a reader chose, in the query of a URL: any text is safe, what is unknown is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

_T = TypeVar("_T")

Query: TypeAlias = Mapping[str, str]
"""The query of a URL by key."""

MOST_TEXT = 256  # of a value that is read: longer than any name
_MOST_DIGITS = 6


def chosen(query: Query, key: str, options: Sequence[str]) -> str:
    """Return the option that a query names, the first one if it names none of them."""
    value = query.get(key, "")
    return value if value in options else options[0]


def text_of(query: Query, key: str) -> str:
    """Return a text without spaces around it, cut short."""
    return query.get(key, "").strip()[:MOST_TEXT]


@dataclass(frozen=True, slots=True)
class Part(Generic[_T]):
    """One part of a long list.

    Attributes:
        items: of this part.
        number: from 1.
        parts: how many there are, at least 1.
        total: items of all parts.
    """

    items: Sequence[_T]
    number: int
    parts: int
    total: int


def part_of(items: Sequence[_T], query: Query, size: int) -> Part[_T]:
    """Return the part that `part` of a query names, the nearest one if there is no such part."""
    parts = max(1, -(-len(items) // size))
    text = query.get("part", "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    number = min(max(1, int(text) if is_number else 1), parts)
    start = (number - 1) * size
    return Part(tuple(islice(items, start, start + size)), number, parts, len(items))
