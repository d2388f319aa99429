"""Containers for what anyone may make large: bounded, or changed in small steps."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ByteLimitedCache(Generic[_Key, _Value]):
    """Values by key, in a limited number of bytes; what was not used for long is dropped.

    There are two generations. Values enter the newer one, and those of the older one move there
    when they are used; once the newer one holds half of the bytes it becomes the older one, whose
    values are dropped. A hit in the newer one costs one look-up. Threads may share it: at worst a
    value is computed again, and the bytes are counted afresh with each generation.

    Args:
        most_bytes: of all values together.
        size_of: the bytes that a key and its value take, about.
    """

    def __init__(self, most_bytes: int, size_of: Callable[[_Key, _Value], int]) -> None:
        self._most_bytes_each = most_bytes // 2
        self._size_of = size_of
        self._newer: dict[_Key, _Value] = {}
        self._older: dict[_Key, _Value] = {}
        self._newer_bytes = 0

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    @property
    def size(self) -> int:
        """Bytes of all values, counted anew."""
        generations = (self._newer, self._older)
        return sum(self._size_of(*item) for values in generations for item in values.items())

    def get(self, key: _Key) -> _Value | None:
        """Return the value of a key, None if there is none."""
        value = self._newer.get(key)
        if value is None and self._older:
            value = self._older.pop(key, None)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: _Key, value: _Value) -> None:
        """Add a value that is not None; one that would fill a generation is not kept."""
        size = self._size_of(key, value)
        if size > self._most_bytes_each:
            return
        if self._newer_bytes + size > self._most_bytes_each:
            self._older, self._newer, self._newer_bytes = self._newer, {}, 0
        self._newer[key] = value
        self._newer_bytes += size

    def clear(self) -> None:
        """Drop all values."""
        self._older, self._newer, self._newer_bytes = {}, {}, 0


PARTS: Final = 64
"""Each has 23,000 of 1,500,000 strings, and is copied in less than a millisecond as it grows."""

# A dict finds its places by the lowest bits of a hash: so parts are told apart by the highest.
_SHIFT: Final = 64 - (PARTS - 1).bit_length()


class PartitionedDict(Generic[_Value]):
    """Values by string, in parts.

    A dict that is full is copied to twice the room: with 1,500,000 strings that takes some 40 ms,
    in which nobody is answered. Here a part of them is copied at a time.

    Attributes:
        parts: the dicts, each with the strings that are its own.
    """

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: Sequence[dict[str, _Value]] = tuple({} for _ in range(PARTS))

    def part(self, key: str) -> dict[str, _Value]:
        """Return the dict that a string is in, or would be."""
        return self.parts[hash(key) >> _SHIFT]  # a negative index counts from the end


FORGOTTEN_AFTER: Final = 50_000
"""Events after which an unused entry makes room: policies that are gone leave columns behind."""

_LONGEST_KEY = 4096  # bytes, about; parts of a pod are in keys, and bounded by nothing else
_PART = 32  # bytes that any part of a key counts for


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
