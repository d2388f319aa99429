"""Gangs with held members in one cycle, and those of them that are released together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from engine.binding import AwaitedRoom
from engine.eviction import NodeFit
from engine.gang import (
    Gang,
    GangKey,
    GangStage,
    MatchPolicy,
    Readiness,
    WhenNoRoom,
    count_members,
    min_resources_gap,
    pod_group_of_gang,
    readiness_of,
)
from engine.model.pod_shape import PodShape
from engine.model.quantity import amount_text
from engine.release import HeldPod
from engine.view import (
    BoolColumn,
    ClusterState,
    ClusterView,
    WhatIf,
    counted_requests,
    left_to_devices,
)
from webhook.controllers.release import GangPart
from webhook.placement.held_pods import GangMembers


@dataclass(frozen=True, slots=True, kw_only=True)
class GangUnit:
    """Gangs that start together."""

    # each gang with its held members that are to be released, in queue order
    parts: tuple[GangPart, ...]
    first: HeldPod  # the member whose place in the queue the unit has

    @property
    def key(self) -> GangKey:
        """Of the first gang of the group, which all gangs of it agree on."""
        return group_of(self.parts[0].gang)[0]

    @property
    def members(self) -> tuple[HeldPod, ...]:
        """All members that are to be released."""
        return tuple(held for part in self.parts for held in part.members)

    @property
    def member_keys(self) -> frozenset[str]:
        """`namespace/name` of each of them."""
        return frozenset(held.key for held in self.members)

    @property
    def timeout_seconds(self) -> int:
        """The time in which they are to be bound."""
        return max(gang.schedule_timeout_seconds for gang in self.gangs)

    @property
    def gangs(self) -> tuple[Gang, ...]:
        """The gangs."""
        return tuple(part.gang for part in self.parts)

    @property
    def is_released_without_room(self) -> bool:
        """Whether it is released as a whole while it fits nowhere, so that autoscalers see it."""
        return any(gang.when_no_room is WhenNoRoom.RELEASE for gang in self.gangs)

    def __str__(self) -> str:
        """Return the names of the gangs."""
        return ", ".join(f"`{gang.key}`" for gang in self.gangs)


def group_of(gang: Gang) -> tuple[GangKey, ...]:
    """Return the gangs that start together with a gang, itself among them; sorted."""
    return gang.group or (gang.key,)


_UNDER_WAY: Final = "members of it are being released one by one"


class HeldGangs(NamedTuple):
    """The gangs that have held members."""

    gangs: Mapping[GangKey, Gang]  # those that somebody describes
    # the held members of each, in queue order, of gangs that nobody describes as well
    held: Mapping[GangKey, Sequence[HeldPod]]


def held_gangs(ordered: Sequence[HeldPod], members: GangMembers, view: ClusterView) -> HeldGangs:
    """Return the gangs of held pods."""
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
    """Return what is released together with a gang, or what its group lacks."""
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


def lacking_resources(unit: GangUnit, state: ClusterState, members: GangMembers) -> str:
    """Return what all nodes together lack of what gangs say that they need, "" for nothing."""
    view = state.view()
    for gang in unit.gangs:
        running = filter(None, (state.placement(each.key) for each in members.of(gang.key)))
        gap = min_resources_gap(gang, view, running)
        if gap:
            lacking = ", ".join(f"{amount_text(name, gap[name])} {name}" for name in sorted(gap))
            return f"`minResources` of `{gang.key}` needs {lacking} more than is free"
    return ""


Fit: TypeAlias = Callable[[HeldPod, ClusterView], NodeFit]
"""Returns the filters that a held pod must pass on the nodes of a view."""


def awaited_room(first: HeldPod, count: int, view: ClusterView, fit: Fit) -> AwaitedRoom:
    """Return the room that members wait for.

    Args:
        first: one of them, which counts on no node, as the others.
        count: how many there are of its shape.
        view: the cluster.
        fit: returns the filters that they must pass.
    """
    filters, shape = fit(first, view), first.pod.shape
    may_take = _takes_if_empty(shape, view, filters.may_pass)
    fitting = filters.passing(WhatIf(view))
    return AwaitedRoom(shape=shape, count=count, may_take=may_take, fitting=fitting)


def exceeds_cluster(unit: GangUnit, view: ClusterView, fit: Fit) -> bool:
    """Return whether gangs need more than there is, or a member more than any node it may take has.

    However empty nodes are. What devices provide is not looked at: how much of it there is, is not
    known.

    Args:
        unit: the gangs.
        view: the cluster.
        fit: returns the filters that a member must pass.
    """
    shapes = Counter(held.pod.shape for held in unit.members)
    needed = Counter[str]()
    for shape, count in shapes.items():
        needed.update({name: count * each for name, each in counted_requests(shape).items()})
    of_gangs = (gang.min_resources or {} for gang in unit.gangs)
    amounts = chain(needed.items(), *(each.items() for each in of_gangs))
    return any(
        view.amount(view.allocatable, name).sum() < amount
        for name, amount in amounts
        if left_to_devices(name, view) is None
    ) or not all(
        _takes_if_empty(held.pod.shape, view, fit(held, view).may_pass).any()
        for held in _different(unit.members)
    )


def _different(members: Iterable[HeldPod]) -> Collection[HeldPod]:
    """Return one member of each kind that nodes may tell apart."""
    found: dict[tuple[PodShape, bytes], HeldPod] = {}
    for held in filter(attrgetter("raw"), members):
        pod = held.pod
        where = msgspec.msgpack.encode((pod.node_selector, pod.affinity, pod.tolerations))
        found[pod.shape, where] = held
    return found.values()


def _takes_if_empty(shape: PodShape, view: ClusterView, among: BoolColumn) -> BoolColumn:
    """Return which of some nodes have as much as a pod requests, (n,)."""
    fits = among.copy()
    for name, amount in counted_requests(shape).items():
        if amount and left_to_devices(name, view) is None:
            fits &= view.amount(view.allocatable, name) >= amount
    return fits


def missing_members(unit: GangUnit, members: GangMembers) -> str:
    """Return how many members are left where too few are, as some that ran are gone; else ""."""
    for gang, due, _ in unit.parts:
        if gang.match_policy is MatchPolicy.ONLY_WAITING:
            continue
        counts = count_members(members.of(gang.key))
        exist = counts.started + gang.succeeded + len(due)
        if exist < gang.min_member:
            return f"{exist} of {gang.min_member} members of `{gang.key}` are left"
    return ""
