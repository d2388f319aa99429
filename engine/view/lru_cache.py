"""Results that are remembered in bounded memory, without effect on any answer."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from engine.model.selectors import LabelSelector

FORGOTTEN_AFTER: Final = 50_000
"""Events after which an unused entry makes room: policies that are gone leave columns behind."""

_LONGEST_KEY = 4096  # bytes, about; parts of a pod are in keys, and bounded by nothing else
_NAME_BYTES = 64  # of a name in a set, which others hold too
_PART = 32  # bytes that any part of a key counts for

_Value = TypeVar("_Value")


@dataclass(slots=True)
class Entry(Generic[_Value]):
    """A remembered result."""

    version: int  # the newest version of a view that it was right for and that read it
    value: _Value  # the result
    size: int  # the bytes it counts for


class LruCache(Generic[_Value]):
    """Entries by key, the least recently used first.

    An entry with a very long key is not kept.
    """

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        self._entries: OrderedDict[Hashable, Entry[_Value]] = OrderedDict()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def _put(self, key: Hashable, version: int, value: _Value, size: int) -> Entry[_Value]:
        """Add or replace an entry, make room for it, and return it."""
        entry = Entry(version, value, size)
        old = self._entries.get(key)
        if old is None and is_long(key):
            return entry
        self._bytes += size - (old.size if old else 0)
        self._entries[key] = entry
        self._entries.move_to_end(key)
        self._make_room(version - FORGOTTEN_AFTER)
        return entry

    def _make_room(self, since: int) -> None:
        """Forget entries that are unused since a version, and those beyond the bounds."""
        while self._entries:
            key, eldest = next(iter(self._entries.items()))
            too_much = len(self._entries) > self._most or self._bytes > self._most_bytes
            if not too_much and eldest.version >= since:
                return
            del self._entries[key]
            self._bytes -= eldest.size


class NamespaceSets(LruCache[frozenset[str]]):
    """The namespaces that selectors select, found again when labels of any namespace change."""

    def get(
        self, selector: LabelSelector, labels_of: Mapping[str, Mapping[str, str]], version: int
    ) -> frozenset[str]:
        """Return the names of the namespaces that a selector selects."""
        entry = self._entries.get(selector)
        if entry is not None and entry.version == version:
            return entry.value
        names = frozenset([name for name, labels in labels_of.items() if selector.matches(labels)])
        self._put(selector, version, names, _NAME_BYTES * len(names))
        return names


def is_long(key: Hashable) -> bool:
    """Return whether a key takes too much memory to be kept; stops counting once it does."""
    left, parts = _LONGEST_KEY, [key]
    while parts and left > 0:
        part = parts.pop()
        left -= _PART
        if isinstance(part, str | bytes):
            left -= len(part)
        elif isinstance(part, msgspec.Struct):
            parts.extend(msgspec.structs.astuple(part))
        elif isinstance(part, tuple | frozenset):
            left -= _PART * len(part)
            if left > 0:
                parts.extend(part)
    return left <= 0
