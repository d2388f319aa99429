"""A cluster as those who answer reviews know it: a recording, or a live one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.model.advice import Advice
from engine.model.pod import Pod
from engine.model.time import Micros
from engine.view import ClusterState, ClusterView, Freshness
from webhook.cluster.files.recorded import Recording
from webhook.cluster.watch.source_status import SourceStatus

_MOST_RELEASED = 64  # at a time, in a millisecond: pods assumed in one burst are due at one moment
_RELEASE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is known of a cluster, and how well.

    Attributes:
        state: the cluster.
        now: the moment ages of measurements are judged at: a recording does not grow older.
        is_live: whether pods that were advised are seen to come.
        sources: what feeds the state, by name; a recording has none.
        freshness: how old what they told is.
    """

    state: ClusterState
    now: Callable[[], Micros]
    is_live: bool
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    freshness: Callable[[], Freshness] = Freshness

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""
        if self.is_live:
            self.state.release_assumed(self.now(), most=_MOST_RELEASED)
        return self.state.view()

    async def release_assumed(self) -> None:
        """Take off pods that were assumed for too long also while nobody asks; never returns."""
        while True:
            are_left = self.state.release_assumed(self.now(), most=_MOST_RELEASED)
            await asyncio.sleep(0 if are_left else _RELEASE_SECONDS)

    def assume(self, pod: Pod, advice: Advice) -> None:
        """Count a pod that was just advised, until it is seen: the next one must see it."""
        self.state.assume(pod, advice, at=self.now())

    def withdraw(self, pod: Pod) -> Advice | None:
        """Count no longer a pod that is judged again before it was seen; returns its advice."""
        return self.state.withdraw(pod)

    def last_contact(self) -> Micros:
        """Return when anything was last heard of the cluster, 0 for never."""
        if not self.is_live:
            return self.now()
        heard = (source.last_contact for source in self.sources.values())
        return max((moment for moment in heard if moment is not None), default=Micros(0))


def recorded_cluster(recording: Recording, now: Callable[[], Micros]) -> Cluster:
    """Return a recording as a cluster; one that speaks of no moment is judged at the present."""
    recorded_at = recording.recorded_at or now()
    return Cluster(state=recording.state, now=lambda: recorded_at, is_live=False)
