"""How the release of a gang ends, and how that is told: Events and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.errors import counted
from engine.gang import GangKey, GangMember, pod_group_of_gang
from engine.view import ClusterView
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, ObjectReference, pod_reference


class GangState(StrEnum):
    """What a gang with held members waits for; the value is for metrics.

    Attributes:
        GATHERING: for members, or for gates of others on them.
        WAITING: for its turn, for quota or for room.
        RESERVING: for room, which it reserves as it comes free.
        RELEASING: for nominations and releases that are under way.
        BACKING_OFF: for the time after a failure.
    """

    GATHERING = "gathering"
    WAITING = "waiting"
    RESERVING = "reserving"
    RELEASING = "releasing"
    BACKING_OFF = "backing-off"


class GangOutcome(StrEnum):
    """How the release of a gang ends; the value is for metrics.

    Attributes:
        RELEASED: all members are released; whether they are bound is seen later.
        STARTED: as many members as must run together are bound.
        CHANGED: a member, its node or the room there was gone before any was released.
        OVER_QUOTA: quota refused a member before any was released.
        REFUSED: somebody's admission did.
        UNREACHABLE: the API server did not answer in time, and none was released.
        FAILED: some were released, and too few of them are bound in time.
    """

    RELEASED = "released"
    STARTED = "started"
    CHANGED = "changed"
    OVER_QUOTA = "over-quota"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


_VERSION: Final = "v1alpha1"


class GangEvents:
    """Writes Events; one that cannot be written is left out.

    Args:
        connection: to the API server.
        identity: of this process, written in each Event.
        view: the cluster, for PodGroups.
        now: the time of day.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        identity: str,
        view: Callable[[], ClusterView],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._view = view
        self._now = now

    async def released(self, key: GangKey, member: GangMember | None, members: int) -> None:
        """Say that all members that must run together are released."""
        message = f"{counted(members, 'member is', 'members are')} released"
        await self._write(key, member, "Normal", "GangReleased", message)

    async def reserving(self, key: GangKey, member: GangMember | None, message: str) -> None:
        """Say that a gang reserves room, or no longer, and why."""
        await self._write(key, member, "Normal", "GangReserving", message)

    async def taken_back(self, key: GangKey, member: GangMember | None, message: str) -> None:
        """Say why nothing of a gang was released, although there was room for it."""
        await self._write(key, member, "Warning", "GangTakenBack", message)

    async def failed(self, key: GangKey, member: GangMember | None, message: str) -> None:
        """Say that too few members are bound in time, and what follows."""
        await self._write(key, member, "Warning", "GangFailed", message)

    async def _write(
        self,
        key: GangKey,
        member: GangMember | None,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        about = self._about(key, member)
        if about is None:
            return
        now = self._now()
        event = ObjectEvent(
            about=about,
            type=kind,
            reason=reason,
            action="Release",
            message=message,
            since=now,
            until=now,
        )
        await event.write(self._connection, self._identity)

    def _about(self, key: GangKey, member: GangMember | None) -> ObjectReference | None:
        pod_group = pod_group_of_gang(key, self._view())
        if pod_group is not None:
            return ObjectReference(
                api_version=f"{pod_group.group}/{_VERSION}",
                kind="PodGroup",
                namespace=key.namespace,
                name=key.name,
                uid=pod_group.uid,
            )
        if member is None:
            return None
        return pod_reference(key.namespace, member.name, member.uid)


class GangMetrics:
    """Counters of the release of gangs; they stand still on replicas that do not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = Counter(
            "stowplan_gang_releases",
            "Attempts to release a gang, by how they ended.",
            ["outcome"],
            registry=registry,
        )
        for outcome in GangOutcome:
            self._outcomes.labels(outcome.value)

    def ended(self, outcome: GangOutcome) -> None:
        """Count the end of an attempt."""
        self._outcomes.labels(outcome.value).inc()


@dataclass(frozen=True, slots=True, eq=False)
class GangCollector(Collector):
    """The gangs of this moment, read at each scrape.

    Attributes:
        counts: returns their number, by what they wait for.
    """

    counts: Callable[[], Mapping[GangState, int]]

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge."""
        gauge = GaugeMetricFamily(
            "stowplan_gangs",
            "Gangs with held members, by what they wait for.",
            labels=["state"],
        )
        for state, number in self.counts().items():
            gauge.add_metric([state.value], number)
        yield gauge
