"""The release of gangs, step by step: all members have room before the first is released.

All that must outlive the leader is on the pods: nominations, and the moment of the release. So it
may end between any two writes. Another leader takes back what is nominated where no member is
released, and goes on with the release where some are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Final

from engine.gang import Gang, GangBackoff, GangKey
from engine.model.hold import GANG_RELEASED_ANNOTATION
from engine.model.time import date
from engine.release import HeldPod, ReleaseAttempt, ReleaseDecision, WriteFailure, would_stay
from webhook.controllers.gang.gang_context import GangContext, GangMemories, GangTasks
from webhook.controllers.gang.gang_outcome import GangOutcome
from webhook.controllers.gang.gang_reservation import GangReservation
from webhook.controllers.gang.gang_unit import GangUnit, missing_members
from webhook.controllers.release import GangPart
from webhook.controllers.release.pod_writer import WriteError, all_of
from webhook.fairness import Shares

_log = logging.getLogger(__name__)


_MOST_AT_ONCE: Final = 10
"""Gangs whose members are being nominated: each has room for all of them, so none waits for another
that waits for it."""

_PREPARE_SECONDS: Final = 10.0
"""Within which all members are nominated, and seen so; longer than that no room is kept."""

_SETTLE_SECONDS: Final = 0.25
"""Between the nominations and the last look at the room: the scheduler may have been binding others
there when it heard of them, and such bindings are seen meanwhile."""

_WRITE_AGAIN_SECONDS: Final = 1.0
"""After which the release of a member is tried again that was refused, while the others run."""

_MOST_PLANS: Final = 3
_LOOK_SECONDS: Final = 0.05

_OUTCOMES: Final = {
    WriteFailure.OVER_QUOTA: GangOutcome.OVER_QUOTA,
    WriteFailure.REFUSED: GangOutcome.REFUSED,
    WriteFailure.GONE: GangOutcome.CHANGED,
    WriteFailure.CHANGED: GangOutcome.CHANGED,
}


class _EndedError(Exception):
    """The release has ended before any member was released."""

    def __init__(self, outcome: GangOutcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class _LostRoomError(_EndedError):
    """Others have taken the room of a member."""

    def __init__(self, message: str) -> None:
        super().__init__(GangOutcome.CHANGED, message)


class GangRelease:
    """The steps for the members of one gang, or of the gangs of a group.

    Attributes:
        decisions: of the members, by key.
        message: of how it ended.
        has_lost_room: whether it ended as others have taken the room of a member.
    """

    def __init__(
        self,
        unit: GangUnit,
        decisions: Mapping[str, ReleaseDecision],
        moment: str,
        context: GangContext,
    ) -> None:
        self.unit = unit
        self.decisions = decisions
        self.message = ""
        self.has_lost_room = False
        self._moment = moment
        self._context = context
        self._written: dict[str, ReleaseAttempt] = {}
        self._write_at: dict[str, float] = {}  # by key, before which it is not written again
        self._is_begun = False

    def prepared(self) -> list[HeldPod]:
        """The members that are nominated and not decided yet."""
        attempt = self._context.pods.attempt
        return [held for held in self._still_held() if attempt(held.pod) is None]

    async def run(self, *, is_begun: bool = False) -> GangOutcome:
        """Carry it out; return how it ended. Nominations that led to nothing are there still."""
        self._is_begun = is_begun
        try:
            if not is_begun:
                await self._prepare()
            await self._release(is_begun=is_begun)
        except _EndedError as end:
            self.message, self.has_lost_room = str(end), isinstance(end, _LostRoomError)
            return end.outcome
        except WriteError as error:
            self.message = error.message
            return _OUTCOMES.get(error.failure, GangOutcome.UNREACHABLE)
        return GangOutcome.RELEASED

    def take_back(self) -> None:
        """Take the nominations of the members back that are held still."""
        _log.info("gang %s is taken back: %s", self.unit, self.message)
        for held in self._still_held():
            self._context.release.nominations.withdraw(held.pod)
            self._context.releases.take_back(held)

    async def _prepare(self) -> None:
        """Nominate all members, until our own watch shows them on nodes that still have room."""
        context = self._context
        until = context.clock() + _PREPARE_SECONDS
        for _ in range(_MOST_PLANS):
            await self._nominate()
            await self._until(self._are_seen, until)
            await context.sleep(_SETTLE_SECONDS)
            if missing := missing_members(self.unit, context.members):
                raise _EndedError(GangOutcome.CHANGED, missing)
            if not (problem := self._problem()):
                return
            _log.info("gang %s is placed again: %s", self.unit, problem)
            placed = context.decider.decide(self.unit.parts)
            if placed.reason:
                raise _LostRoomError(f"{problem}; then {placed.reason}")
            self.decisions = placed.decisions
        raise _LostRoomError("others take the room each time")

    async def _nominate(self) -> None:
        """Write the nominations that are not there, at a time.

        Members that go elsewhere now leave first: room that two are nominated to blocks both.
        """
        writer = self._context.release.writer
        due = [held for held in self._members() if self._node(held) != _nominated(held)]
        await all_of(writer.withdraw(held) for held in due if _nominated(held))
        await all_of(writer.nominate(held, self._node(held)) for held in due if self._node(held))

    async def _release(self, *, is_begun: bool) -> None:
        """Release all members; once one is, the others follow until the gang's time is over."""
        context = self._context
        until = context.clock() + self.unit.timeout_seconds
        while left := self._still_held():
            for held in left:
                self._write(held)
            if not is_begun and not self._is_any_released():
                self._check_failures()
            if context.clock() >= until:
                if is_begun or self._is_any_released():
                    return  # too few are bound: that is seen later
                raise _EndedError(GangOutcome.UNREACHABLE, "no member could be released in time")
            await context.sleep(_LOOK_SECONDS)

    def _write(self, held: HeldPod) -> None:
        """Start the release of a member that is not under way."""
        context, nominations = self._context, self._context.release.nominations
        is_due = context.clock() >= self._write_at.get(held.key, 0.0)
        if context.pods.attempt(held.pod) or not (is_due and context.releases.may_try(held)):
            return
        self._write_at[held.key] = context.clock() + _WRITE_AGAIN_SECONDS
        decision = self.decisions[held.key]
        nominations.nominate(held.pod, decision.node_name)
        # Whoever was prepared a moment ago has room for certain.
        is_doubtful = decision.node_name and (self._is_begun or held.key in self._written)
        if is_doubtful and not self._has_room(held):
            nominations.withdraw(held.pod)
            decision = ReleaseDecision(reason="its gang runs, and its room is gone")
        annotations = {**decision.annotations, GANG_RELEASED_ANNOTATION: self._moment}
        decision = replace(decision, annotations=annotations)
        self._written[held.key] = context.releases.begin(held, decision)

    def _has_room(self, held: HeldPod) -> bool:
        """Return whether a member is nominated still, unlike one that is refused, and would fit."""
        node_name = self._node(held)
        view = self._context.state.view()
        return _nominated(held) == node_name and would_stay(view, node_name, held.pod)

    def _is_any_released(self) -> bool:
        """Return whether a member is released, or may be."""
        return any(each.is_sent for each in self._written.values())

    def _check_failures(self) -> None:
        """End the release if a member could not be released while none was."""
        if any(each.is_writing for each in self._written.values()):
            return
        for each in self._written.values():
            if each.failure is not None and each.failure in _OUTCOMES:
                message = f"member `{each.held.key}` could not be released"
                raise _EndedError(_OUTCOMES[each.failure], message)
        self._members()

    async def _until(self, is_so: Callable[[], bool], until: float) -> None:
        while not is_so():
            if self._context.clock() >= until:
                message = f"the nominations are not seen within {_PREPARE_SECONDS:g} s"
                raise _EndedError(GangOutcome.UNREACHABLE, message)
            await self._context.sleep(_LOOK_SECONDS)

    def _are_seen(self) -> bool:
        return all(self._node(held) == _nominated(held) for held in self._members())

    def _problem(self) -> str:
        """Return which member has lost its room, "" if none has."""
        view = self._context.state.view()
        for held in self._members():
            node_name = self._node(held)
            if node_name and not would_stay(view, node_name, held.pod):
                return f"node `{node_name}` has no room any more for `{held.key}`"
        return ""

    def _node(self, held: HeldPod) -> str:
        """Return the node to nominate for a member, "" for none."""
        return self.decisions[held.key].node_name

    def _members(self) -> list[HeldPod]:
        """Return all members as they are seen now."""
        found = self._still_held()
        if len(found) < len(self.unit.members):
            keys = {held.key for held in found}
            gone = next(held.key for held in self.unit.members if held.key not in keys)
            raise _EndedError(GangOutcome.CHANGED, f"member `{gone}` is not held any more")
        return found

    def _still_held(self) -> list[HeldPod]:
        """Return the members that are held, as they are seen now."""
        return [*filter(None, map(self._context.held.now, self.unit.members))]


def _nominated(held: HeldPod) -> str:
    return held.pod.nominated_node_name


class GangReleases:
    """Starts releases of gangs, and notes how they end."""

    def __init__(
        self,
        context: GangContext,
        memories: GangMemories,
        backoff: GangBackoff,
        tasks: GangTasks,
        reservation: GangReservation,
        released: Callable[[Sequence[Gang]], None],
    ) -> None:
        self._context = context
        self._memories = memories
        self._backoff = backoff
        self._tasks = tasks
        self._reservation = reservation
        self._released = released
        self._by_key: dict[GangKey, GangRelease] = {}
        self._shares = Shares(_MOST_AT_ONCE)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def has_turn_for(self, namespace: str) -> bool:
        """Return whether another gang of a namespace may be released beside those that are."""
        return self._shares.has_room(namespace, 1)

    def clear(self) -> None:
        """Forget those whose tasks were cancelled, some of them before they began."""
        self._by_key.clear()
        self._shares = Shares(_MOST_AT_ONCE)

    def prepared(self) -> list[HeldPod]:
        """Return the pods that are nominated and wait for the nominations of their gang."""
        return [held for release in self._by_key.values() for held in release.prepared()]

    def go_on(self, gang: Gang, members: Sequence[HeldPod]) -> None:
        """Release the other members of a gang of which an earlier leader has released some."""
        prepared = tuple(held for held in members if held.pod.nominated_node_name)
        if not prepared:
            return  # they are decided already
        unit = GangUnit(parts=(GangPart(gang, prepared),), first=prepared[0])
        decisions = {
            held.key: ReleaseDecision(node_name=held.pod.nominated_node_name) for held in prepared
        }
        moment = max(
            (each.released_with for each in self._context.members.of(gang.key)), default=""
        )
        self.start(unit, decisions, moment=moment, is_begun=True)

    def start(
        self,
        unit: GangUnit,
        decisions: Mapping[str, ReleaseDecision],
        *,
        moment: str = "",
        is_begun: bool = False,
    ) -> None:
        """Begin to release a gang."""
        moment = moment or f"{date(self._context.now()).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        release = GangRelease(unit, decisions, moment, self._context)
        self._by_key[unit.key] = release
        self._shares.take(unit.key.namespace, 1)
        self._reservation.release_begins(unit, decisions)
        self._tasks.run(unit.key, self._run(release, is_begun=is_begun))

    async def _run(self, release: GangRelease, *, is_begun: bool) -> None:
        unit, context = release.unit, self._context
        try:
            outcome = await release.run(is_begun=is_begun)
        finally:
            del self._by_key[unit.key]
            self._shares.take(unit.key.namespace, -1)
            self._reservation.release_ends(unit)
        context.count(outcome)
        if release.has_lost_room and self._reservation.is_of(unit):
            self._reservation.go_on_without(unit, release.decisions, release.message)
            return
        self._reservation.leave(unit)
        member = next(iter(context.members.of(unit.key)), None)
        if outcome is GangOutcome.RELEASED:
            self._released(unit.gangs)
            for part in unit.parts:
                await context.events.released(part.gang.key, member, len(part.members))
            return
        release.take_back()
        self._memories.of(unit.key).failed(release.message)
        self._backoff.failed(unit.key, context.now())
        await context.events.taken_back(unit.key, member, release.message)
