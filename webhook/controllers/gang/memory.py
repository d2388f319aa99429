"""What the leader remembers of a gang between two attempts to release it."""

from __future__ import annotations

from collections.abc import Callable
from operator import gt
from typing import Final

import msgspec

from engine.gang import GangKey

_LOOK_AGAIN_SECONDS: Final = 1.0
_LOOK_ANYWAY_SECONDS: Final = 10.0
"""After which a gang that has no room is placed again: where there is more room than there was, and
whatever there is, as nodes may take other pods than before."""

_FORGOTTEN_SECONDS: Final = 1200.0
"""After which a gang without held members is forgotten: its owners may create them again."""


class GangMemory(msgspec.Struct, kw_only=True, eq=False):
    """What is remembered of one gang; moments by the controller's steady clock.

    Attributes:
        looked_at: when it was found to have no room, None while that is not so.
        free: what all nodes had free then, one number for each resource.
        without_room_since: since when no nodes have room for all of it, None while that is not so.
        message: why it was not released at the last attempt, for people; "" where that is unknown.
        seen_at: when it last had held members.
    """

    looked_at: float | None = None
    free: tuple[int, ...] = ()
    without_room_since: float | None = None
    message: str = ""
    seen_at: float = 0.0

    def failed(self, message: str) -> None:
        """Note that an attempt failed though there was room."""
        self.without_room_since = None
        self.message = message

    def has_room(self) -> None:
        """Note that nodes have room for all of it."""
        self.without_room_since = self.looked_at = None
        self.message = ""

    def has_no_room(self, now: float, free: tuple[int, ...], reason: str) -> float:
        """Note that no nodes have room for all of it; return the seconds since that is so."""
        self.looked_at, self.free, self.message = now, free, reason
        if self.without_room_since is None:
            self.without_room_since = now
        return now - self.without_room_since

    def is_due(self, now: float, free: tuple[int, ...], *, is_eager: bool) -> bool:
        """Return whether it may be placed now.

        Args:
            now: the moment.
            free: what all nodes have free.
            is_eager: whether it is placed again although no more is free.
        """
        if self.looked_at is None:
            return True
        has_more = is_eager or len(free) != len(self.free) or any(map(gt, free, self.free))
        wait = _LOOK_AGAIN_SECONDS if has_more else _LOOK_ANYWAY_SECONDS
        return now >= self.looked_at + wait


class GangMemories:
    """What is remembered of all gangs.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_key: dict[GangKey, GangMemory] = {}

    def of(self, key: GangKey) -> GangMemory:
        """Return what is remembered of a gang that has held members now."""
        memory = self._by_key.setdefault(key, GangMemory())
        memory.seen_at = self._clock()
        return memory

    def forget_old(self) -> None:
        """Forget gangs that had no held members for long."""
        before = self._clock() - _FORGOTTEN_SECONDS
        for key in [key for key, each in self._by_key.items() if each.seen_at < before]:
            del self._by_key[key]

    def clear(self) -> None:
        """Forget all."""
        self._by_key.clear()
