"""The sums that rules asked the view to keep, of all their profiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from engine.view.load import LoadProfile, LoadSums, LoadTracker
from engine.view.pod_sums import PodChange, PodSumProfile, ProfiledPodSums

if TYPE_CHECKING:
    from engine.view.axis import IntColumn
    from engine.view.pod_table import PodTable
    from engine.view.rows import NodeRows

SumProfile: TypeAlias = LoadProfile | PodSumProfile
"""What the view can be told to keep sums for."""


class TrackedSums:
    """LoadAware's sums and others, by profile; see `PodSums` for how they are kept."""

    def __init__(self) -> None:
        self._load: dict[LoadProfile, LoadTracker] = {}
        self._others: dict[PodSumProfile, ProfiledPodSums] = {}

    def track(self, profiles: Iterable[SumProfile]) -> None:
        """Keep the sums of exactly these profiles from now on."""
        load, self._load = self._load, {}
        others, self._others = self._others, {}
        for profile in profiles:
            if isinstance(profile, LoadProfile):
                self._load[profile] = load.get(profile) or LoadTracker(profile)
            else:
                self._others[profile] = others.get(profile) or ProfiledPodSums(profile)

    def part_with(self) -> None:
        """Leave what was given out so far to those who hold it, and write to copies."""
        for sums in (*self._load.values(), *self._others.values()):
            sums.part_with()

    def refreshed(
        self, pods: PodTable, rows: NodeRows, changes: Sequence[PodChange] | None
    ) -> tuple[dict[LoadProfile, LoadSums], dict[PodSumProfile, IntColumn]]:
        """Return LoadAware's sums, and the others, by profile; see `PodSums.refresh`."""
        changed = rows.changed[:, : len(rows.names)]
        now = (pods, rows.usages, changed, rows.version, changes)
        return (
            {profile: LoadSums.of(sums.refresh(*now)) for profile, sums in self._load.items()},
            {profile: sums.refresh(*now) for profile, sums in self._others.items()},
        )
