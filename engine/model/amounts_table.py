"""Many small resource lists in one array."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache

from engine.model.quantity import INT64_MIN
from engine.model.resources import Amounts

_ABSENT = INT64_MIN
"""The value of a name that is absent from a list; no amount is that small."""

_FEW = 5
"""The most keys that tables are likely to share: the types of readings over a window."""


class AmountsTable(Mapping[str, Amounts]):
    """Amounts by key: a mapping at a sixth of the memory of nested dicts.

    A cluster's usage reports hold a list per pod and percentile, 200,000 of them, nearly all with
    the same few names: each is a row of int64 instead of a dict. Keys are found by binary search,
    as an index of them would take more memory than all amounts.
    """

    __slots__ = ("_keys", "_names", "_values")

    def __init__(self, amounts: Mapping[str, Amounts]) -> None:
        names = _shared(tuple(dict.fromkeys(name for row in amounts.values() for name in row)))
        self._names = names
        keys = tuple(sorted(amounts))
        self._keys = _shared(keys) if len(keys) <= _FEW else keys
        self._values = array(
            "q", [amounts[key].get(name, _ABSENT) for key in keys for name in names]
        )

    def __getitem__(self, key: str) -> Amounts:
        row = self.row(key)
        if row is None:
            raise KeyError(key)
        return self.at(row)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.row(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def row(self, key: str) -> int | None:
        """Return the position of a key, None when it is unknown."""
        row = bisect_left(self._keys, key)
        return row if row < len(self._keys) and self._keys[row] == key else None

    def values_at(self, row: int, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the amounts of some names for the key at a position, 0 for one that is absent."""
        if names != self._names:
            return tuple(map(self.at(row).get, names, (0,) * len(names)))
        width = len(names)
        values = tuple(self._values[row * width : (row + 1) * width])
        if _ABSENT in values:
            return tuple([0 if value == _ABSENT else value for value in values])
        return values

    def at(self, row: int) -> Amounts:
        """Return the amounts of the key at a position."""
        width = len(self._names)
        values = self._values[row * width : (row + 1) * width]
        amounts = dict(zip(self._names, values, strict=True))
        if _ABSENT in values:
            return {name: value for name, value in amounts.items() if value != _ABSENT}
        return amounts


@lru_cache(maxsize=256)
def _shared(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return an equal tuple, the same object for all tables."""
    return texts
