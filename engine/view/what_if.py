"""What if: a cluster as it would be with more pods, beside the view that it begins with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain
from engine.model.pod import Pod
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
from engine.view.pod_table import PodEntry
from engine.view.shape_contributions import sums_of

_Item = TypeVar("_Item", bound=np.generic)
_Made = TypeVar("_Made")

_PODS: Final = int(Domain.PODS)


class WhatIf:
    """A cluster with pods that are only thought to be on their nodes.

    They count there as `ClusterState.nominate` counts them: as assumed. The view that it begins
    with is never written to, and what is remembered of that holds nothing of the pods.

    Args:
        view: the cluster as it is. INVARIANT: it is held as long as this is, so that its state
            copies columns if it is written to meanwhile.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = replace(
            view,
            sums=view.sums.copy(),
            assumed=view.assumed.copy(),
            changed=view.changed.copy(),
            pod_sums={profile: sums.copy() for profile, sums in view.pod_sums.items()},
            memo=_Memo(view),
            scratch={},
        )

    @property
    def view(self) -> ClusterView:
        """The cluster as it would be, right until the next pod is placed."""
        return self._view

    def place(self, pod: Pod, row: int) -> None:
        """Count a pod, which counts on no node so far, on that of a row."""
        view, shape, entry = self._view, pod.shape, PodEntry(row, pod.shape, 0, 0, assumed=True)
        view.sums[:, :, row] += sums_of(shape, view.axis).reshape(view.sums.shape[:2])
        view.assumed[row] += 1
        for profile, sums in view.pod_sums.items():
            sums[:, row] += profile.contribution(pod.key, entry, view.usages[row])
        version = view.version + 1
        view.changed[_PODS, row] = version
        latest = list(view.latest)
        latest[_PODS] = version
        workloads = view.workloads
        if shape.workload is not None:
            on_nodes = {**workloads.get(shape.workload, {})}
            on_nodes[view.names[row]] = on_nodes.get(view.names[row], 0) + 1
            workloads = {**workloads, shape.workload: on_nodes}
        self._view = replace(
            view, version=version, latest=tuple(latest), workloads=workloads, scratch={}
        )


class _Memo(Memo):
    """What is remembered of a cluster with more pods: what they cannot change is the original's.

    The original remembers nothing but columns of its own version.
    """

    def __init__(self, original: ClusterView) -> None:
        super().__init__()
        self.node_columns = _Columns(original.node_column, original.version)
        self.pod_columns = _Columns(original.pod_column, original.version)
        self.node_aggregates = _Aggregates(original)
        self.dictionaries = _Dictionaries(original)
        self.images = original.memo.images


class _Columns(ColumnCache):
    """Columns that begin as those of the original; only rows that took a pod are computed again."""

    def __init__(self, original: Callable[..., NDArray[Any]], version: int) -> None:
        super().__init__(POD_COLUMNS, POD_COLUMN_BYTES)
        self._original = original
        self._version = version

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        compute: Callable[[Any], NDArray[_Item]],
    ) -> NDArray[_Item]:
        """Return the column `key` for a view; see `ClusterView.node_column` for the arguments."""
        if Domain.PODS not in domains:
            return self._original(key, domains, compute)
        if key not in self._entries:
            values = self._original(key, domains, compute)
            self._put(key, self._version, values, values.nbytes)
        return super().get(key, view, domains, compute)


class _Aggregates(AggregateCache):
    def __init__(self, original: ClusterView) -> None:
        super().__init__(NODE_COLUMNS)
        self._original = original

    def get(
        self,
        key: Hashable,
        view: Any,  # noqa: ANN401 (a ClusterView)
        domains: Sequence[Domain],
        make: Callable[[Any], _Made],
    ) -> _Made:
        """Return the result `key` for a view; see `ClusterView.node_aggregate`."""
        if Domain.PODS not in domains:
            return self._original.node_aggregate(key, domains, make)
        return super().get(key, view, domains, make)


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
        """Return the column `key` for a view; see `ClusterView.dictionary_column`."""
        if Domain.PODS not in domains:
            return self._original.dictionary_column(key, domains, values_of)
        return super().get(key, view, domains, values_of)
