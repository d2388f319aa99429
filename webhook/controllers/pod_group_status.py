"""The status of PodGroups, as the controller of scheduler-plugins would write it.

Nothing rests on the phase; it is for people and for what waits for it. That some members have
finished counts for the next of them. Pods that have finished are not watched, so the members of a
gang are listed whenever those that are watched have changed: seldom, and of few gangs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from engine.gang import GangKey, GangMember, MemberPhase, is_final, settled_status
from engine.model.elastic_quota import UPSTREAM_GROUP
from engine.model.gang import POD_GROUP_LABEL, PodGroup, PodGroupStatus
from engine.view import ClusterView
from webhook.cluster.client.connection import Connection
from webhook.cluster.client.lists import list_kind
from webhook.cluster.objects import UNREADABLE
from webhook.controllers.reconciler import DesiredState, WriteLimits

_LONGEST_LABEL: Final = 63


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


@dataclass(frozen=True, slots=True)
class _Made:
    """A status that was made of the members of a gang."""

    inputs: Hashable  # what was seen of the gang then
    before: PodGroupStatus
    status: PodGroupStatus


class PodGroupStatuses(DesiredState[PodGroup, PodGroupStatus]):
    """The status of PodGroups, but for Koordinator's: its phases are others."""

    limits = WriteLimits(most_writes=10, apart_seconds=5.0)

    def __init__(
        self,
        connection: Connection,
        view: Callable[[], ClusterView],
        members: Callable[[GangKey], Iterable[GangMember]],
    ) -> None:
        self._connection = connection
        self._view = view
        self._members = members
        self._made: dict[str, _Made] = {}

    async def objects(self) -> Iterable[PodGroup]:
        """Return the PodGroups whose phase may change yet."""
        found = [
            pod_group
            for pod_group in self._view().all_of(PodGroup)
            if pod_group.group == UPSTREAM_GROUP and not is_final(pod_group.status)
        ]
        keys = {pod_group.key for pod_group in found}
        self._made = {key: each for key, each in self._made.items() if key in keys}
        return found

    def current(self, found: PodGroup) -> PodGroupStatus:
        return found.status

    def desired(self, found: PodGroup, current: PodGroupStatus) -> PodGroupStatus | None:
        """Return what was made last, unless members or the status have changed since."""
        made = self._made.get(found.key)
        if made is None or current not in {made.before, made.status}:
            return None
        return made.status if made.inputs == self._inputs(found) else None

    async def read(self, found: PodGroup, current: PodGroupStatus) -> PodGroupStatus:
        """Make the status of the members of a gang, those that have finished too."""
        inputs, key, members = self._inputs(found), found.gang.key, list[MemberPhase]()
        if len(key.name) <= _LONGEST_LABEL:  # else no pod can name it
            query = (("labelSelector", f"{POD_GROUP_LABEL}={key.name}"),)
            listed = await list_kind(
                self._connection, "Pod", key.namespace, query=query, decode=_member_in
            )
            members = listed or []
        status = settled_status(replace(found, status=current), members)
        self._made[found.key] = _Made(inputs, current, status)
        return status

    def _inputs(self, found: PodGroup) -> Hashable:
        gang = found.gang
        members = frozenset((each.uid, each.is_running) for each in self._members(gang.key))
        return found.uid, gang.min_member, members

    def merge_patch(
        self,
        found: PodGroup,
        current: PodGroupStatus,  # noqa: ARG002 - as every desired state
        desired: PodGroupStatus,
    ) -> tuple[str, Mapping[str, object]]:
        key = found.gang.key
        path = f"/apis/{found.group}/v1alpha1/namespaces/{key.namespace}/podgroups/{key.name}"
        status = {
            "phase": desired.phase,
            "occupiedBy": desired.occupied_by,
            "running": desired.running,
            "succeeded": desired.succeeded,
            "failed": desired.failed,
        }
        return f"{path}/status", {"metadata": {"uid": found.uid}, "status": status}

    def title(self, found: PodGroup) -> str:
        return f"status of PodGroup `{found.gang.key}`"


def _member_in(raw: msgspec.Raw) -> MemberPhase | None:
    """Return what counts of a listed pod; one that cannot be read counts as one that waits."""
    try:
        pod = _pod(raw)
    except UNREADABLE:
        return MemberPhase("")
    owners = tuple([owner.name for owner in pod.metadata.owner_references or ()])
    return MemberPhase(pod.status.phase, owners)
