"""The memo of a what-if: it begins as that of the view it was made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain
from engine.view.cluster_view import ClusterView
from engine.view.dictionary import DictionaryColumn
from engine.view.memo import (
    NODE_COLUMNS,
    POD_COLUMN_BYTES,
    POD_COLUMNS,
    AggregateCache,
    ColumnCache,
    DictionaryCache,
    Memo,
)

_Item = TypeVar("_Item", bound=np.generic)
_Made = TypeVar("_Made")


class WhatIfMemo(Memo):
    """What is remembered of a cluster with more pods; it begins as that of the original.

    The original remembers nothing but columns of its own version.
    """

    def __init__(self, original: ClusterView) -> None:
        super().__init__()
        self.node_columns = _Columns(original, original.node_column)
        self.pod_columns = _Columns(original, original.pod_column)
        self.node_aggregates = _Aggregates(original)
        self.dictionaries = _Dictionaries(original)
        self.images = original.memo.images
        self.namespace_sets = original.memo.namespace_sets


class _Columns(ColumnCache):
    """Columns that begin as those of the original; only rows that took a pod are computed again.

    INVARIANT: columns that pods change do not begin as those of a whole of which the original has
    some rows, for that may be at a later version meanwhile.
    """

    def __init__(self, original: ClusterView, column: Callable[..., NDArray[Any]]) -> None:
        super().__init__(POD_COLUMNS, POD_COLUMN_BYTES)
        self._version = original.version
        self._is_part = original.parent is not None
        self._column = column

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        compute: Callable[[Any], NDArray[_Item]],
    ) -> NDArray[_Item]:
        """Return the column `key` for a view; see `ClusterView.node_column` for the arguments."""
        entry = self._entries.get(key)
        if entry is None and not (self._is_part and Domain.PODS in domains):
            values = self._column(key, domains, compute)
            self._put(key, self._version, values, values.nbytes)
            if Domain.PODS not in domains:
                return values
        elif entry is not None and Domain.PODS not in domains:
            self._entries.move_to_end(key)
            return entry.value
        return super().get(key, view, domains, compute)


class _Aggregates(AggregateCache):
    def __init__(self, original: ClusterView) -> None:
        super().__init__(NODE_COLUMNS, POD_COLUMN_BYTES)
        self._original = original
        self._of_part: dict[Hashable, Any] = {}

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        make: Callable[[Any], _Made],
    ) -> _Made:
        """Return the result `key` for a view; see `ClusterView.node_aggregate`."""
        if Domain.PODS in domains:
            return super().get(key, view, domains, make)
        if self._original.parent is None:
            return self._original.node_aggregate(key, domains, make)
        if key not in self._of_part:  # nothing but pods ever changes there
            self._of_part[key] = make(view)
        made: _Made = self._of_part[key]
        return made


class _Dictionaries(DictionaryCache):
    def __init__(self, original: ClusterView) -> None:
        super().__init__(NODE_COLUMNS)
        self._original = original

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        values_of: Callable[[Any], Iterable[Any]],
    ) -> DictionaryColumn[Any]:
        """Return the dictionary column `key`; see `ClusterView.dictionary_column`."""
        if Domain.PODS in domains or self._original.parent is not None:
            return super().get(key, view, domains, values_of)
        return self._original.dictionary_column(key, domains, values_of)
