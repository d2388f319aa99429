"""Gangs that are released: they start, or fail, with their group or alone.

What runs of a gang that could not start as a whole is evicted, so that its owners create it again.
A gate cannot be put back on a pod, so this is the only way back into the queue: the new members are
held, as all are when they are created. Budgets hold; where one stands against an eviction, it is
tried again for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from engine.errors import counted
from engine.gang import Gang, GangBackoff, GangKey, GangMember, GangMode, MemberState
from engine.model.time import SECOND, micros
from engine.view import ClusterView
from webhook.controllers.eviction import EvictionResult, EvictionWriter
from webhook.controllers.gang.gang_context import GangContext, GangMemories, GangTasks
from webhook.controllers.gang.gang_outcome import GangOutcome
from webhook.controllers.gang.gang_unit import described_gang, group_of

_LONGEST_SECONDS: Final = 600.0
_TRY_AGAIN_SECONDS: Final = 2.0
_DONE: Final = frozenset({EvictionResult.EVICTED, EvictionResult.GONE})

_log = logging.getLogger(__name__)


class _Start(NamedTuple):
    """How far a released gang has come."""

    bound: int  # members that are, and those that have finished
    moment: str  # of its release, as its members say
    is_over: bool  # whether it has started, or nothing is left of it
    is_late: bool  # whether its time is over


class _FailedGang(NamedTuple):
    """A gang whose members are to be ended, and why."""

    gang: Gang
    start: _Start
    text: str


class StartOutcomes:
    """Sees which released gangs have started, and ends those that have failed to."""

    def __init__(
        self, context: GangContext, memories: GangMemories, backoff: GangBackoff, tasks: GangTasks
    ) -> None:
        self._context = context
        self._memories = memories
        self._backoff = backoff
        self._tasks = tasks
        # Those that are released, and of which too few members are bound so far; None where all
        # gangs are to be looked at.
        self._starting: set[GangKey] | None = None

    def begin(self) -> None:
        """Begin with those that an earlier leader has released."""
        self._starting = None

    def add(self, gangs: Iterable[Gang]) -> None:
        """Note gangs that are released now."""
        self._starting = (self._starting or set()) | {gang.key for gang in gangs}

    def see(self, view: ClusterView) -> None:
        """Note which released gangs have started, and which have failed to."""
        failed: dict[GangKey, list[tuple[Gang, _Start]]] = {}
        for gang, start in self._ended(view):
            key = group_of(gang)[0]
            if start.bound >= gang.min_member:
                self._backoff.started(key)
                self._context.count(GangOutcome.STARTED)
            elif start.is_late:
                failed.setdefault(key, []).append((gang, start))
        for key, gangs in failed.items():
            self._fail(key, gangs, view)

    def _ended(self, view: ClusterView) -> Iterator[tuple[Gang, _Start]]:
        """Yield each gang that has started, is gone or late, and how far it came; once."""
        members = self._context.members
        if self._starting is None:
            self._starting = {key for key in members if _is_starting(members.of(key))}
        for key in list(self._starting):
            gang = described_gang(key, members, view)
            if gang is None:
                self._starting.discard(key)
            elif group_of(gang)[0] not in self._tasks:
                start = self._start_of(gang)
                if start.is_over or start.is_late:
                    self._starting.discard(key)
                    yield gang, start

    def _start_of(self, gang: Gang) -> _Start:
        """Return how far a released gang has come."""
        members = self._context.members.of(gang.key)
        bound = gang.succeeded + sum(member.state is MemberState.BOUND for member in members)
        moment = max((member.released_with for member in members), default="")
        late_from = _instant(moment) + gang.schedule_timeout_seconds * SECOND
        return _Start(
            bound=bound,
            moment=moment,
            is_over=bound >= gang.min_member or not moment,
            is_late=self._context.now() >= late_from,
        )

    def _fail(self, key: GangKey, gangs: list[tuple[Gang, _Start]], view: ClusterView) -> None:
        """Count gangs of one group that have not started in time, and end what is to be ended."""
        failed = [
            _FailedGang(
                gang,
                start,
                f"{start.bound} of {gang.min_member} members are bound after"
                f" {gang.schedule_timeout_seconds} s",
            )
            for gang, start in gangs
        ]
        for _ in failed:
            self._context.count(GangOutcome.FAILED)
        self._memories.of(key).failed(failed[0].text)
        self._backoff.failed(key, self._context.now())
        failed += self._failing_with(failed, view)
        for each in failed:
            if each.gang.is_recreated:
                self._keep_held(each.gang)
        self._tasks.run(key, self._end(failed))

    def _failing_with(
        self, failed: Sequence[_FailedGang], view: ClusterView
    ) -> Iterator[_FailedGang]:
        """Yield the other gangs of a group that were released with a Strict one that has failed."""
        strict = next((each for each in failed if each.gang.mode is GangMode.STRICT), None)
        if strict is None:
            return
        known = {each.gang.key for each in failed}
        for key in group_of(strict.gang):
            other = None if key in known else described_gang(key, self._context.members, view)
            if other is not None:
                start = self._start_of(other)
                if start.moment == strict.start.moment:
                    text = f"gang `{strict.gang.key}` of its group failed: {strict.text}"
                    yield _FailedGang(other, start, text)

    def _keep_held(self, gang: Gang) -> None:
        """Release no member any more that is held still: the others are about to end."""
        context = self._context
        for member in context.members.of(gang.key):
            held = context.held.get(member.key)
            if held is not None and context.pods.attempt(held.pod) is not None:
                context.releases.take_back(held)

    async def _end(self, failed: Iterable[_FailedGang]) -> None:
        """Tell of gangs that have failed, and evict the members that are to be created again."""
        context = self._context
        for gang, start, text in failed:
            members = context.members.of(gang.key)
            member, partial = next(iter(members), None), _partial_start(members, start.moment)
            is_kept = not gang.is_recreated or not partial
            if is_kept or context.evictions is None:
                why = "" if is_kept else ", as no gang may be created again (`recreateGangs`)"
                await context.events.failed(gang.key, member, f"{text}; they are kept{why}")
                continue
            await context.events.failed(gang.key, member, f"{text}; {len(partial)} are evicted")
            left = await self._evict(partial, context.evictions)
            if left:
                _log.warning(
                    "gang `%s`: %s could not be evicted", gang.key, counted(left, "member")
                )

    async def _evict(self, members: Sequence[GangMember], evictions: EvictionWriter) -> int:
        """Evict members of a gang, each by its uid; return how many could not be in ten minutes."""
        left, until = list(members), self._context.clock() + _LONGEST_SECONDS
        while True:
            tried, left = left, []
            for member in tried:
                eviction = await evictions.evict(member.gang.namespace, member.name, member.uid)
                if eviction.result not in _DONE:
                    _log.info(
                        "member `%s` of a gang is not evicted: %s", member.key, eviction.message
                    )
                    left.append(member)
            if not left or self._context.clock() >= until:
                return len(left)
            await self._context.sleep(max(_TRY_AGAIN_SECONDS, evictions.pause_seconds))


def _is_starting(members: Sequence[GangMember]) -> bool:
    """Return whether some members were released together and are not bound."""
    return any(each.state is MemberState.RELEASED and each.released_with for each in members)


def _partial_start(members: Sequence[GangMember], moment: str) -> list[GangMember]:
    """Return the members that were released at a moment and are to be created again.

    None where others run: a gang that has run before is never ended for a few of its members.
    """
    ran_before = any(
        each.state is MemberState.BOUND and each.released_with != moment for each in members
    )
    return [] if ran_before else [each for each in members if each.released_with == moment]


def _instant(moment: str) -> int:
    """Return the moment that a member names; the past where it names none."""
    try:
        return micros(datetime.fromisoformat(moment).astimezone(UTC))
    except (ValueError, OverflowError):
        return 0
