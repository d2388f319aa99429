"""The sums that rules asked the view to keep, of all their profiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from engine.view.load import LoadProfile, LoadSums, LoadTracker
from engine.view.pod_sums import PodChange, PodSumProfile, PodSums, ProfiledPodSums

if TYPE_CHECKING:
    from engine.view.axis import IntColumn
    from engine.view.pod_table import PodTable
    from engine.view.rows import NodeRows

SumProfile: TypeAlias = LoadProfile | PodSumProfile
"""What the view can be told to keep sums for."""

_AT_A_TIME = 32  # rows, some 3 ms: reviews must not wait for all


class TrackedSums:
    """LoadAware's sums and others, by profile; see `PodSums` for how they are kept."""

    def __init__(self) -> None:
        self._kept: dict[SumProfile, PodSums] = {}
        self._coming: dict[SumProfile, PodSums] = {}

    @property
    def is_prepared(self) -> bool:
        """Whether all that `prepare` was told of is counted."""
        return all(sums.is_complete for sums in self._coming.values())

    def prepare(self, profiles: Iterable[SumProfile]) -> None:
        """Count for profiles that may be tracked soon, a few rows with each refresh."""
        new = [profile for profile in profiles if profile not in self._kept]
        self._coming = {profile: self._coming.get(profile) or _sums_for(profile) for profile in new}

    def track(self, profiles: Iterable[SumProfile]) -> None:
        """Keep the sums of exactly these profiles from now on."""
        known = self._kept | self._coming
        self._kept = {profile: known.get(profile) or _sums_for(profile) for profile in profiles}
        self._coming = {}

    def unshare(self) -> None:
        """Leave what was given out so far to those who hold it, and write to copies."""
        for sums in self._kept.values():
            sums.unshare()

    def refreshed(
        self, pods: PodTable, rows: NodeRows, changes: Sequence[PodChange]
    ) -> tuple[dict[LoadProfile, LoadSums], dict[PodSumProfile, IntColumn]]:
        """Return LoadAware's sums, and the others, by profile; see `PodSums.refresh`."""
        changed = rows.changed[:, : len(rows.names)]
        now = (pods, rows.usages, changed, rows.version, changes)
        for sums in self._coming.values():
            sums.refresh(*now, at_most=_AT_A_TIME)
        load: dict[LoadProfile, LoadSums] = {}
        others: dict[PodSumProfile, IntColumn] = {}
        for profile, sums in self._kept.items():
            if isinstance(profile, LoadProfile):
                load[profile] = LoadSums.of(sums.refresh(*now))
            else:
                others[profile] = sums.refresh(*now)
        return load, others


def _sums_for(profile: SumProfile) -> PodSums:
    if isinstance(profile, LoadProfile):
        return LoadTracker(profile)
    return ProfiledPodSums(profile)
