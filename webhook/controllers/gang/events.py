"""Events of gangs, on the PodGroup, or on a member where there is none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal

from engine.gang import GangKey, GangMember, pod_group_of_gang
from engine.model.count_text import counted
from engine.view import ClusterView
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, ObjectReference, pod_reference

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
