"""What the release of gangs works with: context, tasks, and what is remembered of each gang."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import gt
from typing import Final

import msgspec

from engine.gang import DEFAULT_RESERVE_AFTER_SECONDS, GangKey
from engine.model.time import Micros
from engine.release import HeldPodRegistry
from engine.view import ClusterState
from webhook.controllers.eviction import EvictionWriter
from webhook.controllers.gang.gang_outcome import GangEvents, GangOutcome
from webhook.controllers.release import GangDecider, ReleaseContext, Releases
from webhook.placement.held_pods import GangMembers, HeldPods

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangContext:
    """What the release of gangs works with.

    Attributes:
        release: what the release of held pods works with.
        releases: writes releases.
        decider: decides where members go.
        members: of all gangs.
        evictions: evicts what runs of a gang that failed; None where nothing may be.
        reserve_after_seconds: after which a gang without room reserves it as it comes free.
        count: called with each outcome.
        sleep: waits for some seconds.
    """

    release: ReleaseContext
    releases: Releases
    decider: GangDecider
    members: GangMembers
    evictions: EvictionWriter | None
    reserve_after_seconds: float = DEFAULT_RESERVE_AFTER_SECONDS
    count: Callable[[GangOutcome], None] = lambda _outcome: None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def state(self) -> ClusterState:
        """The cluster, in which nominated pods count."""
        return self.release.state

    @property
    def held(self) -> HeldPods:
        """The pods that are held."""
        return self.release.held

    @property
    def pods(self) -> HeldPodRegistry:
        """The records of all held and released pods."""
        return self.release.pods

    @property
    def events(self) -> GangEvents:
        """Tells what became of a gang."""
        release = self.release
        return GangEvents(release.connection, identity=release.identity, view=release.state.view)

    def now(self) -> Micros:
        """Return the time of day."""
        return self.release.now()

    def clock(self) -> float:
        """Return seconds that only go forward."""
        return self.release.clock()


class GangTasks:
    """Tasks, one for each gang."""

    def __init__(self) -> None:
        self._tasks: dict[GangKey, asyncio.Task[None]] = {}

    def __contains__(self, key: object) -> bool:
        """Whether something is being done for a gang."""
        return key in self._tasks

    def run(self, key: GangKey, work: Awaitable[None]) -> None:
        """Do something for a gang for which nothing is being done."""
        task = self._tasks[key] = asyncio.create_task(self._run(key, work))
        task.add_done_callback(lambda _task: self._tasks.pop(key, None))

    async def end(self) -> None:
        """Cancel all."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, key: GangKey, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 - no bug in one gang ends the others
            _log.exception("gang `%s` could not be released", key)


_LOOK_AGAIN_SECONDS: Final = 1.0
_LOOK_ANYWAY_SECONDS: Final = 10.0
"""After which a gang that has no room is placed again: where there is more room than there was, and
whatever there is, as nodes may take other pods than before."""

_FORGOTTEN_SECONDS: Final = 1200.0
"""After which a gang without held members is forgotten: its owners may create them again."""


class GangMemory(msgspec.Struct, kw_only=True, eq=False):
    """What is remembered of one gang; moments by the controller's steady clock."""

    looked_at: float | None = None  # when it was found to have no room, None while that is not so
    free: tuple[int, ...] = ()  # what all nodes had free then, one number for each resource
    # since when no nodes have room for all of it, None while that is not so
    without_room_since: float | None = None
    # why it was not released at the last attempt, for people; "" where that is unknown
    message: str = ""
    reserves_again_at: float = 0.0  # before which no room is reserved for it
    seen_at: float = 0.0  # when it last had held members

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
        """Return whether it may be placed now."""
        if self.looked_at is None:
            return True
        has_more = is_eager or len(free) != len(self.free) or any(map(gt, free, self.free))
        wait = _LOOK_AGAIN_SECONDS if has_more else _LOOK_ANYWAY_SECONDS
        return now >= self.looked_at + wait


class GangMemories:
    """What is remembered of all gangs."""

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
