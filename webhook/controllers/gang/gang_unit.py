"""What is released together: a gang, or the gangs of a group, with the members that must start."""

from __future__ import annotations

from dataclasses import dataclass

from engine.gang import Gang, GangKey, WhenNoRoom
from webhook.controllers.release import GangPart
from webhook.placement.held_pods import HeldPod


@dataclass(frozen=True, slots=True, kw_only=True)
class GangUnit:
    """Gangs that start together.

    Attributes:
        parts: each gang with its held members that are to be released, in queue order.
        first: the member whose place in the queue the unit has.
    """

    parts: tuple[GangPart, ...]
    first: HeldPod

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
