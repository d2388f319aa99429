"""The members of all gangs, as the watch of one replica shows them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from engine.gang import Gang, GangKey, GangMember, gang_described_by, member_of
from engine.model.pod import Pod


class GangMembers:
    """An observer that keeps what matters of each member that has not finished, some 300 bytes.

    Pods that name no gang cost one look at their labels. Whoever may create pods may name gangs;
    memory follows the pods that do.
    """

    def __init__(self) -> None:
        self._by_gang: dict[GangKey, dict[str, GangMember]] = {}
        self._described: dict[GangKey, dict[str, Gang]] = {}  # by the keys of pods that say more
        self._gang_of: dict[str, GangKey] = {}

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._gang_of)

    def __iter__(self) -> Iterator[GangKey]:
        """Iterate over the keys of the gangs that have members."""
        return iter(list(self._by_gang))

    def gang_of(self, pod_key: str) -> GangKey | None:
        """Return the gang of a pod by `namespace/name`, None if it is in none."""
        return self._gang_of.get(pod_key)

    def of(self, key: GangKey) -> tuple[GangMember, ...]:
        """Return the members of a gang, in any order."""
        return tuple(self._by_gang.get(key, {}).values())

    def described(self, key: GangKey) -> Gang | None:
        """Return the gang that its oldest member describes, None if none describes it."""
        found = self._described.get(key)
        if not found:
            return None
        members = self._by_gang[key]
        return found[min(found, key=lambda pod_key: _age(members[pod_key]))]

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Keep a pod if it is a member."""
        if pod.key in self._gang_of:
            self._forget(pod.key)
        member = member_of(pod)
        if member is None:
            return
        key = member.key
        self._gang_of[key] = member.gang
        self._by_gang.setdefault(member.gang, {})[key] = member
        gang = gang_described_by(pod)
        if gang is not None:
            self._described.setdefault(member.gang, {})[key] = gang

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        key = f"{namespace}/{name}"
        if key in self._gang_of:
            self._forget(key)

    def _forget(self, key: str) -> None:
        gang = self._gang_of.pop(key)
        for by_gang in (self._by_gang, self._described):
            members = by_gang.get(gang)
            if members is not None:
                members.pop(key, None)
                if not members:
                    del by_gang[gang]


def _age(member: GangMember) -> tuple[float, str]:
    """Return a key by which the oldest member is the first, the same on every replica."""
    created = float("inf") if member.created is None else member.created.timestamp()
    return created, member.uid
