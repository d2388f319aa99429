"""The columns of a cluster, copied on write: a view of them never changes."""

from __future__ import annotations

import weakref
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.aux_object import AuxObject
from engine.model.domain import Domain
from engine.model.kubernetes_version import ASSUMED
from engine.view.assumed import AssumedPods
from engine.view.cluster_view import ClusterView
from engine.view.exhausted_budgets import ExhaustedBudgets
from engine.view.memo import Memo
from engine.view.namespaces import Namespaces
from engine.view.pod_accounting import PodAccounting
from engine.view.pod_sums import TrackedSums
from engine.view.pod_table import PodTable
from engine.view.rows import NodeRows, Sum

_MOST_UNSEEN = 64  # writes between two views; a view of these takes 8 ms at most


class SnapshotStore:
    """All that is kept of a cluster, and the views made of it.

    Writing is in place; while a view of the current version is still alive, the columns are copied
    once before the first write, so a view never changes.

    INVARIANT: `before_write` is called before each change of a part.

    Args:
        assumed: the pods that are advised, but not bound.

    Attributes:
        rows: the nodes, one a row.
        pods: the pods, and what is counted of them.
        namespaces: namespaces and their quotas.
        kubernetes: the version by which pods are counted.
        extras: objects that only some rules read, by kind and key.
        budgets: the PodDisruptionBudgets among them that allow no disruption.
        tracked: sums that only some rules read.
    """

    def __init__(self, assumed: AssumedPods) -> None:
        table = PodTable()
        self.rows: Final = NodeRows(table)
        self.pods: Final = PodAccounting(table, self.rows, assumed)
        self.namespaces: Final = Namespaces()
        self.kubernetes = ASSUMED
        self.extras: dict[tuple[type[AuxObject], str], AuxObject] = {}
        self.budgets: Final = ExhaustedBudgets()
        self.tracked: Final = TrackedSums()
        self._memo = Memo()
        self._view: ClusterView | None = None  # of the current version
        self._latest_view: weakref.ref[ClusterView] | None = None
        self._unseen = 0  # writes since the last view

    def view(self) -> ClusterView:
        """Return the cluster as it is now; free while nothing has changed."""
        if self._view is not None:
            return self._view
        self._unseen = 0
        rows, pods = self.rows, self.pods
        rows.touch_pods_of(pods.table.traits, self.budgets.take_changed())
        n = len(rows.names)
        self._view = ClusterView(
            version=rows.version,
            axis=rows.axis,
            names=rows.names_now,
            nodes=rows.nodes,
            usages=rows.usages,
            traits=rows.traits,
            trait_book=pods.table.traits,
            valid=_frozen(rows.valid[:n]),
            unschedulable=_frozen(rows.unschedulable[:n]),
            allocatable=_frozen(rows.allocatable[:, :n]),
            sums=_frozen(rows.sums.reshape(len(Sum), len(rows.axis), -1)[:, :, :n]),
            assumed=_frozen(rows.assumed[:n]),
            metric_time=_frozen(rows.metric_time[:n]),
            changed=_frozen(rows.changed[:, :n]),
            latest=tuple(rows.latest),
            pod_sums=self.tracked.refreshed(pods.table, rows, pods.take_changes()),
            transitions=pods.transitions.snapshot(),
            rows=rows.of,
            namespaces=self.namespaces.facts(
                pods.totals, pods.queued, pods.queued_pods, pods.labelled, pods.labelled_queued
            ),
            kubernetes=self.kubernetes,
            extras=self.extras,
            exhausted_budgets=self.budgets.snapshot(),
            workloads=pods.workloads.snapshot(),
            memo=self._memo,
        )
        self._latest_view = weakref.ref(self._view)
        self._memo.images.catch_up(
            rows.nodes, rows.changed[Domain.NODES, :n], rows.latest[Domain.NODES]
        )
        return self._view

    def before_write(self) -> None:
        """Start a new version; copy the columns of a view of this one, if it is still alive.

        A view is made after some writes without a request, to bring sums and indices up to date:
        after a whole list, doing so at once would delay the next review.
        """
        if self._unseen >= _MOST_UNSEEN:
            self.view()
        self._unseen += 1
        self.rows.version += 1
        if self._view is None:
            return
        self._view = None
        if self._latest_view is None or self._latest_view() is None:
            return
        self.extras = self.extras.copy()
        for part in (self.rows, self.pods, self.namespaces, self.tracked):
            part.unshare()


_GenericArray = TypeVar("_GenericArray", bound=NDArray[np.generic])


def _frozen(column: _GenericArray) -> _GenericArray:
    """Return a read-only view of a column."""
    frozen = column.view()
    frozen.flags.writeable = False
    return frozen
