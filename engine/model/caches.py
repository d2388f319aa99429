"""Containers for what anyone may make large: bounded by bytes, or changed in small steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

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
