"""A cluster that reviews are decided on: a recording, or a live one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.model.decision import Advice
from engine.model.kinds import Domain
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.view import FRESH, ClusterState, ClusterView, Freshness
from webhook.cluster.files.recorded import Recording
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter

_MOST_RELEASED = 64  # at a time, in a millisecond: pods assumed in one burst are due at one moment
_RELEASE_SECONDS = 1.0
_SYNC_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The known state of a cluster, and how up to date it is.

    Attributes:
        state: the cluster.
        now: the moment at which ages of measurements count; that of a recording stands still.
        is_live: whether pods that were advised will be observed.
        sources: what feeds the state, by name; none for a recording.
        stale_after: the ages at which domains are stale.
        flush: applies events that are buffered.
    """

    state: ClusterState
    now: Callable[[], Micros]
    is_live: bool
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    stale_after: StaleAfter = field(default_factory=StaleAfter)
    flush: Callable[[], None] = lambda: None

    def view(self) -> ClusterView:
        """Return the cluster as of now."""
        if self.is_live:
            self.state.release_assumed(self.now(), most=_MOST_RELEASED)
        return self.state.view()

    def nodes_version(self) -> int:
        """Return a number that grows whenever a node comes, goes or changes."""
        return self.state.view().latest[Domain.NODES]

    def freshness(self) -> Freshness:
        """Return the ages of the sources, and the domains that are stale."""
        if not self.is_live:
            return FRESH
        return self.stale_after.freshness(self.sources.values(), self.now())

    def last_contact(self) -> Micros:
        """Return the last contact with any source, 0 for never."""
        if not self.is_live:
            return self.now()
        contacts = (source.last_contact for source in self.sources.values())
        return max((moment for moment in contacts if moment is not None), default=Micros(0))

    @property
    def is_synced(self) -> bool:
        """Whether every source is synced, or is one that reviews need not wait for."""
        return all(status.sync_settled for status in self.sources.values())

    async def synced(self) -> None:
        """Wait until `is_synced`."""
        while not self.is_synced:  # noqa: ASYNC110 - a status does not announce its changes
            await asyncio.sleep(_SYNC_POLL_SECONDS)
        self.flush()

    def assume(self, pod: Pod, advice: Advice) -> None:
        """Count a pod that was just advised until it is observed: the next review must see it."""
        self.state.assume(pod, advice, at=self.now())

    def withdraw(self, pod: Pod) -> Advice | None:
        """Stop counting an assumed pod that is reviewed again; return its advice."""
        return self.state.withdraw(pod)

    async def release_assumed(self) -> None:
        """Release pods that were assumed for too long, also between reviews; never returns."""
        while True:
            are_left = self.state.release_assumed(self.now(), most=_MOST_RELEASED)
            await asyncio.sleep(0 if are_left else _RELEASE_SECONDS)


def recorded_cluster(recording: Recording, now: Callable[[], Micros]) -> Cluster:
    """Return a recording as a cluster of its newest moment, or of now if it has none."""
    recorded_at = recording.recorded_at or now()
    return Cluster(state=recording.state, now=lambda: recorded_at, is_live=False)
