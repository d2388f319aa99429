"""All pods, each counted where it is or is assumed: on its node and for its namespace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from engine.model.domain import Domain
from engine.view.assumed import AssumedPods
from engine.view.namespace_totals import REQUESTED, NamespaceTotals
from engine.view.pod_table import NO_ROW, RUNNING, SCHEDULED, PodEntry, PodTable
from engine.view.pod_transitions import TransitionCounts
from engine.view.rows import NodeRows
from engine.view.shape_contributions import ShapeContributions
from engine.view.workload_counts import WorkloadCounts

if TYPE_CHECKING:
    from engine.model.pod import Pod, PodShape
    from engine.model.time import Micros
    from engine.view.pod_sums import PodChange

_PODS = int(Domain.PODS)  # numpy takes plain integers twice as fast


class PodAccounting:
    """The table of pods, and every count that is kept of them.

    Who changes a count has raised the version of the rows before. Which pod is assumed where, and
    which are about to come or go, is remembered beside the table, for few are.

    Args:
        table: the pods, none yet.
        rows: whose sums the pods are counted in.
        assumed: the pods that are advised, but not bound.
    """

    def __init__(self, table: PodTable, rows: NodeRows, assumed: AssumedPods) -> None:
        self.table = table
        self.assumed = assumed
        self.totals = NamespaceTotals()
        self.turnover = TransitionCounts()
        self.workloads = WorkloadCounts()
        self._rows = rows
        self._shares = ShapeContributions(rows)
        self._changes: list[PodChange] = []  # since they were taken

    def unshare(self) -> None:
        """Leave what was given out so far to those who hold it, and write to copies."""
        self.totals.unshare()
        self.turnover.unshare()
        self.workloads.unshare()

    def take_changes(self) -> list[PodChange]:
        """Return which pods came to nodes and went from them since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def offer(self, resources: Iterable[str]) -> None:
        """Give each resource that a node offers a place, and count what pods have of it."""
        if self._shares.offer(resources):
            self._rows.sums[:] = 0
            for pod in self.table.entries():
                if pod.row != NO_ROW:
                    self._rows.sums[:, pod.row] += self._shares.of(pod.shape).sums
                    self._rows.touch(pod.row, _PODS)

    def bound(self, pod: Pod, row: int, old: PodEntry | None, seen_at: Micros) -> PodEntry:
        """Return how a pod counts that is bound to the node of a row."""
        if pod.scheduled_at is not None:
            assigned_at: int = pod.scheduled_at
        elif old is not None and old.row == row and not old.assumed:
            assigned_at = old.assigned_at
        else:
            assigned_at = seen_at
        standing = _standing(pod.phase)
        return PodEntry(row, pod.shape, assigned_at, pod.initialized_at or 0, standing=standing)

    def waiting(self, key: str, shape: PodShape) -> PodEntry:
        """Return how a pod counts that is not bound: on the first advised node that exists."""
        held, rows = self.assumed.get(key), self._rows
        if held is not None:
            for name in held.nodes:
                row = rows.of.get(name)
                if row is not None and rows.nodes[row] is not None:
                    return PodEntry(row, shape, held.since, 0, assumed=True)
        return PodEntry(NO_ROW, shape, 0, 0)

    def place_assumed(self, keys: Iterable[str]) -> None:
        """Count pods that are or were assumed where they are assumed now, if they are."""
        for key in keys:
            old, new = self.table.get(key), None
            if old is None:
                raise AssertionError("who is held is known")
            if not self.assumed.flight_is_over(key):
                new = self.waiting(key, old.shape)
            if new != old:
                self.move(key, old, new)

    def turn(self, key: str, pod: Pod | None) -> None:
        """Note whether a pod is about to leave its node or to come to one; None if it is gone."""
        for name in self.turnover.put(key, pod):
            row = self._rows.of.get(name)
            if row is not None:
                self._rows.touch(row, _PODS)

    def recount(self, namespace: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Count a pod for its namespace as it now is, and no longer as it was."""
        lost = 0 if old is None else REQUESTED | old.standing
        gained = 0 if new is None else REQUESTED | new.standing
        if old is not None and new is not None and old.shape is new.shape:
            lost, gained = lost & ~gained, gained & ~lost
        if old is not None and lost:
            self.totals.subtract(namespace, self._shares.of(old.shape), lost)
        if new is not None and gained:
            self.totals.add(namespace, self._shares.of(new.shape), gained)

    def move(self, key: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Count a pod on its node as it now is, and no longer as it was."""
        if new is None:
            self.table.delete(key)
        else:
            self.table.put(key, new)
            if old is not None and old.counts_on_its_node_as(new):
                return
        leaves = old is not None and (new is None or new.row != old.row)
        recount = old is None or new is None or leaves or new.shape is not old.shape
        if old is not None and old.row != NO_ROW:
            self._count(-1, key, old, with_sums=recount)
            if leaves:
                self._rows.release(old.row)
        if new is not None and new.row != NO_ROW:
            self._count(1, key, new, with_sums=recount)

    def _count(self, sign: int, key: str, pod: PodEntry, *, with_sums: bool) -> None:
        """Count a pod that came to its node, 1, or went from it, -1."""
        rows, row = self._rows, pod.row
        if with_sums:
            share = self._shares.of(pod.shape).sums  # before the sums: it may make room in them
            column = rows.sums[:, row]
            (np.add if sign > 0 else np.subtract)(column, share, out=column)
        if pod.assumed:
            rows.assumed[row] += sign
        rows.touch(row, _PODS)
        if pod.shape.workload is not None:
            self.workloads.count(pod.shape.workload, rows.names[row], sign)
        self._changes.append((sign, key, pod))


def _standing(phase: str) -> int:
    """Return how a bound pod counts for its namespace; one whose node is lost does not."""
    if phase == "Running":
        return SCHEDULED + RUNNING
    return SCHEDULED if phase in {"", "Pending"} else 0
