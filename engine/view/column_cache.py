"""Columns remembered between decisions, of which only the rows that changed are computed again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.view.lru_cache import Entry, LruCache

if TYPE_CHECKING:
    from engine.model.domain import Domain
    from engine.view.cluster_view import ClusterView

_REDO_ALL_ABOVE = 4  # past a quarter of the rows, one pass over all is cheaper than picking

_T = TypeVar("_T", bound=np.generic)


class ColumnCache(LruCache[NDArray[Any]]):
    """A bounded, least-recently-used memory of row-wise columns of one cluster.

    It changes how fast an answer comes, never the answer: a column is a pure function of its key
    and of the rows it reads. Arrays given out are never written again.
    """

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
            values = _frozen(compute(view))
            self._put(key, view.version, values, values.nbytes)
            return values
        if entry.version > view.version:
            return compute(view)  # an old view someone kept: answer it, remember nothing
        if entry.version < view.version:
            if entry.version < max([view.latest[domain] for domain in domains]):
                values = _frozen(_renewed(entry, view, domains, compute))
                # Put anew: columns that it is made of may have taken its place meanwhile.
                self._put(key, view.version, values, values.nbytes)
                return values
            entry.version = view.version
        self._entries.move_to_end(key)
        return entry.value


def _frozen(values: NDArray[_T]) -> NDArray[_T]:
    values.flags.writeable = False
    return values


def _renewed(
    entry: Entry[NDArray[Any]],
    view: ClusterView,
    domains: Sequence[Domain],
    compute: Callable[[ClusterView], NDArray[_T]],
) -> NDArray[_T]:
    """Return the column of `entry` brought up to `view`."""
    rows = view.changed_since(entry.version, domains)
    if rows.size * _REDO_ALL_ABOVE > len(view):
        return compute(view)
    part = compute(view.part_changed_since(entry.version, domains))
    # Of two dtypes that hold all of both: where bools will do, some columns are no more than that.
    dtype = np.promote_types(part.dtype, entry.value.dtype)
    values: NDArray[_T] = np.zeros((*part.shape[:-1], len(view)), dtype)
    kept = min(len(view), entry.value.shape[-1])
    values[..., :kept] = entry.value[..., :kept]
    values[..., rows] = part
    return values
