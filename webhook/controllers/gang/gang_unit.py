"""What is released together: a gang, or the gangs of a group, with the members that must start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.gang import Gang, GangKey
from webhook.placement.held_pods import HeldPod


@dataclass(frozen=True, slots=True, kw_only=True)
class GangUnit:
    """Gangs that start together.

    Attributes:
        parts: each gang with its held members that are to be released, in queue order.
        first: the member whose place in the queue the unit has.
    """

    parts: tuple[tuple[Gang, tuple[HeldPod, ...]], ...]
    first: HeldPod

    @property
    def key(self) -> GangKey:
        """Of the first gang of the group, which every member agrees on."""
        gang = self.parts[0][0]
        return min(gang.group or (gang.key,))

    @property
    def members(self) -> tuple[HeldPod, ...]:
        """All members that are to be released."""
        return tuple(self)

    @property
    def timeout_seconds(self) -> int:
        """The time in which they are to be bound."""
        return max(gang.schedule_timeout_seconds for gang, _ in self.parts)

    @property
    def gangs(self) -> tuple[Gang, ...]:
        """The gangs."""
        return tuple(gang for gang, _ in self.parts)

    def __iter__(self) -> Iterator[HeldPod]:
        return (held for _, members in self.parts for held in members)

    def __str__(self) -> str:
        """Return the names of the gangs."""
        return ", ".join(f"`{gang.key}`" for gang, _ in self.parts)
