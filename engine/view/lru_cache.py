"""What is remembered between decisions: bounded, and forgotten when nobody asks for it any more."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

FORGOTTEN_AFTER: Final = 50_000
"""Events after which what nobody asks for makes room: policies that are gone leave columns."""

_T = TypeVar("_T")


@dataclass(slots=True)
class Entry(Generic[_T]):
    """Something remembered.

    Attributes:
        version: that of the last view it was right for and asked of.
        value: what is remembered.
        size: the bytes it counts for.
    """

    version: int
    value: _T
    size: int


class LruCache(Generic[_T]):
    """Entries by key, the least recently used first.

    Args:
        most: entries, however small.
        most_bytes: of all of them together, as of the last time that one was added.
    """

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        self._entries: OrderedDict[Hashable, Entry[_T]] = OrderedDict()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def _put(self, key: Hashable, version: int, value: _T, size: int) -> None:
        """Remember something in place of what was remembered before, and make room for it."""
        old = self._entries.get(key)
        self._bytes += size - (old.size if old else 0)
        self._entries[key] = Entry(version, value, size)
        self._entries.move_to_end(key)
        self._make_room(version - FORGOTTEN_AFTER)

    def _make_room(self, since: int) -> None:
        """Forget what was not asked for since a version, and what is too much; eldest first."""
        while self._entries:
            key, eldest = next(iter(self._entries.items()))
            too_much = len(self._entries) > self._most or self._bytes > self._most_bytes
            if not too_much and eldest.version >= since:
                return
            del self._entries[key]
            self._bytes -= eldest.size
