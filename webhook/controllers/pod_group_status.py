"""The controller of PodGroups: keeps their `status` as scheduler-plugins' controller would.

Nothing rests on the phase; it is for people and for what waits for it. That some members have
finished counts for the next of them. Pods that have finished are not watched, so the members of a
gang are listed whenever those that are watched have changed: seldom, and of few gangs at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from engine.gang import GangKey, GangMember, MemberPhase, is_final, settled_status
from engine.model import api
from engine.model.elastic_quota import UPSTREAM_GROUP
from engine.model.gang import POD_GROUP_LABEL, PodGroup, PodGroupStatus
from engine.view import ClusterView
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.client.pages import PagedLists
from webhook.cluster.objects import UNREADABLE
from webhook.quota import MonotonicClock

_MERGE_PATCH: Final = "application/merge-patch+json"
_ROUND_SECONDS: Final = 1.0
_APART_SECONDS: Final = 5.0
_MOST_LISTS: Final = 10  # in a round
_CALL_SECONDS: Final = 5.0
_LONGEST_LABEL: Final = 63

_log = logging.getLogger(__name__)


class _Owner(msgspec.Struct, gc=False):
    name: str = ""


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    owner_references: list[_Owner] | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status = msgspec.field(default_factory=_Status)


_pod: Final = msgspec.json.Decoder(_Pod).decode
_pod_group: Final = msgspec.json.Decoder(api.PodGroup).decode


@dataclass(slots=True)
class _Record:
    """What was done about one PodGroup; moments by the clock of the controller."""

    attempted_at: float = float("-inf")
    seen: Hashable = None  # what its status was made of last; None where it has to be made again
    # the status that was made then, None before the first time
    wanted: PodGroupStatus | None = None
    version: int = 0  # made by the last write


class PodGroupStatusController:
    """The task of the leader; restarted whenever this replica starts to lead.

    PodGroups of Koordinator are left alone: its phases are others.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        view: Callable[[], ClusterView],
        members: Callable[[GangKey], Iterable[GangMember]],
        clock: MonotonicClock | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection = connection
        self._view = view
        self._members = members
        self._clock = clock or MonotonicClock()
        self._may_write = may_write
        self._records: dict[str, _Record] = {}

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._records.clear()
        while True:
            await self.round()
            await self._clock.sleep(_ROUND_SECONDS)

    async def round(self) -> None:
        """Look at the PodGroups that may have changed and are due, first who waits for longest."""
        now = self._clock.now()
        pod_groups = {
            pod_group.key: pod_group
            for pod_group in self._view().all_of(PodGroup)
            if pod_group.group == UPSTREAM_GROUP and not is_final(pod_group.status)
        }
        self._records = {key: each for key, each in self._records.items() if key in pod_groups}
        for key, seen in self._due(pod_groups.values(), now)[:_MOST_LISTS]:
            if self._may_write():
                await self._reconcile(pod_groups[key], seen)

    def _due(self, pod_groups: Iterable[PodGroup], now: float) -> list[tuple[str, Hashable]]:
        """Return which may have changed, and what their status is to be made of."""
        due = []
        for pod_group in pod_groups:
            record, seen = self._record(pod_group.key), self._seen(pod_group)
            is_settled = seen == record.seen and self._shown(pod_group) == record.wanted
            if not is_settled and now - record.attempted_at >= _APART_SECONDS:
                due.append((record.attempted_at, pod_group.key, seen))
        due.sort(key=lambda each: each[:2])
        return [(key, seen) for _, key, seen in due]

    def _record(self, key: str) -> _Record:
        return self._records.setdefault(key, _Record())

    def _seen(self, pod_group: PodGroup) -> Hashable:
        """Return what tells whether a status has to be made again."""
        gang = pod_group.gang
        members = frozenset((each.uid, each.is_running) for each in self._members(gang.key))
        return pod_group.uid, gang.min_member, members

    def _shown(self, pod_group: PodGroup) -> PodGroupStatus:
        """Return the status of a PodGroup; the last write may not have been observed yet."""
        record = self._record(pod_group.key)
        if record.wanted is None or record.version <= pod_group.version:
            return pod_group.status
        return record.wanted

    async def _reconcile(self, pod_group: PodGroup, seen: Hashable) -> None:
        """List the members of a PodGroup, and write its status; try again later if that fails."""
        record = self._record(pod_group.key)
        record.attempted_at, record.seen = self._clock.now(), None
        shown = self._shown(pod_group)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                members = await self._listed(pod_group.gang.key)
                wanted = settled_status(replace(pod_group, status=shown), members)
                if wanted != shown:
                    record.version = await self._write(pod_group, wanted)
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            reason = str(error) or "no answer in time"
            _log.debug("status of PodGroup `%s`: %s", pod_group.gang.key, reason)
            return
        record.seen, record.wanted = seen, wanted

    async def _listed(self, key: GangKey) -> list[MemberPhase]:
        """Return the members of a gang, those that have finished too."""
        if len(key.name) > _LONGEST_LABEL:  # no pod can name it
            return []
        query = (("labelSelector", f"{POD_GROUP_LABEL}={key.name}"),)
        path = f"/api/v1/namespaces/{key.namespace}/pods"
        return await PagedLists(self._connection).read(path, query, _member_in)

    async def _write(self, pod_group: PodGroup, status: PodGroupStatus) -> int:
        """Write a status; return the resourceVersion that it made."""
        key = pod_group.gang.key
        path = (
            f"/apis/{pod_group.group}/v1alpha1/namespaces/{key.namespace}/podgroups/{key.name}"
            "/status"
        )
        written = {
            "phase": status.phase,
            "occupiedBy": status.occupied_by,
            "running": status.running,
            "succeeded": status.succeeded,
            "failed": status.failed,
        }
        body = msgspec.json.encode({"metadata": {"uid": pod_group.uid}, "status": written})
        answer = await self._connection.write("PATCH", path, body, content_type=_MERGE_PATCH)
        return _pod_group(answer).metadata.version


def _member_in(raw: msgspec.Raw) -> MemberPhase | None:
    """Return what counts of a listed pod; one that cannot be read counts as one that waits."""
    try:
        pod = _pod(raw)
    except UNREADABLE:
        return MemberPhase("")
    owners = tuple([owner.name for owner in pod.metadata.owner_references or ()])
    return MemberPhase(pod.status.phase, owners)
