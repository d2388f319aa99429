"""Sums over the pods of each node that only some rules need, kept up to date pod by pod.

A rule names the summands by its `PodSumProfile`; the sums of every view are in `engine.view.sums`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from engine.model.domain import Domain
from engine.model.usage import NodeUsage
from engine.view.axis import IntColumn
from engine.view.pod_table import PodEntry, PodTable
from engine.view.rows import NodeRows

_AT_A_TIME = 32  # rows, some 3 ms: reviews must not wait for all

PodChange: TypeAlias = tuple[int, str, PodEntry]
"""A pod that came, 1, or went, -1; its `namespace/name`; its entry as it is or was."""


class PodSumProfile(Protocol):
    """The summands of each pod, added up per node; rules with equal profiles share the sums.

    Hashable; a contribution depends on nothing but the arguments. INVARIANT: that of an assumed pod
    depends on a report that does not know it only by whether there is one.
    """

    @property
    def width(self) -> int:
        """The number of sums."""

    @property
    def reads_reports(self) -> bool:
        """Whether a contribution depends on the usage report of the node."""

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:
        """Return what one pod, by `namespace/name`, adds to each sum of its node."""


class TrackedSums:
    """The sums of all profiles that rules need; see `PodSums`."""

    def __init__(self) -> None:
        self._tracked: dict[PodSumProfile, PodSums] = {}
        self._prepared: dict[PodSumProfile, PodSums] = {}

    @property
    def is_prepared(self) -> bool:
        """Whether all profiles passed to `prepare` are counted."""
        return all(sums.is_complete for sums in self._prepared.values())

    def prepare(self, profiles: Iterable[PodSumProfile]) -> None:
        """Count for profiles that may be tracked soon, a few rows with each refresh."""
        new = [profile for profile in profiles if profile not in self._tracked]
        self._prepared = {
            profile: self._prepared.get(profile) or PodSums(profile) for profile in new
        }

    def track(self, profiles: Iterable[PodSumProfile]) -> None:
        """Keep the sums of exactly these profiles from now on."""
        known = self._tracked | self._prepared
        self._tracked = {profile: known.get(profile) or PodSums(profile) for profile in profiles}
        self._prepared = {}

    def unshare(self) -> None:
        """Leave the arrays given out so far to their holders, and write to copies."""
        for sums in self._tracked.values():
            sums.unshare()

    def refreshed(
        self, pods: PodTable, rows: NodeRows, changes: Sequence[PodChange]
    ) -> dict[PodSumProfile, IntColumn]:
        """Return the sums by tracked profile; `changes` are those of pods since the last call."""
        changed = rows.changed[:, : len(rows.names)]
        now = (pods, rows.usages, changed, rows.version, changes)
        for sums in self._prepared.values():
            sums.refresh(*now, at_most=_AT_A_TIME)
        return {profile: sums.refresh(*now) for profile, sums in self._tracked.items()}


class PodSums:
    """The sums of one profile, per row.

    Attributes:
        is_complete: whether the last refresh left no row to be counted.
    """

    def __init__(self, profile: PodSumProfile) -> None:
        self._profile = profile
        self._sums = np.zeros((profile.width, 0), np.int64)
        self._version = 0
        self.is_complete = False
        self._counted = 0  # rows below it are kept up to date, the others are not counted yet

    def unshare(self) -> None:
        """Leave the array given out so far to its holders, and write to a copy."""
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

        A row with a new report is counted again; any other only gains and loses the contributions
        of the pods that came and went.

        Args:
            pods: all pods.
            usages: the report of each row.
            changed: (len(Domain), n), the version at which each row last changed.
            version: the version to bring the sums up to.
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
        outdated = changed[Domain.METRICS] > (since if self._profile.reads_reports else version)
        outdated[known:] = True
        rows = np.flatnonzero(outdated[: self._counted]).tolist()
        for row in rows:
            self._sums[:, row] = self._sum_of(pods.on_row(row), usages[row])
        just_counted = set(rows)
        for sign, key, entry in changes:
            if entry.row < self._counted and entry.row not in just_counted:
                column = self._sums[:, entry.row]
                amounts = self._profile.contribution(key, entry, usages[entry.row])
                (np.add if sign > 0 else np.subtract)(column, amounts, out=column)
        sums = self._sums[:, :n]
        sums.flags.writeable = False
        return sums

    def _sum_of(
        self, pods: Iterable[tuple[str, PodEntry]], report: NodeUsage | None
    ) -> tuple[int, ...]:
        """Return the sums of one node."""
        nothing = (0,) * self._profile.width
        added = [self._profile.contribution(key, pod, report) for key, pod in pods]
        return tuple([sum(amounts) for amounts in zip(nothing, *added, strict=True)])
