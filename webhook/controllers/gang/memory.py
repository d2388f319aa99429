"""What the leader remembers of a gang between two attempts to release it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from engine.gang import GangKey

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 10.0, 600.0
_LOOK_AGAIN_SECONDS: Final = 2.0
"""After which a gang that has no room is placed again."""

_FORGOTTEN_SECONDS: Final = 1200.0
"""After which a gang without held members is forgotten: its owners may create them again."""


class GangMemory(msgspec.Struct, kw_only=True, eq=False):
    """What is remembered of one gang; moments by the controller's steady clock.

    Attributes:
        failures: attempts that failed, one after the other.
        not_before: when it may be tried again after a failure.
        look_at: when it may be placed again.
        without_room_since: since when no nodes have room for all of it, None while that is not so.
        message: what it waits for, for people; "" where nothing is known.
        seen_at: when it last had held members.
    """

    failures: int = 0
    not_before: float = 0.0
    look_at: float = 0.0
    without_room_since: float | None = None
    message: str = ""
    seen_at: float = 0.0

    def failed(self, now: float, message: str) -> None:
        """Note that an attempt failed: the next one waits 10 s, twice as long each, up to 10 min.

        As Kueue does: a gang that fails again and again must not keep others from trying.
        """
        wait = min(_FIRST_WAIT_SECONDS * 2**self.failures, _LONGEST_WAIT_SECONDS)
        self.failures += 1
        self.not_before = now + wait
        self.without_room_since = None
        self.message = f"{message}; it is tried again after {wait:g} s"

    def started(self) -> None:
        """Note that as many members run as must."""
        self.failures, self.not_before, self.message = 0, 0.0, ""
        self.without_room_since = None

    def has_no_room(self, now: float, reason: str) -> float:
        """Note that no nodes have room for all of it; return the seconds since that is so."""
        self.look_at = now + _LOOK_AGAIN_SECONDS
        self.message = reason
        if self.without_room_since is None:
            self.without_room_since = now
        return now - self.without_room_since


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
