"""The gangs that have held members, in one cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from engine.gang import (
    Gang,
    GangKey,
    GangStage,
    Readiness,
    count_members,
    pod_group_of_gang,
    readiness_of,
)
from engine.view import ClusterView
from webhook.controllers.gang.gang_unit import GangUnit, group_of
from webhook.controllers.release import GangPart
from webhook.placement.gang_members import GangMembers
from webhook.placement.held_pods import HeldPod

_UNDER_WAY: Final = "members of it are being released one by one"


class HeldGangs(NamedTuple):
    """The gangs that have held members.

    Attributes:
        gangs: those that somebody describes.
        held: the held members of each, in queue order, of gangs that nobody describes as well.
    """

    gangs: Mapping[GangKey, Gang]
    held: Mapping[GangKey, Sequence[HeldPod]]


def held_gangs(ordered: Sequence[HeldPod], members: GangMembers, view: ClusterView) -> HeldGangs:
    """Return the gangs of held pods.

    Args:
        ordered: the pods, in queue order.
        members: of all gangs.
        view: the cluster.
    """
    held: dict[GangKey, list[HeldPod]] = {}
    if len(members):
        for each in ordered:
            key = members.gang_of(each.key)
            if key is not None:
                held.setdefault(key, []).append(each)
    gangs = {key: gang for key in held if (gang := described_gang(key, members, view)) is not None}
    return HeldGangs(gangs, held)


def described_gang(key: GangKey, members: GangMembers, view: ClusterView) -> Gang | None:
    """Return a gang as its PodGroup or its oldest member says, None if neither does."""
    pod_group = pod_group_of_gang(key, view)
    return members.described(key) if pod_group is None else pod_group.gang


def readiness(gang: Gang, members: GangMembers) -> Readiness:
    """Return what a gang with these members may do."""
    return readiness_of(gang, count_members(members.of(gang.key)))


def complete_unit(gang: Gang, held: HeldGangs, members: GangMembers) -> GangUnit | str:
    """Return what is released together with a gang, or what its group lacks.

    Args:
        gang: with as many held members as must start.
        held: all gangs that have held members.
        members: of all gangs.
    """
    parts: list[GangPart] = []
    for key in group_of(gang):
        other = gang if key == gang.key else held.gangs.get(key)
        if other is None:
            # None of its members is held: then they run, or are still to come.
            if not members.of(key):
                return f"gang `{key}` of its group has no members"
            continue
        ready = readiness(other, members)
        if ready.stage is GangStage.READY:
            due = tuple(held.held.get(key, ())[: ready.needed])
            if len(due) < ready.needed:
                return _UNDER_WAY
            beside = (each.node_name for each in members.of(key))
            parts.append(GangPart(other, due, tuple(filter(None, beside))))
        elif ready.stage is not GangStage.STARTED:
            return f"gang `{key}` of its group: {ready.message}"
    places = {key: place for place, key in enumerate(held.held)}  # of their first members
    first = min(parts, key=lambda part: places[part.gang.key]).members[0]
    return GangUnit(parts=tuple(parts), first=first)
