"""Columns remembered between decisions, of which only the rows that changed are computed again."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from engine.view.cluster_view import ClusterView
    from engine.view.domain import Domain

FORGOTTEN_AFTER = 50_000
"""Events after which what nobody asks for makes room: policies that are gone leave columns."""

_REDO_ALL_ABOVE = 4  # past a quarter of the rows, one pass over all is cheaper than picking

_T = TypeVar("_T", bound=np.generic)


@dataclass(slots=True)
class _Entry:
    version: int
    values: NDArray[Any]


class ColumnCache:
    """A bounded, least-recently-used memory of row-wise columns of one cluster.

    It changes how fast an answer comes, never the answer: a column is a pure function of its key
    and of the rows it reads. Arrays given out are never written again.

    Args:
        most: columns, however small.
        most_bytes: of all of them together, as of the last time that one was added.
    """

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def get(
        self,
        key: Hashable,
        view: ClusterView,
        domains: Sequence[Domain],
        compute: Callable[[ClusterView], NDArray[_T]],
    ) -> NDArray[_T]:
        """Return the column `key` for `view`; see `ClusterView.node_column` for the arguments."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(view.version, _frozen(compute(view)))
            self._bytes += entry.values.nbytes
            self._make_room(view.version - FORGOTTEN_AFTER)
            return entry.values
        if entry.version > view.version:
            return compute(view)  # an old view someone kept: answer it, remember nothing
        if entry.version < view.version:
            if entry.version < max([view.latest[domain] for domain in domains]):
                renewed = _frozen(_renewed(entry, view, domains, compute))
                self._bytes += renewed.nbytes - entry.values.nbytes
                entry.values = renewed
            entry.version = view.version
        self._entries.move_to_end(key)
        return entry.values

    def _make_room(self, since: int) -> None:
        """Forget what was not asked for since a version, and what is too much; eldest first."""
        while self._entries:
            key, eldest = next(iter(self._entries.items()))
            too_much = len(self._entries) > self._most or self._bytes > self._most_bytes
            if not too_much and eldest.version >= since:
                return
            del self._entries[key]
            self._bytes -= eldest.values.nbytes


def _frozen(values: NDArray[_T]) -> NDArray[_T]:
    values.flags.writeable = False
    return values


def _renewed(
    entry: _Entry,
    view: ClusterView,
    domains: Sequence[Domain],
    compute: Callable[[ClusterView], NDArray[_T]],
) -> NDArray[_T]:
    """Return the column of `entry` brought up to `view`."""
    rows = view.changed_since(entry.version, domains)
    if rows.size * _REDO_ALL_ABOVE > len(view):
        return compute(view)
    part = compute(view.part_changed_since(entry.version, domains))
    values = np.zeros((*part.shape[:-1], len(view)), part.dtype)
    kept = min(len(view), entry.values.shape[-1])
    values[..., :kept] = entry.values[..., :kept]
    values[..., rows] = part
    return values
