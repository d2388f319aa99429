"""Many small resource lists in one array."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache

from engine.model.quantity import INT64_MIN
from engine.model.resources import Amounts

_ABSENT = INT64_MIN
"""The value of a name that a list does not mention; no amount can be that little."""

_FEW = 5
"""Keys of a table that are likely those of all others: the types of readings over a window."""


class AmountsTable(Mapping[str, Amounts]):
    """Amounts by key; reads as the mapping it was made from, at a quarter of the memory.

    A cluster's usage reports hold a list per pod and percentile, 200,000 of them, nearly all with
    the same few names: a row of int64 per key takes the place of a dict each.
    """

    __slots__ = ("_names", "_row_of", "_values")

    def __init__(self, amounts: Mapping[str, Amounts]) -> None:
        names = _shared(tuple(dict.fromkeys(name for one in amounts.values() for name in one)))
        self._names = names
        keys = tuple(amounts)
        self._row_of = _rows(keys) if len(keys) <= _FEW else _index(keys)
        self._values = array(
            "q", [one.get(name, _ABSENT) for one in amounts.values() for name in names]
        )

    def __getitem__(self, key: str) -> Amounts:
        return self.at(self._row_of[key])

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._row_of)

    def __len__(self) -> int:
        return len(self._row_of)

    def row(self, key: str) -> int | None:
        """Return the position of a key, None when it is unknown."""
        return self._row_of.get(key)

    def at(self, row: int) -> Amounts:
        """Return the amounts of the key at a position."""
        width = len(self._names)
        values = self._values[row * width : (row + 1) * width]
        amounts = dict(zip(self._names, values, strict=True))
        if _ABSENT in values:
            return {name: value for name, value in amounts.items() if value != _ABSENT}
        return amounts


@lru_cache(maxsize=256)
def _rows(keys: tuple[str, ...]) -> Mapping[str, int]:
    """Return the one index that all tables with these few keys hold."""
    return _index(keys)


def _index(keys: tuple[str, ...]) -> Mapping[str, int]:
    return {key: row for row, key in enumerate(keys)}


@lru_cache(maxsize=256)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the one tuple that all tables with these names hold."""
    return names
