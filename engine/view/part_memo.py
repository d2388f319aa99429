"""What is remembered of some rows that are looked at once: columns, until the view is gone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain
from engine.view.cluster_view import ClusterView
from engine.view.dictionary import DictionaryColumn
from engine.view.memo import AggregateCache, ColumnCache, DictionaryCache, Memo, RowWise

_Item = TypeVar("_Item", bound=np.generic)
_Made = TypeVar("_Made")


class PartMemo(Memo):
    """What is remembered of some rows of a cluster, on which other pods may be.

    What pods do not change is as in the whole. INVARIANT: nothing in the part ever changes.

    Args:
        whole: the cluster.
        rows: of the part.
    """

    def __init__(self, whole: ClusterView, rows: NDArray[np.intp]) -> None:
        self.node_columns = _Columns(whole.node_column, rows)
        self.pod_columns = _Columns(whole.pod_column, rows)
        self.node_aggregates = _Aggregates(whole, rows)
        self.dictionaries = _Dictionaries(whole, rows)
        self.images = whole.memo.images
        self.namespace_sets = whole.memo.namespace_sets


class _Columns(ColumnCache):
    def __init__(self, column: Callable[..., NDArray[Any]], rows: NDArray[np.intp]) -> None:
        self._column = column
        self._rows = rows
        self._known: dict[Hashable, NDArray[Any]] = {}

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        compute: Callable[[Any], NDArray[_Item]],
    ) -> NDArray[_Item]:
        """Return the column `key` of the part; see `ClusterView.node_column`."""
        values = self._known.get(key)
        if values is None:
            if Domain.PODS in domains:
                values = compute(view)
            else:
                values = self._column(key, domains, compute)[..., self._rows]
            self._known[key] = values
        return values


class _Aggregates(AggregateCache):
    def __init__(self, whole: ClusterView, rows: NDArray[np.intp]) -> None:
        self._whole = whole
        self._rows = rows
        self._known: dict[Hashable, Any] = {}

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        make: Callable[[Any], _Made],
    ) -> _Made:
        """Return the result `key` for the part; see `ClusterView.node_aggregate`."""
        if key not in self._known:
            self._known[key] = self._made(key, view, domains, make)
        made: _Made = self._known[key]
        return made

    def _made(
        self,
        key: Hashable,
        view: ClusterView,
        domains: Sequence[Domain],
        make: Callable[[Any], _Made],
    ) -> _Made:
        if Domain.PODS not in domains:
            made = self._whole.node_aggregate(key, domains, make)
            if isinstance(made, RowWise):
                return made.take(self._rows)
        return make(view)


class _Dictionaries(DictionaryCache):
    def __init__(self, whole: ClusterView, rows: NDArray[np.intp]) -> None:
        self._whole = whole
        self._rows = rows
        self._known: dict[Hashable, DictionaryColumn[Any]] = {}

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        values_of: Callable[[Any], Iterable[Any]],
    ) -> DictionaryColumn[Any]:
        """Return the dictionary column `key` of the part; see `ClusterView.dictionary_column`."""
        column = self._known.get(key)
        if column is None:
            if Domain.PODS in domains:
                column = DictionaryCache(1).get(key, view, domains, values_of)
            else:
                whole = self._whole.dictionary_column(key, domains, values_of)
                column = whole.take(self._rows)
            self._known[key] = column
        return column
