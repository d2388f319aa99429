"""Gangs that are released: they start, or fail, with their group or alone.

What runs of a gang that could not start as a whole is evicted, so that its owners create it again.
A gate cannot be put back on a pod, so this is the only way back into the queue: the new members are
held, as all are when they are created. Budgets hold; where one stands against an eviction, it is
tried again for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from engine.errors import counted
from engine.gang import Gang, GangBackoff, GangKey, GangMember, GangMode, MemberState
from engine.model.time import SECOND, Micros, micros
from engine.view import ClusterView
from webhook.controllers.eviction import EvictionResult, EvictionWriter
from webhook.controllers.gang.gang_context import GangContext, GangMemories, GangTasks
from webhook.controllers.gang.gang_outcome import GangEvents, GangOutcome
from webhook.controllers.gang.gang_unit import described_gang, group_of
from webhook.placement.held_pods import GangMembers

_log = logging.getLogger(__name__)


class Start(NamedTuple):
    """How far a released gang has come."""

    bound: int  # members that are, and those that have finished
    moment: str  # of its release, as its members say
    is_over: bool  # whether it has started, or nothing is left of it
    is_late: bool  # whether its time is over


def start_of(gang: Gang, members: Sequence[GangMember], now: Micros) -> Start:
    """Return how far a released gang has come."""
    bound = gang.succeeded + sum(member.state is MemberState.BOUND for member in members)
    moment = max((member.released_with for member in members), default="")
    return Start(
        bound=bound,
        moment=moment,
        is_over=bound >= gang.min_member or not moment,
        is_late=now >= _instant(moment) + gang.schedule_timeout_seconds * SECOND,
    )


class StartingGangs:
    """The gangs that are released, and of which too few members are bound so far."""

    def __init__(self, members: GangMembers, now: Callable[[], Micros]) -> None:
        self._members = members
        self._now = now
        self._keys: set[GangKey] | None = None  # None where all are to be looked at

    def begin(self) -> None:
        """Begin with those that an earlier leader has released."""
        self._keys = None

    def add(self, gangs: Iterable[Gang]) -> None:
        """Note gangs that are released now."""
        self._keys = (self._keys or set()) | {gang.key for gang in gangs}

    def ended(
        self, view: ClusterView, *, is_busy: Callable[[GangKey], bool]
    ) -> Iterator[tuple[Gang, Start]]:
        """Yield each gang that has started, is gone or late, and how far it came; once."""
        members = self._members
        if self._keys is None:
            self._keys = {key for key in members if is_starting(members.of(key))}
        for key in list(self._keys):
            gang = described_gang(key, members, view)
            if gang is None:
                self._keys.discard(key)
            elif not is_busy(group_of(gang)[0]):
                start = start_of(gang, members.of(key), self._now())
                if start.is_over or start.is_late:
                    self._keys.discard(key)
                    yield gang, start


def is_starting(members: Sequence[GangMember]) -> bool:
    """Return whether some members were released together and are not bound."""
    return any(each.state is MemberState.RELEASED and each.released_with for each in members)


def partial_start(members: Sequence[GangMember], moment: str) -> list[GangMember]:
    """Return the members that were released at a moment and are to be created again.

    None where others run: a gang that has run before is never ended for a few of its members.
    """
    ran_before = any(
        each.state is MemberState.BOUND and each.released_with != moment for each in members
    )
    if ran_before:
        return []
    return [each for each in members if each.released_with == moment]


def _instant(moment: str) -> int:
    """Return the moment that a member names; the past where it names none."""
    try:
        return micros(datetime.fromisoformat(moment).astimezone(UTC))
    except (ValueError, OverflowError):
        return 0


_LONGEST_SECONDS: Final = 600.0
_TRY_AGAIN_SECONDS: Final = 2.0
_DONE: Final = frozenset({EvictionResult.EVICTED, EvictionResult.GONE})


async def end_failed(  # noqa: PLR0913 - named parts
    gang: Gang,
    start: Start,
    text: str,
    *,
    members: GangMembers,
    events: GangEvents,
    evictions: EvictionWriter | None,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Do what is to be done with the members of a gang that has failed to start, and tell it."""
    of_gang = members.of(gang.key)
    member = next(iter(of_gang), None)
    partial = partial_start(of_gang, start.moment)
    is_kept = not gang.is_recreated or not partial
    if is_kept or evictions is None:
        why = "" if is_kept else ", as no gang may be created again (`recreateGangs`)"
        await events.failed(gang.key, member, f"{text}; they are kept{why}")
        return
    await events.failed(gang.key, member, f"{text}; {len(partial)} are evicted")
    left = await recreate(partial, evictions, clock=clock, sleep=sleep)
    if left:
        _log.warning("gang `%s`: %s could not be evicted", gang.key, counted(left, "member"))


async def recreate(
    members: Sequence[GangMember],
    evictions: EvictionWriter,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """Evict members of a gang, each by its uid; return how many could not be in ten minutes."""
    left, until = list(members), clock() + _LONGEST_SECONDS
    while True:
        left = [member for member in left if not await _is_evicted(member, evictions)]
        if not left or clock() >= until:
            return len(left)
        await sleep(max(_TRY_AGAIN_SECONDS, evictions.pause_seconds))


async def _is_evicted(member: GangMember, evictions: EvictionWriter) -> bool:
    eviction = await evictions.evict(member.gang.namespace, member.name, member.uid)
    if eviction.result not in _DONE:
        _log.info("member `%s` of a gang is not evicted: %s", member.key, eviction.message)
    return eviction.result in _DONE


class StartOutcomes:
    """Sees which released gangs have started, and does what those say that have failed to."""

    def __init__(
        self, context: GangContext, memories: GangMemories, backoff: GangBackoff, tasks: GangTasks
    ) -> None:
        self._context = context
        self._memories = memories
        self._backoff = backoff
        self._tasks = tasks
        self._starting = StartingGangs(context.members, context.now)

    def begin(self) -> None:
        """Begin with those that an earlier leader has released."""
        self._starting.begin()

    def add(self, gangs: Iterable[Gang]) -> None:
        """Note gangs that are released now."""
        self._starting.add(gangs)

    def see(self, view: ClusterView) -> None:
        """Note which released gangs have started, and which have failed to."""
        failed: dict[GangKey, list[tuple[Gang, Start]]] = {}
        for gang, start in self._starting.ended(view, is_busy=self._tasks.__contains__):
            key = group_of(gang)[0]
            if start.bound >= gang.min_member:
                self._backoff.started(key)
                self._context.count(GangOutcome.STARTED)
            elif start.is_late:
                failed.setdefault(key, []).append((gang, start))
        for key, gangs in failed.items():
            self._fail(key, gangs, view)

    def _fail(self, key: GangKey, gangs: list[tuple[Gang, Start]], view: ClusterView) -> None:
        """Count gangs of one group that have not started in time, and end what is to be ended."""
        texts: dict[GangKey, str] = {}
        for gang, start in gangs:
            self._context.count(GangOutcome.FAILED)
            texts[gang.key] = (
                f"{start.bound} of {gang.min_member} members are bound after"
                f" {gang.schedule_timeout_seconds} s"
            )
        self._memories.of(key).failed(next(iter(texts.values())))
        self._backoff.failed(key, self._context.now())
        ended = [(*each, texts[each[0].key]) for each in gangs]
        ended += self._failing_with(gangs, texts, view)
        for gang, _, _ in ended:
            if gang.is_recreated:
                self._keep_held(gang)
        self._tasks.run(key, self._end(ended))

    def _failing_with(
        self, gangs: list[tuple[Gang, Start]], texts: dict[GangKey, str], view: ClusterView
    ) -> Iterator[tuple[Gang, Start, str]]:
        """Yield the other gangs of a group that were released with a Strict one that has failed."""
        strict = next((each for each in gangs if each[0].mode is GangMode.STRICT), None)
        if strict is None:
            return
        gang, failed = strict
        for key in group_of(gang):
            other = None if key in texts else described_gang(key, self._context.members, view)
            if other is None:
                continue
            start = start_of(other, self._context.members.of(key), self._context.now())
            if start.moment == failed.moment:
                yield other, start, f"gang `{gang.key}` of its group failed: {texts[gang.key]}"

    def _keep_held(self, gang: Gang) -> None:
        """Release no member any more that is held still: the others are about to end."""
        context = self._context
        for member in context.members.of(gang.key):
            held = context.held.get(member.key)
            if held is not None and held in context.releases:
                context.releases.take_back(held)

    async def _end(self, ended: Iterable[tuple[Gang, Start, str]]) -> None:
        context = self._context
        for gang, start, text in ended:
            await end_failed(
                gang,
                start,
                text,
                members=context.members,
                events=context.events,
                evictions=context.evictions,
                clock=context.clock,
                sleep=context.sleep,
            )
