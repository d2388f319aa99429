"""A cluster with more pods or fewer than the view that it begins with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.kinds import Domain
from engine.model.pod import Pod, traits_of
from engine.model.pod_shape import PodShape
from engine.model.scheduler_plugins import Workload
from engine.view.axis import BoolColumn, IntColumn
from engine.view.cluster_view import ClusterView, Memo
from engine.view.pod_accounting import NO_TRANSITIONS, NOMINATED, PodsOnNodes, PodTransitions
from engine.view.pod_table import PodEntry
from engine.view.rows import sums_of
from engine.view.trait_book import with_number, without_number

_PODS: Final = int(Domain.PODS)


class WhatIf:
    """A cluster with pods that are only thought to be on their nodes, or to be gone from them.

    The former count as `ClusterState.nominate` counts them: as assumed and nominated. The view that
    it begins with is never written to, and what is remembered of that holds nothing of the pods.

    Args:
        view: the cluster as it is, or some rows of it, which then count as all that there are; a
            row may be there several times. INVARIANT: it is held as long as this is, so that its
            state copies columns if it is written to.

    """

    def __init__(self, view: ClusterView) -> None:
        self._transitions: dict[str, PodTransitions] = {}
        self._traits: list[bytes] = []
        self._view = view
        self._is_copied = False
        self._version = view.version
        self._sums: dict[PodShape, IntColumn] = {}
        if view.parent is not None:  # rows that count as all that there are
            self._writable()

    @property
    def view(self) -> ClusterView:
        """The cluster as it would be, right until the next pod is placed."""
        if self._view.version != self._version:
            latest = list(self._view.latest)
            latest[_PODS] = self._version
            self._view = replace(
                self._view, version=self._version, latest=tuple(latest), scratch={}
            )
        return self._view

    def _writable(self) -> ClusterView:
        """Return the view with columns of its own: copied when the first pod is counted."""
        view = self._view
        if self._is_copied:
            return view
        self._is_copied = True
        self._transitions = dict(view.transitions)
        self._traits = list(view.traits)
        self._view = replace(
            view,
            transitions=self._transitions,
            traits=self._traits,
            sums=view.sums.copy(),
            assumed=view.assumed.copy(),
            changed=view.changed.copy(),
            pod_sums={profile: sums.copy() for profile, sums in view.pod_sums.items()},
            memo=Memo(view),
            parent=None,
            scratch={},
        )
        return self._view

    def place(self, pod: Pod, row: int) -> None:
        """Count a pod, which counts on no node so far, on that of a row."""
        self.place_each([pod], [row])

    def place_each(self, pods: Sequence[Pod], rows: Sequence[int]) -> None:
        """Count pods, which count on no node so far, on those of rows."""
        names, transitions = self._writable().names, self._transitions
        for row, count in Counter(rows).items():
            known = transitions.get(names[row], NO_TRANSITIONS)
            transitions[names[row]] = known.plus(NOMINATED, count)
        placed = [
            (pod.key, PodEntry(row, pod.shape, 0, 0, assumed=True, traits=traits_of(pod)))
            for pod, row in zip(pods, rows, strict=True)
        ]
        self._count(placed, 1)

    def remove(self, pods: Sequence[tuple[str, PodEntry]]) -> None:
        """Count pods no longer, by `namespace/name`, which count on their nodes."""
        self._count(pods, -1)

    def restore(self, pods: Sequence[tuple[str, PodEntry]]) -> None:
        """Count pods again that were removed."""
        self._count(pods, 1)

    def _count(self, pods: Sequence[tuple[str, PodEntry]], sign: int) -> None:
        """Count pods on their nodes, 1, or no longer, -1, exactly as `ClusterState` does."""
        if not pods:
            return
        view = self._writable()
        self._version += 1
        rows = np.array([pod.row for _, pod in pods], np.intp)
        view.changed[_PODS, rows] = self._version
        np.add.at(view.assumed, rows, [sign * pod.assumed for _, pod in pods])
        amounts = np.array([self._sums_of(pod.shape) for _, pod in pods])
        np.add.at(view.sums.transpose(2, 0, 1), rows, sign * amounts)
        for profile, sums in view.pod_sums.items():
            added = [profile.contribution(key, pod, view.usages[pod.row]) for key, pod in pods]
            np.add.at(sums.T, rows, sign * np.array(added, np.int64))
        change = with_number if sign > 0 else without_number
        on_nodes = Counter[tuple[Workload, str]]()
        for _, pod in pods:
            number = view.trait_book.number(pod.traits)
            self._traits[pod.row] = change(self._traits[pod.row], number)
            if pod.shape.workload is not None:
                on_nodes[pod.shape.workload, view.names[pod.row]] += sign
        if on_nodes:
            self._view = replace(view, workloads=_with_more(view.workloads, on_nodes))

    def is_reported(self, pod: Pod, row: int) -> bool:
        """Return whether the usage report of a row knows a pod, so that it counts unlike others."""
        report = self._view.usages[row]
        return report is not None and pod.key in report.pods

    def take(self, rows: NDArray[np.intp]) -> WhatIf:
        """Return some rows as a cluster of its own, which goes its own way from now on."""
        taken = WhatIf(self.view.take(rows))
        taken._sums = self._sums  # of shapes, on any rows
        return taken

    def part(self, rows: NDArray[np.intp]) -> ClusterView:
        """Return some rows alone, quick to make; right until the next pod is placed.

        Args:
            rows: may hold a row several times.
        """
        view = self.view
        return replace(view.take(rows), memo=Memo(view, rows), parent=None)

    def ahead(self, pod: Pod, rows: NDArray[np.intp], counts: IntColumn) -> ClusterView:
        """Return rows as they would be if so many more pods like this one were on each.

        But for nominations, which are counted by name, and what only rules that read other nodes
        know of pods: whoever reads that cannot look ahead.

        Args:
            pod: one of them; none is known to a report.
            rows: may hold a row several times.
            counts: at least 0, shape (len(rows),).
        """
        view = self.part(rows)
        view.assumed[:] += counts
        if pod.host_ports:
            number = view.trait_book.number(traits_of(pod))
            by_row = zip(view.traits, counts.tolist(), strict=True)
            traits = [with_number(numbers, number, count) for numbers, count in by_row]
            view = replace(view, traits=traits)
        view.sums[:] += self._sums_of(pod.shape)[:, :, np.newaxis] * counts
        if view.pod_sums:
            contributions = self._unknown_by_row(pod.shape, rows)
            for sums, amounts in zip(view.pod_sums.values(), contributions, strict=True):
                sums[:] += amounts * counts
        return view

    def _sums_of(self, shape: PodShape) -> IntColumn:
        """Return what a pod adds to the sums of its node, (len(Sum), n_resources)."""
        amounts = self._sums.get(shape)
        if amounts is None:
            axis = self._view.axis
            amounts = self._sums[shape] = sums_of(shape, axis).reshape(-1, len(axis))
        return amounts

    def _unknown_by_row(self, shape: PodShape, rows: NDArray[np.intp]) -> list[IntColumn]:
        """Return what a pod adds that the reports of rows do not know, (width, n or 1) each."""
        is_missing = self.view.node_column("no report", (Domain.METRICS,), _unreported).take(rows)
        entry = PodEntry(0, shape, 0, 0, assumed=True)
        present, missing = (
            [
                np.array(profile.contribution("", entry, self._view.usages[row]))[:, np.newaxis]
                for profile in self._view.pod_sums
            ]
            for row in rows[[is_missing.argmin(), is_missing.argmax()]].tolist()
        )
        return [np.where(is_missing, b, a) for a, b in zip(present, missing, strict=True)]


def _unreported(view: ClusterView) -> BoolColumn:
    return np.array([usage is None for usage in view.usages], np.bool_)


def _with_more(
    workloads: Mapping[Workload, PodsOnNodes], more: Mapping[tuple[Workload, str], int]
) -> Mapping[Workload, PodsOnNodes]:
    """Return the pods of AppGroups with more of them on nodes, or less; never 0 of any."""
    counted = {**workloads}
    for (workload, node_name), pods in more.items():
        on_nodes = {**counted.pop(workload, {})}
        left = on_nodes.pop(node_name, 0) + pods
        if left:
            on_nodes[node_name] = left
        if on_nodes:
            counted[workload] = on_nodes
    return counted
