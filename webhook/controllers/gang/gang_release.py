"""The release of one gang, step by step: all members have room before the first is released.

All that must outlive the leader is on the pods: nominations, and the moment of the release. So it
may end between any two writes. Another leader takes back what is nominated where no member is
released, and goes on with the release where some are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from engine.model.hold import GANG_RELEASED_ANNOTATION
from engine.view import ClusterState
from webhook.controllers.gang.gang_unit import GangUnit
from webhook.controllers.gang.outcome import GangOutcome
from webhook.controllers.release.decided_pods import DecidedPods
from webhook.controllers.release.gang_decider import GangDecision
from webhook.controllers.release.node_room import would_stay
from webhook.controllers.release.pod_writer import PodWriter, all_of
from webhook.controllers.release.states import DecidedPod, ReleaseDecision
from webhook.controllers.release.write_error import WriteError, WriteFailure
from webhook.placement.held_pods import HeldPod, HeldPods

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

_log = logging.getLogger(__name__)


class _EndedError(Exception):
    """The release has ended before any member was released."""

    def __init__(self, outcome: GangOutcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GangReleaseParts:
    """What the release of a gang works with.

    Attributes:
        state: the cluster, in which nominated pods count.
        held: the pods that are held.
        decided: writes the releases.
        writer: writes the nominations.
        place: places a gang again, whose members may be nominated.
        missing: says which members are missing by now of a gang whose members run in part, "" for
            none.
        clock: seconds that only go forward.
        sleep: waits for some seconds.
    """

    state: ClusterState
    held: HeldPods
    decided: DecidedPods
    writer: PodWriter
    place: Callable[[GangUnit], GangDecision]
    missing: Callable[[GangUnit], str]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class GangRelease:
    """The steps for the members of one gang, or of the gangs of a group.

    Args:
        unit: the members.
        decisions: for each of them by key; the view counts them on their nodes.
        moment: of the release, written on each member.
        parts: what it works with.

    Attributes:
        message: of how it ended.
    """

    def __init__(
        self,
        unit: GangUnit,
        decisions: Mapping[str, ReleaseDecision],
        moment: str,
        parts: GangReleaseParts,
    ) -> None:
        self.unit = unit
        self.message = ""
        self._decisions = decisions
        self._moment = moment
        self._parts = parts
        self._written: dict[str, DecidedPod] = {}
        self._write_at: dict[str, float] = {}  # by key, before which it is not written again
        self._is_begun = False

    def prepared(self) -> list[HeldPod]:
        """The members that are nominated and not decided yet."""
        decided = self._parts.decided
        return [held for held in self._still_held() if held.key not in decided]

    async def run(self, *, is_begun: bool = False) -> GangOutcome:
        """Carry it out; return how it ended.

        Args:
            is_begun: whether members are released, or are to be without nominations.
        """
        self._is_begun = is_begun
        try:
            if not is_begun:
                await self._prepare()
            await self._release(is_begun=is_begun)
        except _EndedError as end:
            self.message = str(end)
            outcome = end.outcome
        except WriteError as error:
            self.message = error.message
            outcome = _OUTCOMES.get(error.failure, GangOutcome.UNREACHABLE)
        else:
            return GangOutcome.RELEASED
        _log.info("gang %s is taken back: %s", self.unit, self.message)
        for held in self._still_held():
            self._parts.state.nominate(held.key, "")
            self._parts.decided.take_back(held)
        return outcome

    async def _prepare(self) -> None:
        """Nominate all members, until our own watch shows them on nodes that still have room."""
        parts = self._parts
        until = parts.clock() + _PREPARE_SECONDS
        for _ in range(_MOST_PLANS):
            await self._nominate()
            await self._until(self._are_seen, until)
            await parts.sleep(_SETTLE_SECONDS)
            if missing := parts.missing(self.unit):
                raise _EndedError(GangOutcome.CHANGED, missing)
            if not (problem := self._problem()):
                return
            _log.info("gang %s is placed again: %s", self.unit, problem)
            placed = parts.place(self.unit)
            if placed.reason:
                raise _EndedError(GangOutcome.CHANGED, f"{problem}; then {placed.reason}")
            self._decisions = placed.decisions
        raise _EndedError(GangOutcome.CHANGED, "others take the room each time")

    async def _nominate(self) -> None:
        """Write the nominations that are not there, at a time.

        Members that go elsewhere now leave first: room that two are nominated to blocks both.
        """
        writer = self._parts.writer
        due = [held for held in self._members() if self._node(held) != _nominated(held)]
        await all_of(writer.withdraw(held) for held in due if _nominated(held))
        await all_of(writer.nominate(held, self._node(held)) for held in due if self._node(held))

    async def _release(self, *, is_begun: bool) -> None:
        """Release all members; once one is, the others follow, until the time of the gang is over.

        Raises:
            _EndedError: none could be released.
        """
        parts = self._parts
        until = parts.clock() + self.unit.timeout_seconds
        while left := self._still_held():
            for held in left:
                self._write(held)
            if not is_begun and not self._is_any_released():
                self._check_failures()
            if parts.clock() >= until:
                if is_begun or self._is_any_released():
                    return  # too few are bound: that is seen later
                raise _EndedError(GangOutcome.UNREACHABLE, "no member could be released in time")
            await parts.sleep(_LOOK_SECONDS)

    def _write(self, held: HeldPod) -> None:
        """Start the release of a member that is not under way."""
        parts, decided = self._parts, self._parts.decided
        is_due = parts.clock() >= self._write_at.get(held.key, 0.0)
        if held.key in decided or not is_due or not decided.may_try(held):
            return
        self._write_at[held.key] = parts.clock() + _WRITE_AGAIN_SECONDS
        decision = self._decisions[held.key]
        parts.state.nominate(held.key, decision.node_name)
        # Whoever was prepared a moment ago has room for certain.
        is_doubtful = decision.node_name and (self._is_begun or held.key in self._written)
        if is_doubtful and not would_stay(parts.state.view(), decision.node_name, held.pod):
            parts.state.nominate(held.key, "")
            decision = ReleaseDecision(reason="its gang runs, and others took its room")
        annotations = {**decision.annotations, GANG_RELEASED_ANNOTATION: self._moment}
        decision = replace(decision, annotations=annotations)
        self._written[held.key] = decided.reserve(held, decision)

    def _is_any_released(self) -> bool:
        """Return whether a member is released, or may be."""
        return any(each.is_released or each.is_counted for each in self._written.values())

    def _check_failures(self) -> None:
        """End the release if a member could not be released while none was.

        Raises:
            _EndedError: so it is.
        """
        if any(each.is_writing for each in self._written.values()):
            return
        for each in self._written.values():
            if each.failure is not None and each.failure in _OUTCOMES:
                message = f"member `{each.held.key}` could not be released"
                raise _EndedError(_OUTCOMES[each.failure], message)
        self._members()

    async def _until(self, is_so: Callable[[], bool], until: float) -> None:
        while not is_so():
            if self._parts.clock() >= until:
                message = f"the nominations are not seen within {_PREPARE_SECONDS:g} s"
                raise _EndedError(GangOutcome.UNREACHABLE, message)
            await self._parts.sleep(_LOOK_SECONDS)

    def _are_seen(self) -> bool:
        return all(self._node(held) == _nominated(held) for held in self._members())

    def _problem(self) -> str:
        """Return which member has lost its room, "" if none has."""
        view = self._parts.state.view()
        for held in self._members():
            node_name = self._node(held)
            if node_name and not would_stay(view, node_name, held.pod):
                return f"node `{node_name}` has no room any more for `{held.key}`"
        return ""

    def _node(self, held: HeldPod) -> str:
        """Return the node to nominate for a member, "" for none."""
        return self._decisions[held.key].node_name

    def _members(self) -> list[HeldPod]:
        """Return all members as they are seen now.

        Raises:
            _EndedError: one of them is not held any more.
        """
        found = self._still_held()
        if len(found) < len(self.unit.members):
            keys = {held.key for held in found}
            gone = next(held.key for held in self.unit.members if held.key not in keys)
            raise _EndedError(GangOutcome.CHANGED, f"member `{gone}` is not held any more")
        return found

    def _still_held(self) -> list[HeldPod]:
        """Return the members that are held, as they are seen now."""
        seen = ((held, self._parts.held.get(held.key)) for held in self.unit.members)
        return [now for held, now in seen if now is not None and now.pod.uid == held.pod.uid]


def _nominated(held: HeldPod) -> str:
    return held.pod.nominated_node_name
