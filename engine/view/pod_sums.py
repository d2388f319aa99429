"""Sums over the pods of each node that only some rules ask for, kept up to date pod by pod.

What each pod adds is the rule's to say, by its `PodSumProfile`; the sums that every view holds are
in `engine.view.sums`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from engine.model.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.model.usage import NodeUsage
    from engine.view.axis import IntColumn
    from engine.view.pod_table import PodEntry, PodTable

Part: TypeAlias = tuple[int, ...]
"""What one pod adds to the sums of its node, one amount each."""

PodChange: TypeAlias = "tuple[int, str, PodEntry]"
"""A pod that came, 1, or went, -1; by `namespace/name`, and as it is or was."""


class PodSumProfile(Protocol):
    """What a rule wants of each pod, added up per node; rules with equal ones share the sums.

    Hashable; says the same of equal pods and reports, always.
    """

    @property
    def width(self) -> int:
        """How many amounts there are of each pod."""

    @property
    def reads_reports(self) -> bool:
        """Whether `part` looks at the usage report of the node."""

    def part(self, pod: PodEntry, report: NodeUsage | None) -> Part:
        """Return what a pod adds to the sums of its node, given the report of that."""


class PodSums:
    """Sums per row over its pods.

    Args:
        width: how many sums there are.
        reads_reports: whether a part depends on the report of the node.

    Attributes:
        is_complete: whether the last refresh left no row to be counted.
    """

    def __init__(self, width: int, *, reads_reports: bool = True) -> None:
        self._sums = np.zeros((width, 0), np.int64)
        self._reads_reports = reads_reports
        self._version = 0
        self.is_complete = False
        self._counted = 0  # rows below it are kept up to date, the others are not counted yet

    def unshare(self) -> None:
        """Leave what was given out so far to those who hold it, and write to a copy."""
        self._sums = self._sums.copy()

    def refresh(
        self,
        pods: PodTable,
        usages: Sequence[NodeUsage | None],
        changed: IntColumn,
        version: int,
        changes: Sequence[PodChange],
        *,
        at_most: int | None = None,
    ) -> IntColumn:
        """Return the sums at `version`, (width, n); those given out before are overwritten.

        A row with a new report is counted again, any other only gains and loses the parts of the
        pods that came and went.

        Args:
            pods: all pods.
            usages: the report of each row.
            changed: (len(Domain), n), the version at which each row last changed.
            version: what to bring the sums up to.
            changes: of pods since the last time.
            at_most: how many rows to count that were not before, None for all. Where some are left,
                the sums are not to be read yet.
        """
        since, self._version = self._version, version
        known, n = self._counted, changed.shape[-1]
        self._counted = n if at_most is None else min(known + at_most, n)
        self.is_complete = self._counted == n
        if self._sums.shape[-1] < n:
            self._sums = np.pad(self._sums, ((0, 0), (0, 2 * n - self._sums.shape[-1])))
        outdated = changed[Domain.METRICS] > (since if self._reads_reports else version)
        outdated[known:] = True
        rows = np.flatnonzero(outdated[: self._counted]).tolist()
        for row in rows:
            self._sums[:, row] = self._sum_of(usages[row], pods.on_row(row))
        just_counted = set(rows)
        for sign, key, entry in changes:
            if entry.row < self._counted and entry.row not in just_counted:
                column = self._sums[:, entry.row]
                part = self._part(key, entry, usages[entry.row])
                (np.add if sign > 0 else np.subtract)(column, part, out=column)
        sums = self._sums[:, :n]
        sums.flags.writeable = False
        return sums

    def _sum_of(self, report: NodeUsage | None, pods: Iterable[tuple[str, PodEntry]]) -> Part:
        """Return the sums of a node."""
        nothing = (0,) * len(self._sums)
        parts = [self._part(key, pod, report) for key, pod in pods]
        return tuple([sum(amounts) for amounts in zip(nothing, *parts, strict=True)])

    def _part(self, key: str, pod: PodEntry, report: NodeUsage | None) -> Part:
        """Return what one pod adds to the sums of its node."""
        raise NotImplementedError


class ProfiledPodSums(PodSums):
    """Sums of what a profile says of each pod."""

    def __init__(self, profile: PodSumProfile) -> None:
        super().__init__(profile.width, reads_reports=profile.reads_reports)
        self._profile = profile

    def _part(self, key: str, pod: PodEntry, report: NodeUsage | None) -> Part:  # noqa: ARG002 (see the base)
        return self._profile.part(pod, report)
